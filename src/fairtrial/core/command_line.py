"""The command line that a person typed, for whoever records what it made."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_given: list[Sequence[str]] = []


def typed_words() -> list[str]:
    """The command being carried out: one of `fairtrial`, else the script that this process runs."""
    return list(_given[-1] if _given else sys.argv)


@contextmanager
def carrying_out(words: Sequence[str]) -> Iterator[None]:
    """Within, `words` are the command line, whatever the arguments of this process are."""
    _given.append(words)
    try:
        yield
    finally:
        _given.pop()
