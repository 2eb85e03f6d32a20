"""Numbers with a known truth: known step time, known effect, known noise. Says nothing about any training.

The accuracy of a run approaches `plateau + effect + noise(seed)`, where the noise has standard deviation
`noise` between seeds and is the same for every variant to the degree of `correlation`. Its phases take as long as
they are told to. For tests, for trying out statistics, and for people who write plug-ins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import sleep
from typing import Any

from fairtrial.plugins import LoopEvents, LoopOptions, Metric, Role, RunContext, Streams, option

SUMMARY = "Synthetic: made-up numbers with a known effect, noise and step time."
REQUIRES = ()
EXTRA = None
METRIC = Metric("accuracy", "max")
EXAMPLE = {"variants": {"control": {}, "candidate": {"effect": 0.03}}}
SYNTHETIC = True


def _time(what: str) -> Any:
    return option(0.0, f"Time that {what} takes.", role=Role.TRAINING, unit="seconds", ge=0, newer=True)


class Options(LoopOptions):
    steps: int = option(100, "Steps.", role=Role.TRAINING, unit="steps", ge=1, le=LoopOptions.most_steps)
    eval_every: int = option(
        25,
        "Evaluate every N steps and at the end; 0: at the end only.",
        role=Role.EVALUATION,
        unit="steps",
        ge=0,
    )
    plateau: float = option(0.7, "Accuracy that an average run approaches.", role=Role.TRAINING)
    effect: float = option(0.0, "What this variant adds to it.", role=Role.TRAINING)
    noise: float = option(0.02, "Standard deviation between seeds.", role=Role.TRAINING, ge=0)
    correlation: float = option(
        0.5, "Correlation of the noise between variants of one seed.", role=Role.TRAINING, ge=0, le=1
    )
    label: str = option(
        "", "Tells variants of equal effect apart, so that their noise is not the same.", role=Role.TRAINING
    )
    jitter: float = option(0.0, "Standard deviation of a logged value within a run.", role=Role.TRAINING, ge=0)
    step_time: float = option(0.0, "Time that a forward pass takes.", role=Role.TRAINING, unit="seconds", ge=0)
    data_time: float = _time("loading a batch")
    transfer_time: float = _time("moving a batch to the device")
    backward_time: float = _time("a backward pass")
    optimizer_time: float = _time("an update")
    batch_size: int = option(1, "Examples per batch.", role=Role.TRAINING, ge=1, newer=True)
    example_time: float = _time("each example of a batch, on top of a forward pass,")
    accumulate: int = option(1, "Batches per update.", role=Role.TRAINING, ge=1, newer=True)
    stall_time: float = _time("a stall while data are loaded")
    stall_every: int = option(0, "Batches from one stall to the next; 0: none.", role=Role.TRAINING, ge=0, newer=True)
    loader_workers: int = option(
        0, "Loaders that work ahead; 0: a batch is loaded when it is needed.", role=Role.COMPUTE, ge=0, newer=True
    )
    diverge_at: int = option(0, "Step from which on the loss is NaN; 0: never.", role=Role.TRAINING, ge=0)
    fail_at: int = option(0, "Step at which the run raises an error; 0: never.", role=Role.TRAINING, ge=0)


class Fake:
    def __init__(self, options: Options, streams: Streams) -> None:
        self.options = options
        self.streams = streams
        self.progress = 0.0
        self.loader = _Loader(options.loader_workers)
        shared = _normal(streams.seed("order", "noise"))
        own = _normal(streams.seed("init", "noise", options.label, repr(options.effect)))
        weight = options.correlation
        self.offset = options.noise * (math.sqrt(weight) * shared + math.sqrt(1 - weight) * own)

    def step(self, step: int, events: LoopEvents) -> Mapping[str, float]:
        options = self.options
        if step == options.fail_at:
            raise RuntimeError(f"asked to fail at step {step}")
        for number in range((step - 1) * options.accumulate + 1, step * options.accumulate + 1):
            self._pass_batch(number, events)
        with events.phase("optimizer"):
            _spend(options.optimizer_time)
            self.progress += 1 / options.steps
        if options.diverge_at and step >= options.diverge_at:
            return {"loss": math.nan}
        return {"loss": math.exp(-3 * self.progress) + self._jitter("order", step)}

    def _pass_batch(self, number: int, events: LoopEvents) -> None:
        options = self.options
        stalls = bool(options.stall_every) and number % options.stall_every == 0
        with events.phase("data"):
            _spend(self.loader.wait(events.clock(), options.data_time) + options.stall_time * stalls)
        with events.phase("transfer"):
            _spend(options.transfer_time)
        with events.phase("forward"):
            _spend(options.step_time + options.example_time * options.batch_size)
        with events.phase("backward"):
            _spend(options.backward_time)

    @property
    def examples_per_step(self) -> int:
        return self.options.batch_size * self.options.accumulate

    def evaluate(self, split: str) -> Mapping[str, float]:
        share = 1 - math.exp(-5 * self.progress)
        step = round(self.progress * self.options.steps)
        level = self.options.plateau + self.options.effect + self.offset
        return {"accuracy": level * share + self._jitter(split, step)}

    def _jitter(self, stream: str, step: int) -> float:
        if not self.options.jitter:
            return 0.0
        return self.options.jitter * _normal(self.streams.seed(stream, step))

    def state(self) -> dict[str, Any]:
        return {"progress": self.progress}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.progress = state["progress"]


def evaluates(_options: Options) -> tuple[str, ...]:
    return ("accuracy",)


class Together:
    """Several of them in one process, one after another: for launchers, which must carry such tasks too."""

    def __init__(self, members: Sequence[Fake]) -> None:
        self._members = members

    def step(self, due: Mapping[int, int], events: LoopEvents) -> Mapping[int, Mapping[str, float]]:
        return {member: self._members[member].step(step, events) for member, step in due.items()}


stack = Together


class _Loader:
    """When the next batch is there: at once where loaders worked ahead, else after it was loaded.

    Each loader works on one batch at a time and may be one batch ahead of the training.
    """

    def __init__(self, workers: int) -> None:
        self._ready: list[float | None] = [None] * workers

    def wait(self, now: float, load_time: float) -> float:
        if not self._ready:
            return load_time
        ready = self._ready.pop(0)
        waited = load_time if ready is None else max(0.0, ready - now)
        self._ready.append(now + waited + load_time)  # it begins on another batch when this one is taken
        return waited


def _spend(seconds: float) -> None:
    if seconds:
        sleep(seconds)


def _normal(seed: int) -> float:
    """A standard normal value from a stream's bits, without a generator."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(((seed >> 10) + 0.5) / 2**53)


def fresh_report(options: Options, number: int) -> dict[str, Any]:  # noqa: ARG001
    """Its report numbers come from the seed: a fresh seed has fresh ones."""
    return {}


def build(options: Options, context: RunContext) -> Fake:
    return Fake(options, context.streams)
