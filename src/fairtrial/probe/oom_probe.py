"""Work that may take more memory than there is, tried where it can do no harm: in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

OUT_OF_MEMORY = "out of memory"
POLL_S = 0.1
_SIGNS = ("memoryerror", "outofmemory", "out of memory", "allocate memory", "can't allocate", "std::bad_alloc")


def is_out_of_memory(reason: str | None) -> bool:
    """Whether what a library said is its way of saying that memory ran out."""
    return any(sign in (reason or "").lower() for sign in _SIGNS)


def survives(work: Callable[[], str | None], should_stop: Callable[[], bool] = lambda: False) -> str | None:
    """Do the work in a child; returns why it failed, None if it did not. A kernel that is short of memory kills that
    child before anybody else. The child has one thread: others do not come along when a process forks.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _be_the_first_to_go()
        try:
            message = work()
        except BaseException as error:  # noqa: BLE001 — whatever happens here ends here
            message = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            os.write(writer, json.dumps(message).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        while not select.select([pipe], [], [], POLL_S)[0]:
            if should_stop():
                os.kill(child, signal.SIGKILL)
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _failure_message(text, code)


def _failure_message(text: bytes, code: int) -> str | None:
    if code == -signal.SIGKILL:
        return f"{OUT_OF_MEMORY}: the kernel ended the process that tried it"
    if code or not text:
        return f"the process that tried it ended with status {code}"
    message = json.loads(text)
    return None if message is None else f"{OUT_OF_MEMORY}: {message}" if is_out_of_memory(message) else str(message)


def _be_the_first_to_go() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
