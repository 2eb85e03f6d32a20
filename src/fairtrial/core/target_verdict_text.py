"""Describe one arm against a fixed target in one sentence.

Lost runs come first, because a target has no lost runs to compare them with.
"""

from __future__ import annotations

from dataclasses import replace

from fairtrial.core.findings import Comparison, Reason, Target, Verdict
from fairtrial.core.formatting import counted, p_equals
from fairtrial.core.verdict_text import REASONS, difference_words, p_words


def target_sentence(comparison: Comparison) -> str:
    """Return the verdict, the size of the effect, and its certainty. `comparison.target` must not be None."""
    said = {Verdict.EQUIVALENT: _equivalent, Verdict.INCONCLUSIVE: _inconclusive}.get(comparison.verdict, _ordered)(
        comparison
    )
    return f"{_losses(comparison)}{said}"


def failure_words(candidate: str, target: Target) -> str:
    """Return the number of lost runs of the arm and the upper bound of its failure rate."""
    if target.upper_loss_rate is None:
        return ""
    lost = f"{target.lost} of {target.runs}" if target.lost else f"none of {target.runs}"
    return (
        f"Lost runs of {candidate}: {lost}; a failure rate of up to {100 * target.upper_loss_rate:.0f} % is still "
        "possible."
    )


def _losses(comparison: Comparison) -> str:
    target = comparison.target
    if target is None or not target.lost:
        return ""
    scored = f", each scored as {target.failure_value:.12g}" if target.failure_value is not None else ""
    return f"{target.lost} of {counted(target.runs, 'run')} of {comparison.candidate} were lost{scored}. "


def _evidence(comparison: Comparison) -> str:
    """`95 % interval, one-sample t over 8 runs, p = 0.003`"""
    p = comparison.adjusted_p if comparison.adjusted_p is not None else comparison.p_value
    adjusted = " adjusted" if comparison.adjusted_p is not None else ""
    known = comparison.target.known_sd if comparison.target else None
    noise = f" with a known sd of {known:.4g}" if known is not None else ""
    return ", ".join(filter(None, [
        f"{100 * comparison.effect.level:.4g} % interval" if comparison.effect.low is not None else "",
        f"{comparison.method}{noise} over {counted(comparison.n_candidate, 'run')}",
        f"{p_equals(p_words(comparison, p))}{adjusted}" if p is not None else "",
    ]))  # fmt: skip


def _ordered(comparison: Comparison) -> str:
    enough = (
        f" That exceeds ±{comparison.sesoi:.3g}, the smallest difference of interest."
        if comparison.exceeds_sesoi
        else ""
    )
    return (
        f"{comparison.candidate} is {comparison.verdict} than {comparison.control}: {difference_words(comparison)} "
        f"({_evidence(comparison)}).{enough}"
    )


def _equivalent(comparison: Comparison) -> str:
    small = " The difference is real but too small to matter." if comparison.significant else ""
    narrow = replace(comparison, effect=comparison.equivalence)
    return (
        f"{comparison.candidate} and {comparison.control} are equivalent: {difference_words(narrow)} lies within "
        f"±{comparison.sesoi:.3g} ({_evidence(narrow)}).{small}"
    )


def _inconclusive(comparison: Comparison) -> str:
    names = f"{comparison.candidate} − {comparison.control}"
    if comparison.reason == Reason.ATTRITION:
        return (
            f"Inconclusive (attrition): {names} is {difference_words(comparison)} "
            f"({_evidence(comparison)}) among the runs that "
            "finished, and a target has no lost runs to compare these losses with."
        )
    why = next((text for reason, text in REASONS.items() if comparison.reason == reason), None)
    if why is not None:
        return f"Inconclusive: {names}, {difference_words(comparison)}; {why}."
    return f"Inconclusive: {names}, {difference_words(comparison)} ({_evidence(comparison)}).{_outlook(comparison)}"


def _outlook(comparison: Comparison) -> str:
    needed = comparison.seeds_needed
    message = ""
    if comparison.detectable is not None:
        message = f" This design detects differences of {comparison.detectable:,.3g} with 80 % power."
    if needed is None or needed.per_arm is None:
        return message
    if needed.basis == "sesoi":
        return f"{message} About {counted(needed.per_arm, 'run')} in all would settle it against ±{needed.effect:.3g}."
    return (
        f"{message} If a difference this small matters, plan "
        f"{counted(needed.per_arm, 'fresh seed')}; if not, set --sesoi."
    )
