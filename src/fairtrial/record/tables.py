"""Results from elsewhere: a CSV or JSONL file with a row per value becomes traces.

A file is long (columns `metric` and `value`) or wide (a column per metric); both are understood. What a file does
not say stays unknown: without a seed column runs cannot be paired, without a step column a run has one value.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.errors import UserError, unknown
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Columns:
    """Which column of the file says what; None: the word itself, if the file has it."""

    run: str | None = None
    seed: str | None = None
    variant: str | None = None
    step: str | None = None
    metric: str | None = None
    value: str | None = None
    task: str | None = None

    def found_in(self, names: Sequence[str], where: str) -> dict[str, str | None]:
        """The column of each role, or all names that the file does not have."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        problems = [
            f"{where}: {unknown('column', name, names)}" for name in given.values() if name and name not in names
        ]
        if problems:
            raise UserError(problems[0], problems=problems[1:])
        return {role: name or (role if role in names else None) for role, name in given.items()}


@dataclass(frozen=True)
class Table:
    """The rows of a file with its columns; knows which metrics it has."""

    path: Path
    rows: Sequence[Row]
    columns: Mapping[str, str | None]
    names: Sequence[str]

    @property
    def is_long(self) -> bool:
        return self.columns["metric"] is not None and self.columns["value"] is not None

    def metrics(self) -> list[str]:
        if self.is_long:
            return list(dict.fromkeys(name for row in self.rows if (name := self._cell(row, "metric"))))
        taken = {name for role, name in self.columns.items() if name and role != "value"}
        rest = [name for name in self.names if name not in taken]
        return [name for name in rest if any(_number(row.get(name)) is not None for row in self.rows)]

    def traces(self, metrics: Sequence[str]) -> list[Trace]:
        """One trace per run. A number that cannot be read is an error with its line; an empty one is NaN."""
        import numpy as np

        gathered: dict[tuple[str, ...], dict[str, tuple[list[float], list[float]]]] = {}
        facts: dict[tuple[str, ...], Row] = {}
        attempts: dict[tuple[str, ...], str] = {}
        for line, row in enumerate(self.rows, 2):
            key = self._key(row, line)
            if attempts.setdefault(key[:-1], self._attempt(row)) != self._attempt(row):
                continue  # another attempt is not another seed
            facts[key] = row
            points = gathered.setdefault(key, {})
            for metric, value in self._values(row, metrics, line):
                steps, values = points.setdefault(metric, ([], []))
                if steps and self.columns["step"] is None:
                    self._refuse_second_value(row)
                steps.append(self._step(row, line))
                values.append(value)
        return [
            self._trace(facts[key], key[-1], {m: (np.array(s), np.array(v)) for m, (s, v) in points.items()})
            for key, points in gathered.items()
        ]

    def _attempt(self, row: Row) -> str:
        return str(row.get("attempt") or "")

    def _refuse_second_value(self, row: Row) -> None:
        """Rows that nothing tells apart are not one run: which column does is for the person to say."""
        told = ", ".join(
            f"{role} {self._cell(row, role)}" for role in ("variant", "seed", "run") if self._cell(row, role)
        )
        free = [n for n in self.names if n not in self.columns.values() and _number(row.get(n)) is None]
        guess = f", such as {free[0]}" if free else ""
        raise UserError(
            f"{self.path.name} has more than one value for {told or 'a run'}",
            hint=f"Name the column that tells them apart{guess}: --task-column, --step-column or --run-column.",
        )

    @property
    def _is_nameless(self) -> bool:
        return all(self.columns[role] is None for role in ("run", "seed", "step"))

    def _key(self, row: Row, line: int) -> tuple[str, ...]:
        """What tells runs apart; without a column for it every row is a run, known by its line."""
        own = f"line {line}" if self._is_nameless else self._cell(row, "run")
        return (self._cell(row, "variant"), self._cell(row, "task"), self._cell(row, "seed"), own)

    def _cell(self, row: Row, role: str) -> str:
        name = self.columns[role]
        value = None if name is None else row.get(name)
        return "" if value is None else str(value)

    def _values(self, row: Row, metrics: Sequence[str], line: int) -> Iterator[tuple[str, float]]:
        if self.is_long:
            metric = self._cell(row, "metric")
            if metric in metrics:
                yield metric, self._read(row, self.columns["value"] or "", line)
            return
        for metric in metrics:
            if row.get(metric) not in (None, "") or self.columns["step"] is None:
                yield metric, self._read(row, metric, line)

    def _read(self, row: Row, column: str, line: int) -> float:
        text = row.get(column)
        if text in (None, ""):
            return math.nan
        number = _number(text)
        if number is None:
            raise UserError(f"{self.path.name}, line {line}: {column} is {text!r}, not a number")
        return number

    def _step(self, row: Row, line: int) -> float:
        column = self.columns["step"]
        if column is None:
            return 0.0
        step = self._read(row, column, line)
        if not math.isfinite(step):
            raise UserError(
                f"{self.path.name}, line {line}: {column} is empty or not finite; every value needs its step"
            )
        return step

    def _trace(self, row: Row, own: str, curves: Mapping[str, Any]) -> Trace:
        task, seed = self._cell(row, "task"), self._cell(row, "seed")
        variant = self._cell(row, "variant")
        status, told = _status(row.get("status"))
        run = own or (seed and f"seed {seed}")
        return Trace(
            "/".join(filter(None, [variant, task, run])),
            variant or "all",
            seed or None,
            curves,
            status,
            told,
            task or None,
        )


def _status(text: Any) -> tuple[Status, str | None]:
    """The status that a file of ours gives; a foreign word for it is taken as a failure and shown."""
    if text in (None, ""):
        return Status.COMPLETED, None
    if text in list(Status):
        return Status(text), None if text == Status.COMPLETED else str(text)
    return Status.FAILED, f"status '{text}'"


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def read_table(path: Path, columns: Columns) -> Table:
    """A CSV, TSV or JSONL file, or one sentence on why it cannot be read."""
    try:
        rows = _read_rows(path)
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    except (IsADirectoryError, PermissionError) as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error, orjson.JSONDecodeError) as error:
        hint = "Save it as UTF-8." if isinstance(error, UnicodeDecodeError) else None
        raise UserError(f"{path} is not a CSV or JSONL file: {error}", hint=hint) from None
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path} has no rows", hint="It needs a header and a line per value.")
    names = list(dict.fromkeys(name for row in rows[:200] for name in row if isinstance(name, str)))
    return Table(path, rows, columns.found_in(names, path.name), names)


def _json_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        row = None
    if not isinstance(row, dict):
        raise UserError(f"{path.name}, line {number} is not a JSON object")
    return row


def _read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix in (".jsonl", ".ndjson", ".json"):
        content = path.read_bytes().strip()
        if content.startswith(b"["):
            rows: list[dict[str, Any]] = orjson.loads(content)
            return rows
        return [_json_line(path, number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    with path.open(newline="", encoding="utf-8-sig") as file:
        head = file.readline()
        file.seek(0)
        delimiter = next((mark for mark in (",", "\t", ";") if mark in head), ",")
        return list(csv.DictReader(file, delimiter=delimiter))
