"""Handle termination signals in the same way as Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""The default signal of `kill`, and the signal that a closing terminal sends."""


@contextlib.contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C. Signals that are ignored, as under `nohup`, stay ignored.

    A closing terminal may send SIGHUP twice, once from its shell and once from the kernel. The second one is ignored:
    a second Ctrl-C would stop runs before they can save a checkpoint.
    """
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        again, asked = asked, True
        if number == signal.SIGHUP and again:
            return
        interrupt = signal.getsignal(signal.SIGINT)  # not callable in a background job, which ignores SIGINT
        (interrupt if callable(interrupt) else signal.default_int_handler)(signal.SIGINT, frame)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.signal(number, handle) for number in ENDING if signal.getsignal(number) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
