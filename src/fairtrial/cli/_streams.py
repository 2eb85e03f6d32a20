"""Keep stdout for the one result document: output that other programs and libraries print goes to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

OUT, ERR = 1, 2


@contextlib.contextmanager
def output_kept_free() -> Iterator[None]:
    """Redirect file descriptor 1 to stderr while third-party code runs. Replacing `sys.stdout` misses C libraries."""
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
    """Continue when the reader of stdout, such as `head`, has closed it.

    The command still writes its files and returns its exit code; the rest of the output is discarded.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Redirect stdout to the null device, so that the flush at interpreter exit does not fail either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
