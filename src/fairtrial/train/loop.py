"""The one training loop. `train`, `launch` and everything after them drive recipes through it.

A run is a coroutine that asks for one step after another and looks at what each gave. So the same lines drive a run
alone and many runs whose steps are taken together. The order of things within a step is fixed: step, log, evaluate,
save. A checkpoint is the state after its step, so a resumed run repeats exactly what an uninterrupted one does.
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
"""A run under way: yields the number of the step to take next, and is sent the metrics of that step."""


@dataclass(frozen=True)
class LoopContext:
    """What the loop needs besides the trainable. `done` is the last step that an earlier attempt has saved.

    `bounded` is the metric that selects the best checkpoint by a confidence bound over episodes, if one does.
    """

    options: LoopOptions
    logger: RunLogger
    done: int = 0
    events: LoopEvents = field(default_factory=LoopEvents)
    scoring: Scoring | None = None
    bounded: Metric | None = None
    should_stop: Callable[[], bool] = lambda: False


def train(trainable: Trainable, context: LoopContext) -> None:
    """Train from the step after `done` to the last one, then report on data that selected nothing."""
    run = run_loop(trainable, context)
    take_steps(trainable, run, next(run, None), context.events)


def take_steps(
    trainable: Trainable, run: RunLoop, step: int | None, events: LoopEvents, most: int | None = None
) -> int | None:
    """Take `step` and those after it, all of them or at most `most`. Returns the step that comes next, if any."""
    left = -1 if most is None else most
    while step is not None and left != 0:
        left -= 1
        try:
            step = run.send(trainable.step(step, events))
        except StopIteration:
            step = None
    return step


def train_together(stack: Stack, runs: Sequence[RunLoop], ended: Callable[[int, Exception | None], None]) -> None:
    """Drive the loops of a stack's members. `ended` gets each member that ends, with the error that ended it."""
    events, due = LoopEvents(), dict.fromkeys(range(len(runs)), 0)

    def advance(member: int, take: Callable[[], int]) -> None:
        try:
            due[member] = take()
        except Exception as end:  # noqa: BLE001 — however one run ends, the others go on
            del due[member]
            ended(member, None if isinstance(end, StopIteration) else end)

    for member, run in enumerate(runs):
        advance(member, run.__next__)
    while due:
        for member, metrics in stack.step(due, events).items():
            advance(member, lambda member=member, metrics=metrics: runs[member].send(metrics))  # type: ignore[misc]


def run_loop(trainable: Trainable, context: LoopContext) -> RunLoop:
    """All that happens in a run except the steps themselves."""
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
            logger.log(step, values)  # also values that are not finite, before they end the run
            _refuse_infinite(step, values)
    events.tell("step_ended", step)
    if _is_due(step, options.eval_every, options.steps):
        values = _evaluate(trainable, context, step, "eval")
        with events.phase("checkpoint"):  # the best so far is kept
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
    """Metrics by their full names, normalized scores among them; every single episode is logged."""
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
    """The numbers that verdicts are made from: the last weights, and the best ones, on untouched data."""
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
