"""A trace of a few steps by torch's profiler, with Fairtrial's phases added; Perfetto can open it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.core.training import Observer

QUIET = "6"
"""Above all log levels of the profiler's library, because it writes directly to stderr."""


class TorchTrace(Observer):
    """Records a trace from `begin` to `write`. Tracing takes time, so traced steps are not timed."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._wanted = 0
        self._profiler: Any = None
        self._open: list[Any] = []

    def begin(self, steps: int) -> None:
        self._wanted = steps
        os.environ.setdefault("KINETO_LOG_LEVEL", QUIET)
        from torch.profiler import ProfilerActivity, profile, supported_activities

        kinds = {ProfilerActivity.CPU, ProfilerActivity.CUDA} & set(supported_activities())  # type: ignore[no-untyped-call]
        self._profiler = profile(activities=sorted(kinds, key=str), record_shapes=True)
        self._profiler.start()

    def turn_started(self, now: float) -> None:  # noqa: ARG002
        self._enter("step")

    def phase_started(self, name: str, now: float) -> None:  # noqa: ARG002
        self._enter(name)

    def phase_ended(self, name: str, now: float) -> None:  # noqa: ARG002
        self._leave()

    def step_ended(self, step: int, now: float) -> None:  # noqa: ARG002
        if self._profiler is not None:
            self.steps.append(step)
            self._leave()
            if len(self.steps) < self._wanted:
                self._enter("step")

    def write(self, path: Path) -> None:
        """Stop recording and write the trace."""
        while self._open:
            self._leave()
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        try:
            profiler.export_chrome_trace(str(path))
        except (OSError, RuntimeError) as error:
            raise UserError(f"cannot write the trace {path}: {error}", hint="Choose another --trace-dir.") from None

    def _enter(self, name: str) -> None:
        if self._profiler is not None:
            from torch.profiler import record_function

            mark = record_function(name)
            mark.__enter__()  # type: ignore[no-untyped-call]
            self._open.append(mark)

    def _leave(self) -> None:
        if self._profiler is not None and self._open:
            self._open.pop().__exit__(None, None, None)


def check_folder(folder: Path) -> None:
    """Raise an error before the measurement if the trace could not be written after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write traces to {folder}: {error.strerror or error}", hint="Choose another --trace-dir."
        ) from None


def free_name(folder: Path, stem: str) -> Path:
    """Create and return a file in the folder with a name that no earlier trace has."""
    number = 1
    while True:
        path = folder / f"{stem}-{number}.json"
        with contextlib.suppress(FileExistsError):
            path.touch(exist_ok=False)
            return path
        number += 1
