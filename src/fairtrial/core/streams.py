"""Named random streams: derived from a run's root seed by name, independent of the variant.

A stream is a pure function of (seed, name, index…). It has no state, so using one stream never affects another, a
resumed run needs no saved generator state, and two variants with the same seed share every stream that both use: the
same initial weights, the same data order, the same subset.

Individual streams can have their own root seed (`core/stream_seeds.py`), so that they can be varied separately.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    import torch

STREAMS = ("init", "order", "subset", "augment", "env", "eval", "report")


@dataclass(frozen=True)
class Streams:
    """The random streams of one run. `used` records which were used, to know which ones paired runs share."""

    root: int
    used: set[str] = field(default_factory=set, compare=False, repr=False)
    own: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Root seeds of streams that do not use the run's seed."""

    def seed(self, name: str, *index: int | str) -> int:
        """Return a 63-bit seed for the stream `name`, or for one numbered or named part of it."""
        if name not in STREAMS:
            raise ValueError(f"no stream named {name!r}; valid: {', '.join(STREAMS)}")
        self.used.add(name)
        label = "/".join(["fairtrial", str(self.own.get(name, self.root)), name, *map(str, index)])
        return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big") >> 1

    def numpy(self, name: str, *index: int | str) -> numpy.random.Generator:
        import numpy

        return numpy.random.Generator(numpy.random.PCG64(self.seed(name, *index)))

    def torch(self, name: str, *index: int | str) -> torch.Generator:
        import torch

        return torch.Generator().manual_seed(self.seed(name, *index))
