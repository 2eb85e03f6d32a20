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


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Go on when the reader of standard output, such as `head`, has closed it.

    The command still has files to write and an exit code to give; nothing more is printed.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Send what is still printed to nowhere, so that the flush at exit does not fail either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
