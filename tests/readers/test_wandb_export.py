"""CSV exports of W&B's pages, in the shape that its documentation and its users show."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.readers.wandb_export import WandbExportReader
from tests.readers.checking import read_all

READER = WandbExportReader()


def test_a_chart_has_a_series_per_run(tmp_path: Path) -> None:
    path = tmp_path / "wandb_export.csv"
    header = '"Step","ppo-1 - eval/loss","ppo-1 - eval/loss__MIN","ppo-1 - eval/loss__MAX","ppo - b - eval/loss"'
    path.write_text(f'{header}\n"0","1.5","1.5","1.5",""\n"10","NaN","1","2","0.25"\n')
    assert READER.recognize(path) == "a chart exported from W&B with 2 runs"
    runs = read_all(READER, path)
    assert list(runs) == ["ppo-1", "ppo - b"]
    assert str(runs["ppo-1"].series["eval/loss"].values.tolist()) == "[1.5, nan]"
    assert runs["ppo - b"].series["eval/loss"].steps.tolist() == [10]


def test_a_table_of_runs_has_states_and_values(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("Name,ID,State,seed,algo,accuracy\na,x1,finished,1,ppo,0.5\na,x2,crashed,2,ppo,\n")
    assert READER.recognize(path) == "a table of runs exported from W&B"
    runs = read_all(READER, path)
    assert [run.status for run in runs.values()] == [Status.COMPLETED, Status.FAILED]
    assert runs["x1"].config == {"seed": 1.0, "algo": "ppo", "accuracy": 0.5}
    path.write_text("Name,State,seed\na,finished,1\na,crashed,2\n")
    with pytest.raises(UserError, match="two runs named 'a'"):
        read_all(READER, path)


def test_other_tables_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for text in ("", "a,b\n1,2\n", "Step,loss\n1,2\n", '"', "Name\nx\n"):
        path.write_text(text)
        assert READER.recognize(path) is None
        with pytest.raises(UserError):
            read_all(READER, path)
