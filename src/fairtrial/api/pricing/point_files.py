"""Read configurations from a user's file: turn rows of YAML, JSON or CSV into points, or report all their errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairtrial.core.cells import number_in, refuse_shape, seed_text, why_no_number
from fairtrial.core.errors import UserError
from fairtrial.core.specs import split_and_quantity
from fairtrial.costs.points import CostPoint
from fairtrial.plan.study import read_data
from fairtrial.record.tables import read_csv_rows

NEEDED = ("name", "hours", "memory", "device")
PER_SEED = ("accuracies", "values")
"""Columns with values per seed: the first is for accuracy only, the second for any metric."""
MOST_PROBLEMS = 12
NEAR = 0.005
"""Largest relative rounding error of a mean that is given in addition to its values."""


def read_points(path: Path, metric: str, device: str | None) -> list[CostPoint]:
    """Return the points of a file; `device` is the device of all rows, none of which may then name its own."""
    rows = _rows(path)
    if not rows:
        raise UserError(f"{path.name} has no points", hint="Give name, hours, accuracy, memory and device for each.")
    reader = _RowReader(path.name, metric, device)
    points = [point for number, row in enumerate(rows, 1) if (point := reader.point(row, number))]
    if reader.problems:
        raise UserError(reader.problems[0], problems=reader.problems[1:MOST_PROBLEMS])
    return points


def _rows(path: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a CSV file, or the list in a YAML or JSON file, at the top level or under `points`."""
    if path.suffix.lower() == ".csv":
        return list(read_csv_rows(path))
    content = read_data(path, hint="Give a list of points: name, hours, accuracy, memory, device.")
    listed = content.get("points") if isinstance(content, dict) else content
    if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed):
        raise UserError(f"{path.name} does not contain a list of points", hint="Write: - {name: r8, hours: 2.1, …}")
    return listed


@dataclass
class _RowReader:
    """Turns rows into points, and collects all of their errors."""

    where: str
    metric: str
    device: str | None
    problems: list[str] = field(default_factory=list)

    def point(self, row: Mapping[str, Any], number: int) -> CostPoint | None:
        before = len(self.problems)
        label = f"{self.where}, point {number}" + (f" ({row['name']})" if row.get("name") else "")
        given = self._given(row, label)
        column = self._column(given, label)
        hours = self._numbers(given.get("hours"), f"{label}: hours", least=0)
        quality = self._numbers(given.get(column), f"{label}: {column}")
        memory = self._numbers(given.get("memory"), f"{label}: memory", least=0)
        seeds = self._seeds(given.get("seeds"), quality, label)
        self._check_metric(quality, given, column, label)
        self._check_lengths(hours, quality, memory, label)
        if len(self.problems) > before:
            return None
        taken = {*NEEDED, *PER_SEED, self.metric, "seeds"}
        settings = {key: value for key, value in given.items() if key not in taken and _filled(value)}
        return CostPoint(
            str(given["name"]),
            _by_seed(hours, seeds),
            _by_seed(quality, seeds),
            memory[0] if memory else None,
            str(given["device"]),
            settings,
            "given in the file",
        )

    def _given(self, row: Mapping[str, Any], label: str) -> dict[str, Any]:
        """Return the cells of a row by column, with the device that was given for all rows."""
        given = {str(key): value for key, value in row.items()}
        for word in ("name", "device"):
            if (why := refuse_shape(given.get(word))) is not None:
                self.problems.append(f"{label}: {word} {why}")
        if self.device and _filled(given.get("device")):
            self.problems.append(f"{label}: names its own device, {given['device']}; leave --device out")
        return {**given, "device": self.device} if self.device else given

    def _column(self, given: Mapping[str, Any], label: str) -> str:
        """Return the column of the metric: one of values per seed, or its own. Report columns that the row lacks."""
        columns = PER_SEED if self._is_accuracy else PER_SEED[1:]
        column = next((name for name in columns if _filled(given.get(name))), self.metric)
        lacking = [word for word in (*NEEDED, column) if word not in given]
        lacking += [
            word for word in (*NEEDED, column) if word in given and word != "memory" and not _filled(given[word])
        ]
        self.problems += [f"{label}: '{word}' is missing" for word in lacking]
        return column

    @property
    def _is_accuracy(self) -> bool:
        return split_and_quantity(self.metric)[1] == "accuracy"

    def _check_lengths(
        self, hours: Sequence[float], quality: Sequence[float], memory: Sequence[float], label: str
    ) -> None:
        if len(memory) > 1:
            self.problems.append(f"{label}: memory must be one number, not {len(memory)}")
        if len(hours) > 1 and len(hours) != len(quality):
            self.problems.append(f"{label}: {len(hours)} hours do not match {len(quality)} values")

    def _numbers(self, given: Any, label: str, least: float | None = None) -> list[float]:
        """Return the numbers of a cell: one, or several in a list or separated by spaces or semicolons."""
        numbers = []
        for each in _listed(given):
            value = number_in(each)
            if value is None:
                why = why_no_number(each)
                plain = isinstance(each, str) and ";" not in why
                self.problems.append(f"{label}: {each!r} is not a number" if plain else f"{label} {why}")
            elif not math.isfinite(value):
                self.problems.append(f"{label}: must be a finite number, not {str(each)[:40]}")
            elif least is not None and value < least:
                self.problems.append(f"{label}: must be at least {least:g}, not {value:g}")
            else:
                numbers.append(value)
        return numbers

    def _check_metric(self, quality: Sequence[float], given: Mapping[str, Any], column: str, label: str) -> None:
        if self._is_accuracy:
            outside = [value for value in quality if not 0 <= value <= 1]
            self.problems += [f"{label}: {self.metric} must lie between 0 and 1, not {value:g}" for value in outside]
        if column != self.metric and quality and _filled(given.get(self.metric)):
            stated, mean = self._numbers(given[self.metric], f"{label}: {self.metric}"), sum(quality) / len(quality)
            if stated and abs(stated[0] - mean) > NEAR * max(abs(mean), abs(stated[0])):
                self.problems.append(f"{label}: {self.metric} is {stated[0]:g}, but the mean of {column} is {mean:.4g}")

    def _seeds(self, given: Any, quality: Sequence[float], label: str) -> list[str] | None:
        listed = _listed(given)
        problems = [f"{label}: a seed {why}" for each in listed if (why := refuse_shape(each))]
        self.problems += problems
        seeds = [seed_text(each) for each in listed]
        if not seeds or problems:
            return None
        if len(seeds) != len(quality):
            self.problems.append(f"{label}: {len(quality)} values need as many seeds, not {len(seeds)}")
        if len(set(seeds)) < len(seeds):
            self.problems.append(f"{label}: it lists the same seed twice")
        return seeds


def _listed(given: Any) -> list[Any]:
    """Return what a cell holds: nothing, one item, or several in a list or separated by spaces or semicolons."""
    if not _filled(given):
        return []
    if isinstance(given, list | dict | bool):
        return given if isinstance(given, list) else [given]
    return str(given).replace(";", " ").split()


def _filled(value: Any) -> bool:
    return value is not None and value != "" and value != []


def _by_seed(values: Sequence[float], seeds: Sequence[str] | None) -> Any:
    """Return values as CostPoint takes them: by seed if seeds are named, a list of several, or one number."""
    if len(values) == 1 and (seeds is None or len(seeds) > 1):
        return values[0]
    return dict(zip(seeds, values, strict=True)) if seeds else list(values)
