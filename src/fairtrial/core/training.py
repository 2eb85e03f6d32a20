"""The contracts between recipes, the training loop, the run logger and observers.

A recipe is a module with

    SUMMARY      one line that describes it
    REQUIRES     names of the packages that it imports inside its functions
    EXTRA        the extra of Fairtrial that installs them, or None
    METRIC       the quantity that it is judged by, and its direction
    Options      a frozen model of its options

and either `build(options, context) -> Trainable`, which the loop drives (its Options then derive from
`LoopOptions`), or `execute(options, context, logger)`, which does the whole run itself. Optional:
`data(options, cache) -> Dataset`, `needs(options) -> {name: Need}`, `SYNTHETIC`, `EXAMPLE` (variants and options
for the study file that `init` writes), and `warm()`, which is called once in the process that jobs are forked from,
to import slow modules in advance.

A recipe whose runs can be stepped together defines `stack_key(options) -> str | None` (runs with the same key may
share a stack; a run with None is not stacked) and `stack(trainables) -> Stack`, which joins the results of `build`. A
recipe that can be confirmed on fresh data defines `fresh_report(options, number) -> {option: value} | None`.
`COMPONENTS` maps each component that an ablation can remove to the option values that remove it.
`references(options) -> References | None` returns the scores of a random policy and of a human, so that the recipe's
metric is also shown on their scale.

Checks before the first run: `check(options)` raises InvalidOptions for options that cannot be trained,
`evaluates(options) -> [quantity]` names what `evaluate` returns, so that any other `--best-metric` is rejected early,
and `step_size(options) -> StepSize` declares what one step processes.

A trainable may define more attributes, from which `bench` reports more:

    tensor_groups()          the tensors that training keeps, by kind
    can_be_rehearsed         False if a step does more than arithmetic, such as calling other processes
    examples_per_step        how many examples a step learns from
    steps_per_epoch          how many steps process every example once
    synchronize()            waits until the device has finished all queued work; None if it is always synchronous
    close()                  stops what it started outside this process; always called when the run has ended
    episode_returns          after `evaluate`: the return of each episode, to be recorded individually
    batch_gradients(draw)    the gradient on a batch that `draw`, a NumPy generator, samples with replacement, and the
                             number of examples in that batch
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, SupportsFloat

from fairtrial.core.deprecation import renamed
from fairtrial.core.paths import RunPaths
from fairtrial.core.streams import Streams

Split = Literal["eval", "report"]
Clock = Callable[[], float]


class Observer:
    """Watches the training loop and never changes it.

    Every time comes from the clock of the loop. Losses are bit-identical with any set of observers
    attached; the contract suite in `fairtrial.testing` checks it. An observer must not change a random
    generator, the model, or the mappings that it receives.
    """

    borders: Literal["none", "steps", "phases"] = "none"
    """Where the loop must wait for an asynchronous device, so that measured times include its work."""

    notes: list[Any] | None = None
    """If set, phases are appended to this list instead of calling the phase methods: ("open", name) or ("close", name),
    followed by the time. An append costs a third of a call, and this cost is part of the measured time.
    """

    def training_started(self, first_step: int, steps: int, now: float) -> None: ...

    def phase_started(self, name: str, now: float) -> None: ...

    def phase_ended(self, name: str, now: float) -> None: ...

    def step_ended(self, step: int, now: float) -> None: ...

    def turn_started(self, now: float) -> None:
        """This run continues after other runs in its process; the time in between does not belong to it."""

    def evaluated(self, step: int, metrics: Mapping[str, float], now: float) -> None: ...

    def training_ended(self, now: float) -> None: ...


STEP_EVENTS = frozenset({"training_started", "turn_started", "step_ended"})
EVENTS = STEP_EVENTS | {"phase_started", "phase_ended", "evaluated", "training_ended"}


class LoopEvents:
    """Dispatches the events of the loop to observers; costs almost nothing without observers."""

    def __init__(self, observers: Sequence[Observer] = (), clock: Clock = time.perf_counter) -> None:
        self.observers: tuple[Observer, ...] = ()
        self.clock = clock
        self._hear: dict[str, list[Callable[..., None]]] = {event: [] for event in EVENTS}
        self._settle_phases: Callable[[], object] | None = None
        self._settle_steps: Callable[[], object] | None = None
        self._idle: AbstractContextManager[None] = nullcontext()
        self._phases: dict[str, AbstractContextManager[None]] = {}
        self._settle: Callable[[], object] | None = None
        for observer in observers:
            self.add(observer)

    def add(self, observer: Observer) -> None:
        self.observers = (*self.observers, observer)
        for event in EVENTS:
            self._hear[event] += [getattr(observer, event)] if _hears(observer, event) else []
        self.wait_with(self._settle)

    def wait_with(self, settle: Callable[[], object] | None) -> None:
        """Set the function that waits for the device; it is called only where an observer needs it."""
        self._settle = settle
        needs = {each.borders for each in self.observers}
        self._settle_phases = settle if "phases" in needs else None
        self._settle_steps = settle if needs - {"none"} else None
        self._phases.clear()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager for a named part of a step: `with events.phase("forward"): …`. Phases may nest."""
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = self._make_phase(name)
        return phase

    def tell(self, event: str, *details: Any) -> None:
        hear = self._hear[event]
        if hear:
            if self._settle_steps is not None and event in STEP_EVENTS:
                self._settle_steps()
            now = self.clock()
            for callback in hear:
                callback(*details, now)

    def _make_phase(self, name: str) -> AbstractContextManager[None]:
        notes = [each.notes for each in self.observers if each.notes is not None]
        callbacks = self._hear["phase_started"], self._hear["phase_ended"]
        if not notes and not any(callbacks):
            return self._idle
        if len(notes) == 1 and not any(callbacks) and self._settle_phases is None:
            return _noted_phase(name, notes[0], self.clock)
        return _Phase(name, notes, callbacks, self.clock, self._settle_phases)


def _hears(observer: Observer, event: str) -> bool:
    """Return whether an observer overrides the method of an event."""
    return getattr(type(observer), event) is not getattr(Observer, event)


class _Phase:
    """A reusable context manager for one phase name."""

    def __init__(
        self,
        name: str,
        notes: Sequence[list[Any]],
        callbacks: tuple[Sequence[Callable[..., None]], ...],
        clock: Clock,
        settle: Callable[[], object] | None,
    ) -> None:
        self._name, self._notes, self._callbacks, self._clock, self._settle = name, notes, callbacks, clock, settle
        self._marks = ("open", name), ("close", name)

    def __enter__(self) -> None:
        self._pass(0)

    def __exit__(self, *_: object) -> None:
        self._pass(1)

    def _pass(self, border: int) -> None:
        if self._settle is not None:
            self._settle()
        now = self._clock()
        for notes in self._notes:
            notes += self._marks[border], now
        for callback in self._callbacks[border]:
            callback(self._name, now)


def _noted_phase(name: str, notes: list[Any], clock: Clock) -> AbstractContextManager[None]:
    """Return a faster `_Phase` for a single observer with notes: closure variables avoid attribute lookups."""
    note, opened, closed = notes.append, ("open", name), ("close", name)

    class Noted:
        __slots__ = ()

        def __enter__(self) -> None:
            note(opened)
            note(clock())

        def __exit__(self, kind: object, error: object, trace: object) -> None:
            note(closed)
            note(clock())

    return Noted()


class Trainable(Protocol):
    """An object that is trained one step at a time.

    Implementations guarantee: `step(n)` depends only on the state, the run's streams and n;
    `evaluate` changes nothing; `load_state(state())` restores training exactly, so that a resumed run
    continues bit for bit. Quantities are named without their split: the loop adds `train_`, `eval_` or
    `report_`.
    """

    def step(self, step: int, events: LoopEvents) -> Mapping[str, SupportsFloat]: ...

    def evaluate(self, split: Split) -> Mapping[str, SupportsFloat]: ...

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: Mapping[str, Any]) -> None: ...


class Stack(Protocol):
    """Runs of one recipe that are stepped together, each as if it were alone.

    Implementations guarantee: a run's numbers are bit-identical whether it is stacked with other runs or alone, and
    nothing that happens to one run, such as a NaN loss, affects another. The members remain `Trainable`s: they are
    evaluated, saved and loaded individually.
    """

    def step(self, due: Mapping[int, int], events: LoopEvents) -> Mapping[int, Mapping[str, SupportsFloat]]:
        """Take the due step of each member (member → step). A member that is not in `due` has left the stack."""
        ...


class RunLogger(Protocol):
    """The interface through which a job records a run. User scripts call the same methods."""

    def log(
        self, step: int, metrics: Mapping[str, SupportsFloat] | None = None, /, **values: SupportsFloat
    ) -> None: ...

    def evaluated(
        self,
        step: int,
        metrics: Mapping[str, SupportsFloat],
        state: Callable[[], dict[str, Any]] | None = None,
    ) -> bool: ...

    def save(self, step: int, state: Mapping[str, Any]) -> None: ...

    def event(self, event: str, /, **fields: Any) -> None: ...

    def begin_training(self) -> None: ...

    def best_state(self) -> Mapping[str, Any] | None: ...

    @property
    def best_step(self) -> int | None: ...


@dataclass(frozen=True)
class Dataset:
    """Named arrays in a directory, memory-mapped on access, identified by a hash of their content."""

    name: str
    sha256: str
    folder: Path

    def array(self, name: str) -> Any:
        import numpy

        return numpy.load(self.folder / f"{name}.npy", mmap_mode="r")

    def arrays(self) -> dict[str, Any]:
        """Return all arrays by name."""
        return {path.stem: self.array(path.stem) for path in sorted(self.folder.glob("*.npy"))}

    def identity(self) -> dict[str, str]:
        return {"name": self.name, "sha256": self.sha256}


MakeEntry = Callable[[Path], Mapping[str, Any]]
CheckEntry = Callable[[Path, Mapping[str, Any]], bool]


class Cache(Protocol):
    """Files that are computed once per store and identified by a key that describes how they are computed."""

    def entry(self, kind: str, key: Mapping[str, Any], make: MakeEntry, check: CheckEntry = ...) -> CacheEntry:
        """Return the entry for `key`; call `make(folder) -> manifest` once if it does not exist yet.

        The files are verified against the hashes in the manifest. For an entry of an earlier version without hashes,
        `check(folder, manifest)` returns whether it is intact; without `check`, such an entry is made again.
        """
        ...


@dataclass(frozen=True)
class CacheEntry:
    folder: Path
    manifest: Mapping[str, Any]


def _tell_nobody(event: str, **fields: Any) -> None:
    """Ignore the event: used when a run is only rebuilt and nothing is recorded."""


@dataclass(frozen=True)
class StepSize:
    """What one training step processes: 256 frames, made of `8 envs × 32 rollout steps`."""

    count: int
    unit: str
    made_of: str = ""


@dataclass(frozen=True)
class RunContext:
    """The environment of a run: everything that a recipe may use in addition to its options.

    `tell(event, **fields)` writes one line of telemetry, from the first step on: an event of `core/events.py` or one of
    the recipe's own. Steps that are rolled back, as in a rehearsal, write nothing. Only the training thread may call
    it; other threads and processes pass their events to that thread. `tell("device_stats", step=…)` needs no other
    fields: the state of the GPUs, or why there are none, is filled in. `token` identifies the claim on the run, for
    programs that also write to it.
    """

    streams: Streams
    variant: str
    run: RunPaths
    cache: Cache
    data: Dataset | None = None
    needs: Mapping[str, RunPaths] = field(default_factory=dict)
    lineage: dict[str, Any] = field(default_factory=dict)
    cautions: list[dict[str, str]] = field(default_factory=list)
    should_stop: Callable[[], bool] = lambda: False
    tell: Callable[..., None] = _tell_nobody
    token: int | None = None


def as_floats(metrics: Mapping[str, SupportsFloat], prefix: str = "") -> dict[str, float]:
    return {prefix + name: float(value) for name, value in metrics.items()}


__getattr__ = renamed(__name__, {"Setting": "RunContext", "Journal": "RunLogger", "Watch": "LoopEvents"})
