"""Reproduces the published MNIST-1D test accuracies by training for real.

Final accuracy of the last weights on the `report` split, never the best one seen, as the mean over three seeds.
The same by hand, for one model: fairtrial launch classify --model gru --steps 3000 --seeds 3
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.figures import Figure, within
from fairtrial import ExecutionPolicy, Study, launch
from fairtrial.core.runs import Run, Status

TITLE = "MNIST-1D accuracies"
SEEDS = 3
TOLERANCE = 3
METRIC = "report_accuracy"
PUBLISHED = {"linear": 32, "mlp": 68, "cnn": 94, "gru": 91}
SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {"model": "linear", "steps": 2000},
    "mlp": {"model": "mlp", "width": 256, "steps": 3000},
    "cnn": {"model": "cnn", "steps": 3000},
    "gru": {"model": "gru", "steps": 3000},
}


def measure(folder: Path) -> list[Figure]:
    study = Study.model_validate(
        {
            "study": "accuracies",
            "recipe": "classify",
            "options": {"data": "mnist1d", "learning_rate": 1e-2},
            "variants": SETTINGS,
            "seeds": SEEDS,
            "metric": METRIC,
        }
    )
    done = launch(study, store=folder / "store", terms=ExecutionPolicy(jobs=2))
    return [
        figure
        for variant in SETTINGS
        for figure in _figures(variant, [run for run in done.runs if run.variant == variant])
    ]


def _figures(variant: str, runs: list[Run]) -> list[Figure]:
    """Mean, the runs behind it, and what a run took. A seed that did not complete leaves no mean."""
    finals = {run.seed: 100 * run.final[METRIC] for run in runs if run.status is Status.COMPLETED}
    whole = len(finals) == SEEDS
    shown = ", ".join(f"{seed}: {value:.1f}" for seed, value in finals.items())
    note = f"final, seeds {shown}" if whole else f"only {len(finals)} of {SEEDS} seeds completed"
    values = list(finals.values())
    goal = within(PUBLISHED[variant], TOLERANCE)
    return [
        Figure(f"{variant}, mean", mean(values) if whole else None, "%", samples=len(values), goal=goal, note=note),
        Figure(f"{variant}, standard deviation", stdev(values) if whole else None, "points", samples=len(values)),
        Figure(f"{variant}, CPU per run", _cpu(runs) if whole else None, "s", samples=len(values)),
    ]


def _cpu(runs: list[Run]) -> float:
    return mean(float(run.metadata["timings"]["cpu_s"]) for run in runs)
