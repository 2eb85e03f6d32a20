"""What runs inside a job: wires core, train, recipes, record and probe, and nothing else.

A job needs no more than this file imports: no command line, no statistics, no tables. `jobs/server.py` has
the processes that it runs in.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from fairtrial.core.runs import EXIT_CLAIMED, Outcome, Status
from fairtrial.core.scores import Scoring
from fairtrial.core.secrets import PREFIX, redact, redacted_names, references, reveal
from fairtrial.core.specs import Metric, RunSpec
from fairtrial.core.streams import Streams
from fairtrial.core.training import Clock, Dataset, LoopEvents, Observer, RunContext, Trainable
from fairtrial.probe.gpu import Gpus
from fairtrial.probe.resources import children_cpu_seconds, peak_process_bytes, step_expense
from fairtrial.record.claims import Claim, ClaimedElsewhere, ClaimLost, RunGone
from fairtrial.record.environment import of_this_machine
from fairtrial.record.heartbeat import HeartbeatThread, RunHeartbeat
from fairtrial.record.metadata import load_metadata, load_run, new_metadata
from fairtrial.record.otlp_exporter import OtlpExporter
from fairtrial.record.recorder import Recorder
from fairtrial.record.remote_run_session import RemoteRunSession
from fairtrial.record.store import Store
from fairtrial.train.loop import RunLoop, run_loop, take_steps, train, train_together
from fairtrial.train.selection import bounded, check_best_metric, judgement, scoring_of, selection


@dataclass(frozen=True)
class Job:
    """All that a job is told. The store is a path or a URL; `needs` maps a name to a run, as (study, run id).

    `over` is the token of a claim on the cell that is known to be lost, so that it may be taken over.
    """

    spec: RunSpec
    store: str | os.PathLike[str]
    environment: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    takeover_token: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "spec": self.spec.to_dict(),
            "store": str(self.store),
            "environment": dict(self.environment),
            "needs": {name: list(where) for name, where in self.needs.items()},
            "over": self.takeover_token,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Job:
        needs = {name: (study, run) for name, (study, run) in values["needs"].items()}
        return cls(RunSpec.from_dict(values["spec"]), values["store"], values["environment"], needs, values["over"])


ALONE = "Try again with --no-stack: then each run fails or completes by itself."

ToLog = Callable[[RunPaths], contextlib.AbstractContextManager[Any]]
Ending = Callable[[RunSpec, int, Outcome | None], None]
"""Told how a cell ended: the exit status that stands for it, and its outcome unless another process has the cell."""
Claimed = Callable[[RunSpec, int], None]
"""Told the token of the claim that was made on a cell."""


def run_cell(
    job: Job,
    *,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    to_log: ToLog = lambda _: contextlib.nullcontext(),
    claimed: Claimed = lambda *_: None,
) -> Outcome:
    """Make one run, or continue it, or find that it is done.

    Raises ClaimedElsewhere when another makes it, and ClaimLost when it was given to another meanwhile.
    """
    with contextlib.ExitStack() as leaving:
        pulse = leaving.enter_context(HeartbeatThread())
        attempt = _Attempt(job, leaving, should_stop, claimed, pulse)
        if attempt.done:
            return attempt.done
        leaving.enter_context(to_log(attempt.paths))
        work = attempt.begin(should_stop, LoopEvents(observers), OtlpExporter())
        return work.conclude(work.carry_out())


class SteppableRun:
    """A run that takes steps when it is asked to, through the same loop as any other. It is recorded like any other.

    `ended` says how it ended: None while it can go on. Whatever a recipe raises ends its run and nothing else.
    """

    def __init__(
        self, job: Job, leaving: contextlib.ExitStack, *, observers: Sequence[Observer] = (),
        clock: Clock = time.perf_counter, should_stop: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        attempt = _Attempt(job, leaving)
        self._watch = LoopEvents(observers, clock)
        self._work = attempt.begin(should_stop, self._watch, OtlpExporter())
        self.paths = attempt.paths
        self.ended: Outcome | None = None
        with self._ends_by_itself():
            self.trainable = self._work.build()
            self._work.resources |= step_expense(self.trainable, 1)
            self._course = self._work.course(self.trainable)
            self._due = next(self._course, None)

    @property
    def resources(self) -> Mapping[str, Any]:
        return {**self._work.resources, "peak_process_bytes": peak_process_bytes()}

    @property
    def cautions(self) -> Sequence[Mapping[str, str]]:
        return self._work.setting.cautions

    @property
    def streams(self) -> Streams:
        return self._work.setting.streams

    @property
    def steps(self) -> int:
        """How many it has from beginning to end."""
        return self._work.loop.steps

    @property
    def taken(self) -> int:
        return self.steps if self._due is None else self._due - 1

    def advance(self, steps: int) -> None:
        """Take some steps, fewer if the training ends. The run computes with its own threads, whoever was before it."""
        if self.ended is None:
            with self._ends_by_itself():
                self._work.set_threads()
                self._watch.tell("turn_started")
                self._due = take_steps(self.trainable, self._course, self._due, self._watch, steps)
                if self._due is None:
                    self.ended = Outcome(Status.COMPLETED)

    def settle(self) -> None:
        """Wait until its device has done what it was asked to."""
        wait = getattr(self.trainable, "synchronize", None)
        if wait is not None:
            wait()

    def observe(self, observer: Observer) -> None:
        """From now on somebody more watches."""
        self._watch.add(observer)

    def first_losses(self, batches: int) -> list[float]:
        """Of the weights as they are, on the next few batches; the steps are taken back."""
        kept = self.trainable.state()
        first_losses = []
        with self._ends_by_itself(), self._work.teller.silence():
            for number in range(self.taken + 1, self.taken + 1 + batches):
                metrics = self.trainable.step(number, LoopEvents())
                first_losses += [float(metrics["loss"])] if "loss" in metrics else []
                self.trainable.load_state(kept)
        return first_losses

    @contextlib.contextmanager
    def _ends_by_itself(self) -> Iterator[None]:
        try:
            yield
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 — whatever it raises ends its run
            self.ended = self._work.how_it_ended(error)


def run_stack(
    jobs: Sequence[Job],
    ended: Ending,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    to_log: ToLog = lambda _: contextlib.nullcontext(),
    claimed: Claimed = lambda *_: None,
) -> None:
    """Make several runs of one recipe in one process, stepped together; each is a run like any other."""
    with contextlib.ExitStack() as leaving:
        pulse, delivery = leaving.enter_context(HeartbeatThread()), OtlpExporter()
        attempts = [found for job in jobs if (found := _attempt(job, leaving, ended, claimed, pulse))]
        if not attempts:
            return
        leaving.enter_context(to_log(attempts[0].paths))
        works = [work for attempt in attempts if (work := _begin(attempt, attempts[0], should_stop, delivery, ended))]
        _carry_out_together(works, lambda work, outcome: ended(work.spec, *_conclude(work, outcome)))


def _begin(
    attempt: _Attempt, first: _Attempt, should_stop: Callable[[], bool], delivery: OtlpExporter, ended: Ending
) -> _Work | None:
    try:
        if attempt is not first:
            _point_to_log(attempt.paths, first.paths)
        return attempt.begin(should_stop, LoopEvents(), delivery)
    except Exception as error:  # noqa: BLE001 — what keeps one run from beginning must not keep the others
        ended(attempt.request.spec, *(has_another(error) or (1, refused(error))))
        return None


def _conclude(work: _Work, outcome: Outcome) -> tuple[int, Outcome | None]:
    """Write down how one of many ended; a run whose ending cannot be written is left as it is, to be resumed."""
    try:
        return 0, work.conclude(outcome)
    except Exception as error:  # noqa: BLE001
        work.recorder.close()
        return has_another(error) or (0, refused(error))


def has_another(error: Exception) -> tuple[int, None] | None:
    """How a cell stands that another process has, or was given: how it ends is for that one to say."""
    lost = isinstance(error, ClaimLost) and not isinstance(error, RunGone)
    return (EXIT_CLAIMED, None) if lost or isinstance(error, ClaimedElsewhere) else None


def _attempt(
    job: Job, leaving: contextlib.ExitStack, ended: Ending, claimed: Claimed, pulse: HeartbeatThread
) -> _Attempt | None:
    """An attempt at one cell of many, unless there is nothing to do or it cannot be begun, which is told."""
    try:
        attempt = _Attempt(job, leaving, claimed=claimed, pulse=pulse)
    except ClaimedElsewhere:
        ended(job.spec, EXIT_CLAIMED, None)
        return None
    except FairtrialError as error:
        ended(job.spec, 1, refused(error))
        return None
    if attempt.done:
        ended(job.spec, 0, attempt.done)
    return None if attempt.done else attempt


def refused(error: Exception) -> Outcome:
    """How a cell stands that could not be begun, or whose ending could not be written."""
    if isinstance(error, FairtrialError):
        return Outcome(Status.INTERRUPTED, "; ".join([error.message, *error.problems]), error.hint)
    return Outcome(Status.INTERRUPTED, f"{type(error).__name__}: {error}")


def _point_to_log(own: RunPaths, shared: RunPaths) -> None:
    with os.fdopen(open_to_append(own.log), "a") as log:
        log.write(f"Made in one process with {shared.root.name}: what was printed is in its log.\n")


class _Attempt:
    """A claim on a cell, and whether there is anything left to do."""

    def __init__(
        self,
        job: Job,
        leaving: contextlib.ExitStack,
        should_stop: Callable[[], bool] = lambda: False,
        claimed: Claimed = lambda *_: None,
        pulse: HeartbeatThread | None = None,
    ) -> None:
        self.request = job
        self.store = Store.at(job.store)
        self.paths = self.store.paths.run(job.spec.study, job.spec.run_id)
        self.claim = Claim(self.paths, takeover_token=job.takeover_token)
        self._leaving = leaving
        leaving.callback(self.claim.release)
        claimed(job.spec, self.claim.token)
        self._life = pulse.add(self.claim) if pulse else RunHeartbeat(self.claim)
        leaving.callback(RemoteRunSession(self.store, self.claim, should_stop).leave)
        self.done = _already_done(self.paths, job.spec)

    def begin(self, should_stop: Callable[[], bool], events: LoopEvents, delivery: OtlpExporter) -> _Work:
        """A run that was given to another process stops as if it had been asked to."""
        spec, store = self.request.spec, self.store
        for need in self.request.needs.values():
            store.fetch(*need, steps=False)
        recipe = load_recipe(spec.recipe, file=spec.recipe_file)
        options = parse_options(recipe.options, revealed(recipe, spec), where=spec.name)
        data = recipe.data(options, store.cache)
        _check_data(spec, data)
        metadata = new_metadata(spec, of_this_machine(self.request.environment), synthetic=recipe.synthetic)
        before = load_metadata(self.paths)
        metadata.update(judgement(recipe, options, before))
        recorder = self._life.recorder = Recorder.create(self.paths, metadata, self.claim)
        self._leaving.callback(recorder.close)  # a run whose ending could not be written can be resumed
        teller = _Teller(recorder)
        context = _setting(self.request, store, data, lambda: should_stop() or self._life.lost)
        context = replace(context, tell=teller, token=self.claim.token)
        if recipe.synthetic:
            context.cautions.append(SYNTHETIC.fill(recipe=recipe.name))
        if redacted := redacted_names(spec.options):
            variables = ", ".join(name for name in references(spec.options) if name.startswith(PREFIX))
            context.cautions.append(REDACTED_VALUES.fill(names=", ".join(redacted), variables=variables))
        best = selection(recipe, options, before)
        context.cautions.extend(dict(each) for each in (best.cautions("--best-mode") if best else ()))
        receiver: str | None = getattr(options, "otlp", None)
        if receiver is not None:
            delivery.add(recorder, receiver)
            self._leaving.callback(delivery.settle)
        return _Work(spec, recipe, options, context, recorder, events, teller, self._leaving)


def _check_data(spec: RunSpec, data: Dataset | None) -> None:
    """A run states the hash of what it reads: data that were made anew since it was planned may have another one."""
    planned, found = spec.data.get("sha256"), data.sha256 if data else None
    if planned is not None and planned != found:
        raise UserError(
            f"{spec.name} was planned with other data ({planned[:12]}) than this store gives now ({str(found)[:12]})",
            hint="Give the command again: it plans with the data as they are now.",
        )


class _Teller:
    """Writes down what a recipe tells, from the first step on: what is built or rehearsed before has not happened."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.listening = False

    def __call__(self, event: str, **fields: Any) -> None:
        if self.listening:
            self._recorder.event(event, **fields, **(self._gpus.stats() if event == "device_stats" else {}))

    @cached_property
    def _gpus(self) -> Gpus:
        return Gpus()

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        """Steps that are taken back are not told of."""
        kept, self.listening = self.listening, False
        try:
            yield
        finally:
            self.listening = kept


def _setting(
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
    """The options of a run as its recipe takes them: with what was left out of them because it is secret."""
    return spec.options if recipe.options.fills_environment else reveal(spec.options)


def rebuild(job: Job) -> Trainable:
    """What a run trained, as it was before the first step. Nothing is written; a checkpoint's state fits in."""
    spec, store = job.spec, Store.at(job.store)
    recipe = load_recipe(spec.recipe, file=spec.recipe_file)
    options = parse_options(recipe.options, revealed(recipe, spec), where=spec.name)
    if isinstance(options, TorchOptions):
        _set_threads(options.threads)
    return recipe.build(options, _setting(job, store, recipe.data(options, store.cache)))


def _already_done(paths: RunPaths, spec: RunSpec) -> Outcome | None:
    existing = load_run(paths)
    if existing is None:
        return None
    if existing.metadata["fingerprint"] != spec.fingerprint:
        raise CellConflict(f"run {spec.name} exists with other options")
    return Outcome(existing.status, existing.reason, already_done=True) if existing.status.is_result else None


@dataclass
class _Work:
    """One attempt at a run, with all that it needs at hand."""

    spec: RunSpec
    recipe: LoadedRecipe
    options: Options
    setting: RunContext
    recorder: Recorder
    watch: LoopEvents
    teller: _Teller
    leaving: contextlib.ExitStack
    resources: dict[str, Any] = field(default_factory=dict)
    company: int = 1
    _children_before: float = field(default_factory=children_cpu_seconds)

    def carry_out(self) -> Outcome:
        """Do the work, whatever happens."""
        try:
            if self.recipe.execute is not None:
                self.teller.listening = True
                self.recipe.execute(self.options, self.setting, self.recorder)
            else:
                trainable = self.build()
                self.resources |= step_expense(trainable, 1)
                done = self.resume(trainable)
                train(
                    trainable, self.loop, self.recorder, done=done, events=self.watch, scoring=self.scoring,
                    bounded=self.bounded, should_stop=self.should_stop,
                )  # fmt: skip
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 — whatever it raises ends its run
            return self.how_it_ended(error)
        return self.how_it_ended(None)

    @property
    def loop(self) -> LoopOptions:
        assert isinstance(self.options, LoopOptions)
        return self.options

    @property
    def should_stop(self) -> Callable[[], bool]:
        return self.setting.should_stop

    @cached_property
    def scoring(self) -> Scoring | None:
        """How scores are normalized; written down with the run."""
        scoring = scoring_of(self.recipe, self.options)
        if scoring is not None:
            self.setting.lineage["references"] = scoring.references.to_dict()
        return scoring

    @property
    def bounded(self) -> Metric | None:
        return bounded(self.recipe, self.options)

    def set_threads(self) -> None:
        if isinstance(self.options, TorchOptions):
            _set_threads(self.options.threads)

    def build(self) -> Trainable:
        self.set_threads()
        trainable = self.recipe.build(self.options, self.setting)
        self.leaving.callback(getattr(trainable, "close", lambda: None))
        self.watch.wait_with(getattr(trainable, "synchronize", None))
        check_best_metric(self.recipe, trainable, self.loop)
        if self.bounded is not None and not hasattr(trainable, "episode_returns"):
            raise InvalidOptions(f"best_rule: recipe '{self.recipe.name}' has no episodes to take a bound over")
        return trainable

    def resume(self, trainable: Trainable) -> int:
        """Go back to where an interrupted attempt had got; returns the step after which that is."""
        self.recorder.begin_training()
        saved = self.recorder.resume()
        if saved is not None:
            trainable.load_state(saved.state)
        self.teller.listening = True
        return 0 if saved is None else saved.step

    def course(self, trainable: Trainable) -> RunLoop:
        done = self.resume(trainable)
        return run_loop(
            trainable, self.loop, self.recorder, done=done, events=self.watch, scoring=self.scoring,
            bounded=self.bounded, should_stop=self.should_stop,
        )  # fmt: skip

    def how_it_ended(self, error: BaseException | None) -> Outcome:
        """What was raised may quote what the run was given: secrets among it are not written down."""
        outcome = self._how_it_ended(error)
        return replace(outcome, reason=outcome.reason and redact(outcome.reason))

    def _how_it_ended(self, error: BaseException | None) -> Outcome:
        if error is None:
            return Outcome(Status.COMPLETED)
        if isinstance(error, Diverged):
            return Outcome(Status.DIVERGED, str(error))
        if isinstance(error, (Interrupted, StoreError, ClaimLost)):
            return Outcome(Status.INTERRUPTED, error.message, error.hint)
        if isinstance(error, KeyboardInterrupt):
            return Outcome(Status.INTERRUPTED, "stopped by Ctrl-C")
        if isinstance(error, FairtrialError):
            return Outcome(Status.FAILED, error.message, error.hint)
        with contextlib.suppress(OSError), os.fdopen(open_to_append(self.setting.run.log), "a") as log:
            log.write(redact("".join(traceback.format_exception(error))))
        return Outcome(Status.FAILED, f"{type(error).__name__}: {error}")

    def _unused_seeds(self, used: Sequence[str]) -> list[dict[str, str]]:
        """A seed for a stream that the recipe never draws from is a mistake, which only the run itself can tell."""
        idle = sorted({*self.setting.streams.own} - {*used})
        return [UNUSED_STREAM_SEED.fill(streams=", ".join(idle), used=", ".join(used) or "none")] if idle else []

    def conclude(self, outcome: Outcome) -> Outcome:
        """Write down how the work ended and what it used."""
        is_program = self.recipe.execute is not None
        if is_program:
            self.recorder.refresh()
        if self.company == 1:
            self.resources["peak_process_bytes"] = peak_process_bytes(of_children=is_program)
        metadata = self.recorder.metadata
        streams = sorted({*metadata["lineage"].get("streams", []), *self.setting.streams.used})
        metadata["lineage"] = {**metadata["lineage"], **self.setting.lineage, "streams": streams}
        cautions = [*self.setting.cautions, *self._unused_seeds(streams)]
        metadata.update(resources=self.resources, cautions=[*metadata["cautions"], *cautions])
        used = children_cpu_seconds() - self._children_before if is_program else None
        sending = getattr(self.options, "otlp", None) is not None
        self.recorder.finish(outcome.status, outcome.reason, hint=outcome.hint, cpu_s=used, hold=sending)
        return outcome


def _carry_out_together(works: Sequence[_Work], ended: Callable[[_Work, Outcome], None]) -> None:
    """Build every run, then step those together that could be built; none of them ends because of another."""
    built: list[tuple[_Work, Trainable, RunLoop]] = []
    for work in works:
        try:
            trainable = work.build()
            work.resources |= built[0][0].resources if built else step_expense(trainable, 1)  # their shapes agree
            built.append((work, trainable, work.course(trainable)))
        except Exception as error:  # noqa: BLE001
            ended(work, work.how_it_ended(error))
    if not built:
        return
    for work, _, _ in built:
        work.company = len(built)
        work.recorder.shared_with(len(built))
    left = {member: work for member, (work, _, _) in enumerate(built)}

    def end(member: int, error: BaseException | None) -> None:
        work = left.pop(member)
        ended(work, work.how_it_ended(error))

    try:
        stack = built[0][0].recipe.stack([trainable for _, trainable, _ in built])
        train_together(stack, [run for _, _, run in built], end)
    except Exception as error:  # noqa: BLE001 — what all of them did together failed, and none of them is to blame
        for work in list(left.values()):
            work.how_it_ended(error)  # leaves the trace in its log
            ended(work, Outcome(Status.INTERRUPTED, f"a step of {len(built)} runs together failed: {error}", ALONE))


def _set_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
