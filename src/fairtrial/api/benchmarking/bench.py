"""bench: measure what a training step costs and where its time goes, with the same options and loop as train.

take steps → find the steady ones → on request: trace, noise scale, batch sizes, learning rates → suggest changes
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fairtrial.api.benchmarking.bench_noise import NoiseScale, measure_noise_scale, require_gradients
from fairtrial.api.benchmarking.bench_rates import LearningRates, try_learning_rates
from fairtrial.api.benchmarking.bench_runs import BenchTerms, HiddenRuns, Progress, hidden_runs, refuse
from fairtrial.api.benchmarking.bench_sizes import BatchSizes, measure_batch_sizes
from fairtrial.api.benchmarking.bench_trials import Suggestion, suggest
from fairtrial.api.running.devices import calibration, recalibrated
from fairtrial.api.running.recording import recorded
from fairtrial.core.cautions import BENCH_DIVERGED, NEAR_TIMER, NOT_STEADY, PUSHED_ASIDE, SHORT_TRAINING
from fairtrial.core.devices import Calibration
from fairtrial.core.errors import FairtrialError
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.core.formatting import counted
from fairtrial.core.options import TorchOptions
from fairtrial.core.results import Result
from fairtrial.core.runs import Status
from fairtrial.core.training import Observer
from fairtrial.probe.monitor import Monitored, ResourceMonitor
from fairtrial.probe.phases import (
    EVENTS_PER_PHASE,
    RESIDUAL,
    Breakdown,
    PhaseTimer,
    StepTimes,
    break_down,
    event_seconds,
)
from fairtrial.probe.trace import TorchTrace, check_folder, free_name
from fairtrial.stats.timing import Times, warm_up

QUANTILES = (0.5, 0.95, 0.99)
TIMES_THE_TIMER = 10
"""A phase shorter than this many times the cost of timing it is flagged."""
TRACED = 5
"""Steps in a trace: enough to show the pattern, few enough for a viewer to open."""
MOST_PUSHED = 0.1
"""Involuntary context switches per step above which the result carries a caution."""


RECALIBRATIONS = 3


class ImpossibleFigure(FairtrialError):
    """A measured figure is physically impossible, so one of its inputs is wrong."""


@dataclass(frozen=True, repr=False)
class Bench(Result):
    """Result of a measurement, computed from the steady steps.

    >>> fairtrial.bench("classify", {"steps": 50}).sufficient  # doctest: +SKIP
    """

    recipe: str
    options: Mapping[str, Any]
    seed: int
    steps: Sequence[StepTimes]
    warmup: int | None
    """Steps that were left out; None: the times never became steady, and no step was left out."""
    level: float
    resources: Mapping[str, Any]
    event_seconds: float
    """Seconds that one timer event costs; a phase has two."""
    cautions: Sequence[FilledCaution] = ()
    validation: bool = False
    whole_steps: bool = False
    peak: Calibration | None = None
    monitored: Monitored | None = None
    trace: Path | None = None
    traced: Sequence[int] = ()
    noise: NoiseScale | None = None
    sizes: BatchSizes | None = None
    rates: LearningRates | None = None
    suggestions: Sequence[Suggestion] = field(default_factory=tuple)

    @property
    def steady(self) -> Sequence[StepTimes]:
        return self.steps[self.warmup or 0 :]

    @cached_property
    def times(self) -> Times:
        return Times.of([each.seconds for each in self.steady])

    @cached_property
    def breakdown(self) -> Breakdown | None:
        """Time by phase; None if there is no steady step."""
        return break_down(self.steady) if self.steady else None

    @property
    def sufficient(self) -> bool:
        return self.warmup is not None and self.times.sufficient

    @property
    def alpha(self) -> float:
        return round(1 - self.level, 12)

    @property
    def examples(self) -> int | None:
        return self.resources.get("examples_per_step")

    @property
    def step_s(self) -> float | None:
        """Mean time of a steady step."""
        return self.times.mean(self.alpha).value

    @property
    def throughput(self) -> Estimate:
        unit = "steps/s" if self.examples is None else "examples/s"
        return self.times.rate(self.examples or 1, unit, self.alpha)

    @property
    def epoch(self) -> Estimate | None:
        """Predicted time of one epoch without evaluation; None if the recipe does not report its steps per epoch."""
        steps = self.resources.get("steps_per_epoch")
        return None if steps is None else self.times.total(steps, self.alpha)

    @property
    def utilisation(self) -> Estimate | None:
        """Arithmetic per second as a fraction of the calibrated peak of the device."""
        flops = self.resources.get("flops_per_step")
        if not flops or self.peak is None:
            return None
        return self.times.rate(flops / (1e9 * self.peak.best), "of the calibrated peak", self.alpha)

    def quantile(self, share: float) -> Estimate:
        return self.times.quantile(share, self.alpha)

    def is_near_timer(self, name: str) -> bool:
        """Return whether the cost of timing is a large part of the time measured for a phase."""
        seconds = sum(each.phases.get(name, 0.0) for each in self.steady)
        entered = sum(each.counts.get(name, 0) for each in self.steady)
        return bool(entered) and seconds / entered < TIMES_THE_TIMER * EVENTS_PER_PHASE * self.event_seconds

    def phase_rows(self) -> list[dict[str, Any]]:
        """Return each phase with its share of the window; phases and residual add up to the whole window."""
        breakdown = self.breakdown
        if breakdown is None:
            return []
        parts = {**dict(sorted(breakdown.phases.items(), key=lambda item: -item[1])), RESIDUAL: breakdown.residual}
        return [
            {
                "phase": name,
                "seconds": seconds,
                "share": seconds / breakdown.window if breakdown.window else None,
                "ms_per_step": 1000 * seconds / breakdown.steps,
                "ms_per_batch": None
                if breakdown.batches is None
                else 1000 * seconds / (breakdown.steps * breakdown.batches),
                "near_timer": name != RESIDUAL and self.is_near_timer(name),
            }
            for name, seconds in parts.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        times, breakdown, resources = self.times, self.breakdown, self.resources
        return {
            "recipe": self.recipe, "options": dict(self.options), "seed": self.seed, "sufficient": self.sufficient,
            "steps": {
                "taken": len(self.steps), "warmup": self.warmup, "steady": len(self.steady),
                "effective": times.effective, "correlation": times.correlation,
                "batches_per_step": None if breakdown is None else breakdown.batches,
            },
            "step_time": {
                "mean": times.mean(self.alpha).to_dict(),
                **{f"p{100 * share:g}": self.quantile(share).to_dict() for share in QUANTILES},
            },
            "throughput": self.throughput.to_dict(),
            "epoch": _plain(self.epoch),
            "window_s": None if breakdown is None else breakdown.window, "phases": self.phase_rows(),
            "memory": {
                "tensor_bytes": resources.get("tensor_bytes"), "peak_tensor_bytes": resources.get("peak_tensor_bytes"),
                "peak_process_bytes": resources.get("peak_process_bytes"), "basis": resources.get("basis"),
            },
            "parameters": resources.get("parameters"),
            "trainable_parameters": resources.get("trainable_parameters"),
            "flops_per_step": resources.get("flops_per_step"),
            "utilisation": _plain(self.utilisation), "peak": _plain(self.peak),
            "resources": _plain(self.monitored),
            "timer": {"event_s": self.event_seconds},
            "trace": None if self.trace is None else {"path": str(self.trace), "steps": list(self.traced)},
            "noise_scale": _plain(self.noise), "batch_sizes": _plain(self.sizes), "learning_rates": _plain(self.rates),
            "recommendations": [each.to_dict() for each in self.suggestions],
            "cautions": list(self.cautions),
        }  # fmt: skip


def _plain(value: Any) -> Any:
    return None if value is None else value.to_dict()


@recorded("bench")
def bench(recipe: str, options: Mapping[str, Any] | None = None, terms: BenchTerms | None = None) -> Bench:
    """Take real training steps and measure what they cost. The run is deleted afterwards.

    >>> fairtrial.bench("classify", {"steps": 50})  # doctest: +SKIP
    """
    terms = terms or BenchTerms()
    if terms.trace_dir is not None:
        check_folder(terms.trace_dir)
    with hidden_runs(recipe, options, terms) as runs:
        _check_asked(runs)
        bench = _Measurement(runs).carry_out()
        runs.require(None)  # after Ctrl-C, raise Interrupted instead of returning a partial result
    return bench


def _check_asked(runs: HiddenRuns) -> None:
    """Reject, before the first step, requests that the recipe does not support."""
    names, terms = runs.recipe.options.model_fields, runs.terms
    asked = {"batch_size": bool(terms.batch_sizes), "learning_rate": bool(terms.learning_rates)}
    problems = [
        f"recipe '{runs.recipe.name}' has no option {name}"
        for name, is_asked in asked.items()
        if is_asked and name not in names
    ]
    least = min(runs.resolved.log_every, runs.resolved.steps)
    if terms.learning_rates and terms.steps < least:
        problems.append(f"learning_rates: the loss is logged every {least} steps, so at least that many are needed")
    refuse(problems)


class _Measurement:
    """The measured run, and the trials in addition to it."""

    def __init__(self, runs: HiddenRuns) -> None:
        self.runs, self.terms = runs, runs.terms
        self.timer = PhaseTimer(whole_steps=self.terms.whole_steps)
        self.monitor = ResourceMonitor() if self.terms.monitor else None
        self.progress = Progress("steps", self.terms.show)
        watching: list[Observer | None] = [self.timer, self.monitor, self.progress]
        self.job = runs.job(self._room())
        self.run = runs.at_hand(self.job, [each for each in watching if each is not None])
        runs.require(self.run.ended)
        if self.terms.noise_scale:
            require_gradients(runs, self.run)

    def carry_out(self) -> Bench:
        steps = self._take_steps()
        bench = self._measured(steps, event_seconds())
        path, traced = self._trace()
        bench = replace(bench, peak=self._peak(bench), trace=path, traced=traced)
        bench = replace(bench, noise=self._noise(), sizes=self._sizes(), rates=self._rates())
        if self.terms.trials and bench.sufficient:
            bench = replace(bench, suggestions=suggest(self.runs, steady=bench.steady, sizes=bench.sizes))
        return replace(bench, cautions=[*bench.cautions, *self._cautions_of_parts(bench)])

    def _take_steps(self) -> Sequence[StepTimes]:
        wanted = self.progress.steps = self._wanted()
        self.terms.tell(f"Taking {counted(wanted, 'step')} of {self.runs.recipe.name} …")
        try:
            self.run.advance(wanted)
        finally:
            if self.monitor:
                self.monitor.stop()
        if self.run.ended is None or self.run.ended.status is not Status.DIVERGED:
            self.runs.require(self.run.ended)
        return list(self.timer.steps)

    def _room(self) -> dict[str, int]:
        """Lengthen the training to fit the requested steps, unless the caller set its length."""
        if self.terms.batches is None or "steps" in self.runs.options:
            return {}
        needed = self.terms.batches + (TRACED if self.terms.trace_dir else 0)
        return {"steps": needed} if needed > self.runs.resolved.steps else {}

    def _wanted(self) -> int:
        """Return the number of steps to measure. In a short training, its last steps are reserved for the trace."""
        asked = self._asked()
        traced = min(TRACED, self.run.steps) if self.terms.trace_dir else 0
        return max(0, min(asked, self.run.steps - traced))

    def _asked(self) -> int:
        wanted = self.terms.steps
        if self.terms.sample_ratio is not None:
            epoch = self.run.resources.get("steps_per_epoch")
            if epoch is None:
                refuse([f"sample_ratio: recipe '{self.runs.recipe.name}' does not report its steps per epoch"])
            wanted = max(1, math.ceil(self.terms.sample_ratio * int(epoch or 0)))
        return wanted

    def _trace(self) -> tuple[Path | None, Sequence[int]]:
        """Trace steps after the measured window, because tracing slows them down."""
        if self.terms.trace_dir is None or self.run.ended is not None:
            return None, ()
        path = free_name(self.terms.trace_dir, f"{Path(self.runs.recipe.name).stem}-trace")
        tracer = TorchTrace()
        self.run.observe(tracer)
        tracer.begin(TRACED)
        self.run.advance(TRACED)
        tracer.write(path)
        return path, tracer.steps

    def _measured(self, steps: Sequence[StepTimes], cost: float) -> Bench:
        terms = self.terms
        warmup = terms.warmup if terms.warmup is not None else warm_up([each.seconds for each in steps])
        bench = Bench(
            self.runs.recipe.name, dict(self.job.spec.options), terms.seed, steps, warmup, terms.level,
            self.run.resources, cost, validation=terms.validation, whole_steps=terms.whole_steps,
            monitored=self.monitor.result() if self.monitor else None,
        )  # fmt: skip
        return replace(bench, cautions=[*self.run.cautions, *self._cautions(bench)])

    def _cautions(self, bench: Bench) -> list[FilledCaution]:
        cautions: list[FilledCaution] = []
        stated = self.terms.batches is not None or self.terms.sample_ratio is not None
        if stated and self._wanted() < self._asked():
            cautions.append(SHORT_TRAINING.fill(taken=self._wanted(), asked=self._asked(), steps=self.run.steps))
        if not bench.sufficient:
            cautions.append(NOT_STEADY.fill(steps=len(bench.steps)))
        near = [row["phase"] for row in bench.phase_rows() if row["near_timer"]]
        if near:
            cautions.append(NEAR_TIMER.fill(phases=", ".join(near), times=TIMES_THE_TIMER))
        if self.run.ended is not None and self.run.ended.status is Status.DIVERGED:
            cautions.append(BENCH_DIVERGED.fill(reason=self.run.ended.reason))
        monitored = bench.monitored
        if monitored and monitored.steps and monitored.involuntary_switches > MOST_PUSHED * monitored.steps:
            cautions.append(PUSHED_ASIDE.fill(times=monitored.involuntary_switches, steps=monitored.steps))
        return cautions

    @staticmethod
    def _cautions_of_parts(bench: Bench) -> list[FilledCaution]:
        parts = (bench.noise, bench.sizes, bench.rates)
        return [caution for part in parts if part is not None for caution in part.cautions]

    def _peak(self, bench: Bench) -> Calibration | None:
        """Return the calibrated peak of the device; None if the recipe does not count its FLOPs."""
        options = self.runs.resolved
        if not bench.resources.get("flops_per_step") or not isinstance(options, TorchOptions) or not bench.steady:
            return None
        peak = calibration(self.runs.store, options.device, options.threads)
        for _ in range(RECALIBRATIONS):
            if _is_impossible(replace(bench, peak=peak)):  # the machine may have been busy during calibration
                peak = max(peak, recalibrated(options.device, options.threads), key=lambda each: each.best)
        if _is_impossible(replace(bench, peak=peak)):
            raise ImpossibleFigure(
                f"the measured FLOP rate exceeds {peak.best:.0f} GFLOP/s, the calibrated peak of this device",
                hint="Check the FLOPs that the recipe reports. If they are right, this machine's clock is unreliable.",
            )
        return peak

    def _noise(self) -> NoiseScale | None:
        return measure_noise_scale(self.runs, self.run) if self.terms.noise_scale else None

    def _sizes(self) -> BatchSizes | None:
        return measure_batch_sizes(self.runs) if self.terms.batch_sizes else None

    def _rates(self) -> LearningRates | None:
        return try_learning_rates(self.runs) if self.terms.learning_rates else None


def _is_impossible(bench: Bench) -> bool:
    part = bench.utilisation
    return part is not None and part.value is not None and part.value > 1
