"""Readable formats of numbers, counts and times."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

CHEAP = 0.1
"""In dollars. For smaller amounts, two decimals show at most one significant digit."""


def shown_value(value: Any) -> str:
    """Format a number for display; empty if it is None."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    if size >= 1e9 or 0 < size < 0.001 or not math.isfinite(value):
        return f"{value:.4g}"
    decimals = 4 if size < 100 else 2 if size < 1000 else 1 if size < 10_000 else 0
    return f"{value:,.{decimals}f}"


def shown_change(value: float, decimals: int | None = None) -> str:
    """Format a difference, always with its sign."""
    sign = "+" if value >= 0 else "−"
    if math.isinf(value):
        return f"{sign}∞"
    return sign + (shown_value(abs(value)) if decimals is None else f"{abs(value):,.{decimals}f}")


def decimals_for(width: float | None) -> int | None:
    """Return the number of meaningful decimals for an interval of this width."""
    if width is None or not 1e-300 < width < math.inf:
        return None
    decimals = 2 - math.floor(math.log10(width / 2))
    return max(0, decimals) if decimals <= 8 else None


def shown_interval(low: float | None, high: float | None, decimals: int | None = None) -> str:
    """Format both limits with their signs; empty if there is no interval."""
    if low is None or high is None:
        return ""
    return f"[{shown_change(low, decimals)}, {shown_change(high, decimals)}]"


def shown_p(p: float | None) -> str:
    if p is None:
        return ""
    return f"{p:.2f}" if p >= 0.1 else f"{p:.3f}" if p >= 0.001 else f"{p:.1e}" if p >= 1e-9 else "< 1e-9"


def p_equals(shown: str) -> str:
    """Return `p = 0.003` or `p < 1e-9` for a formatted p-value."""
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def counted(number: Any, noun: str) -> str:
    """Format a count with its noun: 1 run, 2 runs, 2 studies."""
    if number == 1:
        return f"{number:,} {noun}"
    consonant_and_y = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    return f"{number:,} {noun[:-1]}ies" if consonant_and_y else f"{number:,} {noun}s"


def shown_time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return (
        f"{seconds:.1f} s"
        if seconds < 120
        else f"{seconds / 60:.1f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def shown_moment(at: float) -> str:
    """Format a Unix timestamp in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shown_chance(probability: float) -> str:
    """Format a probability in percent, never as 0 or 100."""
    percent = 100 * probability
    return "> 99 %" if percent > 99 else "< 1 %" if percent < 1 else f"{percent:.0f} %"


def shown_percent(share: float) -> str:
    """Format a confidence level or another share that is known exactly, with at most four digits: `98.33 %`."""
    return f"{100 * share:.4g} %"


def shown_money(dollars: float) -> str:
    """Format dollars and cents; below ten cents with three significant digits, so that small models stay distinct."""
    if 0 < abs(dollars) < CHEAP:
        digits = _three(dollars)
        shortest = f"{dollars:.2f}"
        return f"${shortest if float(digits) == float(shortest) else digits}"
    return f"${dollars:,.2f}"


def shown_hours(hours: float | None) -> str:
    """Format hours with three significant digits; short times in minutes or seconds."""
    if hours is None:
        return ""
    if 0 < hours < 1 / 60:
        return f"{_three(3600 * hours)} s"
    return f"{_three(60 * hours)} min" if 0 < hours < 1 else f"{_three(hours)} h"


def shown_memory(gigabytes: float | None) -> str:
    if gigabytes is None:
        return ""
    return f"{_three(1000 * gigabytes)} MB" if 0 < gigabytes < 1 else f"{gigabytes:.3g} GB"


def _three(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4:
        return f"{value:.2e}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{round(value, decimals):,.{decimals}f}" if abs(value) < 1000 else f"{float(f'{value:.3g}'):,.0f}"
