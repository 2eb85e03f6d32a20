"""Samples of two arms, or their tables of runs × tasks, in canonical order.

Results must not depend on the order of the runs or on which arm is the control: A vs. B must be exactly the negative of
B vs. A. Therefore the values are sorted, the arms are ordered by their content, the computation is done once in that
order, and the result is negated if the arms were swapped. Random streams are keyed by the same content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairtrial.core.errors import UserError

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Seed = int | np.random.Generator | None
DUST = 16 * np.finfo(np.float64).eps
"""The relative size of differences that are attributed to rounding."""


def is_still(values: Array, scale: float) -> bool:
    """Return whether values differ by no more than rounding error at this scale."""
    return bool(np.ptp(values) <= DUST * scale)


def frozen_seed(seed: Seed) -> int:
    """Return an integer seed. A generator is sampled once, so that two computations get the same stream."""
    return int(seed.integers(2**62)) if isinstance(seed, np.random.Generator) else int(seed or 0)


def as_sample(values: Sequence[float] | Array, name: str) -> Array:
    """Return a one-dimensional float array; raise UserError if the values are not one. NaN and infinity are allowed."""
    try:
        sample = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} contains a value that is not a number") from None
    if sample.ndim != 1:
        raise UserError(f"{name} must be a list of numbers, one per run, not an array of {sample.ndim} dimensions")
    return sample


@dataclass(frozen=True)
class Arms:
    """Two samples in canonical order. `swapped`: the second one is the control. All values are finite."""

    first: Array
    second: Array
    paired: bool
    swapped: bool
    symmetric: bool

    @property
    def differences(self) -> Array:
        """second − first, pair by pair."""
        return self.second - self.first

    @property
    def runs(self) -> tuple[int, int]:
        return len(self.first), len(self.second)

    @property
    def n(self) -> int:
        """The number of independent observations: pairs, or runs of both arms."""
        return len(self.first) if self.paired else len(self.first) + len(self.second)

    def stream(self, seed: Seed) -> np.random.Generator:
        """Return a generator that depends only on the seed and on the values."""
        content = self.first.tobytes() + b"|" + self.second.tobytes() + (b"paired" if self.paired else b"")
        digest = int.from_bytes(hashlib.sha256(content).digest()[:16], "big")
        return np.random.default_rng([frozen_seed(seed), digest])


def canonical(control: Array, candidate: Array, *, paired: bool) -> Arms:
    """Put two finite samples into the canonical order, which depends only on their content."""
    forward, backward = _ordered(control, candidate, paired), _ordered(candidate, control, paired)
    swapped = _key(backward) < _key(forward)
    first, second = backward if swapped else forward
    return Arms(first, second, paired, swapped, symmetric=_key(forward) == _key(backward))


def _ordered(first: Array, second: Array, paired: bool) -> tuple[Array, Array]:
    first, second = first + 0.0, second + 0.0  # turns −0 into 0
    if not paired:
        return first[row_order(first)], second[row_order(second)]
    order = row_order(np.column_stack([first, second]))
    return first[order], second[order]


def row_order(values: Array) -> npt.NDArray[np.intp]:
    """Return the indices that sort values, or the rows of a table lexicographically by column."""
    table = values[:, None] if values.ndim == 1 else values
    return np.lexsort(table.T[::-1])


def _key(arms: tuple[Array, Array]) -> tuple[Any, ...]:
    return len(arms[0]), arms[0].tolist(), arms[1].tolist()
