"""The certificate: how often would intervals of this very design cover the truth, on each shape of noise?

Below 20 runs per arm nobody can tell the shapes apart, so none is fitted and the worst of all that were tried is
stated. How often runs collapse is never known from runs that did not, so collapse is tried at many rates and never
ruled out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from fairtrial.core.errors import UserError
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
"""How far apart the collapse rates are that are scanned, where an interval is one formula and where it is resampled."""
RULED_OUT_BELOW = 0.01
REFERENCE = 4_000
SIMULATED = 400
COLLAPSING = "collapsing"


@dataclass(frozen=True)
class Covered:
    """Coverage on one shape: with both arms of it, and with one arm of it against one that does not vary.

    `rate` is the share of runs that collapse, where the shape is one of the collapse rates that were scanned.
    """

    shape: str
    text: str
    both_arms: float
    one_arm: float
    ruled_out: bool
    rate: float | None = None


@dataclass(frozen=True)
class Certificate:
    """What the stated level is worth for this design. `worst` is over all shapes tried that are not ruled out."""

    level: float
    method: str
    pairing: str
    runs: tuple[int, int]
    repeats: int
    covered: tuple[Covered, ...]
    fitted: bool

    @property
    def kept(self) -> list[Covered]:
        """The shapes that the data do not rule out."""
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
        """The shape that is covered worst, in words."""
        return min(self.kept, key=lambda row: min(row.both_arms, row.one_arm)).text

    def __str__(self) -> str:
        fitted = (
            "Shapes that the data rule out are left aside; collapse that was not seen is never ruled out."
            if self.fitted
            else f"Below {FITTED_FROM} runs per arm no shape is fitted, so no shape can be ruled out."
            if min(self.runs) < FITTED_FROM
            else "No shape that was tried fits the data, so none is ruled out."
        )
        return (
            f"In the worst of the shapes tried, intervals of this design that say {100 * self.level:g} % cover "
            f"{100 * self.worst_both_arms:.1f} % when both arms have the same noise, and "
            f"{100 * self.worst_one_arm:.1f} % when only one arm varies; the worst shape: {self.worst_shape}. "
            f"{fitted} Other noise can be worse."
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
    """Simulate this design on the panel of shapes and on many collapse rates.

    The data are only used to rule shapes out, from 20 runs on; collapse never is.
    """
    runs = len(control), len(candidate)
    if min(runs) < 2:
        raise UserError(
            f"a design of {min(runs)} runs has no intervals to certify", hint="It needs at least two per arm."
        )
    repeats = repeats or (REPEATS if config.method == "t" else SLOW_REPEATS)
    fitted = min(runs) >= FITTED_FROM
    covered = [*_on_panel(control, candidate, config, seed, repeats, fitted), *_on_rates(runs, config, seed, repeats)]
    if fitted and all(row.ruled_out for row in covered if row.rate is None and row.shape != COLLAPSING):
        # None of the panel fits: then none of it may be trusted to be absent.
        covered, fitted = [replace(row, ruled_out=False) for row in covered], False
    pairing = "paired" if config.paired else "unpaired"
    return Certificate(1 - config.alpha, config.method, pairing, runs, repeats, tuple(covered), fitted)


def _on_panel(
    control: Array, candidate: Array, config: ComparisonConfig, seed: int, repeats: int, fitted: bool
) -> Iterator[Covered]:
    """The fixed shapes."""
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
    """Collapse at every rate that such a design can hardly see; all rates share their draws."""
    rng = np.random.default_rng([seed, len(SHAPES), *runs])
    drawn = [(rng.standard_normal((repeats, n)), rng.random((repeats, n))) for n in runs]
    rates = collapse_rates(runs, RATIO if config.method == "t" else SLOW_RATIO)
    for rate in (rate for rate in rates if not math.isclose(rate, COLLAPSE)):  # the panel has that one
        first, second = (collapsed(noise, chances, rate) for noise, chances in drawn)
        name = f"{COLLAPSING} {100 * rate:.3g} %"
        text = f"{100 * rate:.3g} % of the runs collapse"
        both = coverage(first, second, 0.0, config, seed)
        yield Covered(name, text, both, _one_arm((first, second), -DEPTH * rate, config, seed), False, rate)


def _one_arm(noisy: tuple[Array, Array], truth: float, config: ComparisonConfig, seed: int) -> float:
    """Only one arm varies. Where it matters which (one-sided intervals, arms of unequal size), the worse counts."""
    alone = [_candidate_alone(noisy, truth, config, seed)]
    if config.side != "two-sided" or noisy[0].shape != noisy[1].shape:
        mirrored = -noisy[1], -noisy[0]
        alone.append(_candidate_alone(mirrored, -truth, config, seed))
    return min(alone)


def _candidate_alone(arms: tuple[Array, Array], truth: float, config: ComparisonConfig, seed: int) -> float:
    """Coverage where the first arm does not vary. Student's intervals are then those of the second arm by itself."""
    if config.method == "t":
        return _share(t_limits(*paired_parts(arms[1]), alpha=config.alpha, side=config.on_difference()), truth)
    return coverage(np.zeros_like(arms[0]), arms[1], truth, config, seed)


def coverage(control: Array, candidate: Array, truth: float, config: ComparisonConfig, seed: int) -> float:
    """The share of simulated studies (rows) whose interval contains the true difference."""
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
    """The default intervals of many studies at once, one per row."""
    parts = paired_parts(candidate - control) if paired else welch_parts(control, candidate)
    return t_limits(*parts, alpha=alpha, side=side)


def t_limits(
    mean: Array, error: Array, freedom: int | Array, *, alpha: float, side: str = "two-sided"
) -> tuple[Array, Array]:
    """Limits from means, standard errors and degrees of freedom."""
    reach = -special.stdtrit(freedom, alpha / 2 if side == "two-sided" else alpha) * error
    low = np.full_like(mean, -np.inf) if side == "less" else mean - reach
    return low, np.full_like(mean, np.inf) if side == "greater" else mean + reach


def _share(limits: tuple[Array, Array], truth: float) -> float:
    return float(((limits[0] <= truth) & (truth <= limits[1])).mean())


def _rules_out(shape: Shape, sample: Array, rng: np.random.Generator) -> bool:
    """Whether a sample, freed of its location and scale, lies farther from the shape than its own samples do."""
    if np.ptp(sample) == 0:
        return False
    reference = np.sort(_standardized(shape.draw(rng, (REFERENCE,))))
    own = shape.draw(rng, (SIMULATED, len(sample)))
    simulated = np.array([_distance(_standardized(row), reference) for row in own])
    return float((simulated >= _distance(_standardized(sample), reference)).mean()) < RULED_OUT_BELOW


def _standardized(sample: Array) -> Array:
    return np.asarray((sample - sample.mean()) / sample.std())


def _distance(sample: Array, reference: Array) -> float:
    """Kolmogorov's, from a sample to a large reference."""
    place = np.searchsorted(reference, np.sort(sample)) / len(reference)
    steps = np.arange(1, len(sample) + 1) / len(sample)
    return float(max(np.abs(steps - place).max(), np.abs(place - steps + 1 / len(sample)).max()))
