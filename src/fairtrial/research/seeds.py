"""Seeds that follow from a registration, so that nobody can pick them."""

from __future__ import annotations

import hashlib
import hmac
from itertools import count as numbers

SEEDS = "seeds"
"""The stream of a study's own seeds."""
CONFIRMATION = "confirmation"
"""The stream of the seeds that a winner is confirmed on."""
LIMIT = 2**31
"""Foreign programs, NumPy's older generators among them, take no larger ones."""


def derive_seeds(sha256: str, stream: str, count: int) -> list[int]:
    """The first `count` distinct numbers of HMAC-SHA256, keyed by the registration's hash, over stream and index."""
    seeds: dict[int, None] = {}
    for index in numbers():
        if len(seeds) == count:
            return list(seeds)
        digest = hmac.new(bytes.fromhex(sha256), f"{stream}:{index}".encode(), hashlib.sha256).digest()
        seeds[int.from_bytes(digest[:8], "big") % LIMIT] = None
    raise AssertionError
