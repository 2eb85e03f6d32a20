"""How many seeds does a question need, and what can so many seeds see?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy import special

from fairtrial.analyse.student import noncentral_cdf

MOST_SEEDS = 1_000_000
PAIRED, UNPAIRED = "paired", "unpaired"


@dataclass(frozen=True)
class Design:
    """What is asked of a test: pairing, error rates and sides."""

    paired: bool
    alpha: float = 0.05
    power: float = 0.8
    side: str = "two-sided"

    @property
    def name(self) -> str:
        return PAIRED if self.paired else UNPAIRED

    @property
    def tail(self) -> float:
        return self.alpha / 2 if self.side == "two-sided" else self.alpha

    def freedom(self, n: int) -> int:
        return n - 1 if self.paired else 2 * (n - 1)

    def noncentrality(self, effect: float, n: int) -> float:
        return effect * math.sqrt(n if self.paired else n / 2)


def power_of(effect: float, n: int, design: Design) -> float:
    """The chance to see a standardized effect with n runs per arm: noncentral t.

    For the paired design the effect is in units of the differences' standard deviation, else of the arms'.
    """
    effect = abs(effect)
    freedom, shift = design.freedom(n), design.noncentrality(effect, n)
    reach = float(-special.stdtrit(freedom, design.tail))
    seen = 1 - noncentral_cdf(freedom, shift, reach)
    if design.side == "two-sided":
        seen += noncentral_cdf(freedom, shift, -reach)
    return min(1.0, seen)


def seeds_for(effect: float, design: Design) -> int | None:
    """The smallest n per arm that sees a standardized effect; None beyond a million."""
    return None if effect == 0 else smallest(lambda n: power_of(effect, n, design) >= design.power)


def seeds_for_equivalence(margin: float, design: Design) -> int | None:
    """The smallest n per arm that finds two equal arms equivalent within ± a standardized margin."""

    def enough(n: int) -> bool:
        freedom, shift = design.freedom(n), design.noncentrality(margin, n)
        reach = float(-special.stdtrit(freedom, design.alpha))
        return 1 - 2 * noncentral_cdf(freedom, shift, reach) >= design.power

    return smallest(enough)


def seeds_for_superiority(probability: float, design: Design) -> int | None:
    """Noether's n per arm for which P(candidate > control) ≥ probability is seen by a rank-sum test."""
    distance = abs(probability - 0.5)
    if distance == 0:
        return None
    z = float(special.ndtri(1 - design.tail) + special.ndtri(design.power))
    return math.ceil((z / (math.sqrt(6) * distance)) ** 2 - 1e-9)


def smallest(enough: Callable[[int], bool], first: int = 2, most: int = MOST_SEEDS) -> int | None:
    """The smallest n from `first` on that is enough, given that more never harms."""
    low, high = first - 1, first
    while not enough(high):
        low, high = high, high * 2
        if low > most:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def detectable(n: int, sd: float, design: Design) -> float | None:
    """The smallest true difference that n runs per arm see with the wanted power."""
    if n < 2 or not sd > 0:
        return None
    low, high = 0.0, 1.0
    while power_of(high, n, design) < design.power:
        low, high = high, high * 2
        if high > 1e6:
            return None
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(middle, n, design) >= design.power else (middle, high)
    return high * sd


def sd_upper(sd: float, freedom: float, assurance: float) -> float:
    """The standard deviation that the true one does not exceed with this assurance."""
    return sd * math.sqrt(freedom / chi2_quantile(1 - assurance, freedom))


def sd_interval(sd: float, freedom: float, alpha: float) -> tuple[float, float]:
    """χ² limits of a standard deviation."""
    return tuple(sd * math.sqrt(freedom / chi2_quantile(q, freedom)) for q in (1 - alpha / 2, alpha / 2))  # type: ignore[return-value]


def chi2_quantile(q: float, freedom: float) -> float:
    return 2 * float(special.gammaincinv(freedom / 2, q))


def paired_sd(sd: float, correlation: float) -> float:
    """The standard deviation of differences between arms of equal spread."""
    return sd * math.sqrt(2 * (1 - correlation))
