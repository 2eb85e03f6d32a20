"""Does memory help a policy that cannot see velocities? Fifteen paired seeds, by the command lines of docs/recipes.md.

An mlp and a gru of about 9,000 parameters each learn CartPole with hidden velocities. A run's number is its final
return on 100 report episodes; the verdict and the number of seeds that would have been enough are Fairtrial's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, exactly
from benchmarks.measure import told_by

TITLE = "Memory where velocities are hidden"
SEEDS = 15
STUDY = [
    "launch", "ppo", "--base-run-name", "memory", "--variant", "mlp:architecture=mlp", "--variant",
    "gru:architecture=gru", "--seeds", str(SEEDS), "--hide-velocity", "--parameters", "9000", "--steps", "100",
    "--rollout", "128", "--epochs", "5", "--minibatches", "2", "--learning-rate", "2e-3", "--gae-lambda", "0.95",
    "--eval-every", "10",
]  # fmt: skip
SPREAD = ["variance", "memory:gru", "--metric", "eval_return_mean"]
VERDICT = ["analyze", "memory"]


def measure(folder: Path) -> list[Figure]:
    store = ["--store", str(folder / "store"), "--format", "json"]
    _, spread, analysis = (told_by("fairtrial", *words, *store) for words in (STUDY, SPREAD, VERDICT))
    return [*_of_arms(analysis), *_of_verdict(analysis), *_of_spread(spread)]


def _of_arms(analysis: dict[str, Any]) -> list[Figure]:
    return [
        figure
        for arm in analysis["arms"]
        for figure in (
            Figure(f"{arm['variant']}, return", arm["mean"], "", samples=arm["used"]),
            Figure(f"{arm['variant']}, standard deviation over seeds", arm["sd"], "", samples=arm["used"]),
        )
    ]


def _of_verdict(analysis: dict[str, Any]) -> list[Figure]:
    [comparison] = analysis["comparisons"]
    effect = comparison["effect"]
    return [
        Figure("gru − mlp", effect["value"], "", effect["low"], effect["high"], effect["n"], note=analysis["verdict"]),
        Figure("seeds on which gru is better", sum(value > 0 for value in effect["samples"]), f"of {SEEDS}"),
        Figure("seeds completed", sum(arm["completed"] for arm in analysis["arms"]), "", goal=exactly(2 * SEEDS)),
    ]


def _of_spread(spread: dict[str, Any]) -> list[Figure]:
    """How many seeds of the gru would know the mean height of its curve to within 5 %, and its slope."""
    return [
        Figure(f"seeds needed for gru's {what}", spread[what]["n_min"], "seeds", *spread[what]["n_range"])
        for what in ("auc", "derivative")
    ]
