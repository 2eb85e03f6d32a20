"""Numbers and facts as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def shown_value(value: Any) -> str:
    """A number as a person reads it; nothing where it is unknown."""
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


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
        f"{metadata['best_metric_name']} {metadata['best_metric_value']:.4f} at step "
        f"{metadata['best_checkpoint_step']}, {metadata['best_checkpoint_path']}"
    )
