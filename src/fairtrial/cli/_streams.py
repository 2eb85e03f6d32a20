"""Standard output is for one document: what programs and libraries print past Python goes to standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

OUT, ERR = 1, 2


@contextlib.contextmanager
def output_kept_free() -> Iterator[None]:
    """While somebody else's code runs."""
    sys.stdout.flush()
    kept = os.dup(OUT)
    os.dup2(ERR, OUT)
    try:
        yield
    finally:
        os.dup2(kept, OUT)
        os.close(kept)
