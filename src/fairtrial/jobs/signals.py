"""One way to stop: whoever ends a command by a signal gets what Ctrl-C gives."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""What `kill` sends, and a terminal that is closed."""


@contextlib.contextmanager
def like_ctrl_c() -> Iterator[None]:
    """`kill` and a closed terminal do what Ctrl-C does. What is ignored, as below `nohup`, stays ignored.

    A terminal that is closed may say so twice, by its shell and by the kernel: that is no second Ctrl-C, which would
    not let runs save.
    """
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        again, asked = asked, True
        if number == signal.SIGHUP and again:
            return
        interrupt = signal.getsignal(signal.SIGINT)  # what a shell has put into the background ignores it
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
