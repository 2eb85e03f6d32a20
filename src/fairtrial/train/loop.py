"""The training loop. Every command that trains a recipe uses it.

A run is a generator that yields the number of the next step and receives the metrics of that step. The same code
therefore drives a single run and a stack of runs whose steps are computed together. The order within a step is fixed:
step, log, evaluate, save. A checkpoint is the state after its step, so a resumed run repeats exactly what an
uninterrupted one does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, SupportsFloat

from fairtrial.core.errors import Diverged, Interrupted
from fairtrial.core.options import LoopOptions
from fairtrial.core.scores import Scoring, bound_name, confidence_bound
from fairtrial.core.specs import Metric
from fairtrial.core.training import LoopEvents, RunLogger, Split, Stack, Trainable, as_floats

Metrics = Mapping[str, SupportsFloat]
RunLoop = Generator[int, Metrics, None]
"""A run in progress: yields the number of the next step and receives the metrics of that step."""


@dataclass(frozen=True)
class LoopContext:
    """What the loop needs in addition to the trainable. `done` is the last step that an earlier attempt saved.

    `bounded` is the metric whose confidence bound over episodes selects the best checkpoint, or None.
    """

    options: LoopOptions
    logger: RunLogger
    done: int = 0
    events: LoopEvents = field(default_factory=LoopEvents)
    scoring: Scoring | None = None
    bounded: Metric | None = None
    should_stop: Callable[[], bool] = lambda: False


def train(trainable: Trainable, context: LoopContext) -> None:
    """Train from the step after `done` to the last one, then evaluate on the held-out report data."""
    run = run_loop(trainable, context)
    take_steps(trainable, run, next(run, None), context.events)


def take_steps(
    trainable: Trainable, run: RunLoop, step: int | None, events: LoopEvents, most: int | None = None
) -> int | None:
    """Take `step` and the steps after it, at most `most` of them. Return the next step, or None at the end."""
    left = -1 if most is None else most
    while step is not None and left != 0:
        left -= 1
        try:
            step = run.send(trainable.step(step, events))
        except StopIteration:
            step = None
    return step


def train_together(stack: Stack, runs: Sequence[RunLoop], ended: Callable[[int, Exception | None], None]) -> None:
    """Drive the loops of a stack's members. Calls `ended` for each member that ends, with its error or None."""
    events, due = LoopEvents(), dict.fromkeys(range(len(runs)), 0)

    def advance(member: int, take: Callable[[], int]) -> None:
        try:
            due[member] = take()
        except Exception as end:  # noqa: BLE001 — a failure of one run must not stop the others
            del due[member]
            ended(member, None if isinstance(end, StopIteration) else end)

    for member, run in enumerate(runs):
        advance(member, run.__next__)
    while due:
        for member, metrics in stack.step(due, events).items():
            advance(member, lambda member=member, metrics=metrics: runs[member].send(metrics))  # type: ignore[misc]


def run_loop(trainable: Trainable, context: LoopContext) -> RunLoop:
    """Do everything in a run except the steps themselves: log, evaluate, save, and report at the end."""
    options, logger, events = context.options, context.logger, context.events
    events.tell("training_started", context.done + 1, options.steps)
    for step in range(context.done + 1, options.steps + 1):
        metrics = yield step
        _after_step(trainable, context, step, metrics)
        if context.should_stop() and step < options.steps:
            if options.checkpoint_every:
                logger.save(step, trainable.state())
            raise Interrupted(f"stopped at step {step} of {options.steps}")
    _report(trainable, context)
    events.tell("training_ended")


def _after_step(trainable: Trainable, context: LoopContext, step: int, metrics: Metrics) -> None:
    options, logger, events = context.options, context.logger, context.events
    if _is_due(step, options.log_every, options.steps):
        with events.phase("logging"):
            values = as_floats(metrics, "train_")
            logger.log(step, values)  # before the check, so that the value that ends the run is on record
            _refuse_infinite(step, values)
    events.tell("step_ended", step)
    if _is_due(step, options.eval_every, options.steps):
        values = _evaluate(trainable, context, step, "eval")
        with events.phase("checkpoint"):  # the logger saves a checkpoint if this evaluation is the best so far
            logger.evaluated(step, values, trainable.state)
        events.tell("evaluated", step, values)
        _refuse_infinite(step, values)
    if options.checkpoint_every and _is_due(step, options.checkpoint_every, options.steps):
        with events.phase("checkpoint"):
            logger.save(step, trainable.state())


def _is_due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)


def _evaluate(
    trainable: Trainable, context: LoopContext, step: int, split: Split, weights: str = "last"
) -> dict[str, float]:
    """Return metrics by full name, including normalized scores. Logs the return of every episode."""
    with context.events.phase("evaluation"):
        values = as_floats(trainable.evaluate(split), f"{split}_")
    if context.scoring is not None:
        values |= context.scoring.score(values, split)
    returns = getattr(trainable, "episode_returns", None)
    if returns is not None:
        context.logger.event("episodes", step=step, split=split, of=weights, returns=list(map(float, returns)))
        if context.bounded is not None and split == "eval":
            bounded = context.bounded
            values[bound_name(bounded.on("eval"))] = confidence_bound(returns, bounded.direction)
    return values


def _refuse_infinite(step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if not isfinite(value):
            raise Diverged(step, name, value)


def _report(trainable: Trainable, context: LoopContext) -> None:
    """Log the numbers that verdicts are based on: the last and the best weights, evaluated on held-out data."""
    logger, last_step = context.logger, context.options.steps
    values = best = _evaluate(trainable, context, last_step, "report")
    if logger.best_step is not None:
        if logger.best_step != last_step:
            current: dict[str, Any] = trainable.state()
            state = logger.best_state()
            assert state is not None
            trainable.load_state(state)
            best = _evaluate(trainable, context, last_step, "report", weights="best")
            trainable.load_state(current)
        values = values | {name.replace("report_", "report_best_", 1): value for name, value in best.items()}
    logger.log(last_step, values)
    _refuse_infinite(last_step, values)
