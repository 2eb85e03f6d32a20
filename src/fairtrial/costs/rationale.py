"""Explain why a configuration was recommended, or why none is feasible; every sentence is computed from the points.

Every figure that was converted from another device is marked as approximate.
"""

from __future__ import annotations

import math

from fairtrial.core.formatting import counted, shown_chance, shown_hours, shown_memory, shown_money, shown_value
from fairtrial.costs.choice import (
    CARD_MEMORY,
    CONVERTED,
    SLACK,
    Binding,
    ConstraintCheck,
    JointRelaxation,
    Recommendation,
    Relaxation,
    is_upper,
)
from fairtrial.costs.cost import Priced
from fairtrial.costs.frontier import OptimizationTarget


def explain(recommendation: Recommendation) -> list[str]:
    """Return the reasons, most important first."""
    return _explain_choice(recommendation) if recommendation.chosen else _explain_nothing(recommendation)


def _about(priced: Priced) -> str:
    return "about " if priced.basis else ""


def _label(priced: Priced, recommendation: Recommendation) -> str:
    return f"{priced.name} on {priced.card.name}" if recommendation.cards > 1 else priced.name


def _explain_choice(recommendation: Recommendation) -> list[str]:
    assert recommendation.chosen is not None
    messages = [_why(recommendation)]
    messages += [
        _margin(check, recommendation.chosen.priced, recommendation.judged) for check in recommendation.chosen.checks
    ]
    messages += [_missed(bound, recommendation) for bound in recommendation.binding]
    messages += _bound_together(recommendation)
    messages += _unlike(recommendation)
    return messages + _cheaper(recommendation)


def _why(recommendation: Recommendation) -> str:
    assert recommendation.chosen is not None
    priced, judged = recommendation.chosen.priced, recommendation.judged
    best = "the highest" if judged.direction == "max" else "the lowest"
    reached = {
        "accuracy": f"{best} {judged.quantity} ({shown_value(priced.quality.value)})",
        "cost": f"the lowest cost ({_about(priced)}{shown_money(priced.cost.value)})",
        "time": f"the shortest time ({_about(priced)}{shown_hours(priced.hours.value)})",
        "value": f"the most {judged.quantity} per dollar",
    }[recommendation.objective]
    count, total = (
        len(recommendation.feasible),
        counted(len(recommendation.candidates) // recommendation.cards, "configuration"),
    )
    places = f"{total} on {recommendation.cards} cards" if recommendation.cards > 1 else total
    name = _label(priced, recommendation)
    if count == 1:
        return f"{name} is the only one of {places} that meets every constraint; it has {reached}."
    return f"{name} has {reached} of the {count} that meet every constraint, out of {places}."


LIMIT_WORDS = {"max_cost": "budget", "max_time": "deadline", "max_memory": "memory limit"}
VERBS = {"max_cost": "costs", "max_time": "takes", "max_memory": "needs"}


def shown_limit(constraint: str, value: float) -> str:
    """Format a value of a constraint with its unit."""
    if constraint == "max_cost":
        return shown_money(value)
    if constraint == "max_time":
        return shown_hours(value)
    return shown_value(value) if constraint == "min_accuracy" else shown_memory(value)


def _margin(check: ConstraintCheck, chosen: Priced, judged: OptimizationTarget) -> str:
    assert check.value is not None
    value, limit = shown_limit(check.constraint, check.value), shown_limit(check.constraint, check.limit)
    sure = "" if check.probability is None else f", with probability {shown_chance(check.probability)}"
    if check.constraint == "min_accuracy":
        return f"Its {judged.quantity} of {value} meets the bound of {limit}{sure}."
    used = 100 * check.value / check.limit
    share = "less than 1 %" if used < 1 else f"{used:.0f} %"
    if check.constraint == CARD_MEMORY:
        return f"It needs {value}, {share} of the {limit} of {chosen.card.name}."
    about = _about(chosen) if check.constraint in CONVERTED else ""
    return (
        f"It {VERBS[check.constraint]} {about}{value}, {share} of the {LIMIT_WORDS[check.constraint]} of {limit}{sure}."
    )


def _missed(bound: Binding, recommendation: Recommendation) -> str:
    """Describe the configuration that a binding constraint excluded."""
    instead, judged = bound.instead, recommendation.judged
    limit = shown_limit(bound.constraint, bound.limit)
    name = bound.constraint.replace("_", "-")
    what = f"the {limit} of {instead.card.name}" if bound.constraint == CARD_MEMORY else f"{name} {limit}"
    parts = [
        f"{judged.quantity} {shown_value(instead.quality.value)}",
        f"{_about(instead)}{shown_money(instead.cost.value)}",
    ]
    if bound.constraint == "max_time":
        parts.append(f"{_about(instead)}{shown_hours(instead.hours.value)}")
    if bound.constraint in (CARD_MEMORY, "max_memory"):
        memory = instead.point.memory
        parts.append("memory not known" if memory is None else shown_memory(memory))
    return f"Binding: {what}. Without it {_label(instead, recommendation)} would be chosen ({', '.join(parts)})."


def _unlike(recommendation: Recommendation) -> list[str]:
    """Name the configurations that are statistically indistinguishable from the chosen one."""
    if not recommendation.alike:
        return []
    message = ", ".join(
        f"{name} (better in {shown_chance(share)} of draws)" for name, share in recommendation.alike.items()
    )
    return [f"By {recommendation.judged.quantity} it is statistically indistinguishable from {message}."]


def _cheaper(recommendation: Recommendation) -> list[str]:
    assert recommendation.chosen is not None
    chosen, judged = recommendation.chosen.priced, recommendation.judged
    cheaper = [each.priced for each in recommendation.alternatives if each.priced.cost.value < chosen.cost.value]
    if not cheaper:
        return []
    near = max(cheaper, key=lambda each: each.cost.value)
    gain = judged.sign("accuracy") * (near.quality.value - chosen.quality.value)
    apart = f"its {judged.quantity} is {shown_value(abs(gain))} {'better' if gain > 0 else 'worse'}"
    saved = f"{_about(near) or _about(chosen)}{shown_money(chosen.cost.value - near.cost.value)}"
    message = apart if gain else f"its {judged.quantity} is the same"
    return [f"The next cheaper on the frontier, {_label(near, recommendation)}, saves {saved}; {message}."]


def _explain_nothing(recommendation: Recommendation) -> list[str]:
    count = len(recommendation.candidates) // recommendation.cards
    messages = [
        "The only configuration misses a constraint."
        if count == 1
        else f"None of {count} configurations meets every constraint."
    ]
    unknown_ = list(
        dict.fromkeys(each.priced.name for each in recommendation.candidates if each.priced.point.memory is None)
    )
    if unknown_:
        messages.append(f"Whether {', '.join(unknown_)} fits is unknown: its memory was not measured.")
    single = [each for each in recommendation.relaxations if each.needed is not None]
    messages += [_would_do(each, recommendation) for each in single]
    if not single and len(unknown_) < count:
        messages.append("Relaxing a single constraint is not enough: at least two must be relaxed.")
    joint = recommendation.joint
    if joint is not None and len(joint.changes) > 1:
        name = _label(joint.candidate.priced, recommendation)
        messages.append(
            f"Smallest joint change: {_moved(joint, recommendation)} would make {name} feasible. "
            f"No limit changes by more than {_percent(joint.largest)}."
        )
    elif joint is not None and len(single) > 1:
        [least] = joint.changes
        messages.append(
            f"The smallest of these changes is that of {_noun(least.constraint)}, {_percent(least.relative)}."
        )
    return messages


def _bound_together(recommendation: Recommendation) -> list[str]:
    """Name constraints that together exclude a better configuration although none of them does so alone."""
    joint = recommendation.joint
    if joint is None or len(joint.changes) < 2:
        return []
    priced = joint.candidate.priced
    reached = f"{recommendation.judged.quantity} {shown_value(priced.quality.value)}"
    return [
        f"Binding together: {_moved(joint, recommendation)} would allow {_label(priced, recommendation)} ({reached})."
    ]


def _moved(joint: JointRelaxation, recommendation: Recommendation) -> str:
    *first, last = [f"{_change(each, recommendation)}{_mark(each)}" for each in joint.changes]
    return f"{', '.join(first)} and {last}"


def _percent(share: float) -> str:
    """Format a share in percent, rounded up, so that it is an upper bound."""
    return f"{math.ceil(1000 * share - SLACK) / 10:,.3g} %" if share < 1 else f"{math.ceil(100 * share - SLACK):,} %"


def _would_do(relaxed: Relaxation, recommendation: Recommendation) -> str:
    """Describe a relaxation as options that the user can type."""
    assert relaxed.candidate is not None
    priced = relaxed.candidate.priced
    change = _change(relaxed, recommendation)
    if relaxed.constraint == CARD_MEMORY:
        return f"{change[0].upper()}{change[1:]} would make {priced.name} feasible."
    return f"{change} would make {_label(priced, recommendation)} feasible{_mark(relaxed)}."


def _change(relaxed: Relaxation, recommendation: Recommendation) -> str:
    """Return `--max-cost 31.2 instead of 31.1`."""
    assert relaxed.needed is not None and relaxed.candidate is not None
    priced = relaxed.candidate.priced
    number = _typed(relaxed.needed, relaxed.limit, up=is_upper(relaxed.constraint, recommendation.judged))
    if relaxed.constraint == CARD_MEMORY:
        return f"a card with {number} GB instead of the {shown_memory(relaxed.limit)} of {priced.card.name}"
    return f"{_noun(relaxed.constraint)} {number} instead of {relaxed.limit:g}"


def _noun(constraint: str) -> str:
    return "the card" if constraint == CARD_MEMORY else f"--{constraint.replace('_', '-')}"


def _mark(relaxed: Relaxation) -> str:
    """Mark limits on hours and cost that were converted from another device as estimates."""
    assert relaxed.candidate is not None
    return " (an estimate)" if relaxed.constraint in CONVERTED and relaxed.candidate.priced.basis else ""


def _typed(needed: float, limit: float, *, up: bool) -> str:
    """Format the needed limit in the option's unit with as few digits as possible, rounded so that it suffices."""
    for digits in range(3, 17):
        unit = 10.0 ** (math.floor(math.log10(abs(needed) or 1.0)) + 1 - digits)
        if unit == 0:  # underflow: cannot divide by it
            break
        steps = needed / unit
        rounded = (math.ceil(steps - SLACK) if up else math.floor(steps + SLACK)) * unit
        text = f"{rounded:.{digits}g}"
        if text != f"{limit:.{digits}g}":
            return text
    return repr(needed)
