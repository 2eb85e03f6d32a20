"""Describe a comparison in one sentence: the verdict, the size of the effect, its certainty, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairtrial.core.findings import Comparison, Reason, Verdict
from fairtrial.core.formatting import counted, decimals_for, p_equals, shown_change, shown_interval, shown_p
from fairtrial.core.plugin_registry import ADJUSTMENTS

REASONS = {
    Reason.TOO_FEW: "fewer than two usable runs on a side",
    Reason.NO_VARIATION: "there is no variation to estimate the noise from",
    Reason.METHOD_NEEDS_MORE: "this method gives no interval for so few runs",
    Reason.CENSORED: "some runs never reached the threshold",
}


def verdict_sentence(comparison: Comparison) -> str:
    from fairtrial.core.target_verdict_text import target_sentence

    if comparison.target is not None:
        said = target_sentence(comparison)
    else:
        said = _timed(comparison) if "horizon" in comparison.tests else _judged(comparison)
    return f"{said} {comparison.label[0].upper()}{comparison.label[1:]}." if comparison.label else said


def _judged(comparison: Comparison) -> str:
    return {
        Verdict.BETTER: _ordered,
        Verdict.WORSE: _ordered,
        Verdict.EQUIVALENT: _equivalent,
        Verdict.INCONCLUSIVE: _inconclusive,
    }[comparison.verdict](comparison)


def family_sentence(comparisons: Sequence[Comparison]) -> str:
    """Describe several candidates against one control: which are better, worse, equivalent or inconclusive."""
    said = []
    for verdict in Verdict:
        for why in ("", _why_capped(Reason.ATTRITION), _why_capped(Reason.RELIABILITY)):
            names = [
                each.candidate for each in comparisons if each.verdict is verdict and _why_capped(each.reason) == why
            ]
            if names:
                verb = "is" if len(names) == 1 else "are"
                said.append(f"{_listed(names)} {verb} {_RELATION[verdict].format(control=comparisons[0].control)}{why}")
    how = _adjusted_words(comparisons)
    text = "; ".join(said)
    lost = losses_of_family(comparisons)
    labels = {each.label for each in comparisons if each.label}
    message = "".join(f" {label[0].upper()}{label[1:]}." for label in sorted(labels))
    return f"{lost}{text} ({comparisons[0].metric}, {how}).{message}"


def losses_of_family(comparisons: Sequence[Comparison]) -> str:
    """Return `2 of 5 runs of new diverged (base 0 of 5). ` for all arms that lost runs; empty if none did."""
    lossy = [each.reliability for each in comparisons if each.reliability is not None and each.reliability.any]
    if not lossy:
        return ""
    arms = [
        f"{each.lost_candidate} of {each.runs_candidate} runs of {name}"
        for each, name in zip((f.reliability for f in comparisons), (f.candidate for f in comparisons), strict=True)
        if each is not None and each.lost_candidate
    ]
    hows = {each.how for each in lossy}
    how = hows.pop() if len(hows) == 1 else "were lost"
    control = f"{comparisons[0].control} {lossy[0].lost_control} of {lossy[0].runs_control}"
    if not arms:
        return f"{lossy[0].lost_control} of {lossy[0].runs_control} runs of {comparisons[0].control} {how}. "
    return f"{_listed(arms)} {how} ({control}). "


def _why_capped(reason: str | None) -> str:
    """Return the reason in parentheses if lost runs determined the verdict, else an empty string."""
    return f" ({reason})" if reason in (Reason.ATTRITION, Reason.RELIABILITY) else ""


def _adjusted_words(comparisons: Sequence[Comparison]) -> str:
    """Return the error rate that holds for all verdicts together."""
    percent, count = f"{100 * comparisons[0].alpha:g} %", f"{len(comparisons)} comparisons"
    if comparisons[0].adjustment is None:
        return f"{count}, each at {percent}"
    rule = comparisons[0].adjustment
    # A stored comparison may be shown without the plug-in that judged it, so the rate is known for built-in rules only.
    rate = "false discovery rate" if rule == "bh" else "family-wise error" if rule in ADJUSTMENTS.built_in else "error"
    return f"{rate} {percent} over {count}, {rule}"


_RELATION = {
    Verdict.BETTER: "better than {control}",
    Verdict.WORSE: "worse than {control}",
    Verdict.EQUIVALENT: "equivalent to {control}",
    Verdict.INCONCLUSIVE: "not distinguishable from {control} with these runs",
}


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def difference_words(comparison: Comparison) -> str:
    """`accuracy +0.0522 [+0.0249, +0.0795], +7.8 %`"""
    effect = comparison.effect
    if effect.value is None:
        return comparison.metric or "the difference is unknown"
    width = effect.high - effect.low if effect.low is not None and effect.high is not None else None
    decimals = decimals_for(width)
    interval = shown_interval(effect.low, effect.high, decimals)
    message = " ".join(filter(None, [comparison.metric, shown_change(effect.value, decimals), interval]))
    return f"{message}{percent_words(comparison)}"


def percent_words(comparison: Comparison) -> str:
    """Return `, +7.8 %`: the difference relative to the control's mean; empty where that is not meaningful."""
    percent = None if "horizon" in comparison.tests else comparison.percent_change
    return "" if percent is None else f", {shown_change(percent, 1 if abs(percent) < 100 else 0)} %"


def evidence_words(comparison: Comparison) -> str:
    """`95 % interval, paired t over 5 pairs, p = 0.006`"""
    runs = (
        counted(comparison.n_control, "pair")
        if comparison.pairing == "paired"
        else f"{comparison.n_control} and {comparison.n_candidate} runs"
    )
    p = comparison.adjusted_p if comparison.adjusted_p is not None else comparison.p_value
    adjusted = " adjusted" if comparison.adjusted_p is not None else ""
    message = f"{p_equals(p_words(comparison, p))}{adjusted}" if p is not None else ""
    level = f"{100 * comparison.effect.level:.4g} % interval" if comparison.effect.low is not None else ""
    return ", ".join(filter(None, [level, f"{comparison.method} over {runs}", message]))


def p_words(comparison: Comparison, p: float | None) -> str:
    """Format a p-value; resampling cannot resolve p-values below 1 / (number of resamples)."""
    resamples = comparison.tests.get("resamples")
    if p is None or not resamples or p > (1 + 1e-9) / resamples:
        return shown_p(p)
    return f"< {1 / resamples:.1e}"


def losses_words(comparison: Comparison) -> str:
    """Return `2 of 5 runs of new diverged (base 0 of 5)`; empty if no run was lost."""
    lost = comparison.reliability
    if lost is None or not lost.any:
        return ""
    if not lost.lost_candidate:
        return (
            f"{lost.lost_control} of {lost.runs_control} runs of {comparison.control} {lost.how} "
            f"({comparison.candidate} none)"
        )
    return (
        f"{lost.lost_candidate} of {lost.runs_candidate} runs of {comparison.candidate} {lost.how} "
        f"({comparison.control} {lost.lost_control} of {lost.runs_control})"
    )


def _among(comparison: Comparison) -> str:
    """Return the losses and the runs that quality is judged on; empty if all runs finished."""
    words = losses_words(comparison)
    if not words:
        return ""
    if comparison.failure_value is not None:
        return f"{words} and count as {comparison.failure_value:g}. Including them, "
    if comparison.pairing == "paired":
        return f"{words}. Among the {counted(comparison.n_control, 'pair')} that finished, "
    return f"{words}. Among the {comparison.n_control} and {comparison.n_candidate} runs that finished, "


def _ordered(comparison: Comparison) -> str:
    if comparison.reason == Reason.RELIABILITY and comparison.reliability is not None:
        return _less_reliable(comparison)
    enough = (
        f" That exceeds ±{_sized(comparison.sesoi)}, the smallest difference of interest."
        if comparison.exceeds_sesoi and comparison.sesoi
        else ""
    )
    return (
        f"{_among(comparison)}{comparison.candidate} is {comparison.verdict} than "
        f"{comparison.control}: {difference_words(comparison)} "
        f"({evidence_words(comparison)}).{enough}"
    )


def _less_reliable(comparison: Comparison) -> str:
    """Describe a candidate that is worse because it loses more runs, regardless of the runs that finished."""
    lost = comparison.reliability
    assert lost is not None
    p = "" if lost.p_value is None else f", {p_equals(shown_p(lost.p_value))}, {lost.method}'s exact test"
    said = f"{comparison.candidate} is worse than {comparison.control} (reliability): {losses_words(comparison)}{p}."
    if comparison.effect.low is None:
        return said
    runs = counted(comparison.n_control, "pair") if comparison.pairing == "paired" else "runs"
    return f"{said} Among the {runs} that finished: {difference_words(comparison)} ({evidence_words(comparison)})."


def _equivalent(comparison: Comparison) -> str:
    small = " The difference is real but too small to matter." if comparison.significant else ""
    narrow = replace(comparison, effect=comparison.equivalence)
    return (
        f"{_among(comparison)}{comparison.candidate} and {comparison.control} are equivalent: "
        f"{difference_words(narrow)} lies within "
        f"±{_sized(comparison.sesoi or 0.0)} ({evidence_words(narrow)}).{small}"
    )


def _inconclusive(comparison: Comparison) -> str:
    names = f"{comparison.candidate} − {comparison.control}"
    if comparison.reason == Reason.ATTRITION:
        return (
            f"Inconclusive (attrition): {_among(comparison)}{names} is {difference_words(comparison)} "
            f"({evidence_words(comparison)}), "
            "but a candidate that loses more runs than the control is neither better nor equivalent. "
            "--failure-value gives lost runs a number."
        )
    among = _among(comparison)
    why = next((text for reason, text in REASONS.items() if comparison.reason == reason), None)
    if why is not None:
        return f"Inconclusive: {among}{names}, {difference_words(comparison)}; {why}."
    return (
        f"Inconclusive: {among}{names}, {difference_words(comparison)} "
        f"({evidence_words(comparison)}).{_outlook(comparison)}"
    )


def _outlook(comparison: Comparison) -> str:
    """Return the difference that this design can detect, and how many fresh seeds would settle the question."""
    message = ""
    if comparison.detectable is not None:
        message = f" This design detects differences of {_sized(comparison.detectable)} with 80 % power."
    needed = comparison.seeds_needed
    if needed is None or needed.effect == 0:
        return message
    if needed.per_arm is None:
        return f"{message} No affordable number of seeds would settle a difference as small as {_sized(needed.effect)}."
    if needed.basis == "sesoi":
        return f"{message} To settle it against ±{_sized(needed.effect)}, plan {needed.per_arm:,} fresh seeds per arm."
    return (
        f"{message} If a difference as small as {_sized(needed.effect)} matters, plan "
        f"{needed.per_arm:,} fresh seeds per "
        "arm; if not, set --sesoi."
    )


def _sized(value: float) -> str:
    """Format with three digits, enough for a planning figure."""
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _timed(comparison: Comparison) -> str:
    """Describe times to a threshold that some runs never reached: how many did, then which arm needs fewer steps.

    `new is better than base: 5 of 5 runs of new and 2 of 5 of base reached 0.8, and new needs fewer steps: …`
    """
    reached, names = _reached(comparison), f"{comparison.candidate} − {comparison.control}"
    unit = "" if comparison.metric else " steps"
    means = f"{difference_words(comparison)}{unit} as {comparison.effect.method}"
    if comparison.reason == Reason.DISAGREE and comparison.superiority is not None:
        by_rank = "sooner" if (comparison.superiority.value or 0.0) > 0.5 else "later"
        return (
            f"Inconclusive: {reached}. By rank {comparison.candidate} is {by_rank} "
            f"({evidence_words(comparison)}), but the means "
            f"say the opposite: {names}, {means}."
        )
    why = next((text for reason, text in REASONS.items() if comparison.reason == reason), None)
    if why is not None:
        return f"Inconclusive: {reached}; {names}, {means}; {why}."
    if comparison.verdict is Verdict.INCONCLUSIVE:
        return f"Inconclusive: {reached}; {names}, {means} ({evidence_words(comparison)})."
    pace = "fewer" if comparison.verdict is Verdict.BETTER else "more"
    return (
        f"{comparison.candidate} is {comparison.verdict} than {comparison.control}: {reached}, and "
        f"{comparison.candidate} needs {pace} "
        f"steps: {means} ({evidence_words(comparison)})."
    )


def _reached(comparison: Comparison) -> str:
    """`4 of 5 runs of new and 2 of 5 of base reached 0.8`"""
    shares = comparison.tests["reached_candidate"] or 0.0, comparison.tests["reached_control"] or 0.0
    counts = [round(share * n) for share, n in zip(shares, (comparison.n_candidate, comparison.n_control), strict=True)]
    threshold = comparison.tests.get("threshold")
    what = "the threshold" if threshold is None else f"{threshold:g}"
    return (
        f"{counts[0]} of {counted(comparison.n_candidate, 'run')} of {comparison.candidate} and {counts[1]} of "
        f"{comparison.n_control:,} of {comparison.control} reached {what}"
    )
