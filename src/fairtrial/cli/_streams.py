"""Keep stdout for the one result document: output that other programs and libraries print goes to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO, Any

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


def fitted(text: str, stream: IO[str]) -> str:
    """Return text for people, wrapped between words if the stream is a terminal.

    Lines with a command, or with a long id or path, stay whole, so that they can be copied.
    """
    if not stream.isatty():
        return text
    import shutil  # imported late to keep `--help` fast
    import textwrap

    width = shutil.get_terminal_size().columns
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
    return "\n".join(
        line
        if len(line) <= width or "fairtrial " in line or any(len(word) > width // 2 for word in line.split())
        else textwrap.fill(line, width, subsequent_indent=" " * (len(line) - len(line.lstrip())), **options)
        for line in text.split("\n")
    )


def discard_output() -> None:
    """Redirect stdout to the null device, so that the flush at interpreter exit does not fail either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
