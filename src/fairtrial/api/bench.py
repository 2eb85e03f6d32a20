"""bench: what does a training step cost, and where does it go? The same options and the same loop as train."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fairtrial.analyse.timing import Times, warm_up
from fairtrial.api.cells import Cell, load_checked_recipe, prepare
from fairtrial.api.train import complete_needs, surroundings
from fairtrial.core.cautions import BENCH_DIVERGED, NEAR_TIMER, NOT_STEADY
from fairtrial.core.errors import Interrupted, InvalidOptions, RunsFailed, UserError
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.core.options import not_benched
from fairtrial.core.paths import default_store
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.runs import Outcome, Run, Status
from fairtrial.core.specs import FIXED_SEEDS
from fairtrial.core.training import Observer
from fairtrial.job import run_cell
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.probe.phases import RESIDUAL, Breakdown, PhaseTimer, StepTimes, break_down, event_seconds
from fairtrial.record.store import Store

BENCH_STUDY = ".bench"
"""Hidden from every list, and emptied when the measurement is over."""
BATCHES = 200
QUANTILES = (0.5, 0.95, 0.99)
TIMES_THE_TIMER = 10
"""A phase that takes less than this many times what timing it takes is flagged."""


@dataclass(frozen=True)
class BenchTerms:
    """How to measure: all that is not about what is trained."""

    batches: int = BATCHES
    warmup: int | None = None
    """Steps to leave out; None: as many as it takes to be steady."""
    validation: bool = False
    seed: int = FIXED_SEEDS[0]
    level: float = 0.95
    store: str | os.PathLike[str] | None = None
    tell: Callable[[str], None] = lambda _: None
    should_stop: Callable[[], bool] = lambda: False

    def check(self) -> None:
        rules = [
            (self.batches >= 1, f"max_batches must be at least 1, not {self.batches}"),
            (self.warmup is None or self.warmup >= 0, f"warmup_batches must be at least 0, not {self.warmup}"),
            (
                self.warmup is None or self.warmup < self.batches,
                f"warmup_batches: {self.warmup} of {self.batches} steps leave none to measure",
            ),
            (0.5 < self.level < 1, f"level must lie between 0.5 and 1, not {self.level:g}"),
        ]
        problems = [told for holds, told in rules if not holds]
        if problems:
            raise InvalidOptions(problems[0], problems=problems[1:])


@dataclass(frozen=True)
class Bench:
    """What was measured, on the steady part of the steps."""

    recipe: str
    options: Mapping[str, Any]
    seed: int
    steps: Sequence[StepTimes]
    warmup: int | None
    """Steps that were left out; None: the times never became steady, and nothing was."""
    examples: int | None
    level: float
    resources: Mapping[str, Any]
    event_seconds: float
    """What one event of the timer costs; a phase has two."""
    cautions: Sequence[FilledCaution] = ()

    @property
    def steady(self) -> Sequence[StepTimes]:
        return self.steps[self.warmup or 0 :]

    @cached_property
    def times(self) -> Times:
        return Times.of([each.seconds for each in self.steady])

    @cached_property
    def breakdown(self) -> Breakdown | None:
        """None where no step was left to take apart."""
        return break_down(self.steady) if self.steady else None

    @property
    def sufficient(self) -> bool:
        return self.warmup is not None and self.times.sufficient

    @property
    def alpha(self) -> float:
        return round(1 - self.level, 12)

    @property
    def throughput(self) -> Estimate:
        unit = "steps/s" if self.examples is None else "examples/s"
        return self.times.rate(self.examples or 1, unit, self.alpha)

    def quantile(self, share: float) -> Estimate:
        return self.times.quantile(share, self.alpha)

    def is_near_timer(self, name: str) -> bool:
        """Whether timing a phase takes a good part of what it seems to take."""
        found = [each.phases[name] for each in self.steady if name in each.phases]
        mean = sum(found) / len(found) if found else 0.0
        return bool(found) and mean < TIMES_THE_TIMER * 2 * self.event_seconds

    def phase_rows(self) -> list[dict[str, Any]]:
        """Every phase with its part of the window; with the residual they are all of it."""
        found = self.breakdown
        if found is None:
            return []
        parts = {**dict(sorted(found.phases.items(), key=lambda item: -item[1])), RESIDUAL: found.residual}
        return [
            {
                "phase": name, "seconds": seconds, "share": seconds / found.window if found.window else None,
                "ms_per_step": 1000 * seconds / found.steps,
                "near_timer": name != RESIDUAL and self.is_near_timer(name),
            }
            for name, seconds in parts.items()
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        times = self.times
        return {
            "recipe": self.recipe, "options": dict(self.options), "seed": self.seed, "sufficient": self.sufficient,
            "steps": {
                "taken": len(self.steps), "warmup": self.warmup, "steady": len(self.steady),
                "effective": times.effective, "correlation": times.correlation,
            },
            "step_time": {
                "mean": times.mean(self.alpha).to_dict(),
                **{f"p{100 * share:g}": self.quantile(share).to_dict() for share in QUANTILES},
            },
            "throughput": self.throughput.to_dict(),
            "window_s": None if self.breakdown is None else self.breakdown.window, "phases": self.phase_rows(),
            "memory": {
                "tensor_bytes": self.resources.get("tensor_bytes"),
                "peak_tensor_bytes": self.resources.get("peak_tensor_bytes"),
                "peak_process_bytes": self.resources.get("peak_process_bytes"),
                "basis": self.resources.get("basis"),
            },
            "parameters": self.resources.get("parameters"),
            "trainable_parameters": self.resources.get("trainable_parameters"),
            "flops_per_step": self.resources.get("flops_per_step"),
            "timer": {"event_s": self.event_seconds},
            "cautions": list(self.cautions),
        }  # fmt: skip


def bench(recipe: str, options: Mapping[str, Any] | None = None, terms: BenchTerms | None = None) -> Bench:
    """Take real training steps and say what they cost. Nothing is kept of the run."""
    terms = terms or BenchTerms()
    terms.check()
    loaded = load_checked_recipe(recipe)
    if loaded.execute is not None:
        raise UserError(f"recipe '{loaded.name}' runs a program of its own, whose steps cannot be seen from here")
    place = Store(default_store(terms.store))
    place.check_writable()
    cell = _cell(loaded, options or {}, terms, place)
    timer, limit = PhaseTimer(), _Limit(terms.batches)
    terms.tell(f"Taking {terms.batches} steps of {loaded.name} …")
    outcome, run = _take_steps(cell, place, [timer, limit], lambda: limit.reached or terms.should_stop())
    if terms.should_stop():
        raise Interrupted("Stopped. Nothing is kept of a measurement.")
    lost = outcome.status is Status.INTERRUPTED and not limit.reached  # a full disk, say: not what was to be measured
    if lost or outcome.status is Status.FAILED or not timer.steps:
        raise RunsFailed(f"{loaded.name} could not be measured: {outcome.reason}", hint=outcome.hint)
    return _measured(loaded, cell, timer.steps, terms, run, outcome)


def _cell(recipe: LoadedRecipe, options: Mapping[str, Any], terms: BenchTerms, store: Store) -> Cell:
    problems = [f"{name}: not for bench: {why}" for name, why in not_benched(recipe.options).items() if name in options]
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:])
    quiet = {"checkpoint_every": 0, **({} if terms.validation else {"eval_every": 0})}
    resolved = resolve(recipe, {**options, **quiet}, where=f"recipe '{recipe.name}'")
    spec = spec_of(recipe, resolved, study=BENCH_STUDY, variant=f"bench-{os.getpid()}", seed=terms.seed)
    return prepare([spec], store, surroundings(), terms.tell)[0]


def _take_steps(
    cell: Cell, store: Store, observers: Sequence[Observer], should_stop: Callable[[], bool]
) -> tuple[Outcome, Run]:  # fmt: skip
    paths = store.paths.run(cell.spec.study, cell.spec.run_id)
    try:
        complete_needs(cell, should_stop=should_stop)
        outcome = run_cell(cell.request, observers=observers, should_stop=should_stop)
        run = store.run(cell.spec.study, cell.spec.run_id)
        assert run is not None
        return outcome, run
    finally:
        shutil.rmtree(paths.root, ignore_errors=True)
        with contextlib.suppress(OSError):  # others may be measuring
            paths.root.parent.rmdir()


class _Limit(Observer):
    """Knows when enough steps were taken."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    @property
    def reached(self) -> bool:
        return self._left <= 0

    def step_ended(self, step: int, now: float) -> None:  # noqa: ARG002
        self._left -= 1


def _measured(
    recipe: LoadedRecipe, cell: Cell, steps: Sequence[StepTimes], terms: BenchTerms, run: Run, outcome: Outcome
) -> Bench:  # fmt: skip
    warmup = terms.warmup if terms.warmup is not None else warm_up([each.seconds for each in steps])
    found = Bench(
        recipe.name, dict(cell.spec.options), terms.seed, steps, warmup, cell.spec.options.get("batch_size"),
        terms.level, run.metadata["resources"], event_seconds(),
    )  # fmt: skip
    cautions: list[FilledCaution] = list(run.metadata["cautions"])
    if not found.sufficient:
        cautions.append(NOT_STEADY.fill(steps=len(steps)))
    near = [row["phase"] for row in found.phase_rows() if row["near_timer"]]
    if near:
        cautions.append(NEAR_TIMER.fill(phases=", ".join(near), times=TIMES_THE_TIMER))
    if outcome.status is Status.DIVERGED:
        cautions.append(BENCH_DIVERGED.fill(reason=outcome.reason))
    return replace(found, cautions=cautions)
