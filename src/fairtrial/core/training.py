"""The contracts between a recipe, the one training loop, what is written down, and who watches.

A recipe is a module with

    SUMMARY      one line for people
    REQUIRES     names of the packages that it imports inside its functions
    EXTRA        the extra of Fairtrial that installs them, or None
    METRIC       the quantity that it is judged by, and its direction
    Options      a frozen model of its options

and either `build(options, context) -> Trainable`, which the loop drives (its Options then derive from
`LoopOptions`), or `execute(options, context, logger)`, which does the whole run itself. Optional:
`data(options, cache) -> Dataset`, `needs(options) -> {name: Need}`, `SYNTHETIC`, `EXAMPLE` (variants and options
that `init` starts a study file with), and `warm()`, which is called once in the process that jobs are forked from,
to load what is slow to import.

A recipe whose runs can be stepped together says which with `stack_key(options) -> str | None` (runs of one key may
share a stack, None is made alone) and joins what `build` gave with `stack(trainables) -> Stack`. One that can be
confirmed on fresh data says how with `fresh_report(options, number) -> {option: value} | None`. `COMPONENTS` maps
what an ablation can take away to the option values that do so. `references(options) -> References | None` gives scores
of a random policy and of a person, so that the recipe's metric is also shown on their scale.

So that people know before the first run: `check(options)` raises InvalidOptions for what cannot be trained,
`evaluates(options) -> [quantity]` names what `evaluate` returns, so that any other `--best-metric` is refused at once,
and `step_size(options) -> StepSize` says what one step works through.

A trainable may say more about itself, and `bench` then has more to tell:

    tensor_groups()          the tensors that training keeps, by kind
    can_be_rehearsed         False where a step does more than arithmetic, such as calling other processes
    examples_per_step        how many examples a step learns from
    steps_per_epoch          how many steps see every example once
    synchronize()            waits until the device has done what was asked of it; None where it always has
    close()                  ends what it started beside this process; called when the run has ended, however it did
    episode_returns          after `evaluate`: what each episode gave, to be written down one by one
    batch_gradients(draw)    the gradient on a batch that `draw`, a NumPy generator, chooses with replacement, and the
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

    Every time comes from the clock that the loop was given. Losses are bit-identical with any set of
    observers attached; the contract suite in `fairtrial.testing` checks it. An observer must not touch
    a random generator, the model, or the mappings that it is shown.
    """

    borders: Literal["none", "steps", "phases"] = "none"
    """Where a device that works behind the program's back must be waited for, so that times mean what they say."""

    notes: list[Any] | None = None
    """A list takes the place of being told about phases: every border appends ("open", name) or ("close", name), and
    then its time. That costs a third of a call, and the cost of watching is part of what is watched.
    """

    def training_started(self, first_step: int, steps: int, now: float) -> None: ...

    def phase_started(self, name: str, now: float) -> None: ...

    def phase_ended(self, name: str, now: float) -> None: ...

    def step_ended(self, step: int, now: float) -> None: ...

    def turn_started(self, now: float) -> None:
        """This run goes on after others in its process had their turn: the time in between is not its own."""

    def evaluated(self, step: int, metrics: Mapping[str, float], now: float) -> None: ...

    def training_ended(self, now: float) -> None: ...


STEP_EVENTS = frozenset({"training_started", "turn_started", "step_ended"})
EVENTS = STEP_EVENTS | {"phase_started", "phase_ended", "evaluated", "training_ended"}


class LoopEvents:
    """Fans what happens in the loop out to observers; costs next to nothing when there are none."""

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
        """From now on the device is waited for wherever an observer needs it, and nowhere else."""
        self._settle = settle
        needs = {each.borders for each in self.observers}
        self._settle_phases = settle if "phases" in needs else None
        self._settle_steps = settle if needs - {"none"} else None
        self._phases.clear()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A named slice of a step: `with events.phase("forward"): …`. Phases may nest."""
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
    """Whether an observer does anything about an event."""
    return getattr(type(observer), event) is not getattr(Observer, event)


class _Phase:
    """One name, entered as often as it happens."""

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
    """The same for the one observer that takes notes, as fast as Python does it: all that it needs is at hand."""
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
    """Something that learns, one step at a time.

    Implementers guarantee: `step(n)` depends on nothing but the state, the run's streams and n;
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

    Implementers guarantee: a run's numbers are bit for bit the same whatever it is stacked with, alone included,
    and nothing that happens to one run, such as a loss that is no longer a number, reaches another. The members
    stay `Trainable`s: they are evaluated, saved and loaded one by one.
    """

    def step(self, due: Mapping[int, int], events: LoopEvents) -> Mapping[int, Mapping[str, SupportsFloat]]:
        """Take the step that is due for each member, by its number; a member that is not due any more has left."""
        ...


class RunLogger(Protocol):
    """What a job writes through. The same four words that a person's own script uses."""

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
    """Named arrays in a folder, memory-mapped when they are asked for, known by their content."""

    name: str
    sha256: str
    folder: Path

    def array(self, name: str) -> Any:
        import numpy

        return numpy.load(self.folder / f"{name}.npy", mmap_mode="r")

    def arrays(self) -> dict[str, Any]:
        """All of them by name."""
        return {path.stem: self.array(path.stem) for path in sorted(self.folder.glob("*.npy"))}

    def identity(self) -> dict[str, str]:
        return {"name": self.name, "sha256": self.sha256}


MakeEntry = Callable[[Path], Mapping[str, Any]]
CheckEntry = Callable[[Path, Mapping[str, Any]], bool]


class Cache(Protocol):
    """Things made once per store and known by a key that describes how they are made."""

    def entry(self, kind: str, key: Mapping[str, Any], make: MakeEntry, check: CheckEntry = ...) -> CacheEntry:
        """The entry for `key`, made by `make(folder) -> manifest` if it is not there; never made twice.

        Its files are checked against the hashes in its manifest. `check(folder, manifest)` says whether an entry of
        an earlier version, whose manifest has none, is as it was made; without it such an entry is made again.
        """
        ...


@dataclass(frozen=True)
class CacheEntry:
    folder: Path
    manifest: Mapping[str, Any]


def _tell_nobody(event: str, **fields: Any) -> None:
    """Where nothing is written down: a run that is only built again."""


@dataclass(frozen=True)
class StepSize:
    """What one training step works through: 256 frames, made of `8 envs × 32 rollout steps`."""

    count: int
    unit: str
    made_of: str = ""


@dataclass(frozen=True)
class RunContext:
    """Where a run happens: all that a recipe may use beside its options.

    `tell(event, **fields)` writes one line of telemetry from the first step on: an event that `core/events.py` has, or
    one of the recipe's own. Steps that are taken back, as in a rehearsal, tell nothing. It is for the thread that
    trains alone: other threads and processes hand what they have to say to that one. `tell("device_stats", step=…)`
    needs nothing more: what the graphics cards do, or why there are none, is filled in. `token` is that of the claim
    on the run, for programs that write into it too.
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
