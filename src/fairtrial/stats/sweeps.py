"""Find the best value of a sweep, and the values that are statistically indistinguishable from it.

The winner of fifteen values with three seeds each is mostly chance. It is reported with the set of values whose
distance from it is within Tukey's limit of the arms × seeds layout; this set usually contains the true best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairtrial.core.findings import Estimate, Reason
from fairtrial.stats.families import canonical_layout, complete_seeds, residual_variance, tukey_quantile, with_worst
from fairtrial.stats.ranges import range_p
from fairtrial.stats.samples import Array, is_still
from fairtrial.stats.student import from_t

Arms = Mapping[str, Array]
"""One number per seed, with the same seeds in every arm; NaN is a lost run."""


@dataclass(frozen=True)
class Spacing:
    """How far apart the means of two arms of a layout must be to be statistically distinguishable."""

    sd: float
    arms: int
    seeds: int
    limit: float
    range: float

    @property
    def freedom(self) -> int:
        return (self.arms - 1) * (self.seeds - 1)

    @cached_property
    def range_p(self) -> float:
        """The p-value of the range: the probability that equal arms are as far apart as the best and worst of these."""
        return range_p(self.range * math.sqrt(self.seeds) / self.sd, self.arms, self.freedom)


@dataclass(frozen=True)
class Winner:
    """The best arm, and the arms that are statistically indistinguishable from it (`alike`; None if unknown)."""

    best: str
    alike: tuple[str, ...] | None
    spacing: Spacing | None
    reason: str | None = None


def pick_winner(arms: Arms, *, direction: str, alpha: float) -> Winner | None:
    """Return the arm with the best mean. A lost run counts as the worst observed value, so losing runs cannot help."""
    usable = {name: sample for name, sample in arms.items() if np.isfinite(sample).any()}
    if not usable:
        return None
    scored = with_worst(usable, direction)
    best = _best(scored, direction)
    if len(usable) == 1:
        return Winner(best, (best,), None)
    spacing = space(list(scored.values()), alpha)
    if spacing is None:
        few = len(next(iter(scored.values()))) < 2
        return Winner(best, None, None, (Reason.TOO_FEW if few else Reason.NO_VARIATION).value)
    near = _near(scored, best, spacing.limit, direction)
    if any(not np.isfinite(sample).all() for sample in usable.values()):
        whole = complete_seeds(usable)  # without lost runs, more arms may be indistinguishable
        narrow = space(list(whole.values()), alpha)
        near |= _near(whole, best, narrow.limit, direction) if narrow else set(usable)
    return Winner(best, tuple(name for name in usable if name in near), spacing)


def space(arms: Sequence[Array], alpha: float) -> Spacing | None:
    """Return Tukey's limit for this layout; None if there is no residual noise."""
    layout = canonical_layout(arms)
    count, seeds = layout.shape
    if seeds < 2 or is_still(_residuals(layout), float(np.abs(layout).max())):
        return None
    variance, freedom = residual_variance(layout)
    limit = tukey_quantile(1 - alpha, count, freedom) * math.sqrt(float(variance) / seeds)
    means = [exact_mean(arm) for arm in layout]
    return Spacing(math.sqrt(float(variance)), count, seeds, limit, max(means) - min(means))


def _residuals(layout: Array) -> Array:
    centred = layout - layout.mean(axis=1, keepdims=True)
    return np.asarray((centred - centred.mean(axis=0, keepdims=True)).ravel())


def exact_mean(sample: Array) -> float:
    """Return the mean by exact summation, so that the order of the seeds cannot break ties."""
    return math.fsum(sample) / len(sample)


def _best(arms: Arms, direction: str) -> str:
    """Return the arm with the best mean; the first one if several are equal."""
    sign = 1 if direction == "max" else -1
    return max(arms, key=lambda name: sign * exact_mean(arms[name]))


def _near(arms: Arms, best: str, limit: float, direction: str) -> set[str]:
    sign = 1 if direction == "max" else -1
    top = sign * exact_mean(arms[best])
    return {name for name, sample in arms.items() if top - sign * exact_mean(sample) <= limit}


def mean_of(sample: Array, alpha: float) -> Estimate:
    """Estimate the mean of one arm with a Student's t interval."""
    values = np.sort(sample[np.isfinite(sample)])
    kept = tuple(values.tolist())
    n = len(values)
    if n == 0:
        return Estimate(None, None, None, 1 - alpha, "t", 0, samples=(), reason=Reason.TOO_FEW.value)
    mean = float(values.mean())
    if n < 2 or is_still(values, float(np.abs(values).max())):
        reason = (Reason.TOO_FEW if n < 2 else Reason.NO_VARIATION).value
        return Estimate(mean, None, None, 1 - alpha, "t", n, samples=kept, reason=reason)
    error = float(values.std(ddof=1)) / math.sqrt(n)
    return from_t("t", mean, error, n - 1).estimate(alpha, "two-sided", n, values)
