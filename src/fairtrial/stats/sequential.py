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
from fairtrial.stats.samples import DUST, Array, Mask

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

    `looks` are the planned numbers of pairs: the boundary at one of them depends on those before.
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
    """One look at many independent sets of differences, such as simulated ones."""

    n: int
    boundaries: Array
    rejected: Mask
    """At this look; what was rejected before stays as it was."""


def sign_flip_paths(
    differences: Array, *, planned: int, alpha: Fraction, looks: Sequence[int], side: str = TWO_SIDED,
    most_enumerated: int = MOST_ENUMERATED,
) -> Iterator[LookAtPaths]:  # fmt: skip
    """The same test on each row of a table. All rows are looked at until the last pair.

    With a smaller `most_enumerated` it is faster, still exact in level, and of slightly less power: for predictions.
    """
    values = -differences if side == LESS else differences
    if values.shape[1] > planned:
        raise UserError(f"{values.shape[1]} pairs are more than the {planned} that were planned")
    two_sided = side == TWO_SIDED
    vectors = _SignVectors(values, two_sided, most_enumerated)
    wanted = set(looks)
    for n in range(1, values.shape[1] + 1):
        vectors.extend(n)
        if n in wanted:
            # Each vector of a two-sided test stands for its mirror image too.
            images = 2 if two_sided else 1
            allowance = math.floor(alpha * images * vectors.count * n / planned) // images
            yield LookAtPaths(n, *vectors.reject(allowance))


class _SignVectors:
    """The sums of |D_i| under sign vectors, which of them are not rejected yet, and which one was observed; by row.

    A two-sided test sees S and −S alike: the first sign is fixed, and each vector stands for its mirror image too.
    Beyond `most_enumerated` pairs the vectors go on with random signs that depend on nothing in the data. The observed
    vector takes the place of the one that began like it: then it is a uniformly chosen member of the set, whatever the
    set is, and the level is exact without any correction.
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
        """Reject as many of the most extreme vectors as the allowance admits, ties never.

        Returns the boundaries, and where the observed vector is among them.
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
