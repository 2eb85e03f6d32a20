"""The one training loop. `train`, `launch` and everything after them drive recipes through it.

A run is a coroutine that asks for one step after another and looks at what each gave. So the same lines drive a run
alone and many runs whose steps are taken together. The order of things within a step is fixed: step, log, evaluate,
save. A checkpoint is the state after its step, so a resumed run repeats exactly what an uninterrupted one does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from math import isfinite
from typing import Any, SupportsFloat

from fairtrial.core.errors import Diverged, Interrupted
from fairtrial.core.options import LoopOptions
from fairtrial.core.scores import Scoring, bound_name, confidence_bound
from fairtrial.core.specs import Metric
from fairtrial.core.training import LoopEvents, RunLogger, Split, Stack, Trainable, as_floats

Metrics = Mapping[str, SupportsFloat]
RunLoop = Generator[int, Metrics, None]
"""A run under way: gives the step that it wants to take, and is sent what that step gave."""


def train(
    trainable: Trainable,
    options: LoopOptions,
    logger: RunLogger,
    *,
    done: int = 0,
    events: LoopEvents | None = None,
    scoring: Scoring | None = None,
    bounded: Metric | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Train from the step after `done` to the last one, then report on data that selected nothing."""
    events = events or LoopEvents()
    run = run_loop(
        trainable, options, logger, done=done, events=events, scoring=scoring, bounded=bounded, should_stop=should_stop
    )
    take_steps(trainable, run, next(run, None), events)


def take_steps(
    trainable: Trainable, run: RunLoop, step: int | None, events: LoopEvents, most: int | None = None
) -> int | None:  # fmt: skip
    """Take the step that is due and those after it, all of them or the `most`. Returns the one that is due then."""
    left = -1 if most is None else most
    while step is not None and left != 0:
        left -= 1
        try:
            step = run.send(trainable.step(step, events))
        except StopIteration:
            step = None
    return step


def train_together(stack: Stack, runs: Sequence[RunLoop], ended: Callable[[int, Exception | None], None]) -> None:
    """Drive the courses of a stack's members. Each is told to `ended` when it is over, with the error that ended it."""
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


def run_loop(
    trainable: Trainable,
    options: LoopOptions,
    logger: RunLogger,
    *,
    done: int,
    events: LoopEvents,
    should_stop: Callable[[], bool],
    scoring: Scoring | None = None,
    bounded: Metric | None = None,
) -> RunLoop:
    """All that happens in a run but the steps themselves. `bounded` is judged by its bound over episodes."""
    judge = _Judge(trainable, logger, events, scoring, bounded)
    events.tell("training_started", done + 1, options.steps)
    for step in range(done + 1, options.steps + 1):
        metrics = yield step
        _after_step(trainable, options, logger, judge, step, metrics)
        if should_stop() and step < options.steps:
            if options.checkpoint_every:
                logger.save(step, trainable.state())
            raise Interrupted(f"stopped at step {step} of {options.steps}")
    _report(trainable, options, logger, judge)
    events.tell("training_ended")


class _Judge:
    """Evaluates: metrics by their full names, normalized scores among them, and every single episode written down."""

    def __init__(
        self,
        trainable: Trainable,
        logger: RunLogger,
        events: LoopEvents,
        scoring: Scoring | None,
        bounded: Metric | None,
    ) -> None:
        self.trainable, self.journal, self.watch = trainable, logger, events
        self.scoring, self.bounded = scoring, bounded

    def evaluate(self, step: int, split: Split, of: str | None = None) -> dict[str, float]:
        """`of` names the weights where they are not the last ones."""
        with self.watch.phase("evaluation"):
            values = as_floats(self.trainable.evaluate(split), f"{split}_")
        if self.scoring is not None:
            values |= self.scoring.score(values, split)
        returns = getattr(self.trainable, "episode_returns", None)
        if returns is not None:
            self.journal.event("episodes", step=step, split=split, of=of or "last", returns=list(map(float, returns)))
        if self.bounded is not None and split == "eval" and returns is not None:
            values[bound_name(self.bounded.on("eval"))] = confidence_bound(returns, self.bounded.direction)
        return values


def _after_step(
    trainable: Trainable, options: LoopOptions, logger: RunLogger, judge: _Judge, step: int, metrics: Metrics
) -> None:
    events = judge.watch
    if _is_due(step, options.log_every, options.steps):
        with events.phase("logging"):
            _log(logger, step, metrics)
    events.tell("step_ended", step)
    if _is_due(step, options.eval_every, options.steps):
        values = judge.evaluate(step, "eval")
        with events.phase("checkpoint"):  # the best so far is kept
            logger.evaluated(step, values, trainable.state)
        events.tell("evaluated", step, values)
        _refuse_infinite(step, values)
    if options.checkpoint_every and _is_due(step, options.checkpoint_every, options.steps):
        with events.phase("checkpoint"):
            logger.save(step, trainable.state())


def _is_due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)


def _log(logger: RunLogger, step: int, metrics: Metrics) -> None:
    """What is not finite is written down first, then the run ends as diverged."""
    values = as_floats(metrics, "train_")
    logger.log(step, values)
    _refuse_infinite(step, values)


def _refuse_infinite(step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if not isfinite(value):
            raise Diverged(step, name, value)


def _report(trainable: Trainable, options: LoopOptions, logger: RunLogger, judge: _Judge) -> None:
    """The numbers that verdicts are made from: the last weights, and the best ones, on untouched data."""
    values = judge.evaluate(options.steps, "report")
    if logger.best_step is not None:
        values |= _report_best(trainable, options, logger, judge, values)
    logger.log(options.steps, values)
    _refuse_infinite(options.steps, values)


def _report_best(
    trainable: Trainable, options: LoopOptions, logger: RunLogger, judge: _Judge, last: dict[str, float]
) -> dict[str, float]:
    if logger.best_step == options.steps:
        best = last
    else:
        current: dict[str, Any] = trainable.state()
        state = logger.best_state()
        assert state is not None
        trainable.load_state(state)
        best = judge.evaluate(options.steps, "report", of="best")
        trainable.load_state(current)
    return {name.replace("report_", "report_best_", 1): value for name, value in best.items()}
