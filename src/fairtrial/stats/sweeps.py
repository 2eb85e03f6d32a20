"""Which value is best, and which others cannot be told apart from it?

The winner of fifteen values at three seeds is mostly luck. It comes with the set of values whose gap to it is within
Tukey's limit of the arms × seeds layout: the true best is among them far more often than not.
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
"""One number per seed, the same seeds in every arm; NaN is a run that was lost."""


@dataclass(frozen=True)
class Spacing:
    """How far apart arms of one layout must lie to be told apart."""

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
        """How often equal arms would lie as far apart as the best and the worst of these."""
        return range_p(self.range * math.sqrt(self.seeds) / self.sd, self.arms, self.freedom)


@dataclass(frozen=True)
class Winner:
    """The best arm, and those that cannot be told apart from it; None where there is too little to tell by."""

    best: str
    alike: tuple[str, ...] | None
    spacing: Spacing | None
    reason: str | None = None


def pick_winner(arms: Arms, *, direction: str, alpha: float) -> Winner | None:
    """The best arm by its mean. A lost run counts as the worst value seen: an arm must not win by losing runs."""
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
        whole = complete_seeds(usable)  # without the lost runs more arms may be too close to tell: they stay in the set
        narrow = space(list(whole.values()), alpha)
        near |= _near(whole, best, narrow.limit, direction) if narrow else set(usable)
    return Winner(best, tuple(name for name in usable if name in near), spacing)


def space(arms: Sequence[Array], alpha: float) -> Spacing | None:
    """Tukey's limit for this layout; None where there is no noise to judge by."""
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
    """Exact up to the last rounding: the order of the seeds must not decide between equals."""
    return math.fsum(sample) / len(sample)


def _best(arms: Arms, direction: str) -> str:
    """The first of those with the best mean."""
    sign = 1 if direction == "max" else -1
    return max(arms, key=lambda name: sign * exact_mean(arms[name]))


def _near(arms: Arms, best: str, limit: float, direction: str) -> set[str]:
    sign = 1 if direction == "max" else -1
    top = sign * exact_mean(arms[best])
    return {name for name, sample in arms.items() if top - sign * exact_mean(sample) <= limit}


def mean_of(sample: Array, alpha: float) -> Estimate:
    """The mean of one arm by itself, with Student's interval."""
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
