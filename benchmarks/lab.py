"""The laboratory's default commands: how long they take, whether their trainings have settled, what stacks change.

Times are of the commands as a person types them, in an empty store, teacher included. Settled: every default training
has at least 2,000 steps; the same with 6,000 must end within 2 points of it. Stacks: every run of the temperature
sweep is made a second time with a process to itself, and all its series are compared bit by bit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean

from benchmarks.figures import Figure, at_least, at_most, exactly
from benchmarks.measure import in_a_process
from fairtrial import LabConfig, Study, alpha_sweep, compare_strategies, launch, temperature_sweep
from fairtrial.core.options import parse_options
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Status
from fairtrial.core.specs import FIXED_SEEDS
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.record.series import read_series
from fairtrial.record.store import Store
from fairtrial.record.studies import load_plan

TITLE = "The laboratory"
SWEEP_S, COMPARE_S = 90, 150
STEPS, LONG = 2000, 6000
POINTS = 2
SEEDS = 3
METRIC = "report_accuracy"


def measure(folder: Path) -> list[Figure]:
    first, second = folder / "first", folder / "second"
    figures = [
        _time("temperature", first, SWEEP_S, "15 values × 3 seeds, teacher included"),
        _time("compare", second, COMPARE_S, "6 arms × 5 seeds on a cnn, teacher included"),
        _steps("temperature", first),
        _steps("compare", second),
    ]
    return [*figures, *_set_of(first), *_strategies(second), _alone(first), *_settled(first, second)]


def _time(command: str, store: Path, goal: float, note: str) -> Figure:
    spent = in_a_process([sys.executable, "-m", "fairtrial", command, "--quiet", "--store", str(store)])
    return Figure(f"fairtrial {command}, wall", spent.wall, "s", goal=at_most(goal), note=note)


def _steps(study: str, store: Path) -> Figure:
    return Figure(f"{study}, steps of a training", float(_planned(store, study)), "steps", goal=at_least(STEPS))


def _planned(store: Path, study: str) -> int:
    """How many steps each training of a study has: its own setting, or the recipe's default."""
    plan = load_plan(Store(store), study) or {}
    return int(parse_options(load_recipe("distill").options, plan["options"], where=study).to_dict()["steps"])


def _set_of(store: Path) -> list[Figure]:
    """What the default sweep says, read back from its runs."""
    found = temperature_sweep(terms=LabConfig(store=store))
    alike = [point.value for point in found.alike or ()]
    rows = [
        Figure(
            f"temperature {point.value:g}, eval accuracy", percent(point.accuracy.value), "%",
            samples=point.accuracy.n, note="best" if point is found.best else "in its set" if point.alike else None,
        )
        for point in found.points
    ]  # fmt: skip
    return [*rows, Figure("values that cannot be told apart from the best", float(len(alike)), "of 15")]


def _strategies(store: Path) -> list[Figure]:
    found = compare_strategies(terms=LabConfig(runs=5, store=store))
    figures = []
    for each in found.strategies:
        low, high = each.accuracy.low, each.accuracy.high
        cost = (each.time_s, each.memory_gb)
        note = (
            None
            if None in cost
            else f"{each.time_s:.1f} s and {1000 * (each.memory_gb or 0):.2f} MB of tensors per run"
        )
        figures.append(
            Figure(
                f"{each.name}, report accuracy", percent(each.accuracy.value), "%", percent(low),
                percent(high), each.accuracy.n, note=note,
            )
        )  # fmt: skip
    return figures


def percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _alone(store: Path) -> Figure:
    """The runs of the default sweep again, each by itself: how many of them have a number that differs."""
    temperature_sweep(terms=LabConfig(store=store, stack=False, study="alone"))
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


def _settled(first: Path, second: Path) -> list[Figure]:
    """Accuracy after the default number of steps and after many more, on the same seeds."""
    alpha_sweep(terms=LabConfig(store=first))
    figures = []
    for name, store in (("temperature", first), ("alpha", first), ("compare", second)):
        short, steps = _accuracies(store, name), _planned(store, name)
        _train_on(store, name)
        long = _accuracies(store, f"{name}-{LONG}")
        gaps = {variant: abs(long[variant] - short[variant]) for variant in short}
        worst = max(gaps, key=lambda variant: gaps[variant])
        note = f"{worst}: {short[worst]:.1f} % after {steps}, {long[worst]:.1f} % after {LONG} steps, {SEEDS} seeds"
        goal = at_most(POINTS)
        figures.append(Figure(f"{name}, largest change by training on", gaps[worst], "points", goal=goal, note=note))
        figures += [
            Figure(f"{variant}, {LONG} steps", long[variant], "%", note=f"{short[variant]:.1f} % after {steps}")
            for variant in short
        ]
    return figures


def _train_on(store: Path, study: str) -> None:
    """The variants of a default study again, with more steps and nothing else changed."""
    plan = dict(load_plan(Store(store), study) or {})
    options = {**plan["options"], "steps": LONG, "checkpoint_every": 0}
    longer = {"study": f"{study}-{LONG}", "recipe": "distill", "variants": plan["variants"], "options": options}
    launch(Study.model_validate({**longer, "seeds": SEEDS}), store=store, terms=ExecutionPolicy(stack=True))


def _accuracies(store: Path, study: str) -> dict[str, float]:
    """Mean report accuracy of every variant over the first seeds."""
    place = Store(store)
    runs = [run for _, entry in place.directories(study) if (run := place.run(study, entry.name))]
    finals: dict[str, list[float]] = {}
    for run in runs:
        if run.status is Status.COMPLETED and run.seed in FIXED_SEEDS[:SEEDS]:
            finals.setdefault(run.variant, []).append(100 * float(run.final[METRIC]))
    return {variant: mean(found) for variant, found in finals.items()}
