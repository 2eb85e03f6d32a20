"""Series and events of a run, believed only as far as they are those that the run recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from types import NoneType
from typing import Any

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Run, Status
from fairtrial.core.untrusted import DAMAGED
from fairtrial.record.metadata import found_damaged
from fairtrial.record.seals import why_broken
from fairtrial.record.series import Series, read_lines, read_series, unspell

MOST_STEP = (1 << 63) - 1
MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What reading lines of another shape raises."""


@dataclass(frozen=True)
class _LinesAlone(RunPaths):
    """A run whose columnar copy is not to be believed: readers look for it where there is none."""

    @property
    def columns(self) -> Path:
        return self.root / ".no-columns"


def lines_alone(paths: RunPaths) -> RunPaths:
    """The same run for those who want to read its lines and nothing that was made from them."""
    return _LinesAlone(paths.root)


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
    paths: RunPaths = run.paths
    if why := why_broken(paths.metrics, run.metadata):
        raise StoreError(why, hint=DAMAGED)
    if why_broken(paths.columns, run.metadata):
        paths = lines_alone(paths)  # a copy of the lines, which are the truth
    try:
        series = read_series(paths)
    except MALFORMED:
        raise StoreError(f"{run.paths.metrics} {why_not_metrics(run.paths.metrics)}", hint=DAMAGED) from None
    if why := contradiction(run.metadata, series):
        raise StoreError(f"{run.paths.metrics} {why}", hint=DAMAGED)
    return series


def contradiction(metadata: Mapping[str, Any], series: Series) -> str | None:
    """Why series cannot be those of a run, which noted the last value of every metric when it ended."""
    final = metadata["final"]
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


def why_not_metrics(path: Path) -> str:
    """Which line of a file of metrics is not one."""
    for number, row in enumerate(read_lines(path).rows, 1):
        if not isinstance(row, dict):
            return f"is damaged: line {number} is not an object"
        if "step" in row and not _is_step(row["step"]):
            return f"is damaged: line {number} has the step {row['step']!r}"
        for name, value in row.items():
            if name != "step" and type(value) not in (int, float) and value not in ("NaN", "Infinity", "-Infinity"):
                return f"is damaged: line {number} has {name} {value!r}, which is not a number"
    return "is damaged: a line has no step"


def _is_step(value: Any) -> bool:
    return type(value) is int and -MOST_STEP <= value <= MOST_STEP


_STEP = {"step": (int,)}
_FIELDS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "run_started": {"at": (int, float)}, "run_resumed": {"at": (int, float)}, "rewound": _STEP, "top_dropped": _STEP,
    "checkpoint_saved": {**_STEP, "sha256": (str,)},
    "top_kept": {**_STEP, "sha256": (str,), "value": (int, float)},
    "evaluated": {**_STEP, "metrics": (dict,)},
    "evaluation": {**_STEP, "metrics": (dict,), "checkpoint": (str,), "fresh": (bool,)},
}  # fmt: skip
"""Fields that readers use. `core/events.py` has all of them, and takes a tenth of a second to import."""


def read_events(paths: RunPaths) -> list[dict[str, Any]]:
    """Every whole line of `events.jsonl`. Raises a StoreError that names the line that is not an event."""
    rows = read_lines(paths.events).rows
    for number, row in enumerate(rows, 1):
        if why := why_not_event(row):
            raise StoreError(f"line {number} of {paths.events} {why}", hint=DAMAGED)
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
