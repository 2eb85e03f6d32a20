"""Numbers and facts as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def shown_value(value: Any) -> str:
    """A number as a person reads it; nothing where it is unknown."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 10_000 else f"{value:.4g}"


def shown_change(value: float) -> str:
    """A difference, always with its sign."""
    return ("+" if value >= 0 else "−") + shown_value(abs(value))


def counted(number: Any, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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


def best_line(metadata: Mapping[str, Any]) -> str | None:
    if metadata["best_checkpoint_step"] is None:
        return None
    return (
        f"{metadata['best_metric_name']} {shown_value(metadata['best_metric_value'])} at step "
        f"{metadata['best_checkpoint_step']}, {metadata['best_checkpoint_path']}"
    )
