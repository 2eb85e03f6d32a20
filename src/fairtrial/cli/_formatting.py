"""Formatting of facts about a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairtrial.core.formatting import counted, shown_value

if TYPE_CHECKING:
    from fairtrial.core.run_metadata import RunMetadata
    from fairtrial.core.runs import Run


def best_line(metadata: RunMetadata) -> str | None:
    if metadata.best_checkpoint_step is None:
        return None
    return (
        f"{metadata.best_metric_name} {shown_value(metadata.best_metric_value)} at step "
        f"{metadata.best_checkpoint_step}, {metadata.best_checkpoint_path}"
    )


def telemetry_line(runs: Iterable[Run]) -> str | None:
    """Summarize how many telemetry events arrived; return None if telemetry was off."""
    reports = [report for run in runs if (report := run.metadata.telemetry)]
    if not reports:
        return None
    where = ", ".join(dict.fromkeys(each["endpoint"] for each in reports))
    sent, dropped = (sum(each[name] for each in reports) for name in ("sent", "dropped"))
    if not dropped:
        return f"telemetry: {counted(sent, 'event')} sent to {where}"
    why = next((each["last_error"] for each in reports if each["dropped"] and each["last_error"]), "timed out")
    return (
        f"telemetry: {dropped:,} of {counted(sent + dropped, 'event')} did not reach {where} ({why}); "
        "events.jsonl has all of them"
    )
