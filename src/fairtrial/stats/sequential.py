"""A paired test that may be looked at while seeds are added: group-sequential sign-flip with linear spending.

Under the hypothesis that the change does nothing, the sign of every paired difference is a coin toss. Conditional on
the sizes |D_i|, all sign vectors are equally likely, so the share of them that would have been rejected by now is the
exact probability of a false positive. At each look that share may grow to α · n / N and no further.

The differences come in seed order. Whatever finished first must not come first: how long a run takes may depend on how
well it does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from fairtrial.core.errors import UserError
from fairtrial.stats.samples import DUST, Array

MOST_ENUMERATED = 16
"""Up to so many pairs all sign vectors are enumerated; beyond, each of them goes on with random signs."""
TWO_SIDED, GREATER, LESS = "two-sided", "greater", "less"


@dataclass(frozen=True)
class Look:
    """The test after `n` pairs. The hypothesis is rejected where |sum| (one-sided: the sum) is above the boundary."""

    n: int
    sum: float
    boundary: float
    """Infinite where no sign vector may be rejected yet."""
    rejected: bool


def rational(level: float) -> Fraction:
    """1 − level without the rounding of floats: allowances are whole numbers of sign vectors."""
    return 1 - Fraction(level).limit_denominator(10**6)


def earliest_rejection(planned: int, alpha: Fraction, *, two_sided: bool) -> int | None:
    """The smallest number of pairs at which any data can be rejected; None where `planned` pairs never suffice."""
    most_extreme = 2 if two_sided else 1
    return next((n for n in range(1, planned + 1) if _allowance(n, planned, alpha) >= most_extreme), None)


def _allowance(n: int, planned: int, alpha: Fraction) -> int:
    """How many of the 2ⁿ sign vectors may be rejected by now."""
    return math.floor(alpha * (1 << n) * n / planned)


def sign_flip_looks(
    differences: Sequence[float] | Array, *, planned: int, alpha: Fraction, looks: Sequence[int], side: str = TWO_SIDED
) -> Iterator[Look]:
    """Every look that the differences suffice for, up to the first that rejects.

    `differences` may be more than are looked at. An unplanned look is refused: the boundary is about planned ones.
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) > planned:
        raise UserError(f"{len(values)} pairs are more than the {planned} that were planned")
    if side == LESS:
        for look in sign_flip_looks(-values, planned=planned, alpha=alpha, looks=looks, side=GREATER):
            yield Look(look.n, -look.sum, -look.boundary, look.rejected)
        return
    vectors = _SignVectors(values, two_sided=side == TWO_SIDED)
    wanted = set(looks)
    for n in range(1, len(values) + 1):
        vectors.extend(n)
        if n in wanted:
            boundary, rejected = vectors.reject(_share(vectors.count, n, planned, alpha, side == TWO_SIDED))
            yield Look(n, float(np.sum(values[:n])), boundary, rejected)
            if rejected:
                return


def _share(count: int, n: int, planned: int, alpha: Fraction, two_sided: bool) -> int:
    """The allowance in a set of `count` vectors, which for a two-sided test stands for itself and its mirror image."""
    if two_sided:
        return math.floor(alpha * 2 * count * n / planned) // 2
    return math.floor(alpha * count * n / planned)


class _SignVectors:
    """The sums of |D_i| under sign vectors, which of them are not rejected yet, and which one was observed.

    A two-sided test sees S and −S alike: the first sign is fixed, and each vector stands for its mirror image too.
    Beyond MOST_ENUMERATED pairs the vectors go on with random signs that depend on nothing in the data. The observed
    vector takes the place of the one that began like it: then it is a uniformly chosen member of the set, whatever the
    set is, and the level is exact without any correction.
    """

    def __init__(self, values: Array, *, two_sided: bool) -> None:
        self._two_sided = two_sided
        mirrored = -values if two_sided and len(values) and values[0] < 0 else values
        self._sizes, self._negative = np.abs(values), mirrored < 0
        self._sums: Array = np.zeros(1)
        self._alive = np.ones(1, dtype=np.bool_)
        self._observed = 0
        self._scale = 0.0

    @property
    def count(self) -> int:
        return len(self._sums)

    def extend(self, n: int) -> None:
        """Add the n-th pair, counted from 1."""
        size, negative = self._sizes[n - 1], bool(self._negative[n - 1])
        self._scale += size
        if n == 1 and self._two_sided:
            self._sums = self._sums + size
        elif n <= MOST_ENUMERATED:
            self._observed += len(self._sums) if negative else 0
            self._sums = np.concatenate([self._sums + size, self._sums - size])
            self._alive = np.concatenate([self._alive, self._alive])
        else:
            observed = self._sums[self._observed] + (-size if negative else size)
            self._sums = self._sums + _random_signs(n, len(self._sums)) * size
            self._sums[self._observed] = observed

    def reject(self, allowance: int) -> tuple[float, bool]:
        """Reject as many of the most extreme vectors as the allowance admits, ties never; the boundary, and whether
        the observed one is among them."""
        left = allowance - int(np.count_nonzero(~self._alive))
        extremes = np.abs(self._sums) if self._two_sided else self._sums
        alive = extremes[self._alive]
        if left <= 0:
            return math.inf, False
        if left >= len(alive):  # never at a useful α; rejecting all of them is still within the allowance
            boundary = -math.inf
        else:
            position = len(alive) - left - 1
            boundary = float(np.partition(alive, position)[position] + DUST * self._scale)
        rejected = self._alive & (extremes > boundary)
        self._alive &= ~rejected
        return boundary, bool(rejected[self._observed])


@lru_cache(maxsize=64)
def _random_signs(n: int, count: int) -> Array:
    return np.where(np.random.default_rng([n, count]).integers(0, 2, count) == 1, 1.0, -1.0)
