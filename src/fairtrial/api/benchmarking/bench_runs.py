"""Runs made for a measurement: in a hidden study, and deleted afterwards."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.api.running.planning import load_checked_recipe, plan_jobs, require_devices_here
from fairtrial.api.running.train import complete_needs
from fairtrial.core.errors import Interrupted, InvalidOptions, RunsFailed, UserError
from fairtrial.core.options import LoopOptions, not_benched
from fairtrial.core.paths import RunPaths
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.runs import Outcome, Status
from fairtrial.core.specs import FIXED_SEEDS, Job
from fairtrial.core.training import Clock, Observer
from fairtrial.jobs.run_session import SteppableRun
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.probe.interleaving import Block, abba
from fairtrial.record.claims import is_claimed
from fairtrial.record.environment import surroundings
from fairtrial.record.store import Store
from fairtrial.stats.samples import Array
from fairtrial.stats.speed import SpeedComparison, compare_rounds

BENCH_STUDY = ".bench"
BATCHES = 200
MARGIN = 0.05
REFRESH_S = 0.1
LEFT_BEHIND_S = 3600.0
STOPPED = "Stopped. The measurement was discarded."

Show = Callable[[str, int, int], None]
"""Progress callback: takes a label, the number done and the total."""


@dataclass(frozen=True)
class BenchTerms:
    """Settings of a measurement. The options of the recipe are passed separately.

    >>> fairtrial.BenchTerms(batches=100).batches
    100
    """

    batches: int | None = None
    """Steps to take; None: 200, or the number that `sample_ratio` gives."""
    warmup: int | None = None
    """Steps to leave out; None: until the times are steady."""
    validation: bool = False
    whole_steps: bool = False
    sample_ratio: float | None = None
    trace_dir: Path | None = None
    monitor: bool = False
    noise_scale: bool = False
    batch_sizes: Sequence[int] = ()
    learning_rates: Sequence[float] = ()
    trials: bool = True
    seed: int = FIXED_SEEDS[0]
    level: float = 0.95
    store: str | os.PathLike[str] | None = None
    tell: Callable[[str], None] = lambda _: None
    show: Show = lambda *_: None
    should_stop: Callable[[], bool] = lambda: False
    clock: Clock = time.perf_counter

    @property
    def alpha(self) -> float:
        return round(1 - self.level, 12)

    @property
    def steps(self) -> int:
        return BATCHES if self.batches is None else self.batches

    def check(self) -> None:
        ratio, batches = self.sample_ratio, self.steps
        rules = [
            (batches >= 1, f"max_batches must be at least 1, not {batches}"),
            (self.warmup is None or self.warmup >= 0, f"warmup_batches must be at least 0, not {self.warmup}"),
            (
                self.warmup is None or ratio is not None or self.warmup < batches,
                f"warmup_batches: leaving out {self.warmup} of {batches} steps leaves none to measure",
            ),
            (ratio is None or 0.01 <= ratio <= 1, f"sample_ratio must lie between 0.01 and 1, not {ratio}"),
            (ratio is None or self.batches is None, "sample_ratio and max_batches both set the number of steps"),
            (0.5 < self.level < 1, f"level must lie between 0.5 and 1, not {self.level:g}"),
            (all(size >= 1 for size in self.batch_sizes), "batch_sizes must be at least 1"),
            (len(set(self.batch_sizes)) == len(self.batch_sizes), "batch_sizes: the same size is given twice"),
            (all(0 < rate < math.inf for rate in self.learning_rates), "learning_rates must be finite and above 0"),
            (len(set(self.learning_rates)) == len(self.learning_rates), "learning_rates: the same rate is given twice"),
        ]
        refuse([message for holds, message in rules if not holds])


def refuse(problems: Sequence[str]) -> None:
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:])


@dataclass(frozen=True)
class InterleavedRates:
    """Two sides timed alternately: their comparison, and the seconds per step or example of each round."""

    compared: SpeedComparison
    first: Array
    second: Array
    per_example: bool


def benched(recipe: LoadedRecipe, options: Mapping[str, Any], terms: BenchTerms) -> LoopOptions:
    """Resolve the options for a measurement: no checkpoints, and no evaluation unless requested."""
    refuse(
        [f"{name}: not valid in bench: {why}" for name, why in not_benched(recipe.options).items() if name in options]
    )
    quiet = {"checkpoint_every": 0, **({} if terms.validation else {"eval_every": 0})}
    resolved = resolve(recipe, {**options, **quiet}, where=f"recipe '{recipe.name}'")
    assert isinstance(resolved, LoopOptions)
    return resolved


class HiddenRuns:
    """Opens runs of one recipe that are advanced step by step. All are closed and deleted together."""

    def __init__(self, recipe: LoadedRecipe, options: Mapping[str, Any], terms: BenchTerms) -> None:
        self.recipe, self.terms = recipe, terms
        self.store = Store.at(terms.store)
        self.store.check_writable()
        self.options = options
        self.resolved = benched(recipe, options, terms)
        self._exit_stack = contextlib.ExitStack()
        self._opened, self._owner = 0, os.getpid()
        self._prefix = f"bench-{secrets.token_hex(6)}-"

    def __enter__(self) -> HiddenRuns:
        self._exit_stack.enter_context(contextlib.redirect_stdout(sys.stderr))  # stdout is for the result
        self._exit_stack.callback(self._remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    @cached_property
    def _surroundings(self) -> dict[str, Any]:
        return surroundings(Path.cwd())  # cached: it calls git, which takes longer than many steps

    def job(self, changes: Mapping[str, Any] | None = None, *, seed: int | None = None) -> Job:
        """Return a job with some options changed, after training the runs that it depends on."""
        resolved = benched(self.recipe, {**self.options, **(changes or {})}, self.terms)
        self._opened += 1
        seed = self.terms.seed if seed is None else seed
        spec = spec_of(self.recipe, resolved, study=BENCH_STUDY, variant=self._name(), seed=seed)
        plan = plan_jobs([spec], self.store, self._surroundings, self.terms.tell)
        require_devices_here(plan.jobs)
        for need in plan.missing_needs(plan.jobs):
            self.terms.tell(f"Training {need.spec.name} first, which this recipe needs …")
        complete_needs(plan, should_stop=self.terms.should_stop)
        return plan.jobs[0]

    def open(
        self, changes: Mapping[str, Any] | None = None, *, seed: int | None = None, observers: Sequence[Observer] = ()
    ) -> SteppableRun:
        return self.at_hand(self.job(changes, seed=seed), observers)

    def at_hand(
        self, job: Job, observers: Sequence[Observer] = (), exit_stack: contextlib.ExitStack | None = None
    ) -> SteppableRun:
        terms, exit_stack = self.terms, exit_stack or self._exit_stack
        return SteppableRun(job, exit_stack, observers=observers, clock=terms.clock, should_stop=terms.should_stop)

    @contextlib.contextmanager
    def briefly(self, changes: Mapping[str, Any], *, seed: int | None = None) -> Iterator[SteppableRun]:
        """Open a run only for this block: many open runs would exceed the limit on file descriptors."""
        with contextlib.ExitStack() as exit_stack:
            run = self.at_hand(self.job(changes, seed=seed), exit_stack=exit_stack)
            self.require(run.ended)
            yield run

    def block(self, run: SteppableRun, steps: int) -> Block:
        """Return a function that takes `steps` steps and returns their seconds, pending device work included."""

        def take() -> float:
            before = run.taken
            run.synchronize()
            start = self.terms.clock()
            run.advance(steps)
            run.synchronize()
            seconds = self.terms.clock() - start
            self.require(run.ended)
            if run.taken - before < steps:
                raise RunsFailed(f"{self.recipe.name} ended after {run.taken} steps, too few for the measurement")
            return seconds

        return take

    def room_for(self, steps: int) -> dict[str, int]:
        """Return a training length that fits this many steps; the time of a step does not depend on the length."""
        return {"steps": max(self.resolved.steps, steps + 1)}

    def interleave(
        self, sides: Sequence[Mapping[str, Any]], steps: int, rounds: int, names: tuple[str, str], margin: float
    ) -> InterleavedRates:
        """Time two sets of options in blocks of steps, A B B A. If batch sizes differ, compare time per example."""
        opened = [self.open({**changes, **self.room_for((2 * rounds + 1) * steps)}) for changes in sides]
        for run in opened:
            self.require(run.ended)
        sizes = [changes.get("batch_size", getattr(self.resolved, "batch_size", None)) for changes in sides]
        examples = [run.resources.get("examples_per_step") or size for run, size in zip(opened, sizes, strict=True)]
        per_example = None not in examples and examples[0] != examples[1]
        work = [float(each or 1) if per_example else 1.0 for each in examples]
        blocks = [self.block(run, steps) for run in opened]
        return self.compare(blocks, [steps * each for each in work], rounds, names, margin, per_example=per_example)

    def compare(
        self, blocks: Sequence[Block], work: Sequence[float], rounds: int, names: tuple[str, str], margin: float, *,
        per_example: bool = False,
    ) -> InterleavedRates:  # fmt: skip
        """Compare interleaved blocks by time per unit of work. The first block of each is warm-up and not counted."""
        for block in blocks:
            block()
        taken = abba(blocks, rounds, lambda done: self.terms.show("rounds", done, rounds))
        first, second = (np.array(times) / (2 * each) for times, each in zip(taken, work, strict=True))
        return InterleavedRates(
            compare_rounds(first, second, names, margin, self.terms.alpha), first, second, per_example
        )

    def require(self, ended: Outcome | None) -> None:
        """Raise Interrupted after Ctrl-C, or RunsFailed if a run ended before its measurement was complete."""
        if self.terms.should_stop():
            raise Interrupted(STOPPED)
        if ended is not None and ended.status is not Status.COMPLETED:
            raise RunsFailed(f"{self.recipe.name} could not be measured: {ended.reason}", hint=ended.hint)

    def _name(self) -> str:
        """Return a unique variant name, also within a child process that was forked for a trial."""
        tried = "" if os.getpid() == self._owner else f"-tried-by-{os.getpid()}"
        return f"{self._prefix}{self._opened}{tried}"

    def _remove(self) -> None:
        folder = self.store.paths.run(BENCH_STUDY, "any").root.parent
        for path in [*folder.glob(f"{self._prefix}*"), *_left_behind(folder)]:
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty while another process is measuring
            folder.rmdir()


def _left_behind(folder: Path) -> list[Path]:
    """Return old runs of killed measurements, which no process claims any more."""
    old = time.time() - LEFT_BEHIND_S
    return [path for path in folder.glob("bench-*") if path.stat().st_mtime < old and not is_claimed(RunPaths(path))]


class Progress(Observer):
    """Reports the number of steps taken, at most once every REFRESH_S seconds."""

    def __init__(self, what: str, show: Show) -> None:
        self._what, self._show = what, show
        self.steps = 0
        self._taken, self._reported_at = 0, 0.0

    def step_ended(self, step: int, now: float) -> None:  # noqa: ARG002
        self._taken += 1
        if now - self._reported_at > REFRESH_S:
            self._reported_at = now
            self._show(self._what, self._taken, self.steps)


@contextlib.contextmanager
def hidden_runs(recipe: str, options: Mapping[str, Any] | None, terms: BenchTerms) -> Iterator[HiddenRuns]:
    """Check the terms and options, and yield an object that opens runs."""
    terms.check()
    loaded = load_checked_recipe(recipe)
    if loaded.execute is not None:
        raise UserError(f"recipe '{loaded.name}' runs an external program, whose steps cannot be measured")
    with HiddenRuns(loaded, options or {}, terms) as runs:
        yield runs
