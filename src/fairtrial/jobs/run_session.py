"""Execution of runs inside a job process; connects core, train, recipes, record and probe.

A job needs only what this module imports: no command line, no statistics, no tables. `jobs/server.py` manages the
processes.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from fairtrial.core.cautions import REDACTED_VALUES, SYNTHETIC, UNUSED_STREAM_SEED
from fairtrial.core.errors import (
    CellConflict,
    Diverged,
    FairtrialError,
    Interrupted,
    InvalidOptions,
    StoreError,
    UserError,
)
from fairtrial.core.options import LoopOptions, Options, TorchOptions, parse_options
from fairtrial.core.paths import RunPaths
from fairtrial.core.private_files import open_to_append
from fairtrial.core.registry import LoadedRecipe, load_recipe
from fairtrial.core.run_metadata import RunLineage, RunMetadata, RunResources
from fairtrial.core.runs import EXIT_CLAIMED, STOPPED, Outcome, Status
from fairtrial.core.secrets import PREFIX, redact, redacted_names, references, reveal
from fairtrial.core.specs import Job, RunSpec
from fairtrial.core.streams import Streams
from fairtrial.core.training import Clock, Dataset, LoopEvents, Observer, RunContext, Trainable
from fairtrial.probe.gpu import Gpus
from fairtrial.probe.resources import children_cpu_seconds, peak_process_bytes, step_expense
from fairtrial.probe.torch_devices import require_devices
from fairtrial.record.claims import Claim, ClaimedElsewhere, ClaimLost, RunGone
from fairtrial.record.environment import of_this_machine
from fairtrial.record.heartbeat import HeartbeatThread, RunHeartbeat
from fairtrial.record.lines import newest_event_named
from fairtrial.record.metadata import load_metadata, load_run, new_metadata
from fairtrial.record.otlp_exporter import OtlpExporter
from fairtrial.record.recorder import Recorder
from fairtrial.record.remote_run_session import RemoteRunSession
from fairtrial.record.store import Store
from fairtrial.train.loop import LoopContext, RunLoop, run_loop, take_steps, train, train_together
from fairtrial.train.selection import bounded, check_best_metric, judgement, scoring_of, selection

ALONE = "Try again with --no-stack, so that each run fails or completes independently."

RedirectOutput = Callable[[RunPaths], contextlib.AbstractContextManager[Any]]
OnEnd = Callable[[RunSpec, int, Outcome | None], None]
"""Called with the exit code of a run and its outcome; the outcome is None if another process holds the run."""
OnClaim = Callable[[RunSpec, int], None]
"""Called with the token of a new claim on a run."""


def run_cell(
    job: Job,
    *,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    redirect_output: RedirectOutput = lambda _: contextlib.nullcontext(),
    on_claim: OnClaim = lambda *_: None,
) -> Outcome:
    """Execute or resume one run, or return its outcome if it is already done.

    Raises ClaimedElsewhere if another process is executing it, and ClaimLost if another process took it over.
    """
    with contextlib.ExitStack() as exit_stack:
        heartbeats = exit_stack.enter_context(HeartbeatThread())
        session = RunSession(job, exit_stack, should_stop, on_claim, heartbeats)
        if session.already_done:
            return session.already_done
        exit_stack.enter_context(redirect_output(session.paths))
        session.begin(LoopEvents(observers), OtlpExporter())
        return session.conclude(session.execute())


def run_stack(
    jobs: Sequence[Job],
    on_end: OnEnd,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    redirect_output: RedirectOutput = lambda _: contextlib.nullcontext(),
    on_claim: OnClaim = lambda *_: None,
) -> None:
    """Execute several runs of one recipe in one process, stepping them together. Each is recorded as a normal run."""
    with contextlib.ExitStack() as exit_stack:
        heartbeats, exporter = exit_stack.enter_context(HeartbeatThread()), OtlpExporter()
        claimed: list[RunSession] = []
        for job in jobs:
            try:
                session = RunSession(job, exit_stack, should_stop, on_claim, heartbeats)
            except (ClaimedElsewhere, FairtrialError) as error:
                on_end(job.spec, *exit_for(error))
                continue
            if session.already_done:
                on_end(job.spec, 0, session.already_done)
            else:
                claimed.append(session)
        if not claimed:
            return
        shared_log = claimed[0].paths
        exit_stack.enter_context(redirect_output(shared_log))
        begun: list[RunSession] = []
        for session in claimed:
            try:
                if session is not claimed[0]:
                    _point_to_log(session.paths, shared_log)
                session.begin(LoopEvents(), exporter)
                begun.append(session)
            except Exception as error:  # noqa: BLE001 — a run that fails to start must not stop the others
                on_end(session.spec, *exit_for(error))
        _execute_together(begun, lambda session, outcome: on_end(session.spec, *_conclude(session, outcome)))


def _conclude(session: RunSession, outcome: Outcome) -> tuple[int, Outcome | None]:
    """Record the outcome of one run of a stack. If that fails, leave the run as it is, so that it can be resumed."""
    try:
        return 0, session.conclude(outcome)
    except Exception as error:  # noqa: BLE001
        session.recorder.release()
        return exit_for(error, code=0)


def exit_for(error: Exception, code: int = 1) -> tuple[int, Outcome | None]:
    """Return the exit code and outcome of a run that could not start or whose outcome could not be written.

    The outcome is None if another process holds the run or took it over, because that process reports it.
    """
    lost = isinstance(error, ClaimLost) and not isinstance(error, RunGone)
    if lost or isinstance(error, ClaimedElsewhere):
        return EXIT_CLAIMED, None
    return code, interrupted_by(error)


def interrupted_by(error: Exception) -> Outcome:
    if isinstance(error, FairtrialError):
        return Outcome(Status.INTERRUPTED, "; ".join([error.message, *error.problems]), error.hint)
    return Outcome(Status.INTERRUPTED, f"{type(error).__name__}: {error}")


def _point_to_log(own: RunPaths, shared: RunPaths) -> None:
    with os.fdopen(open_to_append(own.log), "a") as log:
        log.write(f"Executed in one process with {shared.root.name}; its log contains the output.\n")


class RunSession:
    """One attempt at a run: claim, begin, build, resume, train, conclude.

    The constructor claims the run and sets `already_done` to its outcome if there is nothing left to do. `begin` sets
    the recipe, its options and the recorder. `exit_stack` closes all resources in reverse order.
    """

    recipe: LoadedRecipe
    options: Options
    context: RunContext
    recorder: Recorder
    events: LoopEvents
    event_logger: _EventLogger

    def __init__(
        self,
        job: Job,
        exit_stack: contextlib.ExitStack,
        should_stop: Callable[[], bool] = lambda: False,
        on_claim: OnClaim = lambda *_: None,
        heartbeats: HeartbeatThread | None = None,
    ) -> None:
        self.job, self.spec, self.exit_stack = job, job.spec, exit_stack
        self.store = Store.at(job.store)
        self.paths = self.store.paths.run(job.spec.study, job.spec.run_id)
        self.resources: dict[str, Any] = {}
        self.stack_size = 1
        self._asked_to_stop = should_stop
        self.claim = Claim(self.paths, takeover_token=job.takeover_token)
        exit_stack.callback(self.claim.release)
        on_claim(job.spec, self.claim.token)
        self.heartbeat = heartbeats.add(self.claim) if heartbeats else RunHeartbeat(self.claim)
        exit_stack.callback(RemoteRunSession(self.store, self.claim, should_stop).leave)
        self.already_done = _already_done(self.paths, job.spec)

    def begin(self, events: LoopEvents, exporter: OtlpExporter) -> None:
        """Fetch the runs that this run depends on, load its recipe and open its recorder."""
        spec, store = self.spec, self.store
        for need in self.job.needs.values():
            store.fetch(*need, steps=False)
        recipe = load_recipe(spec.recipe, file=spec.recipe_file)
        options = parse_options(recipe.options, revealed(recipe, spec), where=spec.name)
        data = recipe.data(options, store.cache)
        _check_data(spec, data)
        metadata = new_metadata(spec, of_this_machine(self.job.environment), synthetic=recipe.synthetic)
        before = load_metadata(self.paths)
        metadata = metadata.replace(**judgement(recipe, options, before))
        recorder = self.heartbeat.recorder = Recorder.create(self.paths, metadata, self.claim)
        self.exit_stack.callback(recorder.release)  # a run without a recorded outcome can be resumed
        self.recipe, self.options, self.recorder, self.events = recipe, options, recorder, events
        self.event_logger = _EventLogger(recorder)
        context = _run_context(self.job, store, data, self.should_stop)
        self.context = replace(context, tell=self.event_logger, token=self.claim.token)
        self.context.cautions.extend(self._first_cautions(before))
        receiver: str | None = getattr(options, "otlp", None)
        if receiver is not None:
            exporter.add(recorder, receiver)
            self.exit_stack.callback(exporter.settle)
        self._children_before = children_cpu_seconds()

    def should_stop(self) -> bool:
        """Return whether to stop: on request, or because another process took over the run."""
        return self._asked_to_stop() or self.heartbeat.lost

    def _first_cautions(self, before: RunMetadata | None) -> Iterator[dict[str, str]]:
        recipe, spec = self.recipe, self.spec
        if recipe.synthetic:
            yield SYNTHETIC.fill(recipe=recipe.name)
        if redacted := redacted_names(spec.options):
            variables = ", ".join(name for name in references(spec.options) if name.startswith(PREFIX))
            yield REDACTED_VALUES.fill(names=", ".join(redacted), variables=variables)
        best = selection(recipe, self.options, before)
        yield from (dict(each) for each in (best.cautions("--best-mode") if best else ()))

    def execute(self) -> Outcome:
        """Train, or let the recipe execute the whole run, and return the outcome. An exception ends only this run."""
        try:
            if self.recipe.execute is not None:
                self.event_logger.enabled = True
                self.recipe.execute(self.options, self.context, self.recorder)
            else:
                trainable = self.build()
                self.resources |= step_expense(trainable, 1)
                train(trainable, self.resume(trainable))
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 — any exception ends only this run
            return self.outcome_of(error)
        return self.outcome_of(None)

    @property
    def loop_options(self) -> LoopOptions:
        assert isinstance(self.options, LoopOptions)
        return self.options

    def set_threads(self) -> None:
        if isinstance(self.options, TorchOptions):
            _set_threads(self.options.threads)

    def build(self) -> Trainable:
        self.set_threads()
        _require_device(self.options)
        trainable = self.recipe.build(self.options, self.context)
        self.exit_stack.callback(getattr(trainable, "close", lambda: None))
        self.events.wait_with(getattr(trainable, "synchronize", None))
        check_best_metric(self.recipe, trainable, self.loop_options)
        if bounded(self.recipe, self.options) is not None and not hasattr(trainable, "episode_returns"):
            raise InvalidOptions(
                f"best_rule: recipe '{self.recipe.name}' reports no episode returns to compute a bound from"
            )
        return trainable

    def resume(self, trainable: Trainable) -> LoopContext:
        """Load the checkpoint of an interrupted attempt, if any, and return the context for the training loop."""
        self.recorder.begin_training()
        saved = self.recorder.resume()
        if saved is not None:
            trainable.load_state(saved.state)
        self.event_logger.enabled = True
        scoring = scoring_of(self.recipe, self.options)
        if scoring is not None:
            self.context.lineage["references"] = scoring.references.to_dict()
        return LoopContext(
            self.loop_options,
            self.recorder,
            done=0 if saved is None else saved.step,
            events=self.events,
            scoring=scoring,
            bounded=bounded(self.recipe, self.options),
            should_stop=self.should_stop,
        )

    def outcome_of(self, error: BaseException | None) -> Outcome:
        """Return the outcome of the run. Secrets are redacted from the reason, since an exception may quote options."""
        outcome = self._outcome_of(error)
        return replace(outcome, reason=outcome.reason and redact(outcome.reason))

    def _outcome_of(self, error: BaseException | None) -> Outcome:
        if error is None:
            return Outcome(Status.COMPLETED)
        if isinstance(error, Diverged):
            return Outcome(Status.DIVERGED, str(error))
        if isinstance(error, (Interrupted, StoreError, ClaimLost)):
            return Outcome(Status.INTERRUPTED, error.message, error.hint)
        if isinstance(error, KeyboardInterrupt):
            return Outcome(Status.INTERRUPTED, STOPPED)
        if isinstance(error, FairtrialError):
            return Outcome(Status.FAILED, error.message, error.hint)
        with contextlib.suppress(OSError), os.fdopen(open_to_append(self.paths.log), "a") as log:
            log.write(redact("".join(traceback.format_exception(error))))
        return Outcome(Status.FAILED, f"{type(error).__name__}: {error}")

    def conclude(self, outcome: Outcome) -> Outcome:
        """Record the outcome and the resource use of the run."""
        is_program = self.recipe.execute is not None
        if is_program:
            self.recorder.refresh()
            outcome = _reported_outcome(self.paths) or outcome
        if self.stack_size == 1:
            self.resources["peak_process_bytes"] = peak_process_bytes(of_children=is_program)
        metadata = self.recorder.metadata
        streams = sorted({*(metadata.lineage.streams or []), *self.context.streams.used})
        lineage = RunLineage.of({**metadata.lineage, **self.context.lineage, "streams": streams})
        cautions = [*metadata.cautions, *self.context.cautions]
        if unused := sorted({*self.context.streams.own} - {*streams}):
            # Only the finished run shows that the recipe never draws from a stream for which the user gave a seed.
            cautions.append(UNUSED_STREAM_SEED.fill(streams=", ".join(unused), used=", ".join(streams) or "none"))
        self.recorder.amend(lineage=lineage, resources=RunResources.of(self.resources), cautions=cautions)
        cpu_s = children_cpu_seconds() - self._children_before if is_program else None
        exporting = getattr(self.options, "otlp", None) is not None
        self.recorder.finish(outcome.status, outcome.reason, hint=outcome.hint, cpu_s=cpu_s, hold=exporting)
        return outcome


def _reported_outcome(paths: RunPaths) -> Outcome | None:
    """Return the outcome that the program reported with `run.finish(status=…)` in this attempt, if it did."""
    newest = newest_event_named(paths.events, "outcome_reported", "program_started")
    if newest is None or newest["event"] != "outcome_reported":
        return None
    return Outcome(Status(newest["status"]), newest["reason"] and redact(newest["reason"]))


def _already_done(paths: RunPaths, spec: RunSpec) -> Outcome | None:
    existing = load_run(paths)
    if existing is None:
        return None
    if existing.metadata.fingerprint != spec.fingerprint:
        raise CellConflict(f"run {spec.name} already exists with different options")
    return Outcome(existing.status, existing.reason, already_done=True) if existing.status.is_result else None


def _check_data(spec: RunSpec, data: Dataset | None) -> None:
    """Check that the data still have the hash that was planned: they may have been regenerated in the meantime."""
    planned, now = spec.data.get("sha256"), data.sha256 if data else None
    if planned is not None and planned != now:
        raise UserError(
            f"{spec.name} was planned with data {planned[:12]}, but this store now has data {str(now)[:12]}",
            hint="Run the command again to plan with the current data.",
        )


class _EventLogger:
    """Records the events of a recipe from the first step on. Events during construction and rehearsal are dropped."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.enabled = False

    def __call__(self, event: str, **fields: Any) -> None:
        if self.enabled:
            self._recorder.event(event, **fields, **(self._gpus.stats() if event == "device_stats" else {}))

    @cached_property
    def _gpus(self) -> Gpus:
        return Gpus()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Record no events inside the block, for steps that are undone afterwards."""
        enabled, self.enabled = self.enabled, False
        try:
            yield
        finally:
            self.enabled = enabled


def _run_context(
    job: Job, store: Store, data: Dataset | None, should_stop: Callable[[], bool] = lambda: False
) -> RunContext:
    spec = job.spec
    return RunContext(
        streams=Streams(spec.seed, own=spec.options.get("stream_seed") or {}),
        variant=spec.variant,
        run=store.paths.run(spec.study, spec.run_id),
        cache=store.cache,
        data=data,
        needs={name: store.paths.run(study, run) for name, (study, run) in job.needs.items()},
        should_stop=should_stop,
    )


def revealed(recipe: LoadedRecipe, spec: RunSpec) -> Mapping[str, Any]:
    """Return the options of a run for its recipe, including the secret values that are not recorded."""
    return spec.options if recipe.options.fills_environment else reveal(spec.options)


def rebuild(job: Job) -> Trainable:
    """Build the trainable of a run as it was before the first step, ready to load a checkpoint. Write nothing."""
    spec, store = job.spec, Store.at(job.store)
    recipe = load_recipe(spec.recipe, file=spec.recipe_file)
    options = parse_options(recipe.options, revealed(recipe, spec), where=spec.name)
    if isinstance(options, TorchOptions):
        _set_threads(options.threads)
    _require_device(options)
    return recipe.build(options, _run_context(job, store, recipe.data(options, store.cache)))


def _set_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _require_device(options: Options) -> None:
    if isinstance(options, TorchOptions):
        require_devices([options.device])


class SteppableRun:
    """A run that takes steps on request. It uses the normal training loop and is recorded as a normal run.

    `ended` is its outcome, or None while it can take more steps. An exception in a recipe ends only its run.
    """

    def __init__(
        self,
        job: Job,
        exit_stack: contextlib.ExitStack,
        *,
        observers: Sequence[Observer] = (),
        clock: Clock = time.perf_counter,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._session = RunSession(job, exit_stack, should_stop)
        self._events = LoopEvents(observers, clock)
        self._session.begin(self._events, OtlpExporter())
        self.paths = self._session.paths
        self.ended: Outcome | None = None
        with self._errors_end_the_run():
            self.trainable = self._session.build()
            self._session.resources |= step_expense(self.trainable, 1)
            self._loop = run_loop(self.trainable, self._session.resume(self.trainable))
            self._next_step = next(self._loop, None)

    @property
    def resources(self) -> Mapping[str, Any]:
        return {**self._session.resources, "peak_process_bytes": peak_process_bytes()}

    @property
    def cautions(self) -> Sequence[Mapping[str, str]]:
        return self._session.context.cautions

    @property
    def streams(self) -> Streams:
        return self._session.context.streams

    @property
    def steps(self) -> int:
        """The total number of steps of the run."""
        return self._session.loop_options.steps

    @property
    def taken(self) -> int:
        return self.steps if self._next_step is None else self._next_step - 1

    def advance(self, steps: int) -> None:
        """Take up to `steps` steps, fewer if the training ends, with the run's own number of threads."""
        if self.ended is None:
            with self._errors_end_the_run():
                self._session.set_threads()
                self._events.tell("turn_started")
                self._next_step = take_steps(self.trainable, self._loop, self._next_step, self._events, steps)
                if self._next_step is None:
                    self.ended = Outcome(Status.COMPLETED)

    def synchronize(self) -> None:
        """Wait until the device has finished all queued work."""
        wait = getattr(self.trainable, "synchronize", None)
        if wait is not None:
            wait()

    def observe(self, observer: Observer) -> None:
        """Add an observer."""
        self._events.add(observer)

    def first_losses(self, batches: int) -> list[float]:
        """Return the losses of the current weights on the next few batches. The steps are undone afterwards."""
        state = self.trainable.state()
        first_losses = []
        with self._errors_end_the_run(), self._session.event_logger.paused():
            for number in range(self.taken + 1, self.taken + 1 + batches):
                metrics = self.trainable.step(number, LoopEvents())
                first_losses += [float(metrics["loss"])] if "loss" in metrics else []
                self.trainable.load_state(state)
        return first_losses

    @contextlib.contextmanager
    def _errors_end_the_run(self) -> Iterator[None]:
        try:
            yield
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 — any exception ends only this run
            self.ended = self._session.outcome_of(error)


def _execute_together(sessions: Sequence[RunSession], on_end: Callable[[RunSession, Outcome], None]) -> None:
    """Build every run, then step the successfully built ones together. A failing run does not end the others."""
    built: list[tuple[RunSession, Trainable, RunLoop]] = []
    for session in sessions:
        try:
            trainable = session.build()
            # All runs have the same shapes, so a step costs the same in each: measure only the first.
            session.resources |= built[0][0].resources if built else step_expense(trainable, 1)
            built.append((session, trainable, run_loop(trainable, session.resume(trainable))))
        except Exception as error:  # noqa: BLE001
            on_end(session, session.outcome_of(error))
    if not built:
        return
    for session, _, _ in built:
        session.stack_size = len(built)
        session.recorder.shared_with(len(built))
    left = {member: session for member, (session, _, _) in enumerate(built)}

    def end(member: int, error: BaseException | None) -> None:
        session = left.pop(member)
        on_end(session, session.outcome_of(error))

    try:
        stack = built[0][0].recipe.stack([trainable for _, trainable, _ in built])
        train_together(stack, [run for _, _, run in built], end)
    except Exception as error:  # noqa: BLE001 — the joint step failed: no single run is at fault
        for session in list(left.values()):
            session.outcome_of(error)  # writes the traceback to the run's log
            on_end(session, Outcome(Status.INTERRUPTED, f"a joint step of {len(built)} runs failed: {error}", ALONE))
