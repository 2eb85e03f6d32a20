"""Seeds derived from the hash of a registration, so that nobody can choose them."""

from __future__ import annotations

import hashlib
import hmac
from itertools import count as numbers

SEEDS = "seeds"
"""Stream of the seeds of a study."""
CONFIRMATION = "confirmation"
"""Stream of the seeds on which a winner is confirmed."""
LIMIT = 2**31
"""Other programs, such as NumPy's legacy generators, do not accept larger seeds."""


def derive_seeds(sha256: str, stream: str, count: int) -> list[int]:
    """Return the first `count` distinct numbers from HMAC-SHA256 over stream and index, keyed by the hash."""
    seeds: dict[int, None] = {}
    for index in numbers():
        if len(seeds) == count:
            return list(seeds)
        digest = hmac.new(bytes.fromhex(sha256), f"{stream}:{index}".encode(), hashlib.sha256).digest()
        seeds[int.from_bytes(digest[:8], "big") % LIMIT] = None
    raise AssertionError
