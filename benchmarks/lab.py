"""The laboratory's default commands: how long they take, whether their trainings have settled, what stacks change.

Times are of the commands as a person types them, in an empty store, teacher included. Settled: every default training
has at least 2,000 steps; the same with 6,000 must end within 2 points of it. Stacks: every run of the temperature
sweep is made a second time with a process to itself, and all its series are compared bit by bit.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean

from benchmarks.figures import Figure, at_least, at_most, exactly
from benchmarks.measure import in_a_process
from fairtrial import LabTerms, Study, alpha_sweep, compare, launch, temperature_sweep
from fairtrial.api.launch import LaunchTerms
from fairtrial.core.options import parse_options
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Status
from fairtrial.record.series import read_series
from fairtrial.record.store import Store

TITLE = "The laboratory"
SWEEP_S, COMPARE_S = 90, 150
STEPS, LONG = 2000, 6000
POINTS = 2
SEEDS = 3
METRIC = "report_accuracy"
VARIANTS: dict[str, dict[str, dict[str, object]]] = {
    "temperature": {f"temperature {1 + n / 2:g}": {"temperature": 1 + n / 2} for n in range(15)},
    "alpha": {f"alpha {n / 10:g}": {"alpha": n / 10} for n in range(11)},
    "compare": {
        name: {"strategy": name, "student": "cnn"}
        for name in ("none", "kd", "progressive", "attention", "mse", "combined")
    },
}


def measure(folder: Path) -> list[Figure]:
    first, second = folder / "first", folder / "second"
    figures = [
        _time("temperature", first, SWEEP_S, "15 values × 3 seeds, teacher included"),
        _time("compare", second, COMPARE_S, "6 arms × 5 seeds on a cnn, teacher included"),
        _default_steps(),
    ]
    return [*figures, *_set_of(first), *_strategies(second), _alone(first), *_settled(first)]


def _time(command: str, store: Path, goal: float, note: str) -> Figure:
    spent = in_a_process([sys.executable, "-m", "fairtrial", command, "--quiet", "--store", str(store)])
    return Figure(f"fairtrial {command}, wall", spent.wall, "s", goal=at_most(goal), note=note)


def _default_steps() -> Figure:
    options = parse_options(load_recipe("distill").options, {}, where="default").to_dict()
    return Figure("steps of a default training", float(options["steps"]), "steps", goal=at_least(STEPS))


def _set_of(store: Path) -> list[Figure]:
    """What the default sweep says, read back from its runs."""
    found = temperature_sweep(terms=LabTerms(store=store))
    alike = [point.value for point in found.alike or ()]
    rows = [
        Figure(
            f"temperature {point.value:g}, eval accuracy", 100 * (point.accuracy.value or 0), "%",
            samples=point.accuracy.n, note="best" if point is found.best else "in its set" if point.alike else None,
        )
        for point in found.points
    ]  # fmt: skip
    return [*rows, Figure("values that cannot be told apart from the best", float(len(alike)), "of 15")]


def _strategies(store: Path) -> list[Figure]:
    found = compare(terms=LabTerms(runs=5, store=store))
    figures = []
    for each in found.strategies:
        low, high = each.accuracy.low, each.accuracy.high
        note = f"{each.time_s:.1f} s and {1000 * (each.memory_gb or 0):.2f} MB of tensors per run"
        figures.append(
            Figure(
                f"{each.name}, report accuracy", 100 * (each.accuracy.value or 0), "%", 100 * (low or 0),
                100 * (high or 0), each.accuracy.n, note=note,
            )
        )  # fmt: skip
    return figures


def _alone(store: Path) -> Figure:
    """The runs of the default sweep again, each by itself: how many of them have a number that differs."""
    temperature_sweep(terms=LabTerms(store=store, stack=False, study="alone"))
    place = Store(store)
    runs = [entry.name for _, entry in place.directories("alone")]
    differing = [name for name in runs if _series(place, "alone", name) != _series(place, "temperature", name)]
    note = f"of {len(runs)}, all series bit by bit"
    return Figure(
        "runs that differ when made without a stack", float(len(differing)), "runs", goal=exactly(0), note=note
    )


def _series(store: Store, study: str, run: str) -> dict[str, list[tuple[int, str]]]:
    found = read_series(store.paths.run(study, run))
    return {name: [(int(s), float(v).hex()) for s, v in zip(*points, strict=True)] for name, points in found.items()}


def _settled(store: Path) -> list[Figure]:
    """Accuracy after the default number of steps and after three times as many, on the same seeds."""
    alpha_sweep(terms=LabTerms(store=store))
    figures = []
    for name, variants in VARIANTS.items():
        short, long = (_accuracies(name, variants, steps, store) for steps in (STEPS, LONG))
        gaps = {variant: abs(long[variant] - short[variant]) for variant in variants}
        worst = max(gaps, key=lambda variant: gaps[variant])
        note = f"{worst}: {short[worst]:.1f} % after {STEPS}, {long[worst]:.1f} % after {LONG} steps, {SEEDS} seeds"
        figures.append(
            Figure(f"{name}, largest change by training on", gaps[worst], "points", goal=at_most(POINTS), note=note)
        )
        figures += [
            Figure(
                f"{variant}, {LONG} steps",
                long[variant],
                "%",
                samples=SEEDS,
                note=f"{short[variant]:.1f} % after {STEPS}",
            )
            for variant in variants
        ]
    return figures


def _accuracies(name: str, variants: Mapping[str, Mapping[str, object]], steps: int, store: Path) -> dict[str, float]:
    values = {"study": f"{name}-{steps}", "recipe": "distill", "seeds": SEEDS, "metric": METRIC}
    settings = {
        "options": {"steps": steps, "checkpoint_every": 0},
        "variants": {n: dict(v) for n, v in variants.items()},
    }
    done = launch(Study.model_validate({**values, **settings}), store=store, terms=replace(LaunchTerms(), stack=True))
    finals: dict[str, list[float]] = {variant: [] for variant in variants}
    for run in done.runs:
        if run.status is Status.COMPLETED:
            finals[run.variant].append(100 * float(run.final[METRIC]))
    return {variant: mean(found) for variant, found in finals.items()}
