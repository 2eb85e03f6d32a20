"""Learning rates, tried for a few steps on several seeds: which diverge, which learn, and whether they were applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from fairtrial.analyse.sweeps import mean_of
from fairtrial.api.bench_runs import BATCHES, HiddenRuns
from fairtrial.core.cautions import RATE_NOT_APPLIED, SHORT_RATES
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.core.runs import Status
from fairtrial.core.specs import FIXED_SEEDS
from fairtrial.core.training import Watch
from fairtrial.core.words import counted
from fairtrial.job import RunAtHand
from fairtrial.record.series import read_series

SEEDS = 3
TOLERANCE = 0.05
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
            "steps": self.steps, "rows": [row.to_dict() for row in self.rows],
            "lowest_loss": None if lowest is None else lowest.rate,
        }  # fmt: skip


def try_learning_rates(runs: HiddenRuns) -> LearningRates:
    """The same seeds for every rate."""
    terms = runs.terms
    steps = min(terms.batches or BATCHES, getattr(runs.resolved, "steps", BATCHES))
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
    told: list[FilledCaution] = [RATE_NOT_APPLIED.fill(rates=", ".join(wrong))] if wrong else []
    return [*told, SHORT_RATES.fill(steps=steps, recipe=runs.recipe.name)]


def _loss_after(runs: HiddenRuns, rate: float, seed: int, steps: int) -> float | None:
    """Over the last quarter of what was logged, for a single batch says little; None for a run that diverged.

    A run has diverged when its loss is not finite, and when it ended above the loss that it began with.
    """
    run = runs.open({"learning_rate": rate}, seed=seed)
    runs.require(run.ended)
    kept = run.trainable.state()
    first = float(run.trainable.step(1, Watch())["loss"])  # of the weights as they are before the step
    run.trainable.load_state(kept)
    run.advance(steps)
    if run.ended is not None and run.ended.status is Status.DIVERGED:
        return None
    runs.require(run.ended)
    logged = read_series(run.paths).get(LOSS)
    if logged is None:
        raise UserError(
            f"too few steps: no loss was logged in {counted(steps, 'step')}", hint="Give more --max-batches."
        )
    last = float(np.mean(logged[1][-max(1, len(logged[1]) // 4) :]))
    return last if last <= first else None


def _applied(runs: HiddenRuns) -> dict[float, float]:
    """The rate that each first update was made with, judged by its length.

    A first update is proportional to the rate, whatever the optimizer: so the lengths of all, divided by their rates,
    must agree with each other and with that of the recipe's own rate.
    """
    own = float(getattr(runs.resolved, "learning_rate"))  # noqa: B009 — only recipes that have it come here
    lengths = {rate: _first_update(runs.open({"learning_rate": rate})) for rate in {*runs.terms.learning_rates, own}}
    known = {rate: length for rate, length in lengths.items() if length}
    if len(known) < 2:
        return {}
    scale = median(length / rate for rate, length in known.items())
    return {rate: length / scale for rate, length in known.items()}


def _first_update(run: RunAtHand) -> float | None:
    """How far the first step moves the weights; the step is taken back."""
    if run.ended is not None or not hasattr(run.trainable, "tensor_groups"):
        return None
    kept = run.trainable.state()
    before = [each.detach().clone() for each in run.trainable.tensor_groups()["parameters"]]
    run.trainable.step(1, Watch())
    after = run.trainable.tensor_groups()["parameters"]
    moved = sum(float((b - a).double().square().sum()) for a, b in zip(before, after, strict=True))
    run.trainable.load_state(kept)
    return float(moved**0.5)
