"""One arm against a fixed value in one sentence; lost runs first, because a target has none to compare them with."""

from __future__ import annotations

from dataclasses import replace

from fairtrial.core.findings import Comparison, Reason, Target, Verdict
from fairtrial.core.formatting import counted, p_equals
from fairtrial.core.verdict_text import REASONS, difference_words, p_words


def target_sentence(found: Comparison) -> str:
    """The verdict, by how much, and how sure. `found.target` is known."""
    said = {Verdict.EQUIVALENT: _equivalent, Verdict.INCONCLUSIVE: _inconclusive}.get(found.verdict, _ordered)(found)
    return f"{_losses(found)}{said}"


def failure_words(candidate: str, target: Target) -> str:
    """What the losses of the arm say about its failure rate."""
    if target.upper_loss_rate is None:
        return ""
    lost = f"{target.lost} of {target.runs}" if target.lost else f"none of {target.runs}"
    return (
        f"Lost runs of {candidate}: {lost}; a failure rate of up to {100 * target.upper_loss_rate:.0f} % is still "
        "possible."
    )


def _losses(found: Comparison) -> str:
    target = found.target
    if target is None or not target.lost:
        return ""
    scored = f", each scored as {target.failure_value:.12g}" if target.failure_value is not None else ""
    return f"{target.lost} of {target.runs} runs of {found.candidate} were lost{scored}. "


def _evidence(found: Comparison) -> str:
    """`95 % interval, one-sample t over 8 runs, p = 0.003`"""
    p = found.adjusted_p if found.adjusted_p is not None else found.p_value
    adjusted = " adjusted" if found.adjusted_p is not None else ""
    known = found.target.known_sd if found.target else None
    noise = f" with a known sd of {known:.4g}" if known is not None else ""
    return ", ".join(filter(None, [
        f"{100 * found.effect.level:.4g} % interval" if found.effect.low is not None else "",
        f"{found.method}{noise} over {counted(found.n_candidate, 'run')}",
        f"{p_equals(p_words(found, p))}{adjusted}" if p is not None else "",
    ]))  # fmt: skip


def _ordered(found: Comparison) -> str:
    enough = f" That exceeds ±{found.sesoi:.3g}, the smallest difference of interest." if found.exceeds_sesoi else ""
    return (
        f"{found.candidate} is {found.verdict} than {found.control}: {difference_words(found)} "
        f"({_evidence(found)}).{enough}"
    )


def _equivalent(found: Comparison) -> str:
    small = " The difference is real but too small to matter." if found.significant else ""
    narrow = replace(found, effect=found.equivalence)
    return (
        f"{found.candidate} and {found.control} are equivalent: {difference_words(narrow)} lies within "
        f"±{found.sesoi:.3g} ({_evidence(narrow)}).{small}"
    )


def _inconclusive(found: Comparison) -> str:
    names = f"{found.candidate} − {found.control}"
    if found.reason == Reason.ATTRITION:
        return (
            f"Inconclusive (attrition): {names} is {difference_words(found)} ({_evidence(found)}) among the runs that "
            "finished, and a target has no lost runs to weigh the others against."
        )
    why = next((text for reason, text in REASONS.items() if found.reason == reason), None)
    if why is not None:
        return f"Inconclusive: {names}, {difference_words(found)}; {why}."
    return f"Inconclusive: {names}, {difference_words(found)} ({_evidence(found)}).{_outlook(found)}"


def _outlook(found: Comparison) -> str:
    needed = found.seeds_needed
    told = ""
    if found.detectable is not None:
        told = f" This design detects differences of {found.detectable:,.3g} with 80 % power."
    if needed is None or needed.per_arm is None:
        return told
    if needed.basis == "sesoi":
        return f"{told} About {counted(needed.per_arm, 'run')} in all would settle it against ±{needed.effect:.3g}."
    return (
        f"{told} If a difference this small matters, plan {counted(needed.per_arm, 'fresh seed')}; if not, set --sesoi."
    )
