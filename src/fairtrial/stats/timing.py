"""Statistics of consecutive step times, which are autocorrelated: slow steps tend to come in groups.

The interval of the mean uses an effective number of steps, computed from the bias-corrected lag-one autocorrelation,
and Student's quantile. Quantiles have order-statistic intervals based on the same number. With fewer than ten effective
steps there is no interval.
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
"""The minimum number of effective steps for an interval."""
INSUFFICIENT = "insufficient: fewer than 10 effective steps"
UNBOUNDED = "too few effective steps for a limit on this side"
LARGEST = 0.999
STILL = 1e-9


@dataclass(frozen=True)
class Times:
    """The durations of consecutive steps in seconds, with estimates of their mean and quantiles."""

    seconds: Array

    @classmethod
    def of(cls, seconds: Sequence[float] | Array) -> Times:
        return cls(np.asarray(seconds, dtype=np.float64))

    @property
    def n(self) -> int:
        return len(self.seconds)

    @cached_property
    def correlation(self) -> float | None:
        """The lag-one autocorrelation, corrected for small-sample bias; at least 0, which is conservative."""
        if self.n <= 3:
            return None
        is_still = self.seconds.std() <= STILL * abs(self.seconds.mean())  # only rounding noise
        return 0.0 if is_still else float(lag_one(self.seconds[None])[0])

    @cached_property
    def effective(self) -> float | None:
        """The effective number of independent steps; None if there are too few steps to estimate it."""
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
        """Return a lower limit for a time that is never impossibly low.

        Times are skewed, and a symmetric interval may reach below zero. `steps` steps take at least `steps` times the
        fastest step. If there are enough steps for the fastest to be a limit by itself (a new step is faster with
        probability 1/(n + 1), at most α/2), that is the limit; otherwise the limit is computed on the log scale.
        """
        possible = steps * float(self.seconds.min())
        if value - reach >= possible:
            return value - reach
        enough = self.effective is not None and self.effective >= 2 / alpha - 1
        return possible if enough else min(possible, value * math.exp(-reach / value) if value > 0 else 0.0)

    def rate(self, per_step: float, unit: str, alpha: float = 0.05) -> Estimate:
        """Return the throughput per second, given the amount `per_step` that one step processes."""
        mean = self.mean(alpha)
        value = per_step / mean.value if mean.value else None
        low = None if mean.high is None else per_step / mean.high
        high = None if mean.low is None or mean.low <= 0 else per_step / mean.low
        return Estimate(value, low, high, mean.level, mean.method, self.n, unit, reason=mean.reason)

    def total(self, steps: int, alpha: float = 0.05) -> Estimate:
        """Predict the duration of `steps` more steps. The interval includes their own noise and that of the mean."""
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
        """Return a quantile of the step times with order-statistic limits; a limit is None with too few steps."""
        level, method = 1 - alpha, "order statistics on effective steps"
        value = float(np.quantile(self.seconds, share)) if self.n else None
        if self.effective is None or not self.sufficient:
            return Estimate(value, None, None, level, method, self.n, "s", reason=INSUFFICIENT)
        low, high = order_limits(self.effective, share, alpha)
        ends = [None if end is None else float(np.quantile(self.seconds, end)) for end in (low, high)]
        reason = UNBOUNDED if None in ends else None
        return Estimate(value, ends[0], ends[1], level, method, self.n, "s", reason=reason)


def lag_one(series: Array) -> Array:
    """Return the lag-one autocorrelation of each row, corrected for its average bias of −(1 + 3φ)/n."""
    n = series.shape[-1]
    apart = series - series.mean(-1, keepdims=True)
    total = (apart * apart).sum(-1)
    products = (apart[..., 1:] * apart[..., :-1]).sum(-1)
    raw = np.divide(products, total, out=np.zeros_like(total), where=total > 0)
    return np.asarray(np.clip((n * raw + 1) / (n - 3), 0.0, LARGEST))


def standard_error(series: Array, effective: Array) -> Array:
    """Return the standard error of each row's mean, correcting the variance for its bias under autocorrelation."""
    n = series.shape[-1]
    variance = series.var(-1, ddof=1) * (1 - 1 / n) / (1 - 1 / effective)
    return np.asarray(np.sqrt(variance / effective))


def order_limits(effective: float, share: float, alpha: float) -> tuple[float | None, float | None]:
    """Return the positions in the sorted steps (as shares) that bound a quantile; None if no step bounds it.

    Among m independent steps, the number below the quantile is binomial. The upper limit exists only if all m are
    below it with a probability of at most α/2: for p99 at 95 %, m must be at least 368.
    """
    m = math.floor(effective)
    first, last = _count(m, share, alpha / 2), _count(m, share, 1 - alpha / 2) + 1  # 1-based ranks
    lower = (first - 1) / (m - 1) if first >= 1 and (1 - share) ** m <= alpha / 2 else None
    upper = min((last - 1) / (m - 1), 1.0) if share**m <= alpha / 2 else None
    return lower, upper


def _count(m: int, share: float, probability: float) -> int:
    """Return the `probability` quantile of the binomial number of steps below a quantile."""
    counts = np.arange(m + 1)
    return int(np.searchsorted(special.bdtr(counts, m, share), probability))


BATCH = 5
CHANGED = 0.01
"""The significance level of the test that the two halves differ."""


def warm_up(seconds: Sequence[float] | Array) -> int | None:
    """Return the number of warm-up steps to drop so that the rest is stationary; None if the times never settle.

    The cut minimizes the marginal standard error of the mean of the remaining steps (MSER, on means of five steps). If
    the cut would drop half of the steps or more, the two halves are compared: if they differ significantly, the times
    never settled; otherwise nothing is dropped.
    """
    count = len(seconds) // BATCH
    if count < 4:
        return None
    means = np.asarray(seconds[: count * BATCH], dtype=np.float64).reshape(count, BATCH).mean(1)
    reverse = means[::-1]
    sizes = np.arange(1, count + 1)
    sums, squares = np.cumsum(reverse), np.cumsum(reverse**2)
    spread = squares - sums**2 / sizes  # sum of squares about the mean of the last k batches
    errors = (np.maximum(spread, 0.0) / sizes**2)[::-1][: count // 2 + 1]  # by number of dropped batches
    cut = int(np.argmin(errors))
    if cut < count // 2:
        return cut * BATCH
    return None if _halves_differ(means) else 0


def _halves_differ(means: Array) -> bool:
    halves = means[: len(means) // 2], means[len(means) // 2 :]
    error = math.sqrt(sum(float(half.var(ddof=1)) / len(half) for half in halves))
    reach = float(special.stdtrit(len(means) - 2, 1 - CHANGED / 2)) * error
    return abs(float(halves[0].mean() - halves[1].mean())) > reach
