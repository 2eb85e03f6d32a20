"""Ctrl-C for commands that train in their own process."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C (or SIGTERM) lets the run save and leave; the second one does not wait."""
    asked = False

    def handle(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            signal.default_int_handler(number, frame)
        asked = True

    kept = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
