"""Series and events of a run, checked against what the run recorded."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from types import NoneType
from typing import Any

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths
from fairtrial.core.run_metadata import RunMetadata
from fairtrial.core.runs import Run, Status
from fairtrial.core.untrusted import DAMAGED
from fairtrial.record.lines import iter_rows
from fairtrial.record.metadata import found_damaged
from fairtrial.record.series import Series, read_series, unspell


def with_series(run: Run) -> tuple[Run, Series]:
    """Return a run and its series. If the series are damaged, return the run as damaged, without series."""
    if run.status is Status.DAMAGED:
        return run, {}
    try:
        return run, recorded_series(run)
    except StoreError as error:
        return found_damaged(run, error), {}


def recorded_series(run: Run) -> Series:
    """Return metric → (steps, values). Raises a StoreError if the files have changed since the run ended."""
    series = read_series(run.paths, run.metadata)
    if run.metadata.series is None and (why := contradiction(run.metadata, series)):
        raise StoreError(f"{run.paths.metrics} {why}", hint=DAMAGED)
    return series


def why_other_lines(paths: RunPaths, metadata: RunMetadata, *, most: int | None = None) -> str | None:
    """Return how `metrics.jsonl` has changed since the run ended, or None if it has not or its extent is not recorded.

    For files larger than `most` bytes, only the length is compared, so that `tail`-like commands stay fast.
    """
    then = metadata.series
    if not then or metadata.status == Status.RUNNING:
        return None
    from fairtrial.core.canonical import file_hash  # not needed to list runs

    try:
        size = paths.metrics.stat().st_size
        if size != then["bytes"]:
            return f"{paths.metrics} has {size:,} bytes; it had {then['bytes']:,} when the run ended"
        same = (most is not None and size > most) or file_hash(paths.metrics) == then["sha256"]
    except OSError as error:
        return f"{paths.metrics} cannot be read: {error.strerror}"
    return None if same else f"{paths.metrics} was changed after the run ended"


def contradiction(metadata: RunMetadata, series: Series) -> str | None:
    """Return how series contradict the final values that the run recorded when it ended, or None."""
    final = metadata.final
    if not final:
        return None
    if missing := sorted(final.keys() - series.keys()):
        return f"does not have the metric {missing[0]!r}, which has a recorded final value"
    if strange := sorted(series.keys() - final.keys()):
        return f"has the metric {strange[0]!r}, which has no recorded final value"
    for name, (_, values) in series.items():
        last, noted = float(values[-1]), float(unspell(final[name]))
        if last != noted and not (isnan(last) and isnan(noted)):
            return f"ends with {name} {last:g}, but the recorded final value is {noted:g}"
    return None


_STEP = {"step": (int,)}
_FIELDS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "run_started": {"at": (int, float)},
    "run_resumed": {"at": (int, float)},
    "rewound": _STEP,
    "top_dropped": _STEP,
    "checkpoint_saved": {**_STEP, "sha256": (str,)},
    "top_kept": {**_STEP, "sha256": (str,), "value": (int, float)},
    "evaluated": {**_STEP, "metrics": (dict,)},
    "evaluation": {**_STEP, "metrics": (dict,), "checkpoint": (str,), "fresh": (bool,)},
}
"""Fields that readers use. `core/events.py` declares all fields, but importing it takes a tenth of a second."""


def read_events(paths: RunPaths) -> list[dict[str, Any]]:
    """Read every complete line of `events.jsonl`. Raises a StoreError with the number of an invalid line."""
    rows = []
    for number, row in enumerate(iter_rows(paths.events), 1):
        if why := why_not_event(row):
            raise StoreError(f"line {number} of {paths.events} {why}", hint=DAMAGED)
        rows.append(row)
    return rows


def why_not_event(row: Any) -> str | None:
    """Return why a parsed line is not a valid event, or None."""
    if type(row) is not dict or type(row.get("event")) is not str:
        return "is not an event"
    if type(row.get("at", 0.0)) not in (int, float):
        return f"is the event {row['event']} with the invalid time {row['at']!r}"
    for name, kinds in _FIELDS.get(row["event"], {}).items():
        if type(row.get(name)) not in kinds:
            return f"is the event {row['event']} with the invalid {name} {row.get(name)!r}"
    if row["event"] == "evaluation" and not all(type(v) in (int, float, NoneType) for v in row["metrics"].values()):
        return "is the event evaluation with a metric that is not a number"
    return None
