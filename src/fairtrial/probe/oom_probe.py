"""Run work that may exceed the available memory in a child process, where running out of memory is harmless."""

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
    """Return whether an error message of a library means that memory ran out."""
    return any(sign in (reason or "").lower() for sign in _SIGNS)


def survives(work: Callable[[], str | None], should_stop: Callable[[], bool] = lambda: False) -> str | None:
    """Run the work in a forked child; return why it failed, or None on success. If memory runs out, the kernel kills
    the child before any other process. The child has only one thread, because a fork does not copy other threads.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _be_the_first_to_go()
        try:
            message = work()
        except BaseException as error:  # noqa: BLE001 — no exception may leave the forked child
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
        return f"{OUT_OF_MEMORY}: the kernel killed the process that tried it"
    if code or not text:
        return f"the process that tried it exited with status {code}"
    message = json.loads(text)
    return None if message is None else f"{OUT_OF_MEMORY}: {message}" if is_out_of_memory(message) else str(message)


def _be_the_first_to_go() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
