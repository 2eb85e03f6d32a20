"""Estimate the noise of a metric over seeds, and how many seeds are enough for a precise mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from fairtrial.core.errors import InvalidOptions, UserError
from fairtrial.core.findings import FilledCaution, Reason
from fairtrial.stats.diagnostics import one_arm_cautions
from fairtrial.stats.power import sd_interval, smallest
from fairtrial.stats.samples import Array, Seed, as_sample, is_still

SUBSETS = 500
MOST_COUNTS = 60


@dataclass(frozen=True)
class CurvePoint:
    """The expected half-width at n seeds, in the unit of the metric and relative to the mean."""

    n: int
    half_width: float
    relative: float | None
    extrapolated: bool


@dataclass(frozen=True)
class Spread:
    """The noise of one summary over seeds, and the smallest n whose half-width meets the threshold."""

    n: int
    mean: float | None
    sd: float | None
    cv: float | None
    level: float
    threshold: float
    relative: bool
    n_min: int | None
    n_range: tuple[int | None, int | None]
    curve: tuple[CurvePoint, ...]
    reason: str | None = None
    cautions: tuple[FilledCaution, ...] = ()

    @property
    def enough(self) -> bool | None:
        return None if self.n_min is None else self.n >= self.n_min

    @property
    def missing(self) -> int | None:
        return None if self.n_min is None else max(0, self.n_min - self.n)

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("n", "mean", "sd", "cv", "level", "threshold", "relative")},
            "n_min": self.n_min,
            "n_range": list(self.n_range),
            "enough": self.enough,
            "missing": self.missing,
            "reason": self.reason,
            "curve": [vars(point) for point in self.curve],
            "cautions": list(self.cautions),
        }


def half_width(sd: float, n: int, alpha: float) -> float:
    """Return the half-width of a t interval for a mean."""
    return float(-special.stdtrit(n - 1, alpha / 2)) * sd / math.sqrt(n)


def enough_runs(sd: float, reach: float, alpha: float) -> int | None:
    """Return the smallest n with a half-width of at most `reach`; None beyond a million."""
    return smallest(lambda n: half_width(sd, n, alpha) <= reach) if reach > 0 else None


def spread(sample: Array, *, threshold: float, relative: bool = True, level: float = 0.95, rng: Seed = None) -> Spread:
    """Estimate how many runs reduce the half-width of the mean to `threshold` (a share of the mean, or in its unit)."""
    if not threshold > 0:
        raise InvalidOptions(f"the threshold must be positive, not {threshold!r}")
    if not 0.5 < level < 1:
        raise InvalidOptions(f"level must lie between 0.5 and 1, not {level!r}")
    alpha = 1 - level
    values = np.sort(as_sample(sample, "the sample"))
    if not np.isfinite(values).all():
        raise UserError(
            "the sample contains values that are not finite", hint="Leave out runs without a result, and report them."
        )
    n = len(values)
    mean = float(values.mean()) if n else None
    sd = float(values.std(ddof=1)) if n > 1 else None
    spread = Spread(n, mean, sd, None, level, threshold, relative, None, (None, None), ())
    if sd is None or mean is None:
        return _without(spread, Reason.TOO_FEW.value)
    if is_still(values, float(np.abs(values).max())):
        return _without(spread, Reason.NO_VARIATION.value)
    if relative and half_width(sd, n, alpha) >= abs(mean):
        return _without(spread, "the mean's interval contains zero, so a relative precision is undefined")
    return _measured(spread, values, mean, sd, alpha, rng)


def _without(spread: Spread, reason: str) -> Spread:
    return Spread(**{**vars(spread), "reason": reason})


def _measured(spread: Spread, values: Array, mean: float, sd: float, alpha: float, rng: Seed) -> Spread:
    reach = spread.threshold * abs(mean) if spread.relative else spread.threshold
    low, high = sd_interval(sd, spread.n - 1, alpha)
    n_min = enough_runs(sd, reach, alpha)
    limits = enough_runs(low, reach, alpha), enough_runs(high, reach, alpha)
    curve = _curve(values, mean if spread.relative else None, sd, alpha, n_min, rng)
    cv = sd / abs(mean) if spread.relative else None
    filled = {
        "cv": cv,
        "n_min": n_min,
        "n_range": limits,
        "curve": curve,
        "cautions": tuple(one_arm_cautions(spread.n)),
    }
    return Spread(**{**vars(spread), **filled})


def _curve(
    values: Array, mean: float | None, sd: float, alpha: float, n_min: int | None, rng: Seed
) -> tuple[CurvePoint, ...]:
    """Return half-widths by n: averages over random subsets up to the number of runs, extrapolated beyond."""
    generator = rng if isinstance(rng, np.random.Generator) else np.random.default_rng([int(rng or 0), 1])
    n = len(values)
    last = min(max(n, (n_min or n)), 10 * n) + 2
    points = []
    for count in _counts(last, n):
        beyond = count > n
        noise = sd if count >= n else _subset_sd(values, count, generator)
        width = half_width(noise, count, alpha)
        points.append(CurvePoint(count, width, None if mean is None else width / abs(mean), beyond))
    return tuple(points)


def _counts(last: int, n: int) -> list[int]:
    """Return the values of n for the curve: all if there are few, else geometrically spaced; `n` is always included."""
    spaced = (
        np.geomspace(2, last, MOST_COUNTS).round().astype(int).tolist() if last > MOST_COUNTS else range(2, last + 1)
    )
    return sorted({*spaced, n, last})


def _subset_sd(values: Array, count: int, rng: np.random.Generator) -> float:
    """Return the root mean square of the standard deviations of random subsets of `count` values."""
    order = np.argpartition(rng.random((SUBSETS, len(values))), count - 1, axis=1)[:, :count]
    return math.sqrt(float(values[order].var(axis=1, ddof=1).mean()))
