"""Runs from tables in memory: pandas and polars data frames, Arrow tables, lists of dictionaries, columns by name.

A frame is recognized by what it offers, so neither pandas nor polars is imported here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.core.readers import Columns, ImportedRun, ImportedRuns
from fairtrial.readers.contract import SourceRun
from fairtrial.readers.table_files import USUAL_NAMES, TableColumns, runs_of_rows

WHERE = "the frame"
_COLUMN_OPTION = re.compile(r"--([a-z]+)-column")


def is_frame(given: Any) -> bool:
    """Return whether this is a table in memory: a data frame, a list of dictionaries, or a dictionary of columns."""
    if isinstance(given, str | bytes):
        return False
    if isinstance(given, Mapping):
        return bool(given) and all(_is_column(each) for each in given.values())
    if isinstance(given, Sequence):
        return bool(given) and all(isinstance(row, Mapping) for row in given)
    return _is_data_frame(given)


def _is_data_frame(given: Any) -> bool:
    # A Series offers an Arrow stream too, but has no columns.
    has_columns = hasattr(given, "columns") or hasattr(given, "column_names")
    return has_columns and any(hasattr(given, name) for name in ("__arrow_c_stream__", "__dataframe__"))


def _is_column(value: Any) -> bool:
    return not isinstance(value, str | bytes | Mapping) and hasattr(value, "__len__")


def open_frame(frame: Any, columns: Columns, *, metric: str | None = None) -> ImportedRuns:
    """Return the runs of a frame. `columns` names its columns; those with usual names are recognized.

    `metric` is the metric that a table with a column per seed contains, which does not name one.
    """
    return ImportedRuns(WHERE, [_imported(run) for run in read_frame(frame, columns, metric)], _of_config(columns))


def open_two_frames(
    control: Any, candidate: Any, names: tuple[str, str], columns: Columns, metric: str | None
) -> ImportedRuns:
    """Return the runs of two frames, one per arm. A variant column of theirs is not used."""
    runs = [
        replace(_imported(run), id=f"{name}/{run.id}", variant=name)
        for name, frame in zip(names, (control, candidate), strict=True)
        for run in read_frame(frame, columns, metric)
    ]
    return ImportedRuns("the frames", runs, Columns())


def read_frame(frame: Any, columns: Columns, metric: str | None = None) -> list[SourceRun]:
    names, rows = _table_of(frame)
    _refuse_several_names(names, columns)
    task = columns.task or next((name for name in names if name.lower() == "task"), None)
    chosen = TableColumns(
        **{each.name: getattr(columns, each.name) for each in fields(columns) if each.name in USUAL_NAMES},
        metric_name=metric or "value",
    )
    if task is not None and chosen.run is None and "run" not in names:  # a seed has one run per task
        rows, names = [{**row, "run": _task_run(row, task, names, columns)} for row in rows], [*names, "run"]
    return list(runs_of_rows(names, rows, chosen, where=WHERE))


def _task_run(row: Mapping[str, Any], task: str, names: Sequence[str], columns: Columns) -> str:
    roles = [task, *(_usual(role, names, getattr(columns, role)) for role in ("variant", "seed"))]
    return "/".join(str(row.get(name)) for name in roles if name)


def _usual(role: str, names: Sequence[str], given: str | None) -> str | None:
    return given or next((name for name in names if name.lower() in USUAL_NAMES[role]), None)


def _table_of(frame: Any) -> tuple[list[str], list[dict[str, Any]]]:
    if isinstance(frame, Mapping):
        lengths = {len(column) for column in frame.values()}
        if len(lengths) > 1:
            raise UserError(f"the columns have different lengths: {', '.join(map(str, sorted(lengths)))}")
        columns = [_plain_list(column) for column in frame.values()]
        rows = [dict(zip(map(str, frame), row, strict=True)) for row in zip(*columns, strict=True)]
        return [str(name) for name in frame], rows
    if isinstance(frame, Sequence):
        listed = [{str(name): value for name, value in row.items()} for row in frame]
        return list(dict.fromkeys(name for row in listed for name in row)), listed
    table = _arrow_table(frame)
    return [str(name) for name in table.column_names], table.to_pylist()


def _plain_list(column: Any) -> list[Any]:
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _arrow_table(frame: Any) -> Any:
    import pyarrow

    try:
        if hasattr(frame, "__arrow_c_stream__") or isinstance(frame, pyarrow.Table):
            return pyarrow.table(frame)
        from pyarrow.interchange import from_dataframe

        return from_dataframe(frame)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise UserError(f"the frame cannot be read as a table: {str(error).splitlines()[0]}") from None


def _refuse_several_names(names: Sequence[str], columns: Columns) -> None:
    """Raise if several columns have usual names of one role: choosing one of them would be a guess."""
    problems = []
    for role, usual in USUAL_NAMES.items():
        alike = [name for name in names if name.lower() in usual]
        if getattr(columns, role) is None and len(alike) > 1:
            shown = " and ".join(f"'{name}'" for name in alike[:3])
            problems.append(f"the frame: both {shown} may be the {role} column; choose one with {role}=")
    if problems:
        raise UserError(problems[0], problems=problems[1:])


def _imported(run: SourceRun) -> ImportedRun:
    series = {name: (each.steps.astype(float), each.values) for name, each in run.series.items()}
    task = next((value for key, value in run.config.items() if key.lower() == "task"), None)
    return ImportedRun(run.id, series, run.variant, run.seed, None if task is None else str(task), dict(run.config))


def _of_config(columns: Columns) -> Columns:
    """Return the columns that are looked up in the configuration of a run; the others were used to read the rows."""
    return Columns(task=columns.task)


@contextlib.contextmanager
def in_python_words() -> Iterator[None]:
    """Name keyword arguments in place of command-line options in the errors of a call from Python."""
    try:
        yield
    except UserError as error:
        messages = [_in_python_words(each) for each in (error.message, *error.problems)]
        hint = None if error.hint is None else _in_python_words(error.hint)
        raise type(error)(messages[0], problems=messages[1:], hint=hint) from None


def _in_python_words(text: str) -> str:
    text = _COLUMN_OPTION.sub(r"\1=", text)
    return re.sub(r"--(metric|direction|tasks|candidate|control)\b", r"\1=", text)
