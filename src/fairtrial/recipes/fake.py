"""Generate synthetic runs with a known effect, noise and step time. Nothing is trained.

The accuracy of a run approaches `plateau + effect + noise(seed)`. The noise has standard deviation `noise` between
seeds, and `correlation` is its correlation between variants that share a seed. Each phase takes as long as its option
says. The recipe is meant for tests, for trying out statistics, and for plug-in authors.
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
MAIN_OPTIONS = ("plateau", "effect", "noise", "correlation", "step_time", "diverge_at", "fail_at")
SYNTHETIC = True


def _time(what: str) -> Any:
    return option(0.0, f"Simulated duration of {what}.", role=Role.TRAINING, unit="seconds", ge=0, newer=True)


class Options(LoopOptions):
    steps: int = option(100, "Training steps.", role=Role.TRAINING, unit="steps", ge=1, le=LoopOptions.most_steps)
    eval_every: int = option(
        25,
        "Evaluate every N steps and at the end; 0: at the end only.",
        role=Role.EVALUATION,
        unit="steps",
        ge=0,
    )
    plateau: float = option(0.7, "Accuracy that a run approaches, before effect and noise.", role=Role.TRAINING)
    effect: float = option(0.0, "True effect of this variant, added to the accuracy.", role=Role.TRAINING)
    noise: float = option(0.02, "Standard deviation of the accuracy between seeds.", role=Role.TRAINING, ge=0)
    correlation: float = option(
        0.5, "Correlation of the noise between variants that share a seed.", role=Role.TRAINING, ge=0, le=1
    )
    label: str = option(
        "", "Gives the variant its own noise; variants of equal effect need different labels.", role=Role.TRAINING
    )
    jitter: float = option(0.0, "Standard deviation of the logged values within a run.", role=Role.TRAINING, ge=0)
    step_time: float = option(0.0, "Simulated duration of a forward pass.", role=Role.TRAINING, unit="seconds", ge=0)
    data_time: float = _time("loading a batch")
    transfer_time: float = _time("moving a batch to the device")
    backward_time: float = _time("a backward pass")
    optimizer_time: float = _time("an optimizer update")
    batch_size: int = option(1, "Examples per batch.", role=Role.TRAINING, ge=1, newer=True)
    example_time: float = _time("each example in a batch, added to the forward pass")
    accumulate: int = option(1, "Batches per update.", role=Role.TRAINING, ge=1, newer=True)
    stall_time: float = _time("a data-loading stall")
    stall_every: int = option(0, "Stall at every N-th batch; 0: never.", role=Role.TRAINING, ge=0, newer=True)
    loader_workers: int = option(
        0, "Simulated workers that prefetch batches; 0: load each batch on demand.", role=Role.COMPUTE, ge=0, newer=True
    )
    diverge_at: int = option(0, "First step at which the loss is NaN; 0: never.", role=Role.TRAINING, ge=0)
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
    """A stack that steps its runs one after another. It lets launchers be tested with stacked runs."""

    def __init__(self, members: Sequence[Fake]) -> None:
        self._members = members

    def step(self, due: Mapping[int, int], events: LoopEvents) -> Mapping[int, Mapping[str, float]]:
        return {member: self._members[member].step(step, events) for member, step in due.items()}


stack = Together


class _Loader:
    """Simulates a data loader with prefetching workers.

    Each worker loads one batch at a time and may be one batch ahead of the training. Without workers, each batch is
    loaded on demand.
    """

    def __init__(self, workers: int) -> None:
        self._ready: list[float | None] = [None] * workers

    def wait(self, now: float, load_time: float) -> float:
        if not self._ready:
            return load_time
        ready = self._ready.pop(0)
        waited = load_time if ready is None else max(0.0, ready - now)
        self._ready.append(now + waited + load_time)  # the worker starts its next batch when this one is consumed
        return waited


def _spend(seconds: float) -> None:
    if seconds:
        sleep(seconds)


def _normal(seed: int) -> float:
    """Return the standard normal value that corresponds to a stream's seed, without a random generator."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(((seed >> 10) + 0.5) / 2**53)


def fresh_report(options: Options, number: int) -> dict[str, Any]:  # noqa: ARG001
    """Return no options: report values depend on the seed, so a new seed already gives new ones."""
    return {}


def build(options: Options, context: RunContext) -> Fake:
    return Fake(options, context.streams)
