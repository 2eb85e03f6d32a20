"""Inference by run over tasks: false verdicts, coverage, power and time.

Runs share a part r of their variance across tasks. Equal arms must rarely be told apart, however large r is; without
shared luck little power may be lost against the stratified bootstrap; what is printed about power must be so.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special
from tests.stats.task_studies import draw_arms, many_run_values

from benchmarks.figures import Figure, Goal, at_least, at_most, exactly, less_than, within
from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.analyze import analyze
from fairtrial.stats.aggregate import probability_of_improvement, statistic_named
from fairtrial.stats.certificate import t_intervals
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.jackknife import fewest_runs, run_values
from fairtrial.stats.task_grid import lay_out
from fairtrial.stats.tasks import ENOUGH_FOR_MEDIAN, TaskConfig, compare_tasks, stratified_difference

TITLE = "Inference by run over tasks"
Array = NDArray[np.float64]
REPEATS = 2_000
STUDIES = 250
RUNS, LUCK = (3, 5, 10), (0.0, 0.1, 0.3, 0.6)
CELLS = [
    ("mean", 3), ("mean", 6), ("mean", 26), ("iqm", 26), ("trimmed", 3), ("trimmed", 6), ("trimmed", 26),
    ("median", 3), ("median", 6), ("median", 26), ("olympic", 6), ("olympic", 26), ("optimality_gap", 26),
]  # fmt: skip
COVERED = [
    ("mean", 3, 3), ("mean", 6, 3), ("mean", 26, 3), ("iqm", 26, 3), ("trimmed", 6, 3), ("trimmed", 26, 3),
    ("olympic", 26, 4), ("optimality_gap", 26, 3), ("median", 6, 10), ("median", 26, 10), ("median", 26, 3),
]  # fmt: skip
"""Statistic, tasks and the fewest runs."""
WAYS = {True: "paired", False: "unpaired"}


def measure(folder: Path) -> list[Figure]:
    return [
        *_false_verdicts(), *_coverage(), *_own_runs(), *_improvement(), *_bootstrap(), *_power(), *_detectable(),
        *_times(folder),
    ]  # fmt: skip


def _percent(name: str, share: float, count: int, goal: Goal | None = None, note: str | None = None) -> Figure:
    half = 1.96 * math.sqrt(max(share * (1 - share), 1e-9) / count)
    return Figure(name, 100 * share, "%", 100 * (share - half), 100 * (share + half), count, goal, note)


def _slack(share: float, count: int) -> float:
    return 300 * math.sqrt(share * (1 - share) / count)


def _wrong(limits: tuple[Array, Array], truth: float = 0.0) -> float:
    return float(((limits[0] > truth) | (limits[1] < truth)).mean())


def _false_verdicts() -> Iterator[Figure]:
    """Equal arms: the most false verdicts over 3, 5, 10 runs and r = 0, .1, .3, .6."""
    for statistic, tasks in CELLS:
        found: dict[tuple[bool, int, float], float] = {}
        for runs in (runs for runs in RUNS if runs >= fewest_runs(statistic)):
            for shared in LUCK:
                arms = draw_arms(np.random.default_rng([1, tasks, runs]), REPEATS, runs, tasks, shared=shared)
                values = [many_run_values(arm, statistic) for arm in arms]
                for paired in WAYS:
                    found[paired, runs, shared] = _wrong(t_intervals(*values, paired=paired, alpha=0.05))
        for paired, way in WAYS.items():
            where = max((key for key in found if key[0] is paired), key=lambda key: found[key])
            yield _percent(
                f"{statistic} over {tasks} tasks, {way}: false verdicts, most", found[where], REPEATS,
                at_most(6 + _slack(0.06, REPEATS)), f"{where[1]} runs, r = {where[2]}",
            )  # fmt: skip


def _coverage() -> Iterator[Figure]:
    """Effects that vary over tasks: the least coverage."""
    for statistic, tasks, fewest in COVERED:
        least: dict[bool, tuple[float, str]] = {}
        effects = np.random.default_rng(tasks).normal(0.5, 0.5, tasks)
        for runs in (runs for runs in RUNS if runs >= fewest):
            for shared in (0.0, 0.3, 0.6):
                control, candidate = draw_arms(
                    np.random.default_rng([2, tasks, runs]), REPEATS, runs, tasks, shared=shared
                )
                candidate = candidate + effects
                of = statistic_named(statistic)
                truth = float(of(candidate.reshape(-1, tasks)) - of(control.reshape(-1, tasks)))
                values = [many_run_values(arm, statistic) for arm in (control, candidate)]
                for paired in WAYS:
                    share = 1 - _wrong(t_intervals(*values, paired=paired, alpha=0.05), truth)
                    least[paired] = min(least.get(paired, (2.0, "")), (share, f"{runs} runs, r = {shared}"))
        for paired, way in WAYS.items():
            cautioned = statistic == "median" and fewest < ENOUGH_FOR_MEDIAN
            goal = None if cautioned else at_least(93 - _slack(0.93, REPEATS))
            name = f"{statistic} over {tasks} tasks, from {fewest} runs on, {way}: coverage, least"
            told = least[paired][1] + (": carries a caution" if cautioned else "")
            yield _percent(name, least[paired][0], REPEATS, goal, told)


def _own_runs() -> Iterator[Figure]:
    """Tasks with runs of their own: variances add, Satterthwaite's degrees of freedom."""
    for tasks, paired in [(6, True), (26, False), (55, False)]:
        rng = np.random.default_rng([3, tasks])
        levels, noise = rng.normal(0, 2, tasks), rng.gamma(4.0, 0.25, tasks)
        wrong = 0
        for _ in range(2 * STUDIES):
            control, candidate = (
                [levels[t] + noise[t] * rng.standard_normal((3 + t % 3, 1)) for t in range(tasks)] for _ in range(2)
            )
            found = compare_tasks(control, candidate, ComparisonConfig(paired), TaskConfig(), names=("a", "b"))
            wrong += bool(found.significant)
        share = wrong / (2 * STUDIES)
        name = f"seeds by task, {tasks} tasks × 3 to 5 runs, {WAYS[paired]}: false verdicts"
        yield _percent(name, share, 2 * STUDIES, at_most(6 + _slack(0.06, 2 * STUDIES)))


def _improvement() -> Iterator[Figure]:
    """Its interval is shown with every comparison; near 0 and 1, below 20 runs, it carries a caution."""
    plain = [(3, 5, 0.3, 0.5), (26, 3, 0.6, 1.0), (26, 5, 0.6, 1.5), (26, 10, 0.6, 1.5), (26, 20, 0.6, 2.0)]
    goal = at_least(93 - _slack(0.93, 2 * STUDIES))
    for paired, way in WAYS.items():
        least = min(_improvement_covers(*case, paired=paired) for case in plain)
        yield _percent(f"probability of improvement, {way}: coverage, least", least[0], 2 * STUDIES, goal, least[1])
        near = min(_improvement_covers(26, runs, 0.6, 2.5, paired=paired) for runs in (5, 10))
        name = f"probability of improvement near 1, {way}: coverage, least"
        yield _percent(name, near[0], 2 * STUDIES, None, f"{near[1]}: carries a caution")


def _improvement_covers(tasks: int, runs: int, shared: float, effect: float, *, paired: bool) -> tuple[float, str]:
    rng, hits, known = np.random.default_rng([4, tasks, runs]), 0, 0
    truth = float(special.ndtr(effect / math.sqrt(2)))
    for _ in range(2 * STUDIES):
        luck, rest = rng.standard_normal((2, runs, 1)), rng.standard_normal((2, runs, tasks))
        control, candidate = math.sqrt(shared) * luck + math.sqrt(1 - shared) * rest
        found = probability_of_improvement(control, candidate + effect, paired=paired)
        if found.low is not None and found.high is not None:
            known, hits = known + 1, hits + (found.low <= truth <= found.high)
    return hits / known, f"{tasks} tasks, {runs} runs, r = {shared}, d = {effect}"


def _bootstrap() -> Iterator[Figure]:
    """What the stratified bootstrap, which is shown for comparison only, would have said."""
    for shared in (0.1, 0.3, 0.6):
        arms = draw_arms(np.random.default_rng([5]), 100, 5, 26, shared=shared)
        share = float(np.mean([_excludes_zero(a, b) for a, b in zip(*arms, strict=True)]))
        yield _percent(f"stratified bootstrap, 5 runs × 26 tasks, r = {shared}: false verdicts", share, 100)


def _excludes_zero(control: Array, candidate: Array, *, paired: bool = False) -> bool:
    found = stratified_difference(control, candidate, ComparisonConfig(paired), TaskConfig(resamples=300))
    return found.low is not None and found.high is not None and (found.low > 0 or found.high < 0)


def _power() -> Iterator[Figure]:
    """Without shared luck, 26 tasks, an effect of d standard deviations of a run on every task."""
    for effect, counts in ((1.5, (3, 5, 8, 15)), (0.5, RUNS)):
        for runs in counts:
            control, candidate = draw_arms(np.random.default_rng([6, runs]), 100, runs, 26, shared=0.0)
            candidate = candidate + effect * float(control.std(axis=1, ddof=1).mean())
            values = [many_run_values(arm, "iqm") for arm in (control, candidate)]
            for paired, way in WAYS.items():
                told = [_excludes_zero(a, b, paired=paired) for a, b in zip(control, candidate, strict=True)]
                before, now = float(np.mean(told)), 1 - _below_zero(t_intervals(*values, paired=paired, alpha=0.05))
                note = f"{100 * before:.0f} % before, {100 * now:.0f} % now"
                if runs == 3:
                    note += "; t with two degrees of freedom" if paired else ""
                yield Figure(
                    f"iqm, d = {effect}, {runs} runs, {way}: correct verdicts lost against the stratified bootstrap",
                    100 * (before - now), "points", samples=100,
                    goal=at_most(5) if effect == 1.5 else None, note=note,
                )  # fmt: skip


def _below_zero(limits: tuple[Array, Array]) -> float:
    return float((limits[0] <= 0).mean())


def _detectable() -> Iterator[Figure]:
    """Every study prints a detectable difference; fresh studies then have just that one. How often is it seen?

    The goal is on the average over studies. The power at the average of what they print is another number.
    """
    for runs in (5, 10):
        for paired, way in WAYS.items():
            rng = np.random.default_rng([7, runs])
            control, candidate = draw_arms(rng, STUDIES + REPEATS, runs, 26, shared=0.3)
            shown = np.array(
                [
                    compare_tasks(a, b, ComparisonConfig(paired), TaskConfig(), names=("a", "b")).detectable or math.nan
                    for a, b in zip(control[:STUDIES], candidate[:STUDIES], strict=True)
                ]
            )
            values = [many_run_values(arm[STUDIES:], "iqm") for arm in (control, candidate)]
            own = np.resize(shown, REPEATS)[:, None]  # a shift of all scores shifts the numbers of runs as much
            name = f"iqm, {runs} runs, {way}: power at the detectable difference that each study prints"
            yield _percent(name, _seen(values, own, paired=paired), REPEATS, within(80, 5))
            at_mean = _seen(values, np.full_like(own, shown.mean()), paired=paired)
            yield _percent(f"iqm, {runs} runs, {way}: power at the average of what studies print", at_mean, REPEATS)


def _seen(values: Sequence[Array], shift: Array, *, paired: bool) -> float:
    return 1 - _below_zero(t_intervals(values[0], values[1] + shift, paired=paired, alpha=0.05))


def _times(folder: Path) -> Iterator[Figure]:
    table = np.random.default_rng(8).normal(size=(100, 26))
    other = np.random.default_rng(9).normal(size=(100, 26))
    yield Figure(
        "jackknife, 100 runs × 26 tasks", 1000 * _best(lambda: run_values(table, "iqm")), "ms", goal=less_than(50)
    )
    whole = _best(lambda: compare_tasks(table, other, ComparisonConfig(True), TaskConfig(), names=("a", "b")))
    yield Figure("comparison, 100 runs × 26 tasks", 1000 * whole, "ms", goal=less_than(50))
    path = folder / "published.csv"
    rng = np.random.default_rng(10)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "task", "seed", "score"])
        for number, variant in enumerate("ab"):
            for task in range(55):
                writer.writerows([variant, task, 1000 * task + 10 * s + number, rng.normal()] for s in range(5))
    begun = time.process_time()
    found = analyze(source=path, question=Question(tasks=True, direction="max"))
    yield Figure("analyze, 55 tasks with 5 seeds of their own", time.process_time() - begun, "s", goal=less_than(5))
    left = sum(len(arm.left_out) for arm in found.arms)
    yield Figure("runs left out because other tasks have other seeds", left, "runs", goal=exactly(0))
    ragged = {"a": {"x": {"1": 1.0, "2": 2.0, "3": 3.0}, "y": {"1": 1.0, "2": 2.0}}}
    scored = lay_out(ragged, paired=False).losses("a")[0]
    yield Figure("cells never run that are scored as lost", scored, "cells", goal=exactly(0))


def _best(work: Callable[[], object]) -> float:
    took = []
    for _ in range(5):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return min(took)
