"""Series and events of a run, believed only as far as they are those that the run recorded."""

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
    """A run and its series. A run whose series are not those that were recorded is a damaged run without any."""
    if run.status is Status.DAMAGED:
        return run, {}
    try:
        return run, recorded_series(run)
    except StoreError as error:
        return found_damaged(run, error), {}


def recorded_series(run: Run) -> Series:
    """Metric → (steps, values). Raises a StoreError where the files are not those that the run ended with."""
    series = read_series(run.paths, run.metadata)
    if run.metadata.series is None and (why := contradiction(run.metadata, series)):
        raise StoreError(f"{run.paths.metrics} {why}", hint=DAMAGED)
    return series


def why_other_lines(paths: RunPaths, metadata: RunMetadata, *, most: int | None = None) -> str | None:
    """Why `metrics.jsonl` is not the file that the run ended with; None where it is, or nothing is known about it.

    Beyond `most` bytes only the length is compared: whoever shows the end of a file does not read all of it.
    """
    then = metadata.series
    if not then or metadata.status == Status.RUNNING:
        return None
    from fairtrial.core.canonical import file_hash  # not for those who only list runs

    try:
        size = paths.metrics.stat().st_size
        if size != then["bytes"]:
            return f"{paths.metrics} has {size:,} bytes; it had {then['bytes']:,} when the run ended"
        same = (most is not None and size > most) or file_hash(paths.metrics) == then["sha256"]
    except OSError as error:
        return f"{paths.metrics} cannot be read: {error.strerror}"
    return None if same else f"{paths.metrics} was changed after the run ended"


def contradiction(metadata: RunMetadata, series: Series) -> str | None:
    """Why series cannot be those of a run, which noted the last value of every metric when it ended."""
    final = metadata.final
    if not final:
        return None
    if missing := sorted(final.keys() - series.keys()):
        return f"does not have the metric {missing[0]!r}, which the run ended with"
    if strange := sorted(series.keys() - final.keys()):
        return f"has the metric {strange[0]!r}, which the run did not end with"
    for name, (_, values) in series.items():
        last, noted = float(values[-1]), float(unspell(final[name]))
        if last != noted and not (isnan(last) and isnan(noted)):
            return f"ends with {name} {last:g}, and the run ended with {noted:g}"
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
"""Fields that readers use. `core/events.py` has all of them, and takes a tenth of a second to import."""


def read_events(paths: RunPaths) -> list[dict[str, Any]]:
    """Every whole line of `events.jsonl`. Raises a StoreError that names the line that is not an event."""
    rows = []
    for number, row in enumerate(iter_rows(paths.events), 1):
        if why := why_not_event(row):
            raise StoreError(f"line {number} of {paths.events} {why}", hint=DAMAGED)
        rows.append(row)
    return rows


def why_not_event(row: Any) -> str | None:
    """Why a parsed line is not an event that readers can use."""
    if type(row) is not dict or type(row.get("event")) is not str:
        return "is not an event"
    if type(row.get("at", 0.0)) not in (int, float):
        return f"is the event {row['event']} at the time {row['at']!r}"
    for name, kinds in _FIELDS.get(row["event"], {}).items():
        if type(row.get(name)) not in kinds:
            return f"is the event {row['event']} with {name} {row.get(name)!r}"
    if row["event"] == "evaluation" and not all(type(v) in (int, float, NoneType) for v in row["metrics"].values()):
        return "is the event evaluation with a metric that is not a number"
    return None
