"""Times of steps that follow one another: a slow one is seldom alone, so a thousand steps say less than they seem to.

The mean's interval counts an effective number of steps, from the lag-one autocorrelation corrected for its bias at few
steps, with Student's quantile. Quantiles have order-statistic intervals on that number. Below ten effective steps
nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from fairtrial.core.findings import Estimate
from fairtrial.stats.samples import Array

LEAST = 10
"""Effective steps below which there is no interval."""
INSUFFICIENT = "insufficient: fewer than 10 effective steps"
UNBOUNDED = "too few effective steps for a limit on this side"
LARGEST = 0.999
STILL = 1e-9


@dataclass(frozen=True)
class Times:
    """Seconds of consecutive steps, and what they say about the mean and the quantiles."""

    seconds: Array

    @classmethod
    def of(cls, seconds: Sequence[float] | Array) -> Times:
        return cls(np.asarray(seconds, dtype=np.float64))

    @property
    def n(self) -> int:
        return len(self.seconds)

    @cached_property
    def correlation(self) -> float | None:
        """Of neighbouring steps, corrected for the bias that few steps bring; never below 0, which is cautious."""
        if self.n <= 3:
            return None
        is_still = self.seconds.std() <= STILL * abs(self.seconds.mean())  # what is left is rounding
        return 0.0 if is_still else float(lag_one(self.seconds[None])[0])

    @cached_property
    def effective(self) -> float | None:
        """How many independent steps these are worth; None where there are too few to tell."""
        rho = self.correlation
        return None if rho is None else self.n * (1 - rho) / (1 + rho)

    @property
    def sufficient(self) -> bool:
        return self.effective is not None and self.effective >= LEAST

    def mean(self, alpha: float = 0.05) -> Estimate:
        level, method = 1 - alpha, "t on effective steps"
        value = float(self.seconds.mean()) if self.n else None
        if value is None or self.effective is None or not self.sufficient:
            return Estimate(value, None, None, level, method, self.n, "s", reason=INSUFFICIENT)
        error = float(standard_error(self.seconds[None], np.array([self.effective]))[0])
        reach = float(-special.stdtrit(self.effective - 1, alpha / 2)) * error
        return Estimate(value, self._lowest(value, reach, 1, alpha), value + reach, level, method, self.n, "s")

    def _lowest(self, value: float, reach: float, steps: int, alpha: float) -> float:
        """The lower limit of a time, which is never one that cannot be.

        Times are skewed, and a symmetric interval may reach below zero. So many steps take at least that often the time
        of the fastest. Where there are enough steps for the fastest to be a limit by itself (the next one is faster
        with a probability of 1/(n + 1), at most α/2), it is the limit; where not, it is that of the logarithm.
        """
        possible = steps * float(self.seconds.min())
        if value - reach >= possible:
            return value - reach
        enough = self.effective is not None and self.effective >= 2 / alpha - 1
        return possible if enough else min(possible, value * math.exp(-reach / value) if value > 0 else 0.0)

    def rate(self, per_step: float, unit: str, alpha: float = 0.05) -> Estimate:
        """How much is done in a second, from the mean time of a step in which `per_step` is done."""
        mean = self.mean(alpha)
        value = per_step / mean.value if mean.value else None
        low = None if mean.high is None else per_step / mean.high
        high = None if mean.low is None or mean.low <= 0 else per_step / mean.low
        return Estimate(value, low, high, mean.level, mean.method, self.n, unit, reason=mean.reason)

    def total(self, steps: int, alpha: float = 0.05) -> Estimate:
        """What so many further steps will take: the mean is not known exactly, and those steps scatter as well."""
        level, method = 1 - alpha, "prediction, t on effective steps"
        mean = self.mean(alpha)
        if mean.value is None or mean.low is None or self.effective is None or self.correlation is None:
            return Estimate(
                mean.value and steps * mean.value, None, None, level, method, self.n, "s", reason=mean.reason
            )
        error = float(standard_error(self.seconds[None], np.array([self.effective]))[0])
        own = error * math.sqrt(self.effective / max(1.0, steps * (1 - self.correlation) / (1 + self.correlation)))
        reach = float(-special.stdtrit(self.effective - 1, alpha / 2)) * steps * math.hypot(error, own)
        value = steps * mean.value
        return Estimate(value, self._lowest(value, reach, steps, alpha), value + reach, level, method, self.n, "s")

    def quantile(self, share: float, alpha: float = 0.05) -> Estimate:
        """A quantile of the steps, between order statistics; a limit that so few steps cannot give is None."""
        level, method = 1 - alpha, "order statistics on effective steps"
        value = float(np.quantile(self.seconds, share)) if self.n else None
        if self.effective is None or not self.sufficient:
            return Estimate(value, None, None, level, method, self.n, "s", reason=INSUFFICIENT)
        low, high = order_limits(self.effective, share, alpha)
        ends = [None if end is None else float(np.quantile(self.seconds, end)) for end in (low, high)]
        reason = UNBOUNDED if None in ends else None
        return Estimate(value, ends[0], ends[1], level, method, self.n, "s", reason=reason)


def lag_one(series: Array) -> Array:
    """Lag-one autocorrelation of each row, corrected by (1 + 3φ)/n, which it falls short on average."""
    n = series.shape[-1]
    apart = series - series.mean(-1, keepdims=True)
    total = (apart * apart).sum(-1)
    products = (apart[..., 1:] * apart[..., :-1]).sum(-1)
    raw = np.divide(products, total, out=np.zeros_like(total), where=total > 0)
    return np.asarray(np.clip((n * raw + 1) / (n - 3), 0.0, LARGEST))


def standard_error(series: Array, effective: Array) -> Array:
    """Of the mean of each row; the spread about a mean of dependent values is corrected for being too small."""
    n = series.shape[-1]
    variance = series.var(-1, ddof=1) * (1 - 1 / n) / (1 - 1 / effective)
    return np.asarray(np.sqrt(variance / effective))


def order_limits(effective: float, share: float, alpha: float) -> tuple[float | None, float | None]:
    """Shares of the sorted steps that bound a quantile; None where even the largest step does not.

    Among m independent steps the number below the quantile is binomial. The upper limit exists only if all m are below
    it with a probability of at most α/2: for p99 at 95 % from m = 368 on.
    """
    m = math.floor(effective)
    first, last = _count(m, share, alpha / 2), _count(m, share, 1 - alpha / 2) + 1  # ranks, counted from 1
    lower = (first - 1) / (m - 1) if first >= 1 and (1 - share) ** m <= alpha / 2 else None
    upper = min((last - 1) / (m - 1), 1.0) if share**m <= alpha / 2 else None
    return lower, upper


def _count(m: int, share: float, probability: float) -> int:
    """The smallest number of steps below a quantile that is reached with at least this probability."""
    counts = np.arange(m + 1)
    return int(np.searchsorted(special.bdtr(counts, m, share), probability))


BATCH = 5
CHANGED = 0.01
"""How seldom chance alone makes the halves look as different as where times were still changing."""


def warm_up(seconds: Sequence[float] | Array) -> int | None:
    """How many steps to leave out so that the rest is steady; None if the steps never settle.

    Of all beginnings the one is cut whose removal leaves the mean of the rest best known (marginal standard error, on
    means of five steps). If that would take half of the steps or more, and the halves differ by more than chance
    explains, the times were still changing.
    """
    count = len(seconds) // BATCH
    if count < 4:
        return None
    means = np.asarray(seconds[: count * BATCH], dtype=np.float64).reshape(count, BATCH).mean(1)
    reverse = means[::-1]
    sizes = np.arange(1, count + 1)
    sums, squares = np.cumsum(reverse), np.cumsum(reverse**2)
    spread = squares - sums**2 / sizes  # sum of squares about the mean of the last k batches
    errors = (np.maximum(spread, 0.0) / sizes**2)[::-1][: count // 2 + 1]  # by how many batches are left out
    cut = int(np.argmin(errors))
    if cut < count // 2:
        return cut * BATCH
    return None if _halves_differ(means) else 0


def _halves_differ(means: Array) -> bool:
    halves = means[: len(means) // 2], means[len(means) // 2 :]
    error = math.sqrt(sum(float(half.var(ddof=1)) / len(half) for half in halves))
    reach = float(special.stdtrit(len(means) - 2, 1 - CHANGED / 2)) * error
    return abs(float(halves[0].mean() - halves[1].mean())) > reach
