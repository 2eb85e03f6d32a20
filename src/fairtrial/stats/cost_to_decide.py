"""Predict how many pairs a sequential study will need, by simulating its stopping rule on future data.

Before the first run, the caller gives the true mean to simulate: no difference, the SESOI, or a pilot's result. While
the study runs, the mean and the standard deviation are drawn from their posterior given the pairs so far, and the
simulation continues from those pairs. Treating a pilot's standard deviation as the true one would be too optimistic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fairtrial.core.findings import Verdict
from fairtrial.stats.deciding import SequentialPlan
from fairtrial.stats.samples import Array
from fairtrial.stats.sequential import GREATER, LESS, TWO_SIDED, sign_flip_paths

PATHS = 2_000
ENUMERATED = 10
"""Sign vectors of this many pairs are enough for predictions: 40 µs per simulated path instead of 1 ms."""
FEWEST_FOR_SPREAD = 2


@dataclass(frozen=True)
class Prediction:
    """The predicted course of a study, by number of pairs."""

    looks: Sequence[int]
    decided: Sequence[float]
    """The probability that the study ended at or before each look with better, worse or equivalent."""
    verdicts: Mapping[Verdict, float]
    expected_pairs: float

    def pairs_for(self, probability: float) -> int | None:
        """Return the smallest number of pairs that decides with this probability; None if N pairs are too few."""
        reached = (n for n, share in zip(self.looks, self.decided, strict=True) if share >= probability)
        return next(reached, None)


def predict_from_truth(plan: SequentialPlan, mean: float, sd: float, rng: np.random.Generator) -> Prediction:
    """Predict before the first run, with normal gains of this mean and standard deviation."""
    return _played(plan, rng.normal(mean, sd, (PATHS, plan.pairs)))


def predict_from_pilot(
    plan: SequentialPlan, mean: float, pilot: Sequence[float] | Array, rng: np.random.Generator
) -> Prediction:
    """Predict before the first run, with a standard deviation drawn from its posterior given earlier pairs."""
    sds = _possible_sds(np.asarray(pilot, dtype=np.float64), rng)
    return _played(plan, mean + sds * rng.standard_normal((PATHS, plan.pairs)))


def predict_from_here(plan: SequentialPlan, gains: Sequence[float] | Array, rng: np.random.Generator) -> Prediction:
    """Predict while the study runs: keep the pairs so far and draw the remaining ones from the posterior predictive."""
    values = np.asarray(gains, dtype=np.float64)
    sds = _possible_sds(values, rng)
    means = values.mean() + sds * rng.standard_normal((PATHS, 1)) / math.sqrt(len(values))
    left = plan.pairs - len(values)
    future = means + sds * rng.standard_normal((PATHS, left))
    return _played(plan, np.concatenate([np.tile(values, (PATHS, 1)), future], axis=1))


def _possible_sds(values: Array, rng: np.random.Generator) -> Array:
    """Draw standard deviations from the posterior given these values, one row per path."""
    if len(values) < FEWEST_FOR_SPREAD:
        raise ValueError(f"the standard deviation of {len(values)} value(s) is undefined")
    freedom = len(values) - 1
    sds: Array = np.sqrt(freedom * values.var(ddof=1) / rng.chisquare(freedom, (PATHS, 1)))
    return sds


def _played(plan: SequentialPlan, gains: Array) -> Prediction:
    ends, verdicts = settle_paths(gains, plan, plan.alpha / plan.arms, ENUMERATED)
    decided = verdicts != Verdict.INCONCLUSIVE
    shares = {verdict: float(np.mean(verdicts == verdict)) for verdict in Verdict if np.any(verdicts == verdict)}
    cumulative = [float(np.mean(decided & (ends <= n))) for n in plan.looks]
    return Prediction(plan.looks, cumulative, shares, float(ends.mean()))


def settle_paths(
    gains: Array, plan: SequentialPlan, alpha: Fraction, most_enumerated: int
) -> tuple[Array, np.ndarray[tuple[int], np.dtype[np.object_]]]:
    """Return the number of pairs and the verdict of each row of a table of gains, by the same rule as `assess`."""
    never = plan.pairs + 1

    def first_rejections(values: Array, side: str) -> Array:
        first = np.full(len(values), float(never))
        looks = sign_flip_paths(
            values, planned=plan.pairs, alpha=alpha, looks=plan.looks, side=side, most_enumerated=most_enumerated
        )
        for look in looks:
            first = np.where(look.rejected & (first == never), look.n, first)
        return first

    different = first_rejections(gains, TWO_SIDED)
    equivalent = np.full(len(gains), float(never))
    if plan.sesoi is not None:
        equivalent = np.maximum(
            first_rejections(gains + plan.sesoi, GREATER), first_rejections(gains - plan.sesoi, LESS)
        )
    sums = np.cumsum(gains, axis=1)
    at_end = sums[np.arange(len(gains)), np.minimum(different, plan.pairs).astype(np.intp) - 1]
    verdicts = np.where(at_end > 0, Verdict.BETTER, Verdict.WORSE).astype(np.object_)
    verdicts[equivalent <= different] = Verdict.EQUIVALENT
    ends = np.minimum(different, equivalent)
    verdicts[ends == never] = Verdict.INCONCLUSIVE
    return np.minimum(ends, plan.pairs), verdicts
