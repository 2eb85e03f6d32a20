"""The recorder, the only writer of a run directory while the run is in progress.

A trainer needs only `log`, `evaluated`, `save` and `resume`. Each `log` is one `write()` of one line, so a logged line
survives a kill of the process. Checkpoints and metadata are fsynced and replaced atomically.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from math import isfinite
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Any, Self, SupportsFloat

import orjson

from fairtrial.core.canonical import file_hash
from fairtrial.core.cautions import NEVER_JUDGED, OTHER_BEST_METRIC, SERIES_DAMAGED
from fairtrial.core.directions import settle
from fairtrial.core.durable import set_lost_tail_aside, sync_path
from fairtrial.core.errors import FairtrialError, StoreError, UserError, unknown
from fairtrial.core.paths import RunPaths
from fairtrial.core.run_metadata import RunMetadata
from fairtrial.core.runs import Run, Status
from fairtrial.core.schema import EVENTS_SCHEMA
from fairtrial.core.training import Clock
from fairtrial.record.atomic import SyncLevel, link_file, store_errors
from fairtrial.record.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from fairtrial.record.claims import Claim, ClaimLost, Fence, token_of
from fairtrial.record.environment import torch_instruction_set
from fairtrial.record.lines import drop_torn_line, events_named, newest_event_named
from fairtrial.record.metadata import BEST_KEYS, load_metadata, load_run, write_metadata
from fairtrial.record.metric_lines import (
    FROM_THE_BEGINNING,
    MOST_STEP,
    RESERVED,
    Extent,
    GrowingHash,
    Rewind,
    check_base,
    spell,
)
from fairtrial.record.series import write_columns
from fairtrial.record.top_checkpoints import TopCheckpoints

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

CONTROL_EVENTS = frozenset(
    {
        "run_started", "run_resumed", "run_ended", "rewound", "torn_line_dropped", "checkpoint_saved",
        "checkpoint_refused", "best_changed", "top_kept", "top_dropped", "evaluation", "outcome_reported",
    }
)  # fmt: skip
"""Events that resuming and reading depend on. Only the recorder writes them."""
EVENT_KEYS = ("schema", "event", "at")
"""Keys that the recorder sets in every line of `events.jsonl`."""

HELD = "held-best-"
State = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


class Recorder:
    """Writes one run. Use `create` for a new attempt at a cell and `attach` in a program that a job started."""

    def __init__(
        self, paths: RunPaths, metadata: RunMetadata, claim: Claim | None, clock: Clock, *, begun: bool,
        fence: Fence | None = None,
    ) -> None:  # fmt: skip
        self.paths = paths
        self.metadata = metadata
        self._claim = claim
        self._seed_noted = claim is not None  # `seed_read` is recorded only for programs that joined a run
        self._fence = claim.fence if claim else fence or Fence(paths.lock)
        self.step, self.saved = 0, 0
        self._clock = clock
        self._pid = os.getpid()
        self._metrics_hash = GrowingHash(paths.metrics)
        self._undecided = begun  # an earlier attempt exists, and it is not yet clear whether to resume or restart it
        with store_errors(paths.root):  # O_NOFOLLOW rejects symbolic links before a torn line is truncated below
            self._metrics_file = os.open(paths.metrics, _APPEND, 0o644)
            self._events_file = os.open(paths.events, _APPEND, 0o644)
        for path in (paths.metrics, paths.events):
            set_lost_tail_aside(path)
        self._torn = drop_torn_line(paths.metrics) | drop_torn_line(paths.events)
        self._set_clocks(wall_s=0.0, cpu_s=0.0)
        self._awaiting_state: tuple[int, float] | None = None
        self.ended = False

    @classmethod
    def create(cls, paths: RunPaths, metadata: RunMetadata, claim: Claim, clock: Clock = time.perf_counter) -> Self:
        """Start a run, or continue an interrupted one, in a directory that this process has claimed."""
        previous = load_metadata(paths)
        if previous is not None:
            metadata = _carry_over(previous, metadata)
            _sweep(paths)
            if metadata.best_checkpoint_step is None:
                paths.best.unlink(missing_ok=True)
        recorder = cls(paths, metadata, claim, clock, begun=previous is not None)
        write_metadata(paths, metadata, sync=SyncLevel.FOLDER)  # also syncs the entries of the lock and JSONL files
        for folder in (paths.root.parent, paths.root.parent.parent):
            sync_path(folder)  # syncs the directory entries of the run and of its study
        recorder.write_event("run_resumed" if previous else "run_started", pid=os.getpid(), token=claim.token)
        if recorder._torn:
            recorder.write_event("torn_line_dropped")
        return recorder

    @classmethod
    def attach(cls, paths: RunPaths, token: int | None = None, clock: Clock = time.perf_counter) -> Self:
        """Join the run of the job that started this program. The job keeps the claim and ends the run.

        `token` is the token of the job's claim. Raises ClaimLost if the job has lost that claim in the meantime.
        """
        metadata = load_metadata(paths)
        if metadata is None:
            raise UserError(f"{paths.root} is not a run directory")
        fence = Fence(paths.lock)
        if token is not None and token_of(paths) != token:
            raise ClaimLost("another process took over the run of this program and continues it")
        return cls(paths, metadata, None, clock, begun=True, fence=fence)

    # Called by trainers.

    def log(
        self,
        step: int | Mapping[str, SupportsFloat],
        metrics: Mapping[str, SupportsFloat] | None = None,
        /,
        **values: SupportsFloat,
    ) -> None:
        """Append one line of metrics. This takes microseconds, and the line survives a kill of the process.

        `log(3, loss=0.5)`, `log(3, {"eval/loss": 0.5})` and `log({"eval/loss": 0.5}, step=3)` mean the same.
        """
        if self._undecided:
            self._decide()
        if metrics:
            values = {**metrics, **values}
        line: dict[str, Any] = {"step": step, "_time": round(self._clock() - self._origin, 6)}
        for name, value in values.items():
            if type(value) is not float:
                value = _number(name, value)
            line[name] = value if isfinite(value) else spell(value)
        if len(line) != len(values) + 2 or type(step) is not int or not -MOST_STEP <= step <= MOST_STEP:
            if isinstance(step, Mapping):
                self.log(*_step_last(step, values))
                return
            line["step"] = step = _checked_step(step, values)
        self.step = step
        self._append(self._metrics_file, _line(line))

    def evaluated(
        self, step: int, metrics: Mapping[str, SupportsFloat], state: State | None = None, *, save: bool = False
    ) -> bool:
        """Log an evaluation and return whether it is the best so far.

        `best.pt` must contain the weights that were evaluated. Pass them as `state` (or as a function that returns
        them, called only if needed), or call `save` at the same step right after. With `save=True` the state is also
        saved as a checkpoint to resume from.
        """
        is_best = self._judge(step, metrics, None if save else state)
        if save:
            if state is None:
                raise UserError("evaluated(save=True) requires a state to save")
            self.save(step, state() if callable(state) else state)
        return is_best

    def _judge(self, step: int, metrics: Mapping[str, SupportsFloat], state: State | None) -> bool:
        self.log(step, metrics)
        self.write_event("evaluated", step=step, metrics={name: spell(float(v)) for name, v in metrics.items()})
        self._awaiting_state = None
        name = self.metadata.best_metric_name
        if name is None or name not in metrics:
            return False
        value = float(metrics[name])
        if state is not None:
            self._top.consider(step, value, name, state if callable(state) else lambda: state)
        if not self._beats_incumbent(value):
            return False
        if state is None:
            self._awaiting_state = (step, value)
        else:
            self._keep_best(step, value, state() if callable(state) else state)
        return True

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Save a checkpoint as `step-N.pt`, with `last.pt` as a hard link to it.

        A state contains numbers, strings, lists, dictionaries, torch tensors, NumPy arrays and random generators;
        `resume` returns the same types. A torch module or optimizer is saved as its `state_dict()`.

        The checkpoint stores the number and the hash of the metrics lines that precede it. They are hashed here, so
        that `log` stays fast.
        """
        if self._undecided:
            self._decide()
        if self._awaiting_state and self._awaiting_state[0] == step:
            name, value = self.metadata.best_metric_name, self._awaiting_state[1]
            assert name is not None  # only an evaluation with that metric sets `_awaiting_state`
            self._top.consider(step, value, name, lambda: state)
            self._keep_best(step, value, state)
        self._awaiting_state = None
        path = self.paths.step(step)
        series = self._metrics_hash.extent().to_dict()
        os.fsync(self._metrics_file)  # the metrics before a checkpoint must be as durable as the checkpoint
        self._fence.check()
        best = self._hold_best(step)
        sha256 = write_checkpoint(path, step, state, best=best, series=series, **self._spent())
        self.write_event("checkpoint_saved", step=step, sha256=sha256, series=series)
        os.fsync(self._events_file)
        link_file(path, self.paths.last)
        self.saved = step
        self._let_go_of_older_best(step)

    def resume(self) -> Checkpoint | None:
        """Return the newest checkpoint to resume from, or None to start from the beginning.

        The checkpoint must have its recorded hash, and the metrics lines that precede it must be unchanged: a run that
        resumes after truncated lines would end with steps missing. Checkpoints of earlier versions do not record those
        lines and are accepted without this check.
        """
        saved = saved_checkpoints(self.paths)
        series_damaged: str | None = None
        for step in sorted(saved, reverse=True):
            try:
                checkpoint = read_checkpoint(self.paths.step(step), sha256=saved[step])
            except FairtrialError as error:
                self.write_event("checkpoint_refused", step=step, reason=str(error))
                continue
            extent = Extent.from_record(checkpoint.details.get("series"))
            base = check_base(self.paths.metrics, step, extent) if extent else None
            if base and base.problem:
                self.write_event("checkpoint_refused", step=step, reason=base.problem)
                series_damaged = series_damaged or base.problem
                continue
            damaged = series_damaged is not None or (base is not None and base.rest_is_damaged)
            link_file(self.paths.step(step), self.paths.last)  # a kill in `save` may have left an older `last.pt`
            self._continue_from(checkpoint, kept_bytes=extent.bytes if extent and damaged else None)
            self._caution_of_damage(series_damaged, f"step {step}")
            return checkpoint
        if self._undecided:
            self._decide()
        self._caution_of_damage(series_damaged, "the beginning")
        return None

    def _caution_of_damage(self, problem: str | None, where: str) -> None:
        if problem is not None:
            filled = SERIES_DAMAGED.fill(problem=problem, where=where)
            self.update(cautions=[*self.metadata.cautions, filled])

    def event(self, event: str, /, **fields: Any) -> None:
        """Append one line of telemetry. Event and field names are free, except those that the recorder reserves."""
        if event in CONTROL_EVENTS:
            raise UserError(f"the event name '{event}' is reserved for resuming", hint="Choose another name.")
        taken = [name for name in EVENT_KEYS if name in fields]
        if taken:
            raise UserError(f"the event field name '{taken[0]}' is reserved", hint="Choose another name.")
        self.write_event(event, **fields)

    def write_event(self, event: str, /, **fields: Any) -> None:
        """Append one event without checking its name. For Fairtrial itself; `core/events.py` declares the events."""
        line = {"schema": EVENTS_SCHEMA, "event": event, "at": time.time(), **fields}
        self._append(self._events_file, _line(line))

    # Called by jobs.

    def begin_training(self) -> None:
        """Record the setup time (imports, data, models) and restart the clocks, so that they time only training."""
        setup = self._spent()["wall_s"] - self._before["wall_s"]
        self.amend(timings=self.metadata.timings.replace(setup_s=setup))
        self._set_clocks(**self._before)

    def shared_with(self, runs: int) -> None:
        """Record that `runs` runs share this process, so that time and memory cannot be attributed to this run."""
        timings = self.metadata.timings
        self.amend(timings=timings.replace(stacked=max(runs, timings.stacked)))

    @property
    def seed(self) -> int:
        """The seed of this run, for scripts that do not take it as an argument.

        In a program that joined a run, the first read records a `seed_read` event, which shows that the seed is used.
        """
        if not self._seed_noted and not self.ended:
            self._seed_noted = True
            self.write_event("seed_read")
        return self.metadata.seed

    @property
    def best_step(self) -> int | None:
        return self.metadata.best_checkpoint_step

    def best_state(self) -> Mapping[str, Any] | None:
        if self.best_step is None:
            return None
        return read_checkpoint(self.paths.best, sha256=self.metadata.best_checkpoint_sha256).state

    def amend(self, **changes: Any) -> None:
        """Change metadata of the run in memory. The next `update` or `finish` writes it to disk."""
        self.metadata = self.metadata.replace(**changes)

    def update(self, *, sync: SyncLevel = SyncLevel.FILE, **changes: Any) -> None:
        """Change metadata of the run and write it to disk."""
        self.amend(**changes)
        self._fence.check()
        write_metadata(self.paths, self.metadata, sync=sync)

    def refresh(self) -> None:
        """Reload the metadata that an attached program wrote."""
        metadata = load_metadata(self.paths)
        if metadata is not None:
            self.metadata = metadata.replace(timings=self.metadata.timings)

    def finish(
        self, status: Status | str = Status.COMPLETED, reason: str | None = None, *, hint: str | None = None,
        cpu_s: float | None = None, hold: bool = False,
    ) -> Run:  # fmt: skip
        """End the run: write columns, final values, timings and status, then release the claim.

        `status` is completed, failed, diverged or interrupted. A program that a launch started reports it to its job,
        which ends the run when the program exits. With `hold`, the files and the claim stay open until `release`, for
        events that can only follow the end.
        """
        status = _checked_status(status)
        if self._claim is None:
            return self._report_outcome(status, reason)
        if self._metrics_hash.is_cut_off():  # not ended, so that the run can resume from an earlier checkpoint
            raise StoreError(f"{self.paths.metrics} was truncated while the run was in progress", hint="Run it again.")
        self.write_event("run_ended", status=status.value, reason=reason)
        os.fsync(self._metrics_file)  # an ended run is never executed again, so its files must be complete
        os.fsync(self._events_file)
        written = write_columns(self.paths)
        final = written.final
        chosen = self.metadata.best_metric_name
        if chosen is not None and chosen not in final and final and status is Status.COMPLETED:
            logged = ", ".join(sorted(final))
            self.amend(cautions=[*self.metadata.cautions, NEVER_JUDGED.fill(metric=chosen, logged=logged)])
        spent: dict[str, float | None] = {**self._spent()} if cpu_s is None else {**self._spent(), "cpu_s": cpu_s}
        timings = self.metadata.timings
        if timings.stacked > 1:
            spent = dict.fromkeys(spent)
        timings = timings.replace(**spent, ended=time.time())
        shown = {name: spell(value) for name, value in final.items()}
        self._note_instruction_set()
        self.update(
            sync=SyncLevel.FOLDER, status=status.value, reason=reason, hint=hint, final=shown, timings=timings,
            series=written.extent.to_dict(), series_sha256=written.hashes,
        )  # fmt: skip
        if not hold:
            self.release()
        return self._recorded()

    def _report_outcome(self, status: Status, reason: str | None) -> Run:
        """Tell the job of this program how its training ended. A status of completed needs no report."""
        self._note_instruction_set()
        self.update()
        if status is not Status.COMPLETED:
            self.write_event("outcome_reported", status=status.value, reason=reason)
        self.release()
        return self._recorded()

    def _recorded(self) -> Run:
        run = load_run(self.paths)
        assert run is not None
        return run

    def check_claim(self) -> None:
        """Raise ClaimLost if another process took over this run."""
        self._fence.check()

    def close(self) -> None:
        """Release the run. A run of `fairtrial.run` is also recorded as completed."""
        self.release()

    def release(self) -> None:
        """Close the files and release the claim without recording an outcome."""
        if not self.ended:
            self.ended = True
            os.close(self._metrics_file)
            os.close(self._events_file)
            if self._claim:
                self._claim.release()

    def __repr__(self) -> str:
        status = self.metadata.status if self.ended else Status.RUNNING.value
        name = f"{self.metadata.study}/{self.metadata.run_id}"
        return f"<{type(self).__name__} {name}, {status}, step {self.step}, {self.paths.root}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.ended or os.getpid() != self._pid:  # a forked child leaves the run to its parent
            return
        if self._claim is None:
            if self._note_instruction_set():
                self.update()
            self.release()
        elif error is None:
            self.finish(Status.COMPLETED)
        else:
            self.finish(*_how_a_script_ended(error))

    # Internals.

    def _note_instruction_set(self) -> bool:
        """Record torch's CPU instruction set, known once torch is loaded. Return whether the metadata changed."""
        used = torch_instruction_set()
        environment = self.metadata.environment
        news = used is not None and environment.torch_instruction_set != used
        if news:
            self.amend(environment=environment.replace(torch_instruction_set=used))
        return news

    def _beats_incumbent(self, value: float) -> bool:
        """Return whether a value is better than the best so far. NaN and infinity never are; ties keep the earlier."""
        incumbent = self.metadata.best_metric_value
        if not isfinite(value):
            return False
        if incumbent is None:
            return True
        return value > incumbent if self._best_mode == "max" else value < incumbent

    @property
    def _best_mode(self) -> str:
        """The recorded direction, or the one that the name of the best metric implies."""
        mode, name = self.metadata.best_metric_mode, self.metadata.best_metric_name
        return "max" if name is None else settle(name, recorded=[mode] if mode else []).known()

    def _keep_best(self, step: int, value: float, state: Mapping[str, Any]) -> None:
        """Announce the new best in the metadata, replace `best.pt`, then confirm.

        After a kill in between, the announced hash shows whether `best.pt` is the old or the new one.
        """
        name = self.metadata.best_metric_name
        candidate = self.paths.checkpoints / f".best-{step:d}.pt"
        sha256 = write_checkpoint(candidate, step, state, metric=name, value=value)
        best: dict[str, Any] = {
            "best_metric_value": value,
            "best_checkpoint_step": step,
            "best_checkpoint_path": str(self.paths.best.relative_to(self.paths.root)),
            "best_checkpoint_sha256": sha256,
        }
        self.update(sync=SyncLevel.FOLDER, best_pending=best)
        self._fence.check()
        with store_errors(self.paths.best):
            os.replace(candidate, self.paths.best)  # noqa: PTH105
            sync_path(self.paths.checkpoints)  # the file must be durable before the metadata refer to it
        self.update(sync=SyncLevel.FILE, **best, best_pending=None)  # if lost, the announced hash still identifies it
        self.write_event("best_changed", step=step, metric=name, value=value, sha256=sha256)

    @property
    def _top(self) -> TopCheckpoints:
        most = int(self.metadata.options.get("keep_best") or 1)
        return TopCheckpoints(self.paths, most, self._best_mode, self.write_event)

    def _decide(self) -> None:
        """Start over, unless another process that writes this run has already resumed or restarted it."""
        self._undecided = False
        if not _was_decided(self.paths):
            self._rewind(Rewind(FROM_THE_BEGINNING))
            self._forget_best()
            self._top.sweep()

    def _forget_best(self) -> None:
        self.paths.best.unlink(missing_ok=True)
        self.amend(**dict.fromkeys(BEST_KEYS))
        self.update(best_pending=None)

    def _hold_best(self, step: int) -> dict[str, Any] | None:
        """Link the current `best.pt` next to the checkpoint of this step, so that a resume can restore it."""
        if self.best_step is None:
            return None
        link_file(self.paths.best, self._held(step))
        return {key: self.metadata[key] for key in BEST_KEYS}

    def _let_go_of_older_best(self, step: int) -> None:
        """Delete the held bests of older checkpoints. A resume needs them until the new checkpoint is in place."""
        for old in self.paths.checkpoints.glob(f".{HELD}*"):
            if old != self._held(step):
                old.unlink()

    def _held(self, step: int) -> Path:
        return self.paths.checkpoints / f".{HELD}{step:d}.pt"

    def _return_to_best_of(self, checkpoint: Checkpoint) -> None:
        """Restore the best as of this checkpoint. A later best belongs to steps that the resume discards."""
        best, held = checkpoint.details.get("best"), self._held(checkpoint.step)
        if self.best_step is None or self.best_step <= checkpoint.step:
            return
        if not best or not held.exists() or file_hash(held) != best["best_checkpoint_sha256"]:
            self._forget_best()
            return
        self.update(sync=SyncLevel.FOLDER, best_pending=best)
        link_file(held, self.paths.best)
        self.update(**best, best_pending=None)

    def _rewind(self, rewind: Rewind) -> None:
        """Mark everything that was logged and saved after a step as discarded."""
        self.write_event("rewound", step=rewind.step)
        self._append(self._metrics_file, _line(rewind.to_row()))

    def _continue_from(self, checkpoint: Checkpoint, kept_bytes: int | None) -> None:
        self._undecided = False
        self.step = self.saved = checkpoint.step
        self._rewind(Rewind(checkpoint.step, kept_bytes))
        self._return_to_best_of(checkpoint)
        self._top.sweep()
        self._set_clocks(wall_s=checkpoint.details["wall_s"], cpu_s=checkpoint.details["cpu_s"])
        lineage = self.metadata.lineage
        resumption = {
            "step": checkpoint.step,
            "at": time.time(),
            "best_step": self.best_step,
            "best_value": self.metadata.best_metric_value,
        }
        self.update(lineage=lineage.replace(resumed=[*lineage.resumed, resumption]))

    def _set_clocks(self, *, wall_s: float, cpu_s: float) -> None:
        """Restart the clocks, offset by the time that earlier attempts used."""
        self._before = {"wall_s": wall_s, "cpu_s": cpu_s}
        self._origin = self._clock() - wall_s
        self._cpu_origin = time.process_time() - cpu_s

    def _spent(self) -> dict[str, float]:
        return {"wall_s": self._clock() - self._origin, "cpu_s": time.process_time() - self._cpu_origin}

    def _append(self, descriptor: int, line: bytes) -> None:
        """Append a line with one write. A partial write on a full disk is undone, so that no torn line remains."""
        if self.ended:
            raise UserError("this run has ended and accepts no more data")
        self._fence.check()
        try:
            written = os.write(descriptor, line)
        except OSError as error:
            with store_errors(self.paths.root):
                raise error
        if written != len(line):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            with store_errors(self.paths.root):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _line(content: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError as error:
        raise UserError(
            f"these values cannot be recorded as JSON: {error}", hint="Use strings as names and steps below 2^63."
        ) from None


def _was_decided(paths: RunPaths) -> bool:
    """Return whether this attempt has already resumed or started over, or is the first one."""
    newest = newest_event_named(paths.events, "rewound", "run_started", "run_resumed")
    return newest is not None and newest["event"] != "run_resumed"


def _sweep(paths: RunPaths) -> None:
    """Remove leftovers of a kill: temporary files, and candidates for the best that did not become `best.pt`."""
    leftovers = [*paths.root.glob(".*.tmp"), *paths.checkpoints.glob(".*.tmp"), *paths.checkpoints.glob(".best-*.pt")]
    for path in leftovers:
        path.unlink(missing_ok=True)


def saved_checkpoints(paths: RunPaths) -> dict[int, str]:
    """Return step → hash of the checkpoints that no rewind has discarded."""
    saved: dict[int, str] = {}
    for row in events_named(paths.events, "checkpoint_saved", "rewound"):
        step, sha256 = row.get("step"), row.get("sha256")
        if row["event"] == "rewound":
            reached = step if type(step) is int else FROM_THE_BEGINNING  # a damaged rewind discards everything
            saved = {each: known for each, known in saved.items() if each <= reached}
        elif type(step) is int and isinstance(sha256, str):
            saved[step] = sha256
    return saved


def _how_a_script_ended(error: BaseException) -> tuple[Status, str | None]:
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return Status.COMPLETED, None
    status = Status.INTERRUPTED if isinstance(error, KeyboardInterrupt) else Status.FAILED
    return status, f"{type(error).__name__}: {error}".rstrip(": ")


def _carry_over(previous: RunMetadata, metadata: RunMetadata) -> RunMetadata:
    """Return the metadata of an attempt that continues an interrupted run.

    The best checkpoint is carried over only if the best metric and its direction are unchanged.
    """
    before = (previous.best_metric_name, previous.best_metric_mode)
    if metadata.best_metric_name is None:  # an attached program named it in the earlier attempt
        metadata = metadata.replace(best_metric_name=before[0], best_metric_mode=before[1])
    now = (metadata.best_metric_name, metadata.best_metric_mode)
    best = {key: previous[key] if before == now else None for key in BEST_KEYS}
    cautions = metadata.cautions
    if before != now and previous.best_metric_name is not None:
        names = {"before": f"{before[0]} ({before[1]})", "now": f"{now[0]} ({now[1]})"}
        cautions = [*cautions, OTHER_BEST_METRIC.fill(**names)]
    environment = metadata.environment
    if previous.environment.command_line is not None:
        environment = environment.replace(command_line=previous.environment.command_line)
    timings = metadata.timings.replace(created=previous.timings.created, stacked=previous.timings.stacked)
    return metadata.replace(
        **best, cautions=cautions, lineage=previous.lineage, timings=timings, environment=environment
    )


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"metric '{name}' must be a number, not {type(value).__name__}") from None


def _step_last(metrics: Mapping[str, Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the step and the metrics of `log({"loss": 0.5}, step=3)`."""
    if "step" not in values:
        raise UserError("log() needs a step", hint="Write log(3, loss=0.5) or log({'loss': 0.5}, step=3).")
    rest = {name: value for name, value in values.items() if name != "step"}
    return values["step"], {**metrics, **rest}


def _checked_status(status: Status | str) -> Status:
    endings = (Status.COMPLETED, Status.FAILED, Status.DIVERGED, Status.INTERRUPTED)
    if status not in endings:
        raise UserError(unknown("status of a finished run", str(status), [each.value for each in endings]))
    return Status(status)


def _checked_step(step: Any, values: Mapping[str, Any]) -> int:
    taken = [name for name in RESERVED if name in values]
    if taken:
        raise UserError(f"the metric name '{taken[0]}' is reserved", hint="Choose a name other than step and _time.")
    try:
        whole = index(step)
    except TypeError:
        raise UserError(f"step must be an integer, not {step!r}") from None
    if not -MOST_STEP <= whole <= MOST_STEP:
        raise UserError(f"step {whole} exceeds 64 bits")
    return whole
