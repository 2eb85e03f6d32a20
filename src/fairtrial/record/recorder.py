"""The live side of a run: the only thing that writes a run directory while it is being made.

`log`, `evaluated`, `save` and `resume` are all that a trainer needs. Every `log` is one `write()` of one
line, so a line that was logged survives a kill of the process. Checkpoints and metadata are made durable
and put in place whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from math import isfinite
from operator import index
from types import TracebackType
from typing import Any, Self, SupportsFloat

import orjson

from fairtrial.core.cautions import NEVER_JUDGED
from fairtrial.core.errors import FairtrialError, UserError
from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Run, Status
from fairtrial.core.schema import EVENTS_SCHEMA
from fairtrial.core.training import Clock
from fairtrial.record.atomic import Sync, link_file, store_errors
from fairtrial.record.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from fairtrial.record.claims import Claim
from fairtrial.record.metadata import BEST_KEYS, load_metadata, load_run, write_metadata
from fairtrial.record.series import RESERVED, drop_torn_line, read_lines, spell, write_columns

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_encode = orjson.dumps
_NEWLINE = orjson.OPT_APPEND_NEWLINE

State = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


class Recorder:
    """Writes one run. Use `create` for a new attempt at a cell, `attach` inside a program that a job started."""

    def __init__(self, paths: RunPaths, metadata: dict[str, Any], claim: Claim | None, clock: Clock) -> None:
        self.paths = paths
        self.metadata = metadata
        self._claim = claim
        self._clock = clock
        self._torn = drop_torn_line(paths.metrics) | drop_torn_line(paths.events)
        with store_errors(paths.root):
            self._metrics_file = os.open(paths.metrics, _APPEND, 0o644)
            self._events_file = os.open(paths.events, _APPEND, 0o644)
        self._set_clocks(wall_s=0.0, cpu_s=0.0)
        self._awaiting_state: tuple[int, float] | None = None
        self.ended = False

    @classmethod
    def create(cls, paths: RunPaths, metadata: dict[str, Any], claim: Claim, clock: Clock = time.perf_counter) -> Self:
        """Begin a run, or continue an interrupted one, in a directory that this process has claimed."""
        previous = load_metadata(paths)
        if previous is not None:
            metadata = _carry_over(previous, metadata)
        recorder = cls(paths, metadata, claim, clock)
        write_metadata(paths, metadata)
        recorder.event("run_resumed" if previous else "run_started", pid=os.getpid())
        if recorder._torn:
            recorder.event("torn_line_dropped")
        return recorder

    @classmethod
    def attach(cls, paths: RunPaths, clock: Clock = time.perf_counter) -> Self:
        """Join the run of the job that started this program; the job keeps the claim and ends the run."""
        metadata = load_metadata(paths)
        if metadata is None:
            raise UserError(f"{paths.root} is not a run directory")
        return cls(paths, metadata, None, clock)

    # What a trainer calls.

    def log(self, step: int, metrics: Mapping[str, SupportsFloat] | None = None, /, **values: SupportsFloat) -> None:
        """Append one line of metrics. It costs microseconds, and a line once logged is never lost."""
        if metrics:
            values = {**metrics, **values}
        line: dict[str, Any] = {"step": step, "_time": round(self._clock() - self._origin, 6)}
        for name, value in values.items():
            if type(value) is not float:
                value = _number(name, value)
            line[name] = value if isfinite(value) else spell(value)
        if len(line) != len(values) + 2 or type(step) is not int:
            line["step"] = _checked_step(step, values)
        self._append(self._metrics_file, _encode(line, option=_NEWLINE))

    def evaluated(
        self, step: int, metrics: Mapping[str, SupportsFloat], state: State | None = None, *, save: bool = False
    ) -> bool:
        """Log an evaluation and judge it; returns whether it is the best so far.

        The weights that were evaluated are the ones kept as `best.pt`: give them as `state` (or a function
        that makes it, called only when it is needed), or `save` them at the same step right after. With
        `save=True` the state is also saved as a checkpoint to resume from.
        """
        is_best = self._judge(step, metrics, None if save else state)
        if save:
            if state is None:
                raise UserError("evaluated(save=True) needs the state to save")
            self.save(step, state() if callable(state) else state)
        return is_best

    def _judge(self, step: int, metrics: Mapping[str, SupportsFloat], state: State | None) -> bool:
        self.log(step, metrics)
        self.event("evaluated", step=step, metrics={name: spell(float(v)) for name, v in metrics.items()})
        self._awaiting_state = None
        name = self.metadata["best_metric_name"]
        if name is None or name not in metrics:
            return False
        value = float(metrics[name])
        if not self._beats_incumbent(value):
            return False
        if state is None:
            self._awaiting_state = (step, value)
        else:
            self._keep_best(step, value, state() if callable(state) else state)
        return True

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Save a checkpoint: `step-N.pt`, and `last.pt` as another name of it."""
        if self._awaiting_state and self._awaiting_state[0] == step:
            self._keep_best(step, self._awaiting_state[1], state)
        self._awaiting_state = None
        path = self.paths.step(step)
        os.fsync(self._metrics_file)  # what a checkpoint builds on must be as durable as the checkpoint
        sha256 = write_checkpoint(path, step, state, **self._spent())
        self.event("checkpoint_saved", step=step, sha256=sha256)
        os.fsync(self._events_file)
        link_file(path, self.paths.last)

    def resume(self) -> Checkpoint | None:
        """The newest checkpoint whose content is the one that was recorded, or None to start afresh."""
        events = read_lines(self.paths.events).rows
        saved = {row["step"]: row["sha256"] for row in events if row["event"] == "checkpoint_saved"}
        for step in sorted(saved, reverse=True):
            try:
                checkpoint = read_checkpoint(self.paths.step(step), sha256=saved[step])
            except FairtrialError as error:
                self.event("checkpoint_refused", step=step, reason=str(error))
                continue
            link_file(self.paths.step(step), self.paths.last)  # a kill may have come between the two names
            self._continue_from(checkpoint)
            return checkpoint
        return None

    def event(self, event: str, **fields: Any) -> None:
        """Append one line of telemetry."""
        line = {"schema": EVENTS_SCHEMA, "event": event, "at": time.time(), **fields}
        self._append(self._events_file, _encode(line, option=_NEWLINE))

    # What a job calls.

    def begin_training(self) -> None:
        """Set-up is over: imports, data and models are there. What is timed from here on is training."""
        setup = self._spent()["wall_s"] - self._before["wall_s"]
        self.metadata["timings"] = {**self.metadata["timings"], "setup_s": setup}
        self._set_clocks(**self._before)

    @property
    def seed(self) -> int:
        """The seed of this run, for scripts that do not take it as an argument."""
        return int(self.metadata["seed"])

    @property
    def best_step(self) -> int | None:
        step: int | None = self.metadata["best_checkpoint_step"]
        return step

    def best_state(self) -> Mapping[str, Any] | None:
        if self.best_step is None:
            return None
        return read_checkpoint(self.paths.best, sha256=self.metadata["best_checkpoint_sha256"]).state

    def update(self, *, sync: Sync = Sync.FILE, **fields: Any) -> None:
        """Change metadata of the run and put it on disk."""
        self.metadata.update(fields)
        write_metadata(self.paths, self.metadata, sync=sync)

    def refresh(self) -> None:
        """Take over what an attached program wrote into the metadata."""
        metadata = load_metadata(self.paths)
        if metadata is not None:
            self.metadata = metadata

    def finish(self, status: Status, reason: str | None = None, *, cpu_s: float | None = None) -> Run:
        """End the run: columns, last values, timings, status; then give the directory back."""
        self.event("run_ended", status=status.value, reason=reason)
        final = write_columns(self.paths)
        chosen = self.metadata["best_metric_name"]
        if chosen is not None and chosen not in final:
            logged = ", ".join(sorted(final)) or "nothing"
            self.metadata["cautions"] = [
                *self.metadata["cautions"], NEVER_JUDGED.fill(metric=chosen, logged=logged)
            ]  # fmt: skip
        spent = self._spent() if cpu_s is None else {**self._spent(), "cpu_s": cpu_s}
        timings = {**self.metadata["timings"], **spent, "ended": time.time()}
        shown = {name: spell(value) for name, value in final.items()}
        self.update(sync=Sync.FOLDER, status=status.value, reason=reason, final=shown, timings=timings)
        self.close()
        run = load_run(self.paths)
        assert run is not None
        return run

    def close(self) -> None:
        """Let go of the files and the claim without a word about how the run ended."""
        if not self.ended:
            self.ended = True
            os.close(self._metrics_file)
            os.close(self._events_file)
            if self._claim:
                self._claim.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.ended:
            return
        if self._claim is None:
            self.close()
        elif error is None:
            self.finish(Status.COMPLETED)
        else:
            self.finish(*_how_a_script_ended(error))

    # How it is done.

    def _beats_incumbent(self, value: float) -> bool:
        """NaN and infinity never win; ties keep the earlier."""
        incumbent = self.metadata["best_metric_value"]
        if not isfinite(value):
            return False
        if incumbent is None:
            return True
        return bool(value > incumbent if self.metadata["best_metric_mode"] == "max" else value < incumbent)

    def _keep_best(self, step: int, value: float, state: Mapping[str, Any]) -> None:
        """Announce the new best, put the file in place, then confirm: a kill between leaves one of the two."""
        name = self.metadata["best_metric_name"]
        candidate = self.paths.checkpoints / f".best-{step}.pt"
        sha256 = write_checkpoint(candidate, step, state, metric=name, value=value)
        best = {
            "best_metric_value": value,
            "best_checkpoint_step": step,
            "best_checkpoint_path": str(self.paths.best.relative_to(self.paths.root)),
            "best_checkpoint_sha256": sha256,
        }
        self.update(best_pending=best)
        with store_errors(self.paths.best):
            os.replace(candidate, self.paths.best)  # noqa: PTH105
        self.update(sync=Sync.FOLDER, **best, best_pending=None)
        self.event("best_changed", step=step, metric=name, value=value, sha256=sha256)

    def _continue_from(self, checkpoint: Checkpoint) -> None:
        self._set_clocks(wall_s=checkpoint.details["wall_s"], cpu_s=checkpoint.details["cpu_s"])
        lineage = dict(self.metadata["lineage"])
        lineage["resumed"] = [*lineage["resumed"], {"step": checkpoint.step, "at": time.time()}]
        self.update(lineage=lineage)

    def _set_clocks(self, *, wall_s: float, cpu_s: float) -> None:
        """Count from now on, on top of what earlier attempts have used."""
        self._before = {"wall_s": wall_s, "cpu_s": cpu_s}
        self._origin = self._clock() - wall_s
        self._cpu_origin = time.process_time() - cpu_s

    def _spent(self) -> dict[str, float]:
        return {"wall_s": self._clock() - self._origin, "cpu_s": time.process_time() - self._cpu_origin}

    def _append(self, descriptor: int, line: bytes) -> None:
        """One write per line. A line that does not fit on the disk is taken back whole."""
        try:
            written = os.write(descriptor, line)
        except OSError as error:
            with store_errors(self.paths.root):
                raise error
        if written != len(line):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            self._append(descriptor, line)


def _how_a_script_ended(error: BaseException) -> tuple[Status, str | None]:
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return Status.COMPLETED, None
    status = Status.INTERRUPTED if isinstance(error, KeyboardInterrupt) else Status.FAILED
    return status, f"{type(error).__name__}: {error}".rstrip(": ")


def _carry_over(previous: Mapping[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """What an interrupted run hands to the attempt that continues it."""
    timings = {**metadata["timings"], "created": previous["timings"]["created"]}
    return {**metadata, **{key: previous[key] for key in (*BEST_KEYS, "lineage")}, "timings": timings}


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UserError(f"metric '{name}' must be a number, not {type(value).__name__}") from None


def _checked_step(step: Any, values: Mapping[str, Any]) -> int:
    taken = [name for name in RESERVED if name in values]
    if taken:
        raise UserError(f"'{taken[0]}' cannot name a metric", hint="Each line has its own step and _time.")
    try:
        return index(step)
    except TypeError:
        raise UserError(f"a step must be a whole number, not {step!r}") from None
