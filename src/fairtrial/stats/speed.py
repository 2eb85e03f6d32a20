"""Speed comparisons: time ratios with intervals, and a verdict: faster, slower, equivalent or inconclusive."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from scipy import special

from fairtrial.core.findings import Estimate, Verdict
from fairtrial.stats.samples import Array
from fairtrial.stats.student import welch_parts
from fairtrial.stats.timing import INSUFFICIENT, Times, standard_error
from fairtrial.stats.verdicts import decide

FEW_ROUNDS = "fewer than 2 rounds"


class Speed(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


WORDS = {
    Verdict.BETTER: Speed.FASTER,
    Verdict.WORSE: Speed.SLOWER,
    Verdict.EQUIVALENT: Speed.EQUIVALENT,
    Verdict.INCONCLUSIVE: Speed.INCONCLUSIVE,
}


@dataclass(frozen=True)
class SpeedComparison:
    """The ratio of the candidate's time to the control's: above 1 is slower. `equivalence` has the 1 − 2α interval."""

    control: str
    candidate: str
    ratio: Estimate
    equivalence: Estimate
    margin: float
    verdict: Speed

    @property
    def gain(self) -> Estimate:
        """The speedup: how many times as fast the candidate is."""
        ratio = self.ratio
        value, low, high = (None if x is None else 1 / x for x in (ratio.value, ratio.high, ratio.low))
        return Estimate(value, low, high, ratio.level, ratio.method, ratio.n, "×", reason=ratio.reason)

    def __str__(self) -> str:
        ratio = self.ratio
        if ratio.value is None or ratio.low is None or ratio.high is None:
            return f"{self.candidate} compared with {self.control}: {self.verdict} ({ratio.reason})."
        change, low, high = (100 * (each - 1) for each in (ratio.value, ratio.low, ratio.high))
        within = f" within {100 * self.margin:g} %" if self.verdict is Speed.EQUIVALENT else ""
        return (
            f"{self.candidate} compared with {self.control}: {self.verdict}{within}, "
            f"time {change:+.1f} % [{low:+.1f}, {high:+.1f}]."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "control": self.control, "candidate": self.candidate, "verdict": self.verdict.value, "margin": self.margin,
            "ratio": self.ratio.to_dict(), "equivalence": self.equivalence.to_dict(), "sentence": str(self),
        }  # fmt: skip


def compare_rounds(
    control: Array, candidate: Array, names: tuple[str, str], margin: float, alpha: float, *, spread: float = 0.0
) -> SpeedComparison:
    """Compare interleaved block times, one pair per round. Noise that a round shares, such as other load, cancels.

    If the two sides were not interleaved, `spread` is the log standard deviation between identical processes; it is
    added to the noise of the pairs.
    """
    logs = np.log(candidate) - np.log(control)

    return _judged(lambda own: log_mean(logs, own, spread), names, margin, alpha)


def log_mean(logs: Array, alpha: float, spread: float = 0.0) -> Estimate:
    """Return the geometric mean of ratios, given their logarithms, with a Student's t interval.

    `spread` is the standard deviation of the logarithms between identical processes.
    """
    n, method = len(logs), "t on logarithms of rounds"
    value = float(np.exp(logs.mean())) if n else None
    if value is None or n < 2:
        return Estimate(value, None, None, 1 - alpha, method, n, "×", reason=FEW_ROUNDS)
    within = float(-special.stdtrit(n - 1, alpha / 2)) * float(logs.std(ddof=1)) / math.sqrt(n)
    between = float(-special.ndtri(alpha / 2)) * spread * math.sqrt(2)
    reach = math.hypot(within, between)
    low, high = (float(np.exp(logs.mean() + side * reach)) for side in (-1, 1))
    return Estimate(value, low, high, 1 - alpha, method, n, "×")


def compare_processes(
    control: Array, candidate: Array, names: tuple[str, str], margin: float, alpha: float
) -> SpeedComparison:
    """Compare mean times of several processes per side; the interval includes the variation between processes."""
    parts = welch_parts(np.log(control), np.log(candidate))
    mean, error, freedom = (float(part) for part in parts)
    method, n = "Welch t on logarithms of processes", min(len(control), len(candidate))

    def ratio(own: float) -> Estimate:
        reach = float(-special.stdtrit(freedom, own / 2)) * error if error > 0 else 0.0
        low, high = math.exp(mean - reach), math.exp(mean + reach)
        return Estimate(math.exp(mean), low, high, 1 - own, method, n, "×")

    return _judged(ratio, names, margin, alpha)


def compare_sessions(
    control: Times, candidate: Times, names: tuple[str, str], margin: float, alpha: float
) -> SpeedComparison:
    """Compare two separate measurements, each with its own effective number of steps."""
    return _judged(lambda own: _ratio_of_means(control, candidate, own), names, margin, alpha)


def _ratio_of_means(control: Times, candidate: Times, alpha: float) -> Estimate:
    method, n = "Welch t on effective steps", min(control.n, candidate.n)
    means = [float(each.seconds.mean()) if each.n else math.nan for each in (control, candidate)]
    value = means[1] / means[0] if means[0] > 0 and means[1] > 0 else None
    sizes = [each.effective for each in (control, candidate)]
    if value is None or sizes[0] is None or sizes[1] is None or not (control.sufficient and candidate.sufficient):
        return Estimate(value, None, None, 1 - alpha, method, n, "×", reason=INSUFFICIENT)
    parts = [
        (float(standard_error(each.seconds[None], np.array([size]))[0]) / mean) ** 2
        for each, size, mean in zip((control, candidate), (sizes[0], sizes[1]), means, strict=True)
    ]
    total = sum(parts)
    if total == 0:
        return Estimate(value, value, value, 1 - alpha, method, n, "×")
    freedom = total**2 / sum(part**2 / (size - 1) for part, size in zip(parts, (sizes[0], sizes[1]), strict=True))
    reach = float(-special.stdtrit(freedom, alpha / 2)) * math.sqrt(total)
    return Estimate(value, value * math.exp(-reach), value * math.exp(reach), 1 - alpha, method, n, "×")


def _judged(ratio: Callable[[float], Estimate], names: tuple[str, str], margin: float, alpha: float) -> SpeedComparison:
    estimate, narrower = ratio(alpha), ratio(2 * alpha)
    return SpeedComparison(*names, estimate, narrower, margin, _verdict(estimate, narrower, margin))


def _verdict(ratio: Estimate, narrower: Estimate, margin: float) -> Speed:
    """Apply the common verdict rule to log ratios, with log(1 + margin) as the SESOI."""
    return WORDS[decide(_gain(ratio), _gain(narrower), math.log1p(margin)).verdict]


def _gain(ratio: Estimate) -> tuple[float, float] | None:
    limits = ratio.limits
    return None if limits is None else (-math.log(limits[1]), -math.log(limits[0]))
