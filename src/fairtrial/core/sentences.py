"""A comparison in one sentence: the verdict first, then by how much, how sure, and what would settle it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairtrial.core.findings import Comparison, Reason, Verdict
from fairtrial.core.words import counted, decimals_for, p_equals, shown_change, shown_interval, shown_p

REASONS = {
    Reason.TOO_FEW: "fewer than two usable runs on a side",
    Reason.NO_VARIATION: "there is no variation to judge chance by",
    Reason.METHOD_NEEDS_MORE: "this method gives no interval for so few runs",
    Reason.CENSORED: "some runs never reached the threshold",
}


def verdict_sentence(found: Comparison) -> str:
    said = {
        Verdict.BETTER: _ordered,
        Verdict.WORSE: _ordered,
        Verdict.EQUIVALENT: _equivalent,
        Verdict.INCONCLUSIVE: _inconclusive,
    }[found.verdict](found)
    return f"{said} {found.label[0].upper()}{found.label[1:]}." if found.label else said


def family_sentence(found: Sequence[Comparison]) -> str:
    """Several candidates against one control: who is better, who worse, and who is still open."""
    said = []
    for verdict in Verdict:
        names = [each.candidate for each in found if each.verdict is verdict]
        if names:
            verb = "is" if len(names) == 1 else "are"
            said.append(f"{_listed(names)} {verb} {_RELATION[verdict].format(control=found[0].control)}")
    how = f"{found[0].adjustment} over a family of {len(found)}" if found[0].adjustment else f"{len(found)} comparisons"
    text = "; ".join(said)
    labels = {each.label for each in found if each.label}
    told = "".join(f" {label[0].upper()}{label[1:]}." for label in sorted(labels))
    return f"{text} ({found[0].metric}, {100 * (1 - found[0].alpha):g} % intervals, {how}).{told}"


_RELATION = {
    Verdict.BETTER: "better than {control}",
    Verdict.WORSE: "worse than {control}",
    Verdict.EQUIVALENT: "equivalent to {control}",
    Verdict.INCONCLUSIVE: "inconclusive against {control}",
}


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def difference_words(found: Comparison) -> str:
    """`accuracy +0.0522 [+0.0249, +0.0795]`"""
    effect = found.effect
    if effect.value is None:
        return found.metric or "the difference is unknown"
    width = effect.high - effect.low if effect.low is not None and effect.high is not None else None
    decimals = decimals_for(width)
    interval = shown_interval(effect.low, effect.high, decimals)
    unit = effect.method if "horizon" in found.tests else None
    change = shown_change(effect.value, decimals)
    return " ".join(filter(None, [found.metric, change, interval, unit and f"as {unit}"]))


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


def _ordered(found: Comparison) -> str:
    enough = (
        f" That exceeds ±{_sized(found.sesoi)}, the smallest difference of interest."
        if found.exceeds_sesoi and found.sesoi
        else ""
    )
    return (
        f"{found.candidate} is {found.verdict} than {found.control}: {difference_words(found)} "
        f"({evidence_words(found)}).{enough}"
    )


def _equivalent(found: Comparison) -> str:
    small = " The difference is real but too small to matter." if found.significant else ""
    narrow = replace(found, effect=found.equivalence)
    return (
        f"{found.candidate} and {found.control} are equivalent: {difference_words(narrow)} lies within "
        f"±{_sized(found.sesoi or 0.0)} ({evidence_words(narrow)}).{small}"
    )


def _inconclusive(found: Comparison) -> str:
    names = f"{found.candidate} − {found.control}"
    if found.reason == Reason.ATTRITION and found.attrition is not None:
        lost = found.attrition.control + found.attrition.candidate
        return (
            f"Inconclusive (attrition): {names}, {difference_words(found)} ({evidence_words(found)}) is "
            f"'{found.attrition.without}' without {counted(lost, 'lost run')}, but "
            f"'{found.attrition.with_worst}' with each at the worst value seen."
        )
    why = next((text for reason, text in REASONS.items() if found.reason == reason), None)
    if why is not None:
        return f"Inconclusive: {names}, {difference_words(found)}; {why}."
    return f"Inconclusive: {names}, {difference_words(found)} ({evidence_words(found)}).{_outlook(found)}"


def _outlook(found: Comparison) -> str:
    """What so few runs could have seen, and how many more would settle the question."""
    told = ""
    if found.detectable is not None:
        size = _sized(found.detectable)
        told = f" With so few runs only a true difference of {size} or more is likely to be seen (80 % power)."
    needed = found.seeds_needed
    if needed is None or needed.effect == 0:
        return told
    if needed.per_arm is None:
        return f"{told} No affordable number of seeds would settle a difference as small as {_sized(needed.effect)}."
    what = (
        f"settle it against ±{_sized(needed.effect)}"
        if needed.basis == "sesoi"
        else "settle it if the true difference is the one seen"
    )
    return f"{told} About {counted(needed.more, 'more seed')} ({needed.per_arm:,} in all) would {what}."


def _sized(value: float) -> str:
    """Three digits: these are planning figures."""
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
