"""Compare one arm with a fixed value, such as a published loss: one-sample t, or z if the noise is known.

A target has no noise and no runs, so nothing cancels: skewed noise affects the interval in full, and a lost run of the
arm has no counterpart. Cautions report both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from fairtrial.core.cautions import FEW_SEEDS, KNOWN_SD_DOUBTED
from fairtrial.core.errors import InvalidOptions
from fairtrial.core.findings import Comparison, Estimate, FilledCaution, Reason, SeedsNeeded, Target, Verdict
from fairtrial.stats import effects
from fairtrial.stats.compare import FEWEST, ComparisonConfig, decide_by, judge, outlook
from fairtrial.stats.diagnostics import one_arm_cautions
from fairtrial.stats.holm import judge_by_holm
from fairtrial.stats.inference import Inference
from fairtrial.stats.power import Design, chi2_quantile
from fairtrial.stats.reliability import upper_rate
from fairtrial.stats.samples import Array, as_sample
from fairtrial.stats.student import from_t
from fairtrial.stats.verdicts import Decision, capped

DOUBT = 0.01
"""The p-value of the runs' standard deviation, given the known one, below which a caution is shown."""
ONE_SAMPLE = "one-sample"


def target_name(value: float) -> str:
    return f"target {value:.12g}"


def compare_to_target(
    sample: Sequence[float] | Array,
    target: float,
    *,
    alpha: float = 0.05,
    side: str = "two-sided",
    sesoi: float | None = None,
    known_sd: float | None = None,
    direction: str = "max",
    failure_value: float | None = None,
    name: str = "candidate",
) -> Comparison:
    """Compare the mean of one arm with a fixed value. The sample has one number per run.

    Non-finite values are runs without a result. With any of them, the arm is neither better nor equivalent, unless
    `failure_value` assigns them a number. `known_sd` is the standard deviation of runs if it is known from another
    source; a z test then replaces the t test.

    >>> fairtrial.compare_to_target([0.81, 0.80, 0.83, 0.79], 0.75).verdict.value
    'better'
    """
    config = ComparisonConfig(True, alpha, side, sesoi, "t", direction).check()
    arms = {name: as_sample(sample, name)}
    return compare_arms_to_target(arms, target, config, known_sd=known_sd, failure_value=failure_value)[0]


def compare_arms_to_target(
    arms: Mapping[str, Array],
    target: float,
    config: ComparisonConfig,
    *,
    known_sd: float | None = None,
    failure_value: float | None = None,
) -> list[Comparison]:
    """Compare each arm with the target. Several arms are adjusted by Holm as a family. NaN is a lost run."""
    _check(target, known_sd)
    config = replace(config, paired=True)
    alone = {name: _OneArm(name, sample, target, known_sd, failure_value, config) for name, sample in arms.items()}
    known = {name: arm.inference for name, arm in alone.items() if arm.inference is not None}
    if len(arms) == 1 or not known:
        return [arm.compared() for arm in alone.values()]
    judged = dict(zip(known, judge_by_holm(list(known.values()), config), strict=True))
    return [
        replace(
            arm.compared(judged[name].decision, judged[name].alpha, judged[name].share),
            adjusted_p=judged[name].adjusted_p,
            adjustment="holm",
        )
        if name in judged
        else arm.compared()
        for name, arm in alone.items()
    ]


def _check(target: float, known_sd: float | None) -> None:
    if not math.isfinite(target):
        raise InvalidOptions(f"the target must be a finite number, not {target!r}")
    if known_sd is not None and not 0 < known_sd < math.inf:
        raise InvalidOptions(f"the known standard deviation must be a positive number, not {known_sd!r}")


def infer_z(method: str, mean: float, error: float) -> Inference:
    """Infer a mean whose standard error is known, by a z test."""

    def reach(tail: float) -> float:
        return float(-special.ndtri(tail)) * error

    greater, less = float(special.ndtr(-mean / error)), float(special.ndtr(mean / error))
    return Inference(
        method,
        mean,
        lower=lambda tail: mean - reach(tail),
        upper=lambda tail: mean + reach(tail),
        p_greater=greater,
        p_less=less,
        p_two_sided=2 * min(greater, less),
        detail={"statistic": mean / error, "standard_error": error},
    )


class _OneArm:
    """The comparison of one arm with the target."""

    def __init__(
        self,
        name: str,
        sample: Array,
        target: float,
        known_sd: float | None,
        failure_value: float | None,
        config: ComparisonConfig,
    ) -> None:
        finite = np.isfinite(sample)
        self.name, self.config, self.known_sd = name, config, known_sd
        self.target = Target(
            target,
            known_sd,
            int((~finite).sum()),
            len(sample),
            upper_rate(int((~finite).sum()), len(sample), config.alpha),
            failure_value,
        )
        filled = sample if failure_value is None else np.where(finite, sample, failure_value)
        self.values = np.sort(filled[np.isfinite(filled)]) + 0.0
        # The one-sample t is the paired t against a control that does not vary.
        self._judged = judge(np.full(len(self.values), target), self.values, config)
        self.inference = self._inference()

    def _inference(self) -> Inference | None:
        plain = self._judged.inference
        if plain is None:
            return None
        if self.known_sd is None:
            return from_t("one-sample t", plain.value, plain.detail["standard_error"], plain.detail["df"])
        return infer_z("one-sample z", plain.value, self.known_sd / math.sqrt(len(self.values)))

    def compared(
        self, decision: Decision | None = None, alpha: float | None = None, share: float | None = None
    ) -> Comparison:
        """Return the comparison: with the decision and error rates of a family if given, else tested alone."""
        config, known = self.config, self.inference
        alpha, share = alpha or config.alpha, share or config.alpha
        if decision is None:
            decision = self._judged.decision if known is None else decide_by(known, config)
        decision = self._under_losses(decision)
        values, target = self.values, self.target.value
        comparison = Comparison(
            control=target_name(target),
            candidate=self.name,
            pairing=ONE_SAMPLE,
            method=known.method if known else "one-sample t",
            side=config.side,
            direction=config.direction,
            alpha=config.alpha,
            sesoi=config.sesoi,
            n_control=0,
            n_candidate=len(values),
            mean_control=target,
            mean_candidate=float(values.mean()) if len(values) else None,
            sd_control=None,
            sd_candidate=float(values.std(ddof=1)) if len(values) > 1 else None,
            effect=self._estimate(alpha, config.on_difference(), decision),
            equivalence=self._estimate(2 * share, "two-sided", decision),
            p_value=known.p_value(config.on_difference()) if known else None,
            verdict=decision.verdict,
            reason=decision.reason,
            significant=decision.significant,
            equivalent=decision.equivalent,
            exceeds_sesoi=decision.exceeds_sesoi,
            not_worse=decision.not_worse,
            tests=dict(known.detail) if known else {},
            target=self.target,
            cautions=self._cautions(),
        )
        if known is None:
            return comparison
        d_z = effects.d_z(values - target, config.alpha) if self.known_sd is None else None
        return replace(comparison, d_z=d_z, **self._outlook(comparison, replace(config, alpha=alpha)))

    def _estimate(self, alpha: float, side: str, decision: Decision) -> Estimate:
        samples = self.values - self.target.value
        if self.inference is not None:
            return self.inference.estimate(alpha, side, len(samples), samples)
        value = float(samples.mean()) if len(samples) else None
        sample_values = tuple(samples.tolist())
        return Estimate(
            value, None, None, 1 - alpha, "one-sample t", len(samples), samples=sample_values, reason=decision.reason
        )

    def _under_losses(self, decision: Decision) -> Decision:
        """Apply losses: a target loses no runs, so any lost run rules out better, equivalent and `not_worse`."""
        return decision if not self.target.lost or self.target.failure_value is not None else capped(decision)

    def _outlook(self, comparison: Comparison, config: ComparisonConfig) -> dict[str, Any]:
        runs = len(self.values)
        if self.known_sd is None:
            return outlook(comparison, comparison.sd_candidate or 0.0, runs, config)
        return _known_outlook(comparison, self.known_sd, runs, config)

    def _cautions(self) -> tuple[FilledCaution, ...]:
        runs = len(self.values)
        cautions: list[FilledCaution] = []
        if self.inference is None:
            return ()
        if runs < FEWEST:
            cautions.append(FEW_SEEDS.fill(n=runs))
        cautions += one_arm_cautions(runs)
        sd = float(self.values.std(ddof=1))
        if self.known_sd is not None and sd > self.known_sd * math.sqrt(
            chi2_quantile(1 - DOUBT, runs - 1) / (runs - 1)
        ):
            cautions.append(KNOWN_SD_DOUBTED.fill(sd=f"{sd:.3g}", known=f"{self.known_sd:.3g}"))
        return tuple(cautions)


def _known_outlook(comparison: Comparison, sd: float, runs: int, config: ComparisonConfig) -> dict[str, Any]:
    """Return the detectable difference and the seeds that an inconclusive comparison needs, for known noise."""
    design = config.design
    reach = float(special.ndtri(1 - design.tail) + special.ndtri(design.power)) * sd
    settled = comparison.verdict is not Verdict.INCONCLUSIVE or comparison.reason not in (
        Reason.NOT_COVERED,
        Reason.ADJUSTED,
    )
    return {
        "detectable": reach / math.sqrt(runs),
        "seeds_needed": None if settled else _known_seeds(comparison, sd, reach, runs, design),
    }


def _known_seeds(comparison: Comparison, sd: float, reach: float, runs: int, design: Design) -> SeedsNeeded | None:
    if comparison.sesoi is not None:
        inside = float(special.ndtri(1 - design.alpha) + special.ndtri((1 + design.power) / 2)) * sd
        effect, basis, needed = comparison.sesoi, "sesoi", max(reach, inside)
    else:
        effect, basis, needed = abs(comparison.effect.value or 0.0), "observed difference", reach
    asked = {"two-sided": 0.0, "greater": 1.0, "less": -1.0}[design.side]
    if effect == 0 or (comparison.sesoi is None and asked * (comparison.gain or 0.0) < 0):
        return None
    per_arm = math.ceil((needed / effect) ** 2)
    return SeedsNeeded(per_arm, max(1, per_arm - runs), effect, design.power, 1.0, basis)
