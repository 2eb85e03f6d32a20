"""The result type of every method: a value, confidence limits at any error rate, and p-values for each side.

A method is one function that returns an `Inference` about a difference. Everything else (intervals at 1 − α and 1 − 2α,
verdicts, equivalence, certificates) asks the `Inference` for limits and is independent of the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fairtrial.core.findings import Estimate, Reason
from fairtrial.stats.samples import DUST, Arms, Array

SIDES = ("two-sided", "greater", "less")
SIGNED = ("statistic", "bias", "acceleration")
"""Details whose sign changes with that of the difference."""


@dataclass(frozen=True)
class Inference:
    """Inference about a difference: point estimate, confidence limits and p-values.

    `lower(tail)` is the lower confidence limit with error rate `tail`: the true difference lies below it with
    probability `tail` at most. If there are too few runs for a limit at that error rate, it is infinite.
    """

    method: str
    value: float
    lower: Callable[[float], float]
    upper: Callable[[float], float]
    p_greater: float
    p_less: float
    p_two_sided: float
    detail: Mapping[str, float] = field(default_factory=dict)

    def p_value(self, side: str) -> float:
        return {"two-sided": self.p_two_sided, "greater": self.p_greater, "less": self.p_less}[side]

    def interval(self, alpha: float, side: str = "two-sided") -> tuple[float, float]:
        """Return the limits at 1 − α; one-sided tests have one-sided intervals."""
        if side == "greater":
            return self.lower(alpha), math.inf
        if side == "less":
            return -math.inf, self.upper(alpha)
        return self.lower(alpha / 2), self.upper(alpha / 2)

    def agreeing(self) -> Inference:
        """Return limits that exclude zero only if the test rejects; ties and discreteness can make the two disagree."""
        lower, upper = self.lower, self.upper
        return replace(
            self,
            lower=lambda tail: lower(tail) if self.p_greater <= tail * (1 + 1e-9) else min(lower(tail), 0.0),
            upper=lambda tail: upper(tail) if self.p_less <= tail * (1 + 1e-9) else max(upper(tail), 0.0),
        )

    def estimate(self, alpha: float, side: str, n: int, samples: Array | None = None) -> Estimate:
        low, high = self.interval(alpha, side)
        sample_values = None if samples is None else tuple(samples.tolist())
        empty = math.isinf(low) and math.isinf(high)
        reason = Reason.METHOD_NEEDS_MORE.value if empty else None
        shown = (None, None) if empty else (low, high)
        return Estimate(self.value, shown[0], shown[1], 1 - alpha, self.method, n, samples=sample_values, reason=reason)

    def negated(self) -> Inference:
        """Return the inference about the negated difference, exact to the last bit."""
        return replace(
            self,
            value=-self.value + 0.0,
            lower=lambda tail: -self.upper(tail) + 0.0,
            upper=lambda tail: -self.lower(tail) + 0.0,
            p_greater=self.p_less,
            p_less=self.p_greater,
            detail={name: -value if name in SIGNED else value for name, value in self.detail.items()},
        )

    def symmetric(self) -> Inference:
        """Return symmetric limits and p-values, for data that are identical when the arms are swapped."""
        p = (self.p_greater + self.p_less) / 2

        def half(tail: float) -> float:
            return (self.upper(tail) - self.lower(tail)) / 2

        return replace(self, value=0.0, lower=lambda tail: -half(tail), upper=half, p_greater=p, p_less=p)


DESIGNS = ("paired", "unpaired")


@dataclass(frozen=True)
class Method:
    """A statistical method for a difference, selected with `--method`.

    `infer(arms, resamples, generator)` gets two samples in canonical order, with finite values and at least two per
    arm. It returns an `Inference` about `arms.second` − `arms.first` and draws random numbers only from `generator`.

        MEDIAN_SHIFT = Method(infer_median_shift, designs=("paired",))
    """

    infer: Callable[[Arms, int, np.random.Generator], Inference]
    designs: Sequence[str] = DESIGNS


def from_thresholds(method: str, value: float, thresholds: Array, arrangements: int) -> Inference:
    """Invert a permutation test.

    `thresholds` contains, for every rearrangement except the observed one, the shift beyond which that rearrangement
    is at least as extreme as the observed one. The exact limits are order statistics of these shifts.
    """
    ordered = np.sort(thresholds)
    slack = DUST * float(np.abs(ordered).max(initial=0.0))
    ordered[np.abs(ordered) <= slack] = 0.0  # rounding error is not a shift; limits and p-values must agree

    def order(tail: float) -> int:
        return math.floor(tail * arrangements + 1e-9)

    def lower(tail: float) -> float:
        rank = order(tail)
        return float(ordered[rank - 1]) if rank else -math.inf

    def upper(tail: float) -> float:
        rank = order(tail)
        return float(ordered[len(ordered) - rank]) if rank else math.inf

    p_greater = (1 + int(np.searchsorted(ordered, 0.0, "right"))) / arrangements
    p_less = (1 + len(ordered) - int(np.searchsorted(ordered, 0.0, "left"))) / arrangements
    return Inference(method, value, lower, upper, p_greater, p_less, min(1.0, 2 * min(p_greater, p_less)))
