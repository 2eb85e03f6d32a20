"""The certificate: how often would intervals of this very design cover the truth, on each shape of noise?

Below 20 runs per arm nobody can tell the shapes apart, so none is ruled out and the worst of all is stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from fairtrial.analyse.compare import Terms
from fairtrial.analyse.noise import SHAPES, Shape
from fairtrial.analyse.samples import Array, canonical
from fairtrial.analyse.student import paired_parts, welch_parts
from fairtrial.core.errors import UserError

FITTED_FROM = 20
REPEATS = 20_000
SLOW_REPEATS = 400
SLOW_RESAMPLES = 1_000
RULED_OUT_BELOW = 0.01
REFERENCE = 4_000
SIMULATED = 400


@dataclass(frozen=True)
class Covered:
    """Coverage on one shape: with both arms of it, and with one arm of it against one that does not vary."""

    shape: str
    text: str
    both_arms: float
    one_arm: float
    ruled_out: bool


@dataclass(frozen=True)
class Certificate:
    """What the stated level is worth for this design. `worst` is over all shapes that are not ruled out."""

    level: float
    method: str
    pairing: str
    runs: tuple[int, int]
    repeats: int
    covered: tuple[Covered, ...]
    fitted: bool

    @property
    def worst_both_arms(self) -> float:
        return min(row.both_arms for row in self.covered if not row.ruled_out)

    @property
    def worst(self) -> float:
        return min(min(row.both_arms, row.one_arm) for row in self.covered if not row.ruled_out)

    def __str__(self) -> str:
        known = (
            "shapes that the data rule out are left aside"
            if self.fitted
            else f"below {FITTED_FROM} runs per arm no shape can be ruled out"
        )
        return (
            f"Intervals of this design that say {100 * self.level:g} % cover at least "
            f"{100 * self.worst_both_arms:.1f} % when both arms have noise of the same kind, and "
            f"{100 * self.worst:.1f} % in the worst case, when only one arm varies ({known})."
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
        }


def certify(
    control: Array, candidate: Array, terms: Terms, *, seed: int = 0, repeats: int | None = None
) -> Certificate:
    """Simulate this design on the panel of shapes. The data are only used to rule shapes out, from 20 runs on."""
    runs = len(control), len(candidate)
    if min(runs) < 2:
        raise UserError(
            f"a design of {min(runs)} runs has no intervals to certify", hint="It needs at least two per arm."
        )
    repeats = repeats or (REPEATS if terms.method == "t" else SLOW_REPEATS)
    fitted = min(runs) >= FITTED_FROM
    covered = []
    for number, shape in enumerate(SHAPES):
        rng = np.random.default_rng([seed, number, *runs])
        both = shape.draw(rng, (repeats, runs[0])), shape.draw(rng, (repeats, runs[1]))
        alone = np.zeros((repeats, runs[0])), shape.draw(rng, (repeats, runs[1]))
        ruled_out = fitted and any(_rules_out(shape, sample, rng) for sample in (control, candidate))
        covered.append(
            Covered(
                shape.name,
                shape.text,
                coverage(*both, 0.0, terms, seed),
                _one_arm(*alone, shape.mean, terms, seed),
                ruled_out,
            )
        )
    if all(row.ruled_out for row in covered):  # none of the panel fits: then none of it may be trusted to be absent
        covered = [Covered(row.shape, row.text, row.both_arms, row.one_arm, False) for row in covered]
        fitted = False
    pairing = "paired" if terms.paired else "unpaired"
    return Certificate(1 - terms.alpha, terms.method, pairing, runs, repeats, tuple(covered), fitted)


def _one_arm(still: Array, noisy: Array, truth: float, terms: Terms, seed: int) -> float:
    """Only one arm varies. For one-sided intervals it matters which; then the worse of both counts."""
    covered = coverage(still, noisy, truth, terms, seed)
    if terms.side == "two-sided" or still.shape != noisy.shape:
        return covered
    return min(covered, coverage(noisy, still, -truth, terms, seed))


def coverage(control: Array, candidate: Array, truth: float, terms: Terms, seed: int) -> float:
    """The share of simulated studies (rows) whose interval contains the true difference."""
    if terms.method == "t":
        low, high = t_intervals(control, candidate, paired=terms.paired, alpha=terms.alpha, side=terms.on_difference())
        return float(((low <= truth) & (truth <= high)).mean())
    hits = 0
    quick = Terms(**{**vars(terms), "resamples": min(terms.resamples, SLOW_RESAMPLES)})
    for first, second in zip(control, candidate, strict=True):
        inference = quick.infer(canonical(first, second, paired=terms.paired), seed)
        low_, high_ = inference.interval(terms.alpha, terms.on_difference())
        hits += low_ <= truth <= high_
    return hits / len(control)


def t_intervals(
    control: Array, candidate: Array, *, paired: bool, alpha: float, side: str = "two-sided"
) -> tuple[Array, Array]:
    """The default intervals of many studies at once, one per row."""
    mean, error, freedom = paired_parts(candidate - control) if paired else welch_parts(control, candidate)
    reach = -special.stdtrit(freedom, alpha / 2 if side == "two-sided" else alpha) * error
    low = np.full_like(mean, -np.inf) if side == "less" else mean - reach
    return low, np.full_like(mean, np.inf) if side == "greater" else mean + reach


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
