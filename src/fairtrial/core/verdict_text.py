"""A comparison in one sentence: the verdict first, then by how much, how sure, and what would settle it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairtrial.core.findings import Comparison, Reason, Verdict
from fairtrial.core.formatting import counted, decimals_for, p_equals, shown_change, shown_interval, shown_p

REASONS = {
    Reason.TOO_FEW: "fewer than two usable runs on a side",
    Reason.NO_VARIATION: "there is no variation to judge chance by",
    Reason.METHOD_NEEDS_MORE: "this method gives no interval for so few runs",
    Reason.CENSORED: "some runs never reached the threshold",
}


def verdict_sentence(found: Comparison) -> str:
    from fairtrial.core.target_verdict_text import target_sentence

    if found.target is not None:
        said = target_sentence(found)
    else:
        said = _timed(found) if "horizon" in found.tests else _judged(found)
    return f"{said} {found.label[0].upper()}{found.label[1:]}." if found.label else said


def _judged(found: Comparison) -> str:
    return {
        Verdict.BETTER: _ordered,
        Verdict.WORSE: _ordered,
        Verdict.EQUIVALENT: _equivalent,
        Verdict.INCONCLUSIVE: _inconclusive,
    }[found.verdict](found)


def family_sentence(found: Sequence[Comparison]) -> str:
    """Several candidates against one control: who is better, who worse, and who is still open."""
    said = []
    for verdict in Verdict:
        for why in ("", _why_capped(Reason.ATTRITION), _why_capped(Reason.RELIABILITY)):
            names = [each.candidate for each in found if each.verdict is verdict and _why_capped(each.reason) == why]
            if names:
                verb = "is" if len(names) == 1 else "are"
                said.append(f"{_listed(names)} {verb} {_RELATION[verdict].format(control=found[0].control)}{why}")
    how = _adjusted_words(found)
    text = "; ".join(said)
    lost = losses_of_family(found)
    labels = {each.label for each in found if each.label}
    told = "".join(f" {label[0].upper()}{label[1:]}." for label in sorted(labels))
    return f"{lost}{text} ({found[0].metric}, {how}).{told}"


def losses_of_family(found: Sequence[Comparison]) -> str:
    """`2 of 5 runs of new diverged (base 0 of 5). ` for every arm of a family that lost runs; empty where none did."""
    lossy = [each.reliability for each in found if each.reliability is not None and each.reliability.any]
    if not lossy:
        return ""
    arms = [f"{each.lost_candidate} of {each.runs_candidate} runs of {name}"
            for each, name in zip((f.reliability for f in found), (f.candidate for f in found), strict=True)
            if each is not None and each.lost_candidate]  # fmt: skip
    hows = {each.how for each in lossy}
    how = hows.pop() if len(hows) == 1 else "were lost"
    control = f"{found[0].control} {lossy[0].lost_control} of {lossy[0].runs_control}"
    if not arms:
        return f"{lossy[0].lost_control} of {lossy[0].runs_control} runs of {found[0].control} {how}. "
    return f"{_listed(arms)} {how} ({control}). "


def _why_capped(reason: str | None) -> str:
    """What stands behind a verdict that lost runs decided."""
    return f" ({reason})" if reason in (Reason.ATTRITION, Reason.RELIABILITY) else ""


def _adjusted_words(found: Sequence[Comparison]) -> str:
    """What is promised of all verdicts together."""
    percent, count = f"{100 * found[0].alpha:g} %", f"{len(found)} comparisons"
    if found[0].adjustment is None:
        return f"{count}, each at {percent}"
    rate = "false discovery rate" if found[0].adjustment == "bh" else "family-wise error"
    return f"{rate} {percent} over {count}, {found[0].adjustment}"


_RELATION = {
    Verdict.BETTER: "better than {control}",
    Verdict.WORSE: "worse than {control}",
    Verdict.EQUIVALENT: "equivalent to {control}",
    Verdict.INCONCLUSIVE: "not distinguishable from {control} with these runs",
}


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def difference_words(found: Comparison) -> str:
    """`accuracy +0.0522 [+0.0249, +0.0795], +7.8 %`"""
    effect = found.effect
    if effect.value is None:
        return found.metric or "the difference is unknown"
    width = effect.high - effect.low if effect.low is not None and effect.high is not None else None
    decimals = decimals_for(width)
    interval = shown_interval(effect.low, effect.high, decimals)
    told = " ".join(filter(None, [found.metric, shown_change(effect.value, decimals), interval]))
    return f"{told}{percent_words(found)}"


def percent_words(found: Comparison) -> str:
    """`, +7.8 %`: the difference relative to the control's mean, where that says something."""
    percent = None if "horizon" in found.tests else found.percent_change
    return "" if percent is None else f", {shown_change(percent, 1 if abs(percent) < 100 else 0)} %"


def evidence_words(found: Comparison) -> str:
    """`95 % interval, paired t over 5 pairs, p = 0.006`"""
    runs = (
        counted(found.n_control, "pair")
        if found.pairing == "paired"
        else f"{found.n_control} and {found.n_candidate} runs"
    )
    p = found.adjusted_p if found.adjusted_p is not None else found.p_value
    adjusted = " adjusted" if found.adjusted_p is not None else ""
    told = f"{p_equals(p_words(found, p))}{adjusted}" if p is not None else ""
    level = f"{100 * found.effect.level:.4g} % interval" if found.effect.low is not None else ""
    return ", ".join(filter(None, [level, f"{found.method} over {runs}", told]))


def p_words(found: Comparison, p: float | None) -> str:
    """A p-value as a person reads it; resampling cannot see below one in the number of resamples."""
    resamples = found.tests.get("resamples")
    if p is None or not resamples or p > (1 + 1e-9) / resamples:
        return shown_p(p)
    return f"< {1 / resamples:.1e}"


def losses_words(found: Comparison) -> str:
    """`2 of 5 runs of new diverged (base 0 of 5)`; empty where no run was lost."""
    lost = found.reliability
    if lost is None or not lost.any:
        return ""
    if not lost.lost_candidate:
        return f"{lost.lost_control} of {lost.runs_control} runs of {found.control} {lost.how} ({found.candidate} none)"
    return (
        f"{lost.lost_candidate} of {lost.runs_candidate} runs of {found.candidate} {lost.how} "
        f"({found.control} {lost.lost_control} of {lost.runs_control})"
    )


def _among(found: Comparison) -> str:
    """Which runs the quality is judged on, after the losses were named; empty where all finished."""
    words = losses_words(found)
    if not words:
        return ""
    if found.failure_value is not None:
        return f"{words} and count as {found.failure_value:g}. Including them, "
    if found.pairing == "paired":
        return f"{words}. Among the {counted(found.n_control, 'pair')} that finished, "
    return f"{words}. Among the {found.n_control} and {found.n_candidate} runs that finished, "


def _ordered(found: Comparison) -> str:
    if found.reason == Reason.RELIABILITY and found.reliability is not None:
        return _less_reliable(found)
    enough = (
        f" That exceeds ±{_sized(found.sesoi)}, the smallest difference of interest."
        if found.exceeds_sesoi and found.sesoi
        else ""
    )
    return (
        f"{_among(found)}{found.candidate} is {found.verdict} than {found.control}: {difference_words(found)} "
        f"({evidence_words(found)}).{enough}"
    )


def _less_reliable(found: Comparison) -> str:
    """Worse, because it loses more runs: whatever the runs that finished say."""
    lost = found.reliability
    assert lost is not None
    p = "" if lost.p_value is None else f", {p_equals(shown_p(lost.p_value))}, {lost.method}'s exact test"
    said = f"{found.candidate} is worse than {found.control} (reliability): {losses_words(found)}{p}."
    if found.effect.low is None:
        return said
    runs = counted(found.n_control, "pair") if found.pairing == "paired" else "runs"
    return f"{said} Among the {runs} that finished: {difference_words(found)} ({evidence_words(found)})."


def _equivalent(found: Comparison) -> str:
    small = " The difference is real but too small to matter." if found.significant else ""
    narrow = replace(found, effect=found.equivalence)
    return (
        f"{_among(found)}{found.candidate} and {found.control} are equivalent: {difference_words(narrow)} lies within "
        f"±{_sized(found.sesoi or 0.0)} ({evidence_words(narrow)}).{small}"
    )


def _inconclusive(found: Comparison) -> str:
    names = f"{found.candidate} − {found.control}"
    if found.reason == Reason.ATTRITION:
        return (
            f"Inconclusive (attrition): {_among(found)}{names} is {difference_words(found)} ({evidence_words(found)}), "
            "but a candidate that loses more runs than the control is neither better nor equivalent. "
            "--failure-value gives lost runs a number."
        )
    among = _among(found)
    why = next((text for reason, text in REASONS.items() if found.reason == reason), None)
    if why is not None:
        return f"Inconclusive: {among}{names}, {difference_words(found)}; {why}."
    return f"Inconclusive: {among}{names}, {difference_words(found)} ({evidence_words(found)}).{_outlook(found)}"


def _outlook(found: Comparison) -> str:
    """What this design could have detected, and how many fresh seeds would settle the question."""
    told = ""
    if found.detectable is not None:
        told = f" This design detects differences of {_sized(found.detectable)} with 80 % power."
    needed = found.seeds_needed
    if needed is None or needed.effect == 0:
        return told
    if needed.per_arm is None:
        return f"{told} No affordable number of seeds would settle a difference as small as {_sized(needed.effect)}."
    if needed.basis == "sesoi":
        return f"{told} To settle it against ±{_sized(needed.effect)}, plan {needed.per_arm:,} fresh seeds per arm."
    return (
        f"{told} If a difference as small as {_sized(needed.effect)} matters, plan {needed.per_arm:,} fresh seeds per "
        "arm; if not, set --sesoi."
    )


def _sized(value: float) -> str:
    """Three digits: these are planning figures."""
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _timed(found: Comparison) -> str:
    """Times to a threshold that some runs never reached: how many did, then which arm needs fewer steps.

    `new is better than base: 5 of 5 runs of new and 2 of 5 of base reached 0.8, and new needs fewer steps: …`
    """
    reached, names = _reached(found), f"{found.candidate} − {found.control}"
    unit = "" if found.metric else " steps"
    means = f"{difference_words(found)}{unit} as {found.effect.method}"
    if found.reason == Reason.DISAGREE and found.superiority is not None:
        by_rank = "sooner" if (found.superiority.value or 0.0) > 0.5 else "later"
        return (
            f"Inconclusive: {reached}. By rank {found.candidate} is {by_rank} ({evidence_words(found)}), but the means "
            f"say the opposite: {names}, {means}."
        )
    why = next((text for reason, text in REASONS.items() if found.reason == reason), None)
    if why is not None:
        return f"Inconclusive: {reached}; {names}, {means}; {why}."
    if found.verdict is Verdict.INCONCLUSIVE:
        return f"Inconclusive: {reached}; {names}, {means} ({evidence_words(found)})."
    pace = "fewer" if found.verdict is Verdict.BETTER else "more"
    return (
        f"{found.candidate} is {found.verdict} than {found.control}: {reached}, and {found.candidate} needs {pace} "
        f"steps: {means} ({evidence_words(found)})."
    )


def _reached(found: Comparison) -> str:
    """`4 of 5 runs of new and 2 of 5 of base reached 0.8`"""
    shares = found.tests["reached_candidate"] or 0.0, found.tests["reached_control"] or 0.0
    counts = [round(share * n) for share, n in zip(shares, (found.n_candidate, found.n_control), strict=True)]
    threshold = found.tests.get("threshold")
    what = "the threshold" if threshold is None else f"{threshold:g}"
    return (
        f"{counts[0]} of {counted(found.n_candidate, 'run')} of {found.candidate} and {counts[1]} of "
        f"{found.n_control:,} of {found.control} reached {what}"
    )
