"""Facts of a run as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fairtrial.core.formatting import counted, shown_value

if TYPE_CHECKING:
    from fairtrial.core.runs import Run


def best_line(metadata: Mapping[str, Any]) -> str | None:
    if metadata["best_checkpoint_step"] is None:
        return None
    return (
        f"{metadata['best_metric_name']} {shown_value(metadata['best_metric_value'])} at step "
        f"{metadata['best_checkpoint_step']}, {metadata['best_checkpoint_path']}"
    )


def telemetry_line(runs: Iterable[Run]) -> str | None:
    """What came of sending the events of runs somewhere; None where nobody asked for that."""
    told = [found for run in runs if (found := run.metadata.get("telemetry"))]
    if not told:
        return None
    where = ", ".join(dict.fromkeys(each["endpoint"] for each in told))
    sent, dropped = (sum(each[name] for each in told) for name in ("sent", "dropped"))
    if not dropped:
        return f"telemetry: {counted(sent, 'event')} sent to {where}"
    why = next((each["last_error"] for each in told if each["dropped"] and each["last_error"]), "out of time")
    return (
        f"telemetry: {dropped:,} of {counted(sent + dropped, 'event')} did not arrive at {where} ({why}); "
        "all of them are in events.jsonl"
    )
