"""Metrics: append-only lines, columns at the end, and nothing lost on the way."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.api.running.script import run as record
from fairtrial.core.errors import FairtrialError, UserError
from fairtrial.record.series import read_lines, read_series, unspell
from fairtrial.record.store import Store
from tests.conftest import Answer
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


@pytest.mark.slow
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
    recorder.release()
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
        (1, {"_time": 1.0}, "the metric name '_time' is reserved"),
        (1.5, {"loss": 1.0}, "step must be an integer"),
        ("1", {"loss": 1.0}, "step must be an integer"),
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


def test_a_metric_of_any_name_takes_nothing_back(cli: Callable[..., Answer], store: Store) -> None:
    names = {"_rewind": 2.0, "kept_bytes": 0.0, "rewind": 1.0, "event": 3.0, "schema": 1.0, "at": 4.0, "": 5.0}
    with record(seed=1, variant="v", study="s", store=store.root) as recorder:
        for step in range(1, 6):
            recorder.log(step, loss=1 / step)
        recorder.log(6, {"loss": 0.1, **names})
        live = read_series(recorder.paths)
    for series in (live, read_series(recorder.paths)):
        assert series["loss"][0].tolist() == [1, 2, 3, 4, 5, 6]
        assert {name: series[name][1].tolist() for name in names} == {name: [value] for name, value in names.items()}
    run = store.run("s", "v.seed1")
    assert run is not None and run.final == {"loss": 0.1, **names}
    tail = cli("runs", "tail", "s/v.seed1", "--lines", "2", "--format", "json")
    assert [row["step"] for row in json.loads(tail.out)["metrics"]] == [5, 6]
    answer = cli("runs", "sql", "select metric, count(*) as n from metrics group by 1", "--format", "json")
    assert {row["metric"]: row["n"] for row in json.loads(answer.out)["rows"]} == {"loss": 6, **dict.fromkeys(names, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_rewind", "_time", "step"])
def test_a_column_of_any_name_of_another_program_is_recorded(
    cli: Callable[..., Answer], store: Store, tmp_path: Path, name: str
) -> None:
    rows = [json.dumps({"at": step, "x": step / 2, name: 2}) + "\n" for step in range(1, 6)]
    (tmp_path / "p.py").write_text(f"import sys\nopen(sys.argv[1], 'w').writelines({rows!r})\n")
    answer = cli(
        "launch", "command", "--base-run-name", "s", "--seeds", "1,", "--metrics", "{run_dir}/m.jsonl",
        "--step-column", "at", "--", sys.executable, "p.py", "{run_dir}/m.jsonl", "{seed}",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    series = read_series(store.paths.run("s", "default.seed1"))
    recorded = {"_rewind": "_rewind", "_time": "program_time", "step": "program_step"}[name]
    assert series["x"][0].tolist() == [1, 2, 3, 4, 5] and series[recorded][1].tolist() == [2.0] * 5


def test_control_lines_of_earlier_versions_take_steps_back(store: Store) -> None:
    with record(seed=1, variant="v") as recorder:
        recorder.log(1, x=1.0)
    recorder.paths.root.joinpath("metadata.json").unlink()
    lines = [{"step": 1, "_time": 0.1, "x": 1.0}, {"step": 2, "_time": 0.2, "x": 2.0}, {"_rewind": 1}]
    lines += [{"step": 3, "_time": 0.3, "x": 3.0}]
    recorder.paths.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_series(recorder.paths)["x"][0].tolist() == [1, 3]
    again = json.dumps({"_rewind": -1}) + "\n" + json.dumps({"step": 9, "_time": 0.4, "y": 1.0}) + "\n"
    with recorder.paths.metrics.open("a") as file:
        file.write(again)
    assert list(read_series(recorder.paths)) == ["y"]


@pytest.mark.parametrize("line", ['{"_time":1.0,"x":2.0}', '[1]', '{"step":"2","_rewind":1}', '{"step":2,"x":null}',
                                  '{"step":2,"x":"high"}', '{"step":2,"x":[1]}', '{"step":true,"x":1.0}',
                                  '{"_rewind":"1"}', '{"step":18446744073709551615,"x":1.0}'])  # fmt: skip
def test_a_line_that_is_neither_is_named_and_not_guessed_at(line: str) -> None:
    recorder = record(seed=1, variant="v")
    recorder.log(1, x=1.0)
    recorder.release()
    with recorder.paths.metrics.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(
        FairtrialError, match=r"line 2 of .* is not a valid metrics line|has a step that exceeds 64 bits"
    ):
        read_series(recorder.paths)


def test_events_that_resuming_rests_on_cannot_be_written_by_a_script(store: Store) -> None:
    with record(seed=1, variant="v") as recorder:
        recorder.log(1, x=1.0)
        recorder.save(1, {"w": 1})
        for name in ("rewound", "run_started", "checkpoint_saved", "evaluation"):
            with pytest.raises(UserError, match=f"the event name '{name}' is reserved"):
                recorder.event(name, step=-1)
        for field in ("at", "schema", "event"):
            with pytest.raises(UserError, match=f"the event field name '{field}' is reserved"):
                recorder.event("coffee", **{field: "noon"})
        recorder.event("coffee", cups=3)
    names = [row["event"] for row in read_lines(recorder.paths.events).rows]
    assert names == ["run_started", "checkpoint_saved", "coffee", "run_ended"]


def test_a_step_beyond_64_bits_is_refused_when_it_is_logged() -> None:
    with record(seed=1, variant="v") as recorder:
        with pytest.raises(UserError, match="exceeds 64 bits"):
            recorder.log(2**63, x=1.0)
        recorder.log(2**63 - 1, x=1.0)
    assert read_series(recorder.paths)["x"][0].tolist() == [2**63 - 1]


@pytest.mark.slow
def test_series_that_do_not_fit_into_memory_are_put_in_order_like_any_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps in any order, logged twice, taken back; blocks of a few points, so that there are many."""
    from fairtrial.core.paths import RunPaths
    from fairtrial.record import columns, series, spill

    chance = random.Random(10)
    monkeypatch.setattr(columns, "GROUP_POINTS", 7)
    for trial in range(150):
        monkeypatch.setattr(spill.Spill.__init__, "__defaults__", (None, chance.choice([1, 3, 10, 1000])))
        rows: list[dict[str, Any]] = []
        expected: dict[str, dict[int, float]] = {}
        for _ in range(chance.randrange(60)):
            step = chance.choice([len(rows), chance.randrange(30)])
            if chance.random() < 0.07:
                rows.append({"_rewind": chance.choice([-1, step])})
                kept = {
                    name: {s: v for s, v in own.items() if s <= rows[-1]["_rewind"]} for name, own in expected.items()
                }
                expected = {name: own for name, own in kept.items() if own}
                continue
            values = {name: chance.random() for name in ("a", "b", "_rewind") if chance.random() < 0.7}
            rows.append({"step": step, "_time": 1.0, **values})
            for name, value in values.items():
                expected.setdefault(name, {})[step] = value
        paths = RunPaths(tmp_path / str(trial))
        paths.root.mkdir()
        paths.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
        from_lines = read_series(paths)
        final = series.write_columns(paths).final
        for found in (from_lines, read_series(paths)):
            assert {name: list(zip(s.tolist(), v.tolist(), strict=True)) for name, (s, v) in found.items()} == {
                name: sorted(own.items()) for name, own in expected.items()
            }
        assert final == {name: own[max(own)] for name, own in expected.items()}
