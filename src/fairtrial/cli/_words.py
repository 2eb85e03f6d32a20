"""Facts of a run as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairtrial.core.words import shown_value


def best_line(metadata: Mapping[str, Any]) -> str | None:
    if metadata["best_checkpoint_step"] is None:
        return None
    return (
        f"{metadata['best_metric_name']} {shown_value(metadata['best_metric_value'])} at step "
        f"{metadata['best_checkpoint_step']}, {metadata['best_checkpoint_path']}"
    )
