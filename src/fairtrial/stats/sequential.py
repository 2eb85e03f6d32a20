"""A group-sequential sign-flip test for paired differences, with linear α spending.

Under the null hypothesis that the change has no effect, the sign of every paired difference is a coin toss. Conditional
on the sizes |D_i|, all sign vectors are equally likely, so the share of them that the test has rejected so far is the
exact false-positive rate. At each look, this share may grow to at most α · n / N.

The differences must be in seed order, not in order of completion, because the duration of a run may depend on its
result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from fairtrial.core.errors import UserError
from fairtrial.stats.samples import DUST, Array, Mask

MOST_ENUMERATED = 16
"""The number of pairs whose sign vectors are all enumerated; beyond it, each vector is extended with random signs."""
TWO_SIDED, GREATER, LESS = "two-sided", "greater", "less"


@dataclass(frozen=True)
class Look:
    """The test after `n` pairs. It rejects if |sum| (one-sided: the sum, in its direction) exceeds the boundary."""

    n: int
    sum: float
    boundary: float
    """Infinite if no sign vector may be rejected yet."""
    rejected: bool


def rational(level: float) -> Fraction:
    """Return 1 − level as an exact fraction, because allowances are whole numbers of sign vectors."""
    return 1 - Fraction(level).limit_denominator(10**6)


def earliest_rejection(planned: int, alpha: Fraction, *, two_sided: bool) -> int | None:
    """Return the smallest number of pairs at which any data can be rejected; None if `planned` pairs are too few."""
    most_extreme = 2 if two_sided else 1
    return next((n for n in range(1, planned + 1) if _allowance(n, planned, alpha) >= most_extreme), None)


def _allowance(n: int, planned: int, alpha: Fraction) -> int:
    """Return how many of the 2ⁿ sign vectors may have been rejected after n pairs."""
    return math.floor(alpha * (1 << n) * n / planned)


def sign_flip_looks(
    differences: Sequence[float] | Array, *, planned: int, alpha: Fraction, looks: Sequence[int], side: str = TWO_SIDED
) -> Iterator[Look]:
    """Yield every look that the differences allow, up to the first that rejects.

    `looks` are the planned numbers of pairs; the boundary at each look depends on the earlier ones.
    """
    values = np.asarray(differences, dtype=np.float64)
    mirror = -1 if side == LESS else 1
    for look in sign_flip_paths(values[None, :], planned=planned, alpha=alpha, looks=looks, side=side):
        boundary, rejected = float(look.boundaries[0]), bool(look.rejected[0])
        yield Look(look.n, float(np.sum(values[: look.n])), mirror * boundary, rejected)
        if rejected:
            return


@dataclass(frozen=True)
class LookAtPaths:
    """One look at many independent sets of differences (for example simulated ones)."""

    n: int
    boundaries: Array
    rejected: Mask
    """Rows rejected at this look. Rows rejected at an earlier look are not included."""


def sign_flip_paths(
    differences: Array, *, planned: int, alpha: Fraction, looks: Sequence[int], side: str = TWO_SIDED,
    most_enumerated: int = MOST_ENUMERATED,
) -> Iterator[LookAtPaths]:  # fmt: skip
    """Apply the test to each row of a table. All rows are tested at every look up to the last pair.

    A smaller `most_enumerated` is faster, keeps the exact level, and has slightly less power. Predictions use it.
    """
    values = -differences if side == LESS else differences
    if values.shape[1] > planned:
        raise UserError(f"there are {values.shape[1]} pairs, but only {planned} were planned")
    two_sided = side == TWO_SIDED
    vectors = _SignVectors(values, two_sided, most_enumerated)
    wanted = set(looks)
    for n in range(1, values.shape[1] + 1):
        vectors.extend(n)
        if n in wanted:
            # In a two-sided test, each vector also represents its mirror image.
            images = 2 if two_sided else 1
            allowance = math.floor(alpha * images * vectors.count * n / planned) // images
            yield LookAtPaths(n, *vectors.reject(allowance))


class _SignVectors:
    """By row: the sums of |D_i| under each sign vector, which vectors are not yet rejected, and which was observed.

    A two-sided test treats S and −S alike, so the first sign is fixed, and each vector also represents its mirror
    image. Beyond `most_enumerated` pairs, the vectors are extended with random signs that do not depend on the data.
    The observed vector replaces the one with the same initial signs. It is then a uniformly chosen member of the set,
    so the level is exact without correction.
    """

    def __init__(self, values: Array, two_sided: bool, most_enumerated: int) -> None:
        self._two_sided, self._most_enumerated = two_sided, most_enumerated
        mirrored = two_sided & (values[:, :1] < 0)
        self._sizes, self._negative = np.abs(values), (values < 0) ^ mirrored
        self._rows = np.arange(len(values))
        self._observed = np.zeros(len(values), dtype=np.intp)
        self._sums: Array = np.zeros((len(values), 1))
        self._alive: Mask = np.ones((len(values), 1), dtype=np.bool_)
        self._scale: Array = np.zeros(len(values))

    @property
    def count(self) -> int:
        return int(self._sums.shape[1])

    def extend(self, n: int) -> None:
        """Add the n-th pair, counted from 1."""
        sizes, negative = self._sizes[:, n - 1], self._negative[:, n - 1]
        self._scale = self._scale + sizes
        if n == 1 and self._two_sided:
            self._sums = self._sums + sizes[:, None]
        elif n <= self._most_enumerated:
            self._observed = self._observed + np.where(negative, self.count, 0)
            self._sums = np.concatenate([self._sums + sizes[:, None], self._sums - sizes[:, None]], axis=1)
            self._alive = np.concatenate([self._alive, self._alive], axis=1)
        else:
            observed = self._sums[self._rows, self._observed] + np.where(negative, -sizes, sizes)
            self._sums = self._sums + _random_signs(n, self.count) * sizes[:, None]
            self._sums[self._rows, self._observed] = observed

    def reject(self, allowance: int) -> tuple[Array, Mask]:
        """Reject as many of the most extreme vectors as the allowance permits; ties at the boundary are not rejected.

        Returns the boundaries, and for which rows the observed vector is rejected.
        """
        left = allowance - np.count_nonzero(~self._alive, axis=1)
        most = int(left.max())
        if most <= 0:
            return np.full(len(left), math.inf), np.zeros(len(left), dtype=np.bool_)
        extremes = np.where(self._alive, np.abs(self._sums) if self._two_sided else self._sums, -math.inf)
        kept = min(most + 1, self.count)
        top = np.sort(np.partition(extremes, self.count - kept, axis=1)[:, self.count - kept :], axis=1)[:, ::-1]
        cuts = top[self._rows, np.clip(left, 0, kept - 1)] + DUST * self._scale
        boundaries = np.where(left > 0, cuts, math.inf)
        rejected = extremes > boundaries[:, None]
        self._alive &= ~rejected
        return boundaries, rejected[self._rows, self._observed]


@lru_cache(maxsize=64)
def _random_signs(n: int, count: int) -> Array:
    return np.where(np.random.default_rng([n, count]).integers(0, 2, count) == 1, 1.0, -1.0)
