"""Handling of Ctrl-C in commands that train in their own process."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Yield a function that is true after the first Ctrl-C or SIGTERM, so the run can save; a second one interrupts."""
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
