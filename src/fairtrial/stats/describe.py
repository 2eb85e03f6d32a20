"""Descriptive statistics of a study: the mean and spread of each variant, and the paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, stdev

from fairtrial.core.runs import Run, Status


@dataclass(frozen=True)
class VariantSummary:
    """One variant: run counts by status, and the mean and standard deviation over its completed, finite seeds."""

    variant: str
    planned: int
    completed: int
    diverged: int
    failed: int
    interrupted: int
    not_finite: int
    seeds: tuple[int, ...]
    mean: float | None
    sd: float | None
    wall_s: float | None
    damaged: int = 0

    @property
    def n(self) -> int:
        return len(self.seeds)


@dataclass(frozen=True)
class PairedDifference:
    """The paired differences between a variant and the first variant, over the seeds that both have."""

    control: str
    candidate: str
    pairs: int
    mean: float
    sd: float | None
    above: int
    below: int


def describe_arms(values: Mapping[str, Mapping[int, float]], runs: Mapping[str, Sequence[Run]]) -> list[VariantSummary]:
    return [_describe_arm(variant, values[variant], runs[variant]) for variant in values]


def _describe_arm(variant: str, values: Mapping[int, float], runs: Sequence[Run]) -> VariantSummary:
    count = {status: sum(run.status is status for run in runs) for status in Status}
    finite = {seed: value for seed, value in values.items() if isfinite(value)}
    timings = [run.metadata.timings for run in runs if run.status is Status.COMPLETED]
    times = [each.wall_s for each in timings if each.wall_s is not None]  # None if it shared its process
    numbers = list(finite.values())
    return VariantSummary(
        variant=variant,
        planned=len(runs),
        completed=count[Status.COMPLETED],
        diverged=count[Status.DIVERGED],
        failed=count[Status.FAILED],
        interrupted=count[Status.INTERRUPTED] + count[Status.RUNNING],
        not_finite=len(values) - len(finite),
        seeds=tuple(sorted(finite)),
        mean=fmean(numbers) if numbers else None,
        sd=stdev(numbers) if len(numbers) > 1 else None,
        wall_s=fmean(times) if times else None,
        damaged=count[Status.DAMAGED],
    )


def describe_differences(values: Mapping[str, Mapping[int, float]]) -> list[PairedDifference]:
    """Compare every variant with the first, on the seeds that both completed."""
    control, *others = values
    return [d for other in others if (d := _describe_difference(control, other, values)) is not None]


def _describe_difference(
    control: str, candidate: str, values: Mapping[str, Mapping[int, float]]
) -> PairedDifference | None:
    both = values[control].keys() & values[candidate].keys()
    shared = sorted(seed for seed in both if isfinite(values[control][seed]) and isfinite(values[candidate][seed]))
    if not shared:
        return None
    gaps = [values[candidate][seed] - values[control][seed] for seed in shared]
    return PairedDifference(
        control=control,
        candidate=candidate,
        pairs=len(gaps),
        mean=fmean(gaps),
        sd=stdev(gaps) if len(gaps) > 1 else None,
        above=sum(gap > 0 for gap in gaps),
        below=sum(gap < 0 for gap in gaps),
    )
