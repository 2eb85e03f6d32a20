"""Compare a candidate with a control: combine a statistical method, the verdict rule and the count of lost runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.core.cautions import (
    ARMS_DIFFER,
    BOOTSTRAP_FEW,
    FEW_SEEDS,
    UNEQUAL_N,
)
from fairtrial.core.errors import InvalidOptions, UserError, unknown
from fairtrial.core.findings import Comparison, Estimate, FilledCaution, Reason, Reliability, SeedsNeeded, Verdict
from fairtrial.core.plugin_registry import METHODS, load_others, load_plugin, plugin_names
from fairtrial.stats import effects
from fairtrial.stats.diagnostics import diagnose, differ_in_shape, too_unequal
from fairtrial.stats.inference import SIDES, Inference, Method
from fairtrial.stats.power import (
    Design,
    detectable_from,
    noise_of_test,
    pooled_freedom,
    seeds_for,
    seeds_for_equivalence,
)
from fairtrial.stats.reliability import Losses, count_losses, judge_reliability, lost_cautions, with_reliability
from fairtrial.stats.robust import sensitivity
from fairtrial.stats.samples import Arms, Array, Seed, as_sample, canonical, frozen_seed, is_still
from fairtrial.stats.student import paired_parts, welch_parts
from fairtrial.stats.verdicts import Decision, decide

POWER = 0.8
RESAMPLES = 10_000
BOOTSTRAP_SAFE = 10
"""With fewer runs per arm, BCa and percentile bootstraps have false-positive rates of 14 to 48 %.

There, the verdict uses Student's t, and the bootstrap interval is only reported next to it.
"""
FEWEST = 3
SMALLEST, LARGEST = 1e-100, 1e100


BOOTSTRAPS = ("bca", "percentile", "studentized")
UNSAFE_BOOTSTRAPS = ("bca", "percentile")


def load_method(name: str) -> Method:
    method: Method = load_plugin(METHODS, name)
    return method


def methods_for(design: str) -> list[str]:
    """Return the names of the methods for a design: built-in ones and those of plug-ins that can be loaded."""
    every = {name: load_method(name) for name in METHODS.built_in} | dict(load_others(METHODS))
    return [name for name, method in every.items() if design in method.designs]


@dataclass(frozen=True)
class ComparisonConfig:
    """The settings of a comparison, chosen before its results were seen."""

    paired: bool
    alpha: float = 0.05
    side: str = "two-sided"
    sesoi: float | None = None
    method: str = "t"
    direction: str = "max"
    resamples: int = RESAMPLES
    power: float = POWER
    failure_value: float | None = None
    """The value assigned to a lost run. None: a lost run has no value, and lost runs are judged separately."""
    shown_bootstrap: str | None = None
    """A bootstrap method whose interval is reported next to that of `method`."""

    def check(self) -> ComparisonConfig:
        """Return this config if it is valid; otherwise raise InvalidOptions with all of its problems."""
        design, other = ("paired", "unpaired") if self.paired else ("unpaired", "paired")
        problems = []
        if not 0 < self.alpha < 0.5:
            problems.append(f"alpha must lie between 0 and 0.5, not {self.alpha!r}")
        if not 0 < self.power < 1:
            problems.append(f"power must lie between 0 and 1, not {self.power!r}")
        if self.side not in SIDES:
            problems.append(unknown("side", str(self.side), SIDES))
        if self.sesoi is not None and not 0 < self.sesoi < math.inf:
            problems.append(f"sesoi must be a positive number, not {self.sesoi!r}")
        if self.method not in plugin_names(METHODS):
            problems.append(unknown("method", str(self.method), plugin_names(METHODS)))
        elif design not in load_method(self.method).designs:
            problems.append(f"method '{self.method}' is for {other} runs; use one of: {', '.join(methods_for(design))}")
        if self.shown_bootstrap is not None and self.shown_bootstrap not in BOOTSTRAPS:
            problems.append(unknown("bootstrap", self.shown_bootstrap, BOOTSTRAPS))
        if self.direction not in ("max", "min"):
            problems.append(unknown("direction", str(self.direction), ("max", "min")))
        if self.failure_value is not None and not math.isfinite(self.failure_value):
            problems.append(f"the value of a lost run must be a number, not {self.failure_value!r}")
        if self.resamples < 100:
            problems.append(f"resamples must be at least 100, not {self.resamples}")
        if problems:
            raise InvalidOptions(problems[0], problems=problems[1:])
        return self

    @property
    def design(self) -> Design:
        return Design(self.paired, self.alpha, self.power, self.side)

    def on_difference(self) -> str:
        """Return the side of the test on candidate − control, which is reversed if the metric is minimized."""
        side = self.side
        return side if self.direction == "max" else {"greater": "less", "less": "greater"}.get(side, side)

    def infer(self, arms: Arms, seed: Seed) -> Inference:
        """Run the method and return its inference about candidate − control, whatever their canonical order is."""
        inference = load_method(self.method).infer(arms, self.resamples, arms.stream(seed))
        if arms.symmetric:
            return inference.symmetric()
        return inference.negated() if arms.swapped else inference


def compare_samples(
    control: Sequence[float] | Array,
    candidate: Sequence[float] | Array,
    *,
    paired: bool,
    alpha: float = 0.05,
    side: str = "two-sided",
    sesoi: float | None = None,
    method: str = "t",
    rng: Seed = None,
    direction: str = "max",
    resamples: int = RESAMPLES,
    failure_value: float | None = None,
    names: tuple[str, str] = ("control", "candidate"),
) -> Comparison:
    """Compare a candidate with a control and return the verdict, effect and interval.

    Each sample has one number per run; with `paired`, runs are paired by position. Non-finite values are runs without
    a result (diverged, NaN) and are counted per arm: a candidate that loses more runs than the control is neither
    better nor equivalent, unless `failure_value` assigns lost runs a number. `side="greater"` tests only whether the
    candidate is better. `rng` is a seed or a generator; the default is seed 0, so the same input gives the same
    answer.

    >>> fairtrial.compare_samples([0.81, 0.80, 0.83], [0.85, 0.83, 0.88], paired=True).n_control
    3
    """
    config = ComparisonConfig(
        paired, alpha, side, sesoi, method, direction, resamples, failure_value=failure_value
    ).check()
    return compare(as_sample(control, names[0]), as_sample(candidate, names[1]), config, names=names, seed=rng)


def compare(
    control: Array,
    candidate: Array,
    config: ComparisonConfig,
    *,
    names: tuple[str, str],
    seed: Seed = None,
    losses: Losses | None = None,
) -> Comparison:
    """Do the same for arrays and a checked config.

    Pass `losses` if the arrays do not contain every run, which can be the case for paired runs.
    """
    if config.paired and len(control) != len(candidate):
        raise UserError(
            f"{len(control)} runs of {names[0]} and {len(candidate)} of {names[1]} cannot be paired one to one",
            hint="Pass one value per seed for both, in the same order, or compare them unpaired.",
        )
    losses = losses or count_losses(control, candidate)
    if config.failure_value is not None:
        control, candidate = (
            np.where(np.isfinite(sample), sample, config.failure_value) for sample in (control, candidate)
        )
    kept = keep_finite(control, candidate, paired=config.paired)
    seed = frozen_seed(seed)
    headline, shown_bootstrap = headline_config(config, min(map(len, kept)))
    judged = judge(*kept, headline, seed)
    reliability = judge_reliability(losses, config.alpha)
    decision = judged.decision if config.failure_value is not None else with_reliability(judged.decision, reliability)
    comparison = assemble(*kept, judged, decision, reliability, headline, names)
    if judged.inference is not None:
        robust = sensitivity(*kept, paired=config.paired, alpha=config.alpha, side=config.on_difference())
        comparison = replace(comparison, sensitivity=robust)
    return _with_bootstrap(comparison, *kept, shown_bootstrap, seed) if shown_bootstrap else comparison


def headline_config(config: ComparisonConfig, runs: int) -> tuple[ComparisonConfig, ComparisonConfig | None]:
    """Return the config that decides the verdict, and that of a bootstrap that is only reported next to it, if any."""
    if config.method in UNSAFE_BOOTSTRAPS and runs < BOOTSTRAP_SAFE:
        return replace(config, method="t"), config
    return config, replace(config, method=config.shown_bootstrap) if config.shown_bootstrap else None


def _with_bootstrap(
    comparison: Comparison, control: Array, candidate: Array, config: ComparisonConfig, seed: Seed
) -> Comparison:
    """Add the bootstrap interval of `config` to a comparison, with a caution if there are too few runs for it."""
    if comparison.p_value is None:
        return comparison
    inference = config.infer(canonical(control, candidate, paired=config.paired), seed)
    estimate = inference.estimate(config.alpha, config.on_difference(), comparison.effect.n)
    comparison = replace(
        comparison, bootstrap=estimate, tests={**comparison.tests, "bootstrap": dict(inference.detail)}
    )
    runs = min(len(control), len(candidate))
    if config.method not in UNSAFE_BOOTSTRAPS or runs >= BOOTSTRAP_SAFE:
        return comparison
    return replace(comparison, cautions=(*comparison.cautions, BOOTSTRAP_FEW.fill(n=runs, method=config.method)))


def keep_finite(control: Array, candidate: Array, *, paired: bool) -> tuple[Array, Array]:
    """Return the finite values of both arms. A pair is dropped as a whole if either of its values is not finite."""
    if paired:
        both = np.isfinite(control) & np.isfinite(candidate)
        return control[both], candidate[both]
    return control[np.isfinite(control)], candidate[np.isfinite(candidate)]


@dataclass(frozen=True)
class ComparisonResult:
    """The inference of a method about two finite samples, and the decision that follows from it."""

    inference: Inference | None
    decision: Decision


def judge(control: Array, candidate: Array, config: ComparisonConfig, seed: Seed = None) -> ComparisonResult:
    """Infer and decide. The result is inconclusive without an inference if the samples do not allow one."""
    nothing = _cannot(control, candidate, config)
    if nothing is not None:
        return ComparisonResult(None, Decision(Verdict.INCONCLUSIVE, None, None, None, nothing.value))
    inference = config.infer(canonical(control, candidate, paired=config.paired), seed)
    return ComparisonResult(inference, decide_by(inference, config))


def decide_by(inference: Inference, config: ComparisonConfig) -> Decision:
    """Return the decision that an inference about candidate − control leads to under this config."""
    return decide_from(
        inference.interval(config.alpha, config.on_difference()), inference.interval(2 * config.alpha), config
    )


def decide_from(wide: tuple[float, float], narrow: tuple[float, float], config: ComparisonConfig) -> Decision:
    """Decide from two intervals: the wide one tests for a difference, the narrow one for equivalence."""
    wide, narrow = _gain(wide, config), _gain(narrow, config)
    if math.isnan(wide[0]) or math.isnan(wide[1]) or wide == (-math.inf, math.inf):
        return Decision(Verdict.INCONCLUSIVE, None, None, None, Reason.METHOD_NEEDS_MORE.value)
    return decide(wide, narrow, config.sesoi)


def _gain(interval: tuple[float, float], config: ComparisonConfig) -> tuple[float, float]:
    return interval if config.direction == "max" else (-interval[1], -interval[0])


def _cannot(control: Array, candidate: Array, config: ComparisonConfig) -> Reason | None:
    """Return the reason why these samples do not allow an inference, or None if they do."""
    if min(len(control), len(candidate)) < 2:
        return Reason.TOO_FEW
    scale = max(float(np.abs(control).max()), float(np.abs(candidate).max()))
    noisy = [candidate - control] if config.paired else [control, candidate]
    if all(is_still(sample, scale) for sample in noisy):
        return Reason.NO_VARIATION
    _refuse_extremes(scale)
    return None


def _refuse_extremes(scale: float) -> None:
    """Reject values whose squares overflow or underflow, because no interval can be computed from them."""
    if not SMALLEST < scale < LARGEST:
        raise UserError(
            f"values around {scale:.1g} are outside of the supported range of 1e-100 to 1e100",
            hint="Convert them to another unit.",
        )


def assemble(
    control: Array,
    candidate: Array,
    judged: ComparisonResult,
    decision: Decision,
    reliability: Reliability,
    config: ComparisonConfig,
    names: tuple[str, str],
) -> Comparison:
    n = len(control) if config.paired else len(control) + len(candidate)
    known = judged.inference
    checks = diagnose(control, candidate, paired=config.paired) if known else {}
    comparison = Comparison(
        control=names[0],
        candidate=names[1],
        pairing="paired" if config.paired else "unpaired",
        method=known.method if known else config.method,
        side=config.side,
        direction=config.direction,
        alpha=config.alpha,
        sesoi=config.sesoi,
        n_control=len(control),
        n_candidate=len(candidate),
        mean_control=_mean(control),
        mean_candidate=_mean(candidate),
        sd_control=_sd(control),
        sd_candidate=_sd(candidate),
        effect=_effect(control, candidate, known, decision, config, n, config.alpha, config.on_difference()),
        equivalence=_effect(control, candidate, known, decision, config, n, 2 * config.alpha, "two-sided"),
        p_value=known.p_value(config.on_difference()) if known else None,
        verdict=decision.verdict,
        reason=decision.reason,
        significant=decision.significant,
        equivalent=decision.equivalent,
        exceeds_sesoi=decision.exceeds_sesoi,
        not_worse=decision.not_worse,
        reliability=reliability,
        failure_value=config.failure_value,
        diagnostics=checks,
        tests=dict(known.detail) if known else {},
        cautions=_cautions(control, candidate, checks, reliability, config, names),
    )
    return _with_sizes(comparison, control, candidate, config) if known else comparison


def _mean(sample: Array) -> float | None:
    return float(np.sort(sample).mean()) if len(sample) else None


def _sd(sample: Array) -> float | None:
    return float(np.sort(sample).std(ddof=1)) if len(sample) > 1 else None


def _effect(
    control: Array,
    candidate: Array,
    known: Inference | None,
    decision: Decision,
    config: ComparisonConfig,
    n: int,
    alpha: float,
    side: str,
) -> Estimate:
    samples = np.sort(candidate - control) if config.paired else None
    if known is not None:
        return known.estimate(alpha, side, n, samples)
    low, high = _mean(control), _mean(candidate)
    value = None if low is None or high is None else high - low
    sample_values = None if samples is None else tuple(samples.tolist())
    return Estimate(value, None, None, 1 - alpha, config.method, n, samples=sample_values, reason=decision.reason)


def _with_sizes(comparison: Comparison, control: Array, candidate: Array, config: ComparisonConfig) -> Comparison:
    """Add standardized effects, the probability of superiority, the correlation of pairs and the design's power."""
    alpha, paired = config.alpha, config.paired
    arms = canonical(control, candidate, paired=paired)
    worse, better = (control, candidate) if config.direction == "max" else (-control, -candidate)
    sd, freedom = _noise(arms)
    g = effects.hedges_g(arms.first, arms.second, paired=paired, alpha=alpha)
    d_z = effects.d_z(arms.differences, alpha) if paired else None
    return replace(
        comparison,
        hedges_g=_turned(g, arms),
        d_z=_turned(d_z, arms) if d_z else None,
        superiority=effects.paired_superiority(better - worse, alpha)
        if paired
        else effects.unpaired_superiority(worse, better, alpha),
        correlation=effects.correlation(arms.first, arms.second, alpha) if paired else None,
        **outlook(comparison, sd, min(arms.runs), config, freedom, _error(arms)),
    )


def _turned(estimate: Estimate, arms: Arms) -> Estimate:
    """Convert a standardized effect of second − first to one of candidate − control."""
    if arms.symmetric and estimate.low is not None and estimate.high is not None:
        half = (estimate.high - estimate.low) / 2
        return replace(estimate, value=0.0, low=-half, high=half)
    return estimate.negated() if arms.swapped else estimate


def outlook(
    comparison: Comparison,
    sd: float,
    runs: int,
    config: ComparisonConfig,
    freedom: float | None = None,
    error: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Return which difference this design detects, and how many runs per arm an inconclusive comparison needs.

    `freedom` is the degrees of freedom of the standard deviation `sd`. `error` is the standard error of the difference
    with its own degrees of freedom. The defaults of both assume arms of equal size and spread.
    """
    design = config.design
    freedom = design.freedom(runs) if freedom is None else freedom
    error = (sd * math.sqrt((1 if config.paired else 2) / runs), freedom) if error is None else error
    return {
        "detectable": detectable_from(*error, design),
        "seeds_needed": _seeds_needed(comparison, (sd, freedom), error, runs, config),
    }


def _noise(arms: Arms) -> tuple[float, float]:
    """Return the standard deviation that power is planned with, and its degrees of freedom."""
    if arms.paired:
        return float(arms.differences.std(ddof=1)), len(arms.differences) - 1
    variances = [float(sample.var(ddof=1)) for sample in (arms.first, arms.second)]
    return math.sqrt(sum(variances) / 2), pooled_freedom(variances, [n - 1 for n in arms.runs])


def _error(arms: Arms) -> tuple[float, float]:
    _, error, freedom = paired_parts(arms.differences) if arms.paired else welch_parts(arms.first, arms.second)
    return float(error), float(freedom)


def _seeds_needed(
    comparison: Comparison, noise: tuple[float, float], error: tuple[float, float], runs: int, config: ComparisonConfig
) -> SeedsNeeded | None:
    """Return how many runs per arm an inconclusive comparison needs for the wanted power, averaged over the noise."""
    open_question = comparison.reason in (Reason.NOT_COVERED, Reason.ADJUSTED)
    if comparison.verdict is not Verdict.INCONCLUSIVE or not open_question:
        return None
    asked = {"two-sided": 0.0, "greater": 1.0, "less": -1.0}[config.side]
    if config.sesoi is None and asked * (comparison.gain or 0.0) < 0:  # the observed effect has the other sign
        return None
    sd, freedom = noise
    if sd == 0:
        return None
    margin = config.sesoi is not None
    effect = config.sesoi if config.sesoi is not None else abs(comparison.effect.value or 0.0)
    sd *= noise_of_test(config.design, error[1]).share_of_truth(effect, error[0], margin=margin)
    per_arm = seeds_for(effect / sd, config.design, freedom)
    if margin:
        counts = [per_arm, seeds_for_equivalence(effect / sd, config.design, freedom)]
        per_arm = None if None in counts else max(count for count in counts if count is not None)
    basis = "sesoi" if margin else "observed difference"
    more = None if per_arm is None else max(1, per_arm - runs)
    return SeedsNeeded(per_arm, more, effect, config.power, None, basis)


def _cautions(
    control: Array,
    candidate: Array,
    checks: Mapping[str, Any],
    reliability: Reliability,
    config: ComparisonConfig,
    names: tuple[str, str],
) -> tuple[FilledCaution, ...]:
    cautions = lost_cautions(reliability, names)
    if not checks:
        return tuple(cautions)
    if not config.paired and too_unequal(len(control), len(candidate)):
        cautions.append(UNEQUAL_N.fill(control=len(control), candidate=len(candidate)))
    if differ_in_shape(checks, control, candidate):
        cautions.append(ARMS_DIFFER.fill())
    if min(len(control), len(candidate)) < FEWEST:
        cautions.append(FEW_SEEDS.fill(n=min(len(control), len(candidate))))
    return tuple(cautions)
