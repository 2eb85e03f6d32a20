"""The one training loop. `train`, `launch` and everything after them drive a recipe through it.

The order of things within a step is fixed: step, log, evaluate, save. A checkpoint is the state after its
step, so a resumed run repeats exactly what an uninterrupted one does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, SupportsFloat

from fairtrial.core.errors import Diverged, Interrupted
from fairtrial.core.options import LoopOptions
from fairtrial.core.training import Journal, Split, Trainable, Watch, as_floats


def train(
    trainable: Trainable,
    options: LoopOptions,
    journal: Journal,
    *,
    done: int = 0,
    watch: Watch | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Train from the step after `done` to the last one, then report on data that selected nothing."""
    watch = watch or Watch()
    watch.tell("training_started", done + 1, options.steps)
    for step in range(done + 1, options.steps + 1):
        _step(trainable, options, journal, watch, step)
        if should_stop() and step < options.steps:
            if options.checkpoint_every:
                journal.save(step, trainable.state())
            raise Interrupted(f"stopped at step {step} of {options.steps}")
    _report(trainable, options, journal, watch)
    watch.tell("training_ended")


def _step(trainable: Trainable, options: LoopOptions, journal: Journal, watch: Watch, step: int) -> None:
    metrics = trainable.step(step, watch)
    if _is_due(step, options.log_every, options.steps):
        with watch.phase("logging"):
            _log(journal, step, metrics)
    watch.tell("step_ended", step)
    if _is_due(step, options.eval_every, options.steps):
        values = _evaluate(trainable, "eval", watch)
        journal.evaluated(step, values, trainable.state)
        watch.tell("evaluated", step, values)
        _refuse_infinite(step, values)
    if options.checkpoint_every and _is_due(step, options.checkpoint_every, options.steps):
        with watch.phase("checkpoint"):
            journal.save(step, trainable.state())


def _is_due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)


def _log(journal: Journal, step: int, metrics: Mapping[str, SupportsFloat]) -> None:
    """What is not finite is written down first, then the run ends as diverged."""
    values = as_floats(metrics, "train_")
    journal.log(step, values)
    _refuse_infinite(step, values)


def _refuse_infinite(step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if not isfinite(value):
            raise Diverged(step, name, value)


def _evaluate(trainable: Trainable, split: Split, watch: Watch) -> dict[str, float]:
    with watch.phase("evaluation"):
        return as_floats(trainable.evaluate(split), f"{split}_")


def _report(trainable: Trainable, options: LoopOptions, journal: Journal, watch: Watch) -> None:
    """The numbers that verdicts are made from: the last weights, and the best ones, on untouched data."""
    values = _evaluate(trainable, "report", watch)
    if journal.best_step is not None:
        values |= _report_best(trainable, options, journal, watch, values)
    journal.log(options.steps, values)
    _refuse_infinite(options.steps, values)


def _report_best(
    trainable: Trainable, options: LoopOptions, journal: Journal, watch: Watch, last: dict[str, float]
) -> dict[str, float]:
    if journal.best_step == options.steps:
        best = last
    else:
        current: dict[str, Any] = trainable.state()
        state = journal.best_state()
        assert state is not None
        trainable.load_state(state)
        best = _evaluate(trainable, "report", watch)
        trainable.load_state(current)
    return {name.replace("report_", "report_best_", 1): value for name, value in best.items()}
