"""Try learning rates for a few steps on several seeds: which diverge, which learn, and whether each was applied."""

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
"""1000 times the rounding error of single precision: a smaller update is not known to within TOLERANCE."""
LOSS = "train_loss"


@dataclass(frozen=True)
class RateRow:
    """One learning rate. `applied` is estimated from the first update; None if the weights are not accessible."""

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
        """The rate with the lowest final loss, among rates with no diverged run."""
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
    """Train a few steps at each rate, on the same seeds."""
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
    """Return the mean of the last quarter of the logged losses, less noisy than one batch; None if the run diverged.

    A run diverged if its loss is not finite, or ends above the mean of the first batches by more than SCATTERS of their
    standard deviations.
    """
    with runs.briefly({"learning_rate": rate}, seed=seed) as run:
        first = run.first_losses(FIRST_BATCHES)
        if not first and run.ended is None:
            raise UserError(f"recipe '{runs.recipe.name}' reports no loss, so learning rates cannot be judged")
        run.advance(steps)
        if run.ended is not None and run.ended.status is Status.DIVERGED:
            return None
        runs.require(run.ended)
        logged = read_series(run.paths)[LOSS][1]
        last = float(np.mean(logged[-max(1, len(logged) // 4) :]))
    return last if last <= np.mean(first) + SCATTERS * np.std(first) else None


def _applied(runs: HiddenRuns) -> dict[float, float]:
    """Estimate the learning rate that each first update used, from the length of the update.

    With any optimizer the first update is proportional to the rate, so its length is compared with that at the recipe's
    own rate. An update within the rounding error of the weights gives no estimate.
    """
    own = float(getattr(runs.resolved, "learning_rate"))  # noqa: B009 — callers checked that the recipe has it
    lengths = {rate: _first_update(runs, rate) for rate in {*runs.terms.learning_rates, own}}
    known = {rate: length for rate, length in lengths.items() if length}
    if own not in known:
        return {}
    return {rate: length * own / known[own] for rate, length in known.items()}


def _first_update(runs: HiddenRuns, rate: float) -> float | None:
    """Return the length of the first update; None if the weights are not accessible or rounding hides it."""
    with runs.briefly({"learning_rate": rate}) as run:
        if not hasattr(run.trainable, "tensor_groups"):
            return None
        before = [each.detach().clone() for each in run.trainable.tensor_groups()["parameters"]]
        run.trainable.step(1, LoopEvents())
        after = run.trainable.tensor_groups()["parameters"]
        moved = sum(float((b - a).double().square().sum()) for a, b in zip(before, after, strict=True)) ** 0.5
        size = sum(float(each.double().square().sum()) for each in before) ** 0.5
    return moved if moved > ROUNDING * size else None
