"""Coverage certificates: how often the intervals of a given design cover the true difference, by noise shape.

With fewer than 20 runs per arm the noise shapes are statistically indistinguishable. No shape is then fitted, and the
certificate reports the worst coverage of all shapes tried. Runs that did not collapse do not show how often runs
collapse, so collapse is simulated at many rates and never ruled out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from fairtrial.core.errors import UserError
from fairtrial.core.formatting import shown_percent
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.noise import COLLAPSE, DEPTH, SHAPES, Shape, collapse_rates, collapsed
from fairtrial.stats.samples import Array, canonical
from fairtrial.stats.student import paired_parts, welch_parts

FITTED_FROM = 20
REPEATS = 20_000
SLOW_REPEATS = 400
SLOW_RESAMPLES = 1_000
RATIO = math.sqrt(2)
SLOW_RATIO = 2.0
"""Ratio of successive collapse rates in the scan: RATIO for closed-form intervals, SLOW_RATIO for resampled ones."""
RULED_OUT_BELOW = 0.01
REFERENCE = 4_000
SIMULATED = 400
COLLAPSING = "collapsing"


@dataclass(frozen=True)
class Covered:
    """Coverage for one noise shape: if both arms have it, and if one arm has it and the other does not vary.

    `rate` is the share of runs that collapse if this is one of the scanned collapse rates, else None.
    """

    shape: str
    text: str
    both_arms: float
    one_arm: float
    ruled_out: bool
    rate: float | None = None


@dataclass(frozen=True)
class Certificate:
    """The simulated coverage of a design's intervals. `worst` is over all shapes tried that are not ruled out."""

    level: float
    method: str
    pairing: str
    runs: tuple[int, int]
    repeats: int
    covered: tuple[Covered, ...]
    fitted: bool

    @property
    def kept(self) -> list[Covered]:
        """The rows of the shapes that the data do not rule out."""
        return [row for row in self.covered if not row.ruled_out]

    @property
    def worst_both_arms(self) -> float:
        return min(row.both_arms for row in self.kept)

    @property
    def worst_one_arm(self) -> float:
        return min(row.one_arm for row in self.kept)

    @property
    def worst(self) -> float:
        return min(self.worst_both_arms, self.worst_one_arm)

    @property
    def worst_shape(self) -> str:
        """The description of the shape with the lowest coverage."""
        return min(self.kept, key=lambda row: min(row.both_arms, row.one_arm)).text

    def __str__(self) -> str:
        fitted = (
            "Shapes that the data rule out are excluded; unobserved collapse is never ruled out."
            if self.fitted
            else f"With fewer than {FITTED_FROM} runs per arm no shape is fitted, so no shape can be ruled out."
            if min(self.runs) < FITTED_FROM
            else "No shape tried fits the data, so none is ruled out."
        )
        return (
            f"In the worst of the shapes tried, nominal {shown_percent(self.level)} intervals of this design "
            f"cover the true difference {100 * self.worst_both_arms:.1f} % of the time when both arms have the "
            f"same noise, and {100 * self.worst_one_arm:.1f} % when only one arm varies. The worst shape is: "
            f"{self.worst_shape}. {fitted} Coverage can be lower for other noise."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "method": self.method,
            "pairing": self.pairing,
            "runs": list(self.runs),
            "repeats": self.repeats,
            "fitted": self.fitted,
            "shapes": [vars(row) for row in self.covered],
            "worst_both_arms": self.worst_both_arms,
            "worst": self.worst,
            "worst_shape": self.worst_shape,
        }


def certify(
    control: Array, candidate: Array, config: ComparisonConfig, *, seed: int = 0, repeats: int | None = None
) -> Certificate:
    """Simulate this design on the panel of noise shapes and on many collapse rates.

    The data are used only to rule out shapes, and only with at least 20 runs per arm. Collapse is never ruled out.
    """
    runs = len(control), len(candidate)
    if min(runs) < 2:
        raise UserError(
            f"a design with {min(runs)} runs has no intervals to certify", hint="Use at least two runs per arm."
        )
    repeats = repeats or (REPEATS if config.method == "t" else SLOW_REPEATS)
    fitted = min(runs) >= FITTED_FROM
    covered = [*_on_panel(control, candidate, config, seed, repeats, fitted), *_on_rates(runs, config, seed, repeats)]
    if fitted and all(row.ruled_out for row in covered if row.rate is None and row.shape != COLLAPSING):
        # If the data rule out the whole panel, the check itself is in doubt, so no shape is excluded.
        covered, fitted = [replace(row, ruled_out=False) for row in covered], False
    pairing = "paired" if config.paired else "unpaired"
    return Certificate(1 - config.alpha, config.method, pairing, runs, repeats, tuple(covered), fitted)


def _on_panel(
    control: Array, candidate: Array, config: ComparisonConfig, seed: int, repeats: int, fitted: bool
) -> Iterator[Covered]:
    """Yield the coverage for each shape of the fixed panel."""
    runs = len(control), len(candidate)
    for number, shape in enumerate(SHAPES):
        rng = np.random.default_rng([seed, number, *runs])
        both = shape.draw(rng, (repeats, runs[0])), shape.draw(rng, (repeats, runs[1]))
        can_be_ruled_out = fitted and shape.name != COLLAPSING
        yield Covered(
            shape.name,
            shape.text,
            coverage(*both, 0.0, config, seed),
            _one_arm(both, shape.mean, config, seed),
            can_be_ruled_out and any(_rules_out(shape, sample, rng) for sample in (control, candidate)),
        )


def _on_rates(runs: tuple[int, int], config: ComparisonConfig, seed: int, repeats: int) -> Iterator[Covered]:
    """Yield the coverage for each collapse rate that a design of this size can easily miss; all rates share draws."""
    rng = np.random.default_rng([seed, len(SHAPES), *runs])
    drawn = [(rng.standard_normal((repeats, n)), rng.random((repeats, n))) for n in runs]
    rates = collapse_rates(runs, RATIO if config.method == "t" else SLOW_RATIO)
    for rate in (rate for rate in rates if not math.isclose(rate, COLLAPSE)):  # already in the panel
        first, second = (collapsed(noise, chances, rate) for noise, chances in drawn)
        name = f"{COLLAPSING} {100 * rate:.3g} %"
        text = f"{100 * rate:.3g} % of the runs collapse"
        both = coverage(first, second, 0.0, config, seed)
        yield Covered(name, text, both, _one_arm((first, second), -DEPTH * rate, config, seed), False, rate)


def _one_arm(noisy: tuple[Array, Array], truth: float, config: ComparisonConfig, seed: int) -> float:
    """Return the coverage if only one arm varies. If it matters which arm that is, return the lower coverage."""
    alone = [_candidate_alone(noisy, truth, config, seed)]
    if config.side != "two-sided" or noisy[0].shape != noisy[1].shape:
        mirrored = -noisy[1], -noisy[0]
        alone.append(_candidate_alone(mirrored, -truth, config, seed))
    return min(alone)


def _candidate_alone(arms: tuple[Array, Array], truth: float, config: ComparisonConfig, seed: int) -> float:
    """Return the coverage if the first arm does not vary. Student's t is then a one-sample t of the second arm."""
    if config.method == "t":
        return _share(t_limits(*paired_parts(arms[1]), alpha=config.alpha, side=config.on_difference()), truth)
    return coverage(np.zeros_like(arms[0]), arms[1], truth, config, seed)


def coverage(control: Array, candidate: Array, truth: float, config: ComparisonConfig, seed: int) -> float:
    """Return the share of simulated studies (rows) whose interval contains the true difference."""
    if config.method == "t":
        side = config.on_difference()
        return _share(t_intervals(control, candidate, paired=config.paired, alpha=config.alpha, side=side), truth)
    hits = 0
    quick = ComparisonConfig(**{**vars(config), "resamples": min(config.resamples, SLOW_RESAMPLES)})
    for first, second in zip(control, candidate, strict=True):
        inference = quick.infer(canonical(first, second, paired=config.paired), seed)
        low_, high_ = inference.interval(config.alpha, config.on_difference())
        hits += low_ <= truth <= high_
    return hits / len(control)


def t_intervals(
    control: Array, candidate: Array, *, paired: bool, alpha: float, side: str = "two-sided"
) -> tuple[Array, Array]:
    """Return the default (t) intervals of many studies, one per row."""
    parts = paired_parts(candidate - control) if paired else welch_parts(control, candidate)
    return t_limits(*parts, alpha=alpha, side=side)


def t_limits(
    mean: Array, error: Array, freedom: int | Array, *, alpha: float, side: str = "two-sided"
) -> tuple[Array, Array]:
    """Return interval limits from means, standard errors and degrees of freedom."""
    reach = -special.stdtrit(freedom, alpha / 2 if side == "two-sided" else alpha) * error
    low = np.full_like(mean, -np.inf) if side == "less" else mean - reach
    return low, np.full_like(mean, np.inf) if side == "greater" else mean + reach


def _share(limits: tuple[Array, Array], truth: float) -> float:
    return float(((limits[0] <= truth) & (truth <= limits[1])).mean())


def _rules_out(shape: Shape, sample: Array, rng: np.random.Generator) -> bool:
    """Return whether a standardized sample is farther from the shape than samples drawn from the shape usually are."""
    if np.ptp(sample) == 0:
        return False
    reference = np.sort(_standardized(shape.draw(rng, (REFERENCE,))))
    own = shape.draw(rng, (SIMULATED, len(sample)))
    simulated = np.array([_distance(_standardized(row), reference) for row in own])
    return float((simulated >= _distance(_standardized(sample), reference)).mean()) < RULED_OUT_BELOW


def _standardized(sample: Array) -> Array:
    return np.asarray((sample - sample.mean()) / sample.std())


def _distance(sample: Array, reference: Array) -> float:
    """Return the Kolmogorov–Smirnov distance between a sample and a large reference sample."""
    place = np.searchsorted(reference, np.sort(sample)) / len(reference)
    steps = np.arange(1, len(sample) + 1) / len(sample)
    return float(max(np.abs(steps - place).max(), np.abs(place - steps + 1 / len(sample)).max()))
