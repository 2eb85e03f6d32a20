"""power: estimate the seeds, hours and cost that a question needs, before any run starts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.api.comparing.gather import (
    MetricQuery,
    RunSet,
    damage_cautions,
    files_of,
    from_file,
    from_runs,
    only_variants,
)
from fairtrial.api.comparing.numbers import RunScores, lay_out_seeds, number_runs, unpaired_samples
from fairtrial.api.comparing.variance import by_variant
from fairtrial.api.running.devices import measured_on
from fairtrial.api.running.prices import load_prices
from fairtrial.api.running.recording import recorded
from fairtrial.core.errors import InvalidOptions, UserError
from fairtrial.core.findings import FilledCaution
from fairtrial.core.readers import Columns
from fairtrial.core.results import Result
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace
from fairtrial.costs.cost import CostModel
from fairtrial.costs.points import CostPoint
from fairtrial.costs.prices import PriceTable
from fairtrial.record.store import Store, open_store
from fairtrial.stats.power import (
    Design,
    detectable,
    paired_sd,
    pooled_freedom,
    power_of,
    sd_upper,
    seeds_for,
    seeds_for_superiority,
)
from fairtrial.stats.samples import is_still
from fairtrial.stats.summaries import SummaryRule


@dataclass(frozen=True)
class Noise:
    """A standard deviation and its degrees of freedom, which are None if the user gave the value."""

    sd: float
    freedom: float | None = None

    def times(self, factor: float) -> Noise:
        return replace(self, sd=self.sd * factor)


@dataclass(frozen=True)
class Pilot:
    """The noise measured in earlier runs: of single runs, and of paired differences if two arms share seeds."""

    n: int
    of_runs: Noise
    of_pairs: Noise | None
    hours_per_run: float | None
    facts: Sequence[Mapping[str, Any]] = ()
    """Facts of the runs behind `hours_per_run`."""
    cautions: Sequence[FilledCaution] = ()

    def noise(self, paired: bool, correlation: float | None) -> Noise:
        """Return the noise of the quantity that the planned test compares."""
        if paired and correlation is None and self.of_pairs is not None:
            return self.of_pairs
        return self.of_runs.times(paired_sd(1.0, correlation or 0.0)) if paired else self.of_runs


@dataclass(frozen=True, repr=False)
class Plan(Result):
    """The number of runs per arm: `seeds` is the plan, `seeds_at_sd` would suffice if the noise were exactly `sd`.

    `freedom` is the degrees of freedom of a pilot's noise; the plan then has the requested power on average over the
    possible values of the true noise. With an `assurance`, the plan uses `sd_upper` instead.
    """

    design: str
    alpha: float
    power: float
    side: str
    sesoi: float | None
    probability: float | None
    sd: float | None
    freedom: float | None
    sd_upper: float | None
    assurance: float | None
    correlation: float | None
    pilot_n: int | None
    seeds_at_sd: int | None
    seeds: int | None
    arms: int
    hours_per_run: float | None
    price_per_hour: float | None
    curve: Sequence[dict[str, float | int | None]]
    cautions: Sequence[FilledCaution] = ()
    """Cautions about the pilot runs."""
    hours_basis: str | None = None
    """How the measured hours were converted to hours on the named GPU; None if they were not."""

    @property
    def runs(self) -> int | None:
        return None if self.seeds is None else self.seeds * self.arms

    @property
    def hours(self) -> float | None:
        return None if self.runs is None or self.hours_per_run is None else self.runs * self.hours_per_run

    @property
    def cost(self) -> float | None:
        return None if self.hours is None or self.price_per_hour is None else self.hours * self.price_per_hour

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "runs": self.runs, "hours": self.hours, "cost": self.cost, "curve": list(self.curve),
                "cautions": list(self.cautions)}  # fmt: skip


@recorded("power")
def power(
    *,
    sesoi: float | None = None,
    sd: float | None = None,
    pilot: Sequence[str] = (),
    design: str | None = None,
    correlation: float | None = None,
    superiority: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    side: str | None = None,
    assurance: float | None = None,
    gpu: str | None = None,
    hours_per_run: float | None = None,
    price_per_hour: float | None = None,
    prices: str | os.PathLike[str] | None = None,
    metric: str | None = None,
    store: str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    columns: Columns | None = None,
    variant: str | Sequence[str] = (),
) -> Plan:
    """Compute the seeds per arm that detect a difference of `sesoi`, or P(candidate > control) ≥ `superiority`.

    The noise is `sd`, or it is measured in earlier runs: `pilot` names runs in a store; `source` names result files,
    from which `variant` selects one or two variants. The effect in a pilot is never used for planning.

    >>> fairtrial.power(sesoi=0.01, sd=0.01, design="paired")
    <Plan: 10 seeds per variant to detect a difference of 0.0100 (paired, two-sided, α = 0.05, power 80 %): 20 runs.>
    """
    pilot = [pilot] if isinstance(pilot, str) else list(pilot)
    variants = [variant] if isinstance(variant, str) else list(variant)
    noises = [name for name, given in (("--sd", sd is not None), ("--pilot", pilot), ("--from", source)) if given]
    _check(sesoi, sd, noises, design, correlation, superiority, alpha, power, assurance, hours_per_run, price_per_hour)
    _refuse_inert(noises, superiority, design, correlation, assurance, metric, variants, gpu, price_per_hour, prices)
    table = load_prices(prices)
    price_per_hour = table.card(gpu).usd_per_hour if gpu else price_per_hour
    if superiority is not None:
        return _for_superiority(superiority, alpha, power, side or "greater", hours_per_run, price_per_hour)
    assert sesoi is not None
    query = MetricQuery([metric] if metric else [])
    measured = None
    if source:
        measured = _pilot(_from_files(source, columns or Columns(), variants, query))
    elif pilot:
        measured = _pilot(_from_store(pilot, query, open_store(store)))
    paired = _is_paired(design, measured, correlation)
    asked = Design(paired, alpha, power, side or "two-sided")
    noise = _noise(sd, measured, paired, correlation)
    upper = None
    planned = noise
    if assurance is not None and noise.freedom is not None:
        upper = sd_upper(noise.sd, noise.freedom, assurance)
        planned = Noise(upper)
    hours, basis = hours_per_run, None
    if hours is None and measured and measured.hours_per_run is not None:
        hours, basis = _hours_on(gpu, table, measured, open_store(store))
    seeds = seeds_for(sesoi / planned.sd, asked, planned.freedom)
    return Plan(
        design=asked.name,
        alpha=alpha,
        power=power,
        side=asked.side,
        sesoi=sesoi,
        probability=None,
        sd=noise.sd,
        freedom=noise.freedom,
        sd_upper=upper,
        assurance=assurance,
        correlation=correlation,
        pilot_n=measured.n if measured else None,
        seeds_at_sd=seeds_for(sesoi / noise.sd, asked),
        seeds=seeds,
        arms=2,
        hours_per_run=hours,
        price_per_hour=price_per_hour,
        curve=_curve(sesoi, planned, seeds, asked),
        cautions=measured.cautions if measured else (),
        hours_basis=basis,
    )


def _hours_on(gpu: str | None, table: PriceTable, pilot: Pilot, store: Store) -> tuple[float | None, str | None]:
    """Return the pilot's hours per run, as measured or converted to the named GPU."""
    if gpu is None or pilot.hours_per_run is None:
        return pilot.hours_per_run, None
    device, local = measured_on(store, pilot.facts, "Pass the hours on that GPU with --hours-per-run.")
    priced = CostModel.of(gpu, table, local).price(CostPoint("pilot", pilot.hours_per_run, 0.0, device=device))
    return priced.hours.value, priced.basis


def _check(
    sesoi: float | None,
    sd: float | None,
    noises: Sequence[str],
    design: str | None,
    correlation: float | None,
    superiority: float | None,
    alpha: float,
    power: float,
    assurance: float | None,
    hours: float | None,
    price: float | None,
) -> None:
    rules = [
        (
            superiority is not None or sesoi is not None,
            "--sesoi is required: the smallest difference that would matter",
        ),
        (superiority is None or sesoi is None, "--sesoi and --superiority cannot be combined; pass one of them"),
        (
            superiority is not None or noises,
            "the noise is unknown: pass --sd, earlier runs with --pilot, or a result file with --from",
        ),
        (superiority is not None or len(noises) < 2, f"{' and '.join(noises)} each set the noise; pass one of them"),
        (superiority is None or not noises, f"--superiority needs no noise: omit {' and '.join(noises)}"),
        (sesoi is None or sesoi > 0, f"--sesoi must be positive, not {sesoi}"),
        (sd is None or sd > 0, f"--sd must be positive, not {sd}"),
        (superiority is None or 0.5 < superiority < 1, f"--superiority must lie between 0.5 and 1, not {superiority}"),
        (design in (None, "paired", "unpaired"), f"--design must be paired or unpaired, not {design}"),
        (correlation is None or -1 < correlation < 1, f"--correlation must lie between -1 and 1, not {correlation}"),
        (correlation is None or design != "unpaired", "--correlation applies to the paired design only"),
        (0 < alpha < 0.5, f"--alpha must lie between 0 and 0.5, not {alpha}"),
        (0 < power < 1, f"--power must lie between 0 and 1, not {power}"),
        (assurance is None or 0.5 <= assurance < 1, f"--assurance must lie between 0.5 and 1, not {assurance}"),
        (hours is None or hours > 0, f"--hours-per-run must be positive, not {hours}"),
        (price is None or price > 0, f"--price-per-hour must be positive, not {price}"),
    ]
    problems = [message for holds, message in rules if not holds]
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:])


def _refuse_inert(
    noises: Sequence[str],
    superiority: float | None,
    design: str | None,
    correlation: float | None,
    assurance: float | None,
    metric: str | None,
    variants: Sequence[str],
    gpu: str | None,
    price: float | None,
    prices: str | os.PathLike[str] | None,
) -> None:
    """Raise for options that would have no effect."""
    pilot = {"--pilot", "--from"} & set(noises)
    rules = [
        (superiority is not None and design == "paired", "--superiority applies to unpaired runs only"),
        (superiority is not None and correlation is not None, "--superiority does not use --correlation"),
        (assurance is not None and not pilot, "--assurance is about the noise of a pilot: pass --pilot or --from"),
        (metric is not None and not pilot, "--metric is the metric of a pilot: pass --pilot or --from"),
        (
            variants and "--from" not in noises,
            "--variant applies to --from; name a variant of a study as STUDY:VARIANT",
        ),
        (gpu is not None and price is not None, "--gpu and --price-per-hour both set the price; pass one of them"),
        (prices is not None and gpu is None, "--prices has no effect without --gpu"),
    ]
    problems = [message for holds, message in rules if holds]
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:])


def _is_paired(design: str | None, pilot: Pilot | None, correlation: float | None) -> bool:
    """Return whether to plan paired runs. A one-arm pilot has no pairs: without a correlation, plan unpaired."""
    if design == "paired" and pilot and pilot.of_pairs is None and correlation is None:
        raise UserError(
            "this pilot does not show how strongly pairs correlate",
            hint="Pass --correlation, a pilot of two variants, or --design unpaired.",
        )
    if design is not None:
        return design == "paired"
    return correlation is not None or (pilot is not None and pilot.of_pairs is not None)


def _noise(sd: float | None, pilot: Pilot | None, paired: bool, correlation: float | None) -> Noise:
    """Return the noise of the quantity that the planned test compares."""
    if pilot is not None:
        return pilot.noise(paired, correlation)
    assert sd is not None
    # With --correlation, --sd is that of single runs; without it, that of what the design compares.
    return Noise(paired_sd(sd, correlation) if paired and correlation is not None else sd)


def _from_store(references: Sequence[str], query: MetricQuery, store: Store) -> RunSet:
    """Return earlier runs of a store, grouped by variant."""
    run_set = from_runs(store, {"pilot": references}, query)
    return replace(run_set, arms=by_variant(run_set.arms["pilot"]))


def _from_files(source: Any, columns: Columns, variants: Sequence[str], query: MetricQuery) -> RunSet:
    """Return earlier runs from result files, grouped by variant."""
    run_set = only_variants(from_file(files_of(source), columns, query), variants)
    tasks = {trace.task for traces in run_set.arms.values() for trace in traces}
    if len(tasks) > 1:
        raise UserError(f"{run_set.source} has {len(tasks)} tasks; a pilot takes one")
    return run_set


def _pilot(run_set: RunSet) -> Pilot:
    """Measure the noise of earlier runs of one variant, or of the differences of two that share seeds."""
    if len(run_set.arms) > 2:
        hint = None if run_set.studies else "Choose one or two with --variant."
        raise UserError(f"the pilot has {len(run_set.arms)} variants; a pilot takes one or two", hint=hint)
    [task] = {trace.task for traces in run_set.arms.values() for trace in traces}
    scores, _ = number_runs(run_set, run_set.metric, run_set.direction_for(SummaryRule()), SummaryRule(), task)
    alone = [sample[np.isfinite(sample)] for sample in unpaired_samples(scores).values()]
    n = min(len(sample) for sample in alone)
    if n < 2 or any(is_still(sample, float(np.abs(sample).max())) for sample in alone):
        message = "fewer than two usable runs" if n < 2 else f"{n} runs with equal values"
        hint = None if n < 2 else "Does the seed reach your program?"
        raise UserError(f"a pilot of {message} does not show the noise", hint=hint)
    variances = [float(sample.var(ddof=1)) for sample in alone]
    freedom = pooled_freedom(variances, [len(sample) - 1 for sample in alone])
    runs = Noise(math.sqrt(sum(variances) / len(variances)), freedom)
    pairs = _pairs(scores) if len(scores) == 2 else None
    traces = [trace for arm in run_set.arms.values() for trace in arm]
    return Pilot(n, runs, pairs, _hours(traces), _timed(traces), damage_cautions(run_set))


def _pairs(scores: RunScores) -> Noise | None:
    """Return the noise of the paired differences; None if two variants share fewer than two seeds, or it is zero."""
    first, second = lay_out_seeds(scores).complete().values()
    differences = (second - first)[np.isfinite(second - first)]
    if len(differences) < 2 or is_still(differences, float(np.abs(np.concatenate([first, second])).max())):
        return None
    return Noise(float(differences.std(ddof=1)), len(differences) - 1)


def _hours(traces: Sequence[Trace]) -> float | None:
    """Return the mean measured hours of the pilot's completed runs; None if no time was recorded."""
    known = [float(facts["wall_s"]) for facts in _timed(traces)]
    return sum(known) / len(known) / 3600 if known else None


def _timed(traces: Sequence[Trace]) -> list[Mapping[str, Any]]:
    """Return the facts of completed runs that recorded their time."""
    completed = [trace.facts for trace in traces if trace.status is Status.COMPLETED]
    return [facts for facts in completed if facts.get("wall_s") is not None]


def _for_superiority(
    probability: float, alpha: float, power: float, side: str, hours: float | None, price: float | None
) -> Plan:
    asked = Design(False, alpha, power, side)
    seeds = seeds_for_superiority(probability, asked)
    return Plan(
        design="unpaired",
        alpha=alpha,
        power=power,
        side=side,
        sesoi=None,
        probability=probability,
        sd=None,
        freedom=None,
        sd_upper=None,
        assurance=None,
        correlation=None,
        pilot_n=None,
        seeds_at_sd=None,
        seeds=seeds,
        arms=2,
        hours_per_run=hours,
        price_per_hour=price,
        curve=(),
    )


def _curve(sesoi: float, noise: Noise, seeds: int | None, design: Design) -> list[dict[str, float | int | None]]:
    """Return power and detectable difference for several numbers of seeds around the answer."""
    last = min(seeds or 100, 100_000)
    counts = sorted({3, 5, 10, 15, *(max(2, round(last * share)) for share in (0.5, 0.75, 1, 1.5))})
    return [
        {
            "seeds": n,
            "power": power_of(sesoi / noise.sd, n, design, noise.freedom),
            "detectable": detectable(n, noise.sd, design, noise.freedom),
        }
        for n in counts
    ]
