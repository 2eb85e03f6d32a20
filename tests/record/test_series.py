"""Metrics: append-only lines, columns at the end, and nothing lost on the way."""

from __future__ import annotations

import math
from pathlib import Path

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.api.script import run as record
from fairtrial.core.errors import FairtrialError
from fairtrial.record.series import read_lines, read_series, unspell
from fairtrial.record.store import Store
from tests.harness import make


def test_values_that_json_cannot_spell_survive_lines_and_columns() -> None:
    values = [0.1, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
    with record(seed=1, variant="v") as recorder:
        for step, value in enumerate(values):
            recorder.log(step, x=value)
        paths = recorder.paths
        live = read_series(paths)["x"][1]
    stored = read_series(paths)["x"][1]
    assert paths.columns.exists()
    for found in (live, stored):
        assert [float(v).hex() for v in found] == [v.hex() for v in values]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.tuples(st.integers(0, 50), st.floats()), min_size=1, max_size=60))
def test_a_step_that_was_logged_twice_counts_as_last_written(tmp_path: Path, values: list[tuple[int, float]]) -> None:
    with record(seed=1, variant="v", store=tmp_path / "store", replace=True) as recorder:
        for step, value in values:
            recorder.log(step, x=value)
        paths = recorder.paths
    expected = dict(values)
    steps, found = read_series(paths)["x"]
    assert list(steps) == sorted(expected)
    assert all(
        a == b or (a != a and b != b) for a, b in zip(found, [expected[s] for s in sorted(expected)], strict=True)
    )


def test_a_torn_last_line_is_ignored_reported_and_gone_after_a_resume(store: Store) -> None:
    recorder = record(seed=1, variant="v")
    recorder.log(1, x=1.0)
    recorder.save(1, {"w": 1})
    recorder.close()
    with recorder.paths.metrics.open("ab") as file:
        file.write(b'{"step":2,"x":2.')
    lines = read_lines(recorder.paths.metrics)
    assert lines.torn and [row["step"] for row in lines.rows] == [1]
    with record(seed=1, variant="v") as again:
        assert again.resume() is not None
        again.log(2, x=2.5)
    assert list(read_series(again.paths)["x"][1]) == [1.0, 2.5]
    assert "torn_line_dropped" in again.paths.events.read_text()


def test_a_damaged_line_in_the_middle_is_named() -> None:
    with record(seed=1, variant="v") as recorder:
        recorder.log(1, x=1.0)
    recorder.paths.metrics.write_bytes(b'{"step":1,"x":1}\nnonsense\n{"step":2,"x":1}\n')
    with pytest.raises(FairtrialError, match=r"line 2 of .* is not JSON"):
        read_lines(recorder.paths.metrics)


def test_columns_are_rebuilt_from_lines(store: Store) -> None:
    make(store, "fake", steps=20)
    paths = store.paths.run("s", "v.seed1")
    before = read_series(paths)
    paths.columns.unlink()
    after = read_series(paths)
    assert before.keys() == after.keys()
    assert all(numpy.array_equal(before[name][1], after[name][1]) for name in before)


@pytest.mark.parametrize(
    ("step", "values", "message"),
    [
        (1, {"loss": "high"}, "metric 'loss' must be a number"),
        (1, {"_time": 1.0}, "'_time' cannot name a metric"),
        (1.5, {"loss": 1.0}, "step must be a whole number"),
        ("1", {"loss": 1.0}, "step must be a whole number"),
    ],
)
def test_what_cannot_be_logged_is_refused(step: object, values: dict[str, object], message: str) -> None:
    with record(seed=1, variant="v") as recorder:
        with pytest.raises(FairtrialError, match=message):
            recorder.log(step, values)  # type: ignore[arg-type]
        recorder.log(1, loss=0.5)
    assert [row["step"] for row in read_lines(recorder.paths.metrics).rows] == [1]


def test_numbers_of_other_kinds_are_taken() -> None:
    import torch

    with record(seed=1, variant="v") as recorder:
        recorder.log(numpy.int64(3), a=numpy.float32(0.5), b=torch.tensor(2.0), c=7, d=True)
    [row] = read_lines(recorder.paths.metrics).rows
    assert {name: unspell(row[name]) for name in "abcd"} == {"a": 0.5, "b": 2.0, "c": 7.0, "d": 1.0}
    assert row["step"] == 3
