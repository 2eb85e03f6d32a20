"""Learning rates, tried for a few steps on several seeds: which diverge, which learn, and whether they were applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.api.benchmarking.bench_runs import BATCHES, HiddenRuns
from fairtrial.core.cautions import RATE_NOT_APPLIED, SHORT_RATES
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.core.runs import Status
from fairtrial.core.specs import FIXED_SEEDS
from fairtrial.core.training import LoopEvents
from fairtrial.record.series import read_series
from fairtrial.stats.sweeps import mean_of

SEEDS = 3
TOLERANCE = 0.05
FIRST_BATCHES = 8
SCATTERS = 4
ROUNDING = 1e3 * 2.0**-24
"""Of single precision, a thousandfold: a shorter update is not known to the tolerance."""
LOSS = "train_loss"


@dataclass(frozen=True)
class RateRow:
    """One learning rate. `applied` is what the first update was seen to use; None where weights cannot be seen."""

    rate: float
    applied: float | None
    loss: Estimate
    diverged: int
    runs: int

    @property
    def verified(self) -> bool | None:
        return None if self.applied is None else abs(self.applied / self.rate - 1) <= TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "loss": self.loss.to_dict(), "verified": self.verified}


@dataclass(frozen=True)
class LearningRates:
    rows: Sequence[RateRow]
    steps: int
    cautions: Sequence[FilledCaution]

    @property
    def lowest(self) -> RateRow | None:
        """The rate whose runs, all of them, ended with the lowest loss."""
        sound = [row for row in self.rows if row.diverged == 0 and row.loss.value is not None]
        return min(sound, key=lambda row: row.loss.value or 0.0, default=None)

    def to_dict(self) -> dict[str, Any]:
        lowest = self.lowest
        return {
            "steps": self.steps,
            "rows": [row.to_dict() for row in self.rows],
            "lowest_loss": None if lowest is None else lowest.rate,
        }


def try_learning_rates(runs: HiddenRuns) -> LearningRates:
    """The same seeds for every rate."""
    terms = runs.terms
    steps = min(terms.steps, getattr(runs.resolved, "steps", BATCHES))
    applied = _applied(runs)
    rows = []
    for number, rate in enumerate(terms.learning_rates):
        losses = []
        for place, seed in enumerate(FIXED_SEEDS[:SEEDS]):
            terms.show("learning rates", number * SEEDS + place, SEEDS * len(terms.learning_rates))
            losses.append(_loss_after(runs, rate, seed, steps))
        sound = [loss for loss in losses if loss is not None]
        loss = mean_of(np.array(sound), terms.alpha)
        rows.append(RateRow(rate, applied.get(rate), loss, SEEDS - len(sound), SEEDS))
    return LearningRates(rows, steps, _cautions(runs, rows, steps))


def _cautions(runs: HiddenRuns, rows: Sequence[RateRow], steps: int) -> list[FilledCaution]:
    wrong = [f"{row.rate:g}" for row in rows if row.verified is False]
    messages: list[FilledCaution] = [RATE_NOT_APPLIED.fill(rates=", ".join(wrong))] if wrong else []
    return [*messages, SHORT_RATES.fill(steps=steps, recipe=runs.recipe.name)]


def _loss_after(runs: HiddenRuns, rate: float, seed: int, steps: int) -> float | None:
    """Over the last quarter of what was logged, for a single batch says little; None for a run that diverged.

    A run has diverged when its loss is not finite, or lies clearly above where it began: further than batches scatter.
    """
    with runs.briefly({"learning_rate": rate}, seed=seed) as run:
        first = run.first_losses(FIRST_BATCHES)
        if not first and run.ended is None:
            raise UserError(f"recipe '{runs.recipe.name}' gives no loss to judge a learning rate by")
        run.advance(steps)
        if run.ended is not None and run.ended.status is Status.DIVERGED:
            return None
        runs.require(run.ended)
        logged = read_series(run.paths)[LOSS][1]
        last = float(np.mean(logged[-max(1, len(logged) // 4) :]))
    return last if last <= np.mean(first) + SCATTERS * np.std(first) else None


def _applied(runs: HiddenRuns) -> dict[float, float]:
    """The rate that each first update was made with, judged by its length.

    A first update is proportional to the rate, whatever the optimizer: so it is held against that of the recipe's own
    rate. An update that is lost in the rounding of the weights tells nothing.
    """
    own = float(getattr(runs.resolved, "learning_rate"))  # noqa: B009 — only recipes that have it come here
    lengths = {rate: _first_update(runs, rate) for rate in {*runs.terms.learning_rates, own}}
    known = {rate: length for rate, length in lengths.items() if length}
    if own not in known:
        return {}
    return {rate: length * own / known[own] for rate, length in known.items()}


def _first_update(runs: HiddenRuns, rate: float) -> float | None:
    """How far the first step moves the weights; None where they cannot be seen, or where rounding drowns it."""
    with runs.briefly({"learning_rate": rate}) as run:
        if not hasattr(run.trainable, "tensor_groups"):
            return None
        before = [each.detach().clone() for each in run.trainable.tensor_groups()["parameters"]]
        run.trainable.step(1, LoopEvents())
        after = run.trainable.tensor_groups()["parameters"]
        moved = sum(float((b - a).double().square().sum()) for a, b in zip(before, after, strict=True)) ** 0.5
        size = sum(float(each.double().square().sum()) for each in before) ** 0.5
    return moved if moved > ROUNDING * size else None
