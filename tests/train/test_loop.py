"""The one loop: what it tells, when it evaluates and saves, and that time comes from the clock it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fairtrial.core.errors import Diverged, Interrupted
from fairtrial.core.options import LoopOptions
from fairtrial.core.training import LoopEvents, Observer
from fairtrial.train.loop import LoopContext, train


class Notebook:
    """A journal in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []
        self.best: tuple[int, dict[str, Any]] | None = None

    def log(self, step: int, metrics: Mapping[str, Any] | None = None, /, **values: Any) -> None:
        self.lines.append(("log", step, *sorted((metrics or {}).keys())))

    def evaluated(self, step: int, metrics: Mapping[str, Any], state: Any = None) -> bool:
        self.lines.append(("evaluated", step))
        self.best = (step, state()) if self.best is None else self.best
        return True

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        self.lines.append(("save", step))

    def event(self, event: str, **fields: Any) -> None: ...

    def best_state(self) -> Mapping[str, Any] | None:
        return self.best[1] if self.best else None

    @property
    def best_step(self) -> int | None:
        return self.best[0] if self.best else None


class Counting:
    def __init__(self, clock: list[float] | None = None, diverge_at: int = 0) -> None:
        self.count, self.clock, self.diverge_at = 0, clock, diverge_at

    def step(self, step: int, events: LoopEvents) -> dict[str, float]:
        self.count += 1
        with events.phase("forward"):
            if self.clock is not None:
                self.clock[0] += 2.0
        return {"loss": float("nan") if step == self.diverge_at else 1.0 / step}

    def evaluate(self, split: str) -> dict[str, float]:
        return {"accuracy": float(self.count)}

    def state(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]


def options(**values: Any) -> LoopOptions:
    return LoopOptions(**values)


def test_the_order_of_a_step_is_fixed_and_the_last_one_does_everything() -> None:
    journal = Notebook()
    train(Counting(), LoopContext(options(steps=5, eval_every=2, log_every=3, checkpoint_every=4), journal))
    assert journal.lines == [
        ("evaluated", 2), ("log", 3, "train_loss"), ("evaluated", 4), ("save", 4),
        ("log", 5, "train_loss"), ("evaluated", 5), ("save", 5),
        ("log", 5, "report_accuracy", "report_best_accuracy"),
    ]  # fmt: skip


def test_no_evaluation_in_between_and_no_checkpoints_when_so_asked() -> None:
    journal = Notebook()
    train(Counting(), LoopContext(options(steps=5, eval_every=0, log_every=5, checkpoint_every=0), journal))
    assert [line[0] for line in journal.lines] == ["log", "evaluated", "log"]


def test_reporting_on_the_best_weights_puts_the_last_ones_back() -> None:
    trainable = Counting()
    train(trainable, LoopContext(options(steps=4, eval_every=1), Notebook()))
    assert trainable.count == 4


def test_a_stop_saves_the_step_that_was_reached() -> None:
    journal = Notebook()
    asked = iter([False, False, True])
    with pytest.raises(Interrupted, match="stopped at step 3 of 9"):
        train(Counting(), LoopContext(options(steps=9, log_every=9), journal, should_stop=lambda: next(asked)))
    assert journal.lines[-1] == ("save", 3)


def test_a_nan_is_logged_and_then_ends_the_run() -> None:
    journal = Notebook()
    with pytest.raises(Diverged, match="train_loss became nan at step 3"):
        train(Counting(diverge_at=3), LoopContext(options(steps=9, log_every=1), journal))
    assert journal.lines[-1] == ("log", 3, "train_loss")


class Stopwatch(Observer):
    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.spent: dict[str, float] = {}
        self.steps = 0

    def phase_started(self, name: str, now: float) -> None:
        self.began[name] = now

    def phase_ended(self, name: str, now: float) -> None:
        self.spent[name] = self.spent.get(name, 0.0) + now - self.began[name]

    def step_ended(self, step: int, now: float) -> None:
        self.steps += 1


def test_observers_live_on_the_clock_that_the_loop_was_given() -> None:
    now = [100.0]
    watcher = Stopwatch()
    train(Counting(now), LoopContext(options(steps=7), Notebook(), events=LoopEvents([watcher], clock=lambda: now[0])))
    assert watcher.spent["forward"] == 14.0 and watcher.steps == 7
