"""Do `best` and `time_to` reward a run for being logged more often? And what do times that never came allow to say?

Two arms of one process, logged at different steps: every verdict is a false one. Beside the rule that is used
stands what each run's own points would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.figures import Figure, at_least, at_most, exactly
from fairtrial.stats.certificate import t_intervals
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.logged_steps import share_steps
from fairtrial.stats.samples import Array
from fairtrial.stats.summaries import Curve, SummaryRule, summarise, windows_of
from fairtrial.stats.times import compare_times, rank_test

TITLE = "Runs that are logged differently, and times that never came"
REPEATS = 2_000
FEWER = 600
"""Repetitions of the cases that are not the one that the goal is about."""
EVENTS = 3_000
BEST, TIME = SummaryRule("best"), SummaryRule("time_to", threshold=2.0)
Logs = Callable[[np.random.Generator], Array]


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001
    return [*_uneven(), *_equal(), *_power(), *_windows(), *_times()]


def _every(step: int, first: int = 0) -> Logs:
    return lambda _: np.arange(first, 1001, step, dtype=float)


def _irregular(mean: float) -> Logs:
    """As at the ends of episodes: at any step, so many apart on average."""

    def logs(rng: np.random.Generator) -> Array:
        steps = np.unique(np.cumsum(rng.exponential(mean, int(4000 / mean))).round())
        return np.append(steps[steps < 1000], 1000.0)

    return logs


def _losing(step: int, share: float) -> Logs:
    def logs(rng: np.random.Generator) -> Array:
        steps = np.arange(0, 1001, step, dtype=float)
        kept = rng.random(len(steps)) >= share
        kept[-1] = True
        return steps[kept]

    return logs


DENSER = "ten times denser in one arm"
CASES: dict[str, tuple[Logs, Logs]] = {
    DENSER: (_every(50), _every(5)),
    "as often, at other steps": (_every(50), _every(50, first=25)),
    "irregular, ten times denser": (_irregular(50), _irregular(5)),
    "a tenth of the lines lost in one arm": (_every(50), _losing(50, 0.1)),
}


def _arm(logs: Logs, n: int, rng: np.random.Generator, rule: SummaryRule, effect: float = 0.0) -> list[Curve]:
    """Runs of one process: noise around a level that differs from run to run; a climb to it for times."""
    found = []
    for _ in range(n):
        steps = logs(rng)
        level = rng.normal(3 if rule is TIME else 0, 0.3) + effect
        climb = 1 - np.exp(-steps / 250) if rule is TIME else 1.0
        found.append((steps, level * climb + rng.standard_normal(len(steps))))
    return found


def _numbers(arms: dict[str, list[Curve]], rule: SummaryRule, *, shared: bool) -> list[Array]:
    windows = windows_of(arms, rule)
    curves = share_steps(arms, windows).curves if shared else arms
    return [
        np.array([summarise(each, rule, windows[name], "max").number for each in curves[name]]) for name in ("a", "b")
    ]


def _told_apart(
    logs: tuple[Logs, Logs], n: int, rule: SummaryRule, repeats: int, *, shared: bool, effect: float = 0.0
) -> float:
    """The share of studies with a verdict."""
    rng = np.random.default_rng([n, len(rule.type)])
    studies = []
    for _ in range(repeats):
        arms = {"a": _arm(logs[0], n, rng, rule), "b": _arm(logs[1], n, rng, rule, effect)}
        studies.append(_numbers(arms, rule, shared=shared))
    both = np.array(studies).transpose(1, 0, 2)
    complete = np.isfinite(both).all(axis=(0, 2))
    low, high = t_intervals(both[0][complete], both[1][complete], paired=False, alpha=0.05)
    return float(((low > 0) | (high < 0)).mean())


def _percent(name: str, share: float, repeats: int, goal: object = None) -> Figure:
    error = 196 * float(np.sqrt(share * (1 - share) / repeats))
    return Figure(name, 100 * share, "%", 100 * share - error, 100 * share + error, repeats, goal)  # type: ignore[arg-type]


def _slack(share: float, repeats: int) -> float:
    """Three standard errors of a simulated share, in percent."""
    return 300 * float(np.sqrt(share * (1 - share) / repeats))


def _uneven() -> Iterator[Figure]:
    for case, logs in CASES.items():
        repeats = REPEATS if case == DENSER else FEWER
        limit = at_most(round(6 + _slack(0.06, repeats), 2))
        for rule in (BEST, TIME):
            for n in (3, 5, 10):
                share = _told_apart(logs, n, rule, repeats, shared=True)
                yield _percent(f"{rule.type}, {case}, n = {n}: false verdicts", share, repeats, limit)
    for n in (3, 5, 10):
        share = _told_apart(CASES[DENSER], n, BEST, FEWER, shared=False)
        yield _percent(f"best, {DENSER}, n = {n}: false verdicts by each run's own points", share, FEWER)


def _equal() -> Iterator[Figure]:
    """Equal logging, of any number of steps and with runs that stop early: nothing refused, no number changed."""
    rng = np.random.default_rng(3)
    refused = changed = runs = 0
    for _ in range(FEWER):
        steps = np.unique(rng.integers(0, 500, rng.integers(1, 60))).astype(float)
        arms = {
            name: [(steps[:stop], rng.standard_normal(stop)) for stop in _stops(rng, len(steps))] for name in ("a", "b")
        }
        windows = windows_of(arms, BEST)
        found = share_steps(arms, windows)
        refused += found.too_few
        if rng.integers(2):  # also where each run stops by itself
            windows = dict.fromkeys(arms)
        for rule in (BEST, TIME):
            for name, curves in arms.items():
                for before, after in zip(curves, found.curves[name], strict=True):
                    pair = [summarise(each, rule, windows[name], "max") for each in (before, after)]
                    changed += pair[0] != pair[1]
                    runs += 1
    yield Figure("equal logging: refused", refused, "studies", samples=FEWER, goal=exactly(0))
    yield Figure("equal logging: numbers that changed", changed, "runs", samples=runs, goal=exactly(0))


def _stops(rng: np.random.Generator, steps: int) -> list[int]:
    return [steps] * 4 if rng.integers(2) else [steps, steps, steps, max(1, steps - 1)]


def _power() -> Iterator[Figure]:
    """A real difference of 1.5 standard deviations of a run's best value, equally logged and not."""
    sparse, dense = CASES[DENSER]
    rng = np.random.default_rng(4)
    arms = {"a": _arm(sparse, 2000, rng, BEST), "b": _arm(sparse, 2, rng, BEST)}
    effect = 1.5 * float(_numbers(arms, BEST, shared=True)[0].std(ddof=1))
    for n in (5, 8, 15):
        equal = _told_apart((sparse, sparse), n, BEST, FEWER, shared=True, effect=effect)
        uneven = _told_apart((sparse, dense), n, BEST, FEWER, shared=True, effect=effect)
        yield _percent(f"best, equal logging, n = {n}, d = 1.5: correct verdicts", equal, FEWER)
        goal = at_least(round(100 * equal - 2**0.5 * _slack(equal, FEWER), 2))
        yield _percent(f"best, {DENSER}, n = {n}, d = 1.5: correct verdicts", uneven, FEWER, goal)


def _windows() -> Iterator[Figure]:
    """`--summary.window 0:1000` on a thousand steps, counted from 0 or from 1, logged every so often."""
    lost = runs = 0
    for kind in ("auc", "last", "best", "slope"):
        for first in (0, 1):
            for every in (1, 7, 10):
                steps = np.arange(first, 1000 + first, every, dtype=float)
                rule = SummaryRule(kind, window=(0.0, 1000.0))
                arms = {name: [(steps, steps)] * 5 for name in ("a", "b")}
                windows = windows_of(arms, rule)
                numbers = [summarise(each, rule, windows[name], "max") for name in arms for each in arms[name]]
                lost += sum(number.value is None for number in numbers)
                runs += len(numbers)
    yield Figure("window 0:1000 of a thousand steps: runs lost", lost, "runs", samples=runs, goal=exactly(0))


def _times() -> Iterator[Figure]:
    rng = np.random.default_rng(5)
    worst = max(_off_by(rng) for _ in range(200))
    yield Figure("exact p of tied times against all deals, largest gap", worst, "", samples=200, goal=at_most(1e-12))
    for n in (3, 5, 8, 15):
        drawn = rng.integers(1, 8, (EVENTS, 2, n)).astype(float)
        drawn[rng.random(drawn.shape) < 0.33] = np.inf
        own = _verdicts(drawn)
        normal = float(np.mean([_normal_p(*arms) <= 0.05 for arms in drawn]))
        limit = at_most(round(5 + _slack(0.05, EVENTS), 2))
        yield _percent(f"times, a third never came, n = {n}: false verdicts", own, EVENTS, limit)
        yield _percent(f"times, a third never came, n = {n}: false verdicts by the normal limit", normal, EVENTS)
    for n in (5, 8, 15):
        drawn = rng.normal(0, 1, (EVENTS, 2, n)) + np.array([[1.5], [0.0]])
        drawn = np.where(drawn > 1.5, np.inf, drawn + 10)
        yield _percent(f"times, sooner by 1.5 sd, censored, n = {n}: correct verdicts", _verdicts(drawn), EVENTS)


def _verdicts(studies: Array) -> float:
    config = ComparisonConfig(False)
    found = [compare_times(a, b, 100.0, config, names=("a", "b")).verdict != "inconclusive" for a, b in studies]
    return float(np.mean(found))


def _normal_p(control: Array, candidate: Array) -> float:
    late = [np.where(np.isfinite(each), each, 99.0) for each in (control, candidate)]
    if len(np.unique(late)) < 2:
        return 1.0
    return float(stats.mannwhitneyu(*late, method="asymptotic").pvalue)


def _off_by(rng: np.random.Generator) -> float:
    """How far the two one-sided p-values are from those of all deals, one after another."""
    control, candidate = (np.where(rng.random(k) < 0.3, np.inf, rng.integers(1, 6, k)) for k in rng.integers(2, 7, 2))
    ranks = stats.rankdata(np.concatenate([control, candidate]))
    seen = ranks[len(control) :].sum()
    sums = np.array([sum(deal) for deal in combinations(ranks, len(candidate))])
    found = rank_test(control, candidate)
    return max(abs(found.sooner - float((sums <= seen).mean())), abs(found.later - float((sums >= seen).mean())))
