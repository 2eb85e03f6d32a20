"""The command line of the current process, for the records of what it produced."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_given: list[Sequence[str]] = []


def typed_words() -> list[str]:
    """Return the command line in effect: that of the current `fairtrial` command, else `sys.argv`."""
    return list(_given[-1] if _given else sys.argv)


@contextmanager
def carrying_out(words: Sequence[str]) -> Iterator[None]:
    """Use `words` as the command line inside this context, instead of the arguments of the process."""
    _given.append(words)
    try:
        yield
    finally:
        _given.pop()
