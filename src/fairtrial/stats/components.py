"""Variance components: noise between repeats of a seed, noise between seeds, and noise of individual random streams.

Same-seed noise is a one-way random-effects model: run j with seed i is mean + seed_i + repeat_ij. The interval for the
seeds' share of the variance is Wald's exact interval, which is valid for unbalanced numbers of repeats. The point
estimate is the ratio at which Wald's statistic equals one; with balanced repeats that is the usual ANOVA estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from fairtrial.stats.power import sd_interval
from fairtrial.stats.samples import Array, is_still


@dataclass(frozen=True)
class VarianceComponent:
    """A standard deviation, or a share of a variance, with its interval; None where the runs do not determine it."""

    value: float | None
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, float | None]:
        return dict(vars(self))


UNKNOWN = VarianceComponent(None, None, None)


@dataclass(frozen=True)
class Repeats:
    """Noise between repeats of a seed, additional noise between seeds, and the seeds' share of the variance."""

    seeds: int
    """The number of seeds with at least one run; `repeated` of them have more than one."""
    repeated: int
    runs: int
    same_seed: VarianceComponent
    between_seeds: VarianceComponent
    share: VarianceComponent
    level: float
    identical: bool
    """Whether all repeats of each seed are bit-identical."""

    def to_dict(self) -> dict[str, Any]:
        return {
            name: value.to_dict() if isinstance(value, VarianceComponent) else value
            for name, value in vars(self).items()
        }


def same_seed_noise(groups: Sequence[Sequence[float]], level: float = 0.95) -> Repeats | None:
    """Estimate the noise of repeats and of seeds from one group of values per seed; None if no seed was repeated."""
    # Sort by value, so that floating-point sums do not depend on the order of the runs.
    samples = sorted(
        (np.sort(np.asarray(group, dtype=float)) for group in groups if len(group)), key=lambda g: g.tolist()
    )
    counts = np.array([len(sample) for sample in samples])
    freedom = int((counts - 1).sum())
    if freedom < 1:
        return None
    alpha, seeds = 1 - level, len(samples)
    means = np.array([sample.mean() for sample in samples])
    make_repeats = partial(Repeats, seeds=seeds, repeated=int((counts > 1).sum()), runs=int(counts.sum()), level=level)
    identical = all(sample[0] == sample[-1] for sample in samples)
    if identical:
        still = seeds < 2 or is_still(means, float(np.abs(means).max()))
        between = UNKNOWN if still else _known_sd(float(means.std(ddof=1)), seeds - 1, alpha)
        share = VarianceComponent(None if still else 1.0, None, None)
        return make_repeats(
            same_seed=VarianceComponent(0.0, None, None), between_seeds=between, share=share, identical=True
        )
    within = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in samples) / freedom
    same = _known_sd(math.sqrt(within), freedom, alpha)
    if seeds < 2:
        return make_repeats(same_seed=same, between_seeds=UNKNOWN, share=UNKNOWN, identical=False)
    layout = _Layout(means, counts, within, freedom)
    return make_repeats(same_seed=same, between_seeds=layout.between(alpha), share=layout.share(alpha), identical=False)


def _known_sd(sd: float, freedom: int, alpha: float) -> VarianceComponent:
    return VarianceComponent(sd, *sd_interval(sd, freedom, alpha))


@dataclass(frozen=True)
class _Layout:
    """The means and numbers of repeats by seed, and the variance within seeds."""

    means: Array
    counts: Array
    within: float
    freedom: int

    def statistic(self, ratio: float) -> float:
        """Return Wald's statistic for a given ratio of the variance between seeds to the variance within seeds.

        If `ratio` is the true ratio, it is F-distributed with seeds − 1 and `freedom` degrees of freedom.
        """
        weights = self.counts / (1 + self.counts * ratio)
        center = float(weights @ self.means) / float(weights.sum())
        return float(weights @ (self.means - center) ** 2) / (len(self.means) - 1) / self.within

    def ratio_at(self, level: float) -> float:
        """Return the ratio at which the statistic, which decreases in it, equals `level`; 0 if it never exceeds it."""
        if self.statistic(0.0) <= level:
            return 0.0
        low, high = 0.0, 1.0
        while self.statistic(high) > level:
            low, high = high, high * 4
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.statistic(middle) > level else (low, middle)
        return high

    def _quantile(self, share: float) -> float:
        return float(special.fdtri(len(self.means) - 1, self.freedom, share))

    def share(self, alpha: float) -> VarianceComponent:
        ratios = [self.ratio_at(level) for level in (1.0, self._quantile(1 - alpha / 2), self._quantile(alpha / 2))]
        return VarianceComponent(*(ratio / (1 + ratio) for ratio in ratios))

    def between(self, alpha: float) -> VarianceComponent:
        """Return the sd between seeds with Burdick and Eickman's limits, which are valid for unbalanced repeats.

        The limits use the unweighted variance of the seed means.
        """
        freedom = len(self.means) - 1
        spread = float(self.means.var(ddof=1))
        typical = len(self.counts) / float((1 / self.counts).sum())
        value = math.sqrt(self.ratio_at(1.0) * self.within)
        limits = []
        for tail, count in ((1 - alpha / 2, self.counts.min()), (alpha / 2, self.counts.max())):
            ratio = max(0.0, spread / (self._quantile(tail) * self.within) - 1 / float(count))
            chi2 = 2 * float(special.gammaincinv(freedom / 2, tail)) / freedom
            limits.append(math.sqrt(spread * typical * ratio / (1 + typical * ratio) / chi2))
        return VarianceComponent(value, min(limits[0], value), max(limits[1], value))


@dataclass(frozen=True)
class StreamNoise:
    """The noise of runs in which only some random streams change with the seed and the others are fixed."""

    streams: tuple[str, ...]
    n: int
    sd: VarianceComponent
    share: VarianceComponent
    """The share of the variance that runs have when all streams change."""

    @property
    def name(self) -> str:
        return " + ".join(self.streams)

    def to_dict(self) -> dict[str, Any]:
        return {"streams": list(self.streams), "n": self.n, "sd": self.sd.to_dict(), "share": self.share.to_dict()}


@dataclass(frozen=True)
class StreamRanking:
    """The streams that were varied alone, noisiest first.

    `unclear` lists the streams that are statistically indistinguishable from the first.
    """

    rows: tuple[StreamNoise, ...]
    together: StreamNoise | None
    unclear: tuple[str, ...]
    level: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "streams": [row.to_dict() for row in self.rows],
            "all": self.together.to_dict() if self.together else None,
            "most": self.rows[0].name if self.rows and self.rows[0].sd.value else None,
            "indistinguishable": list(self.unclear),
            "level": self.level,
        }


def rank_streams(
    alone: Mapping[tuple[str, ...], Array], together: tuple[tuple[str, ...], Array] | None, level: float = 0.95
) -> StreamRanking:
    """Rank streams by noise. `together` has the runs in which all streams change with the seed."""
    whole = _stream_noise(*together, None, level) if together else None
    rows = sorted(
        (_stream_noise(streams, sample, whole, level) for streams, sample in alone.items()),
        key=lambda row: (-(row.sd.value or 0.0), row.streams),
    )
    pairs = len(rows) * (len(rows) - 1) / 2
    unclear = [row.name for row in rows[1:] if _same_spread(rows[0], row) * pairs > 1 - level]
    return StreamRanking(tuple(rows), whole, tuple(unclear), level)


def _stream_noise(streams: tuple[str, ...], sample: Array, whole: StreamNoise | None, level: float) -> StreamNoise:
    values, n = np.sort(sample), len(sample)
    if n < 2:
        return StreamNoise(streams, n, UNKNOWN, UNKNOWN)
    if is_still(values, float(np.abs(values).max())):
        return StreamNoise(streams, n, VarianceComponent(0.0, None, None), VarianceComponent(0.0, None, None))
    sd = _known_sd(float(values.std(ddof=1)), n - 1, 1 - level)
    if whole is None or not whole.sd.value or sd.value is None:
        return StreamNoise(streams, n, sd, UNKNOWN)
    ratio = (sd.value / whole.sd.value) ** 2
    limits = (ratio / float(special.fdtri(n - 1, whole.n - 1, q)) for q in ((1 + level) / 2, (1 - level) / 2))
    return StreamNoise(streams, n, sd, VarianceComponent(ratio, *limits))


def _same_spread(first: StreamNoise, other: StreamNoise) -> float:
    """Return the two-sided p-value of the F test that two streams are equally noisy; 1 if either noise is unknown."""
    if first.sd.value is None or other.sd.value is None or first.sd.value == other.sd.value:
        return 1.0
    if other.sd.value == 0:
        return 0.0
    return min(1.0, 2 * float(special.fdtrc(first.n - 1, other.n - 1, (first.sd.value / other.sd.value) ** 2)))
