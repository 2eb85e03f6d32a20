"""What every reader of the catalog promises, whatever its format is."""

from __future__ import annotations

import inspect
import json
import os
import shutil
from pathlib import Path

import orjson
import pytest

from fairtrial.core.errors import UserError
from fairtrial.readers.catalog import READERS, load_reader, recognizing
from tests.readers.checking import FILES, points_of

PLACES = {
    "tensorboard": "tensorboard", "wandb": "wandb_0_31", "mlflow": "mlflow_sqlite", "trackio": "trackio",
    "huggingface": "huggingface", "sb3": "sb3", "lightning": "lightning", "optuna": "optuna", "ray": "ray_tune",
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_a_reader_has_the_name_of_the_catalog_and_says_what_it_reads(name: str) -> None:
    reader = load_reader(name)
    assert reader.name == name
    assert reader.title
    assert inspect.isgeneratorfunction(inspect.unwrap(type(reader).read))


@pytest.mark.parametrize("name", PLACES)
def test_the_catalog_finds_the_one_reader_of_a_place(name: str) -> None:
    assert list(recognizing(FILES / PLACES[name])) == [name]


@pytest.mark.parametrize("name", PLACES)
def test_cursors_survive_json_and_two_readings_are_equal(name: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(FILES / PLACES[name], place)
    first, second = (list(load_reader(name).read(place)) for _ in range(2))
    assert points_of(first) == points_of(second)
    assert len({run.id for run in first}) == len(first)
    cursors = {run.id: orjson.loads(orjson.dumps(run.cursor)) for run in first}
    assert json.loads(json.dumps(cursors)) == {run.id: run.cursor for run in first}
    again = list(load_reader(name).read(place, cursors))
    assert all(run.continues and not run.series for run in again)


@pytest.mark.parametrize("name", READERS)
def test_nothing_hangs_on_a_pipe_or_fails_on_what_is_not_there(name: str, tmp_path: Path) -> None:
    reader = load_reader(name)
    names = ("events.out.tfevents.1", "run-1.wandb", "mlflow.db", "trainer_state.json", "evaluations.npz", "metrics.csv",
             "monitor.csv", "result.json", "params.json", "journal.log", "t.csv")  # fmt: skip
    for each in names:
        os.mkfifo(tmp_path / each)
        (tmp_path / f"link-{each}").symlink_to("/dev/zero")
    for place in (tmp_path, tmp_path / "missing", Path("/dev/null"), *(tmp_path / each for each in names)):
        assert reader.recognize(place) is None or name == "table"
        with pytest.raises(UserError):
            list(reader.read(place))


def test_an_unknown_reader_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'tensorboard'"):
        load_reader("tensorbord")
