"""Compares what a reader gives with what the tool's own reader said when the files were made."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.core.errors import UserError
from fairtrial.readers.contract import RunReader, SourceRun

FILES = Path(__file__).parent / "files"
Point = tuple[str, str, float, str]


def expected_runs(folder: str) -> dict[str, Any]:
    document = json.loads((FILES / folder / "expected.json").read_text())
    runs: dict[str, Any] = document["runs"]
    return runs


def read_all(reader: RunReader, place: Path) -> dict[str, SourceRun]:
    return {run.id: run for run in reader.read(place)}


def bits(values: Iterable[float]) -> list[str]:
    """Numbers as text that tells −0.0 from 0.0 and takes all NaN as one."""
    return ["nan" if math.isnan(value) else float(value).hex() for value in values]


def assert_equals(run: SourceRun, expected: Mapping[str, Any]) -> None:
    """Every series bit for bit, and what else the expectation names."""
    assert sorted(run.series) == sorted(expected["series"]), run.id
    for metric, points in expected["series"].items():
        series = run.series[metric]
        assert [float(step) for step in series.steps] == [float(step) for step in points["steps"]], (run.id, metric)
        assert bits(series.values) == bits(points["values"]), (run.id, metric)
        if "times" in points:
            assert series.times is not None
            assert np.allclose(series.times, points["times"], rtol=0, atol=1e-3, equal_nan=True), (run.id, metric)
    for key, value in expected.get("config", {}).items():
        assert run.config[key] == value, (run.id, key, run.config)
        assert type(run.config[key]) is type(value), (run.id, key)
    for key, value in expected.get("summary", {}).items():
        assert bits([float(str(run.summary[key]))]) == bits([float(value)]), (run.id, key)
    if "status" in expected:
        assert (run.status and str(run.status)) == expected["status"], run.id


def points_of(runs: Iterable[SourceRun]) -> set[Point]:
    """Every point by run, metric, step and the bits of its value."""
    return {
        (run.id, metric, float(step), value)
        for run in runs
        for metric, series in run.series.items()
        for step, value in zip(series.steps, bits(series.values), strict=True)
    }


def outcome(reader: RunReader, place: Path) -> tuple[set[Point], tuple[str, ...]] | UserError:
    """What a reader makes of a place: points and notes, or one clear error. Any other exception is a defect."""
    try:
        runs = list(reader.read(place))
    except UserError as error:
        assert error.message
        assert "Traceback" not in error.message
        return error
    return points_of(runs), tuple(note for run in runs for note in run.notes)
