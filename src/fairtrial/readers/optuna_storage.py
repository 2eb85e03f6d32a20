"""Reader for Optuna storages: SQLite databases and journal files. Each trial is a run.

The objective is the metric `value` (`value_0`, `value_1` … if there are several); intermediate reports are the metric
`intermediate_value`. Parameters and user attributes are the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import open_file
from fairtrial.readers.configuration import flatten
from fairtrial.readers.contract import Cursor, SourceRun, clear_errors
from fairtrial.readers.json_rows import number_of, parse_loosely
from fairtrial.readers.places import files_below, first_bytes, glance
from fairtrial.readers.points import PointCollector, counted
from fairtrial.readers.sqlite_files import Database, companions, has_tables, open_database
from fairtrial.readers.whole_files import file_stamps, finished, sized

MOST_TRIALS = 50_000
_LONGEST_LINE_BYTES = 1 << 20
_STATES = {
    "RUNNING": Status.RUNNING,
    "COMPLETE": Status.COMPLETED,
    "PRUNED": Status.INTERRUPTED,
    "FAIL": Status.FAILED,
    "WAITING": Status.RUNNING,
}
_STATE_NAMES = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")
_CREATE_STUDY, _DELETE_STUDY, _CREATE_TRIAL, _PARAM, _STATE, _INTERMEDIATE, _USER_ATTRIBUTE = 0, 1, 4, 5, 6, 7, 8


@dataclass
class _Trial:
    study: str
    number: int
    state: str = "RUNNING"
    values: list[float] = field(default_factory=list)
    reported: dict[int, float] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    started: float | None = None
    ended: float | None = None


class OptunaReader:
    """Each trial of every study of every storage below a folder is a run."""

    name = "optuna"
    title = "Optuna storages (sqlite, journal)"

    def recognize(self, place: Path) -> str | None:
        databases, journals = _storages(glance(place, _may_be_storage))
        kinds = [
            counted(len(paths), f"Optuna {kind}")
            for kind, paths in (("database", databases), ("journal", journals))
            if paths
        ]
        return " and ".join(kinds) or None

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        databases, journals = _storages(files_below(place, _may_be_storage))
        if not databases and not journals:
            raise UserError(f"{place} has no Optuna storage", hint="Pass an SQLite database or a journal file.")
        several = len(databases) + len(journals) > 1
        for path in databases:
            with open_database(path) as database:
                trials = _trials_of_database(database)
            yield from _runs(trials, companions(path), [], since, f"{path.name}: " if several else "")
        for path in journals:
            notes: list[str] = []
            trials = _trials_of_journal(path, notes)
            yield from _runs(trials, [path], notes, since, f"{path.name}: " if several else "")


def _may_be_storage(name: str) -> bool:
    return name.endswith((".db", ".sqlite", ".sqlite3", ".log", ".journal", ".jsonl"))


def _storages(files: list[Path]) -> tuple[list[Path], list[Path]]:
    databases = [path for path in files if has_tables(path, "studies", "trials", "trial_params")]
    journals = [path for path in files if first_bytes(path, 11) == b'{"op_code":' or _begins_spaced(path)]
    return databases, journals


def _begins_spaced(path: Path) -> bool:
    return first_bytes(path, 12) == b'{"op_code": '


def _runs(
    trials: list[_Trial], files: list[Path], notes: list[str], since: Mapping[str, Cursor] | None, prefix: str
) -> Iterator[SourceRun]:
    present = [path for path in files if path.exists()]
    stamps = file_stamps(present)
    for trial in trials:
        points = PointCollector(str(files[0]))
        for step, value in sorted(trial.reported.items()):
            points.add("intermediate_value", step, value)
        if trial.state == "COMPLETE":
            for objective, value in enumerate(trial.values):
                points.add("value" if len(trial.values) == 1 else f"value_{objective}", 0, value)
        name = f"{prefix}{trial.study}/{trial.number}"
        run = SourceRun(
            id=name,
            name=name,
            series=points.series(),
            config=flatten(trial.config, f"{files[0]}, trial {trial.number}"),
            status=_STATES.get(trial.state),
            reason="pruned" if trial.state == "PRUNED" else None,
            started=trial.started,
            ended=trial.ended,
            files=sized(present),
            notes=tuple(notes),
        )
        yield finished(run, stamps, since)


def _parameter(value: Any, distribution: Any, where: str) -> Any:
    """Convert a stored parameter to the suggested value: categories are stored by index, integers as floats."""
    document = parse_loosely(distribution or "{}", where=where)
    attributes = document.get("attributes") if isinstance(document, dict) else None
    if not isinstance(attributes, dict) or not isinstance(value, int | float) or value != value:
        return value
    choices = attributes.get("choices")
    if isinstance(choices, list):
        index = int(value)
        return choices[index] if 0 <= index < len(choices) else value
    return int(value) if str(document.get("name", "")).startswith("Int") and math.isfinite(value) else value


# Databases


def _trials_of_database(database: Database) -> list[_Trial]:
    where = str(database.path)
    trials: dict[Any, _Trial] = {}
    query = (
        "SELECT trials.trial_id, study_name, number, state, datetime_start, datetime_complete FROM trials "
        "JOIN studies ON studies.study_id = trials.study_id ORDER BY trials.trial_id"
    )
    for trial_id, study, number, state, start, end in database.rows(query):
        trials[trial_id] = _Trial(str(study), int(number or 0), str(state), started=_time(start), ended=_time(end))
        if len(trials) > MOST_TRIALS:
            raise UserError(f"{where} has more than {MOST_TRIALS:,} trials")
    for trial_id, value, kind in database.rows(_typed(database, "trial_values", "value", "objective")):
        if trial_id in trials:
            trials[trial_id].values.append(_special(value, kind))
    reported = _typed(database, "trial_intermediate_values", "intermediate_value", "step", also="step")
    for trial_id, value, kind, step in database.rows(reported):
        if trial_id in trials and isinstance(step, int):
            trials[trial_id].reported[step] = _special(value, kind)
    for trial_id, name, value, distribution in database.rows(
        "SELECT trial_id, param_name, param_value, distribution_json FROM trial_params ORDER BY param_id"
    ):
        if trial_id in trials:
            trials[trial_id].config[str(name)] = _parameter(value, distribution, where)
    for trial_id, key, text in database.rows("SELECT trial_id, key, value_json FROM trial_user_attributes"):
        if trial_id in trials and str(key) not in trials[trial_id].config:
            trials[trial_id].config[str(key)] = parse_loosely(text or "null", where=where)
    return list(trials.values())


def _typed(database: Database, table: str, column: str, order: str, also: str = "") -> str:
    """Return a query that also works before Optuna 3.0, which has no column to distinguish infinities."""
    kind = f"{column}_type" if f"{column}_type" in database.columns(table) else "'FINITE'"
    more = f", {also}" if also else ""
    return f"SELECT trial_id, {column}, {kind}{more} FROM {table} ORDER BY trial_id, {order}"  # noqa: S608 — own names


def _special(value: Any, kind: Any) -> float:
    named = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}
    if kind in named:
        return named[kind]
    return float(value) if isinstance(value, int | float) else math.nan


def _time(text: Any) -> float | None:
    """Convert a time to seconds since 1970. Databases have local times without a time zone, journals have a zone."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


# Journals


def _trials_of_journal(path: Path, notes: list[str]) -> list[_Trial]:
    studies: list[str | None] = []
    trials: list[_Trial] = []
    owners: list[int] = []
    with open_file(path) as file:
        number = 0
        while line := file.readline(_LONGEST_LINE_BYTES):
            number += 1
            if not line.endswith(b"\n"):
                notes.append(f"{path.name} ends inside a line: it is still being written or was truncated")
                break
            try:
                record = parse_loosely(line, where=f"{path}, line {number}")
                _take(record, studies, trials, owners, str(path))
            except (UserError, KeyError, IndexError, TypeError, ValueError):
                notes.append(f"{path.name}: line {number} is not a journal record; the rest is not read")
                break
            if len(trials) > MOST_TRIALS:
                raise UserError(f"{path} has more than {MOST_TRIALS:,} trials")
    return [trial for trial, owner in zip(trials, owners, strict=True) if studies[owner] is not None]


def _take(record: Any, studies: list[str | None], trials: list[_Trial], owners: list[int], where: str) -> None:
    code = record["op_code"]
    if code == _CREATE_STUDY:
        studies.append(str(record["study_name"]))
    elif code == _DELETE_STUDY:
        studies[_index(record["study_id"])] = None
    elif code == _CREATE_TRIAL:
        study = _index(record["study_id"])
        trial = _Trial(str(studies[study]), owners.count(study), started=_time(record.get("datetime_start")))
        if "state" in record:
            trial.state = _STATE_NAMES[_index(record["state"])]
        values = record.get("values") or ([record["value"]] if record.get("value") is not None else [])
        trial.values = [_number(value) for value in values]
        trials.append(trial)
        owners.append(study)
    elif code == _PARAM:
        value, distribution = record["param_value_internal"], record["distribution"]
        trials[_index(record["trial_id"])].config[str(record["param_name"])] = _parameter(value, distribution, where)
    elif code == _STATE:
        trial = trials[_index(record["trial_id"])]
        trial.state = _STATE_NAMES[_index(record["state"])]
        trial.values = [_number(value) for value in record.get("values") or ()]
        trial.ended = _time(record.get("datetime_complete"))
    elif code == _INTERMEDIATE:
        reported = trials[_index(record["trial_id"])].reported
        reported[int(record["step"])] = _number(record["intermediate_value"])
    elif code == _USER_ATTRIBUTE:
        config = trials[_index(record["trial_id"])].config
        for key, value in record["user_attr"].items():
            config.setdefault(str(key), value)


def _index(value: Any) -> int:
    """Check an index from the journal; a negative one would silently count from the end."""
    if not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


def _number(value: Any) -> float:
    number = number_of(value)
    return math.nan if number is None else number
