"""Every other tool: the files it wrote give exactly what its own objects held, and damage never does harm."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from fairtrial.core.errors import UserError
from fairtrial.readers.contract import RunReader
from fairtrial.readers.huggingface import HuggingFaceReader
from fairtrial.readers.lightning_csv import LightningReader
from fairtrial.readers.mlflow_store import MlflowReader
from fairtrial.readers.optuna_storage import OptunaReader
from fairtrial.readers.ray_tune import RayTuneReader
from fairtrial.readers.sqlite_files import open_database
from fairtrial.readers.stable_baselines3 import StableBaselinesReader
from fairtrial.readers.tensorboard import TensorBoardReader
from fairtrial.readers.trackio_store import TrackioReader
from fairtrial.readers.wandb_offline import WandbReader
from tests.readers.checking import FILES, assert_equals, expected_runs, outcome, points_of, read_all

TOOLS: dict[str, RunReader] = {
    "huggingface": HuggingFaceReader(),
    "lightning": LightningReader(),
    "mlflow_files": MlflowReader(),
    "mlflow_sqlite": MlflowReader(),
    "optuna": OptunaReader(),
    "ray_tune": RayTuneReader(),
    "sb3": StableBaselinesReader(),
    "trackio": TrackioReader(),
}
SEEN = {
    "huggingface": "1 output folder of a Hugging Face Trainer",
    "lightning": "2 metrics.csv files of Lightning's CSVLogger",
    "mlflow_files": "an MLflow file store with 3 runs",
    "mlflow_sqlite": "an MLflow database, mlflow.db",
    "optuna": "1 Optuna database and 1 Optuna journal",
    "ray_tune": "2 trials of Ray Tune",
    "sb3": "1 evaluations.npz and 1 monitor.csv of Stable-Baselines3",
    "tensorboard": "10 event files in 6 folders",
    "trackio": "1 trackio project: demo",
    "wandb_0_31": "4 offline runs",
}
ALL = {**TOOLS, "tensorboard": TensorBoardReader(), "wandb_0_31": WandbReader()}


@pytest.mark.parametrize("tool", TOOLS)
def test_every_value_equals_what_the_tool_held(tool: str) -> None:
    found = read_all(TOOLS[tool], FILES / tool)
    expected = expected_runs(tool)
    assert len(found) == len(expected)
    for name, run in expected.items():
        assert_equals(found[name], run)


@pytest.mark.parametrize("tool", ALL)
def test_a_place_is_recognized_by_its_own_reader_alone(tool: str) -> None:
    seen = {name: reader.recognize(FILES / tool) for name, reader in ALL.items() if name != "mlflow_files"}
    own = {name: what for name, what in seen.items() if what}
    assert own == {("mlflow_sqlite" if tool == "mlflow_files" else tool): SEEN[tool]}


@pytest.mark.parametrize("tool", TOOLS)
def test_an_empty_place_gives_one_sentence(tool: str, tmp_path: Path) -> None:
    assert TOOLS[tool].recognize(tmp_path) is None
    assert TOOLS[tool].recognize(tmp_path / "missing") is None
    assert isinstance(outcome(TOOLS[tool], tmp_path), UserError)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_source_that_has_not_changed_gives_nothing_new(tool: str, tmp_path: Path) -> None:
    place = tmp_path / tool
    shutil.copytree(FILES / tool, place)
    files = sorted(place.rglob("*"))
    TOOLS[tool].recognize(place)
    first = list(TOOLS[tool].read(place))
    assert sorted(place.rglob("*")) == files, "nothing is written next to a source"
    again = list(TOOLS[tool].read(place, {run.id: run.cursor for run in first}))
    assert all(run.continues and not run.series for run in again)
    assert [run.id for run in again] == [run.id for run in first]
    assert all(len(file.sha256()) == 64 for run in first for file in run.files)


def small_files(tool: str) -> list[Path]:
    files = [path for path in (FILES / tool).rglob("*") if path.is_file() and path.name != "expected.json"]
    return sorted(files, key=lambda path: (path.stat().st_size, path))


@pytest.mark.parametrize("tool", TOOLS)
def test_damage_gives_a_result_or_a_sentence(tool: str, tmp_path: Path) -> None:
    """Any cut, and any flipped bit, of any file: never another exception."""
    place = tmp_path / tool
    shutil.copytree(FILES / tool, place)
    drawn = random.Random(tool)
    files = small_files(tool)
    for _ in range(40):
        file = place / drawn.choice(files).relative_to(FILES / tool)
        content = file.read_bytes()
        changed = bytearray(content)
        if drawn.random() < 0.5 and content:
            changed[drawn.randrange(min(len(content), 40_000))] ^= 1 << drawn.randrange(8)
        else:
            del changed[drawn.randrange(len(content) + 1) :]
        file.write_bytes(changed)
        outcome(TOOLS[tool], place)
        file.write_bytes(content)


@pytest.mark.parametrize("tool", TOOLS)
def test_garbage_in_place_of_every_file_gives_a_result_or_a_sentence(tool: str, tmp_path: Path) -> None:
    place = tmp_path / tool
    shutil.copytree(FILES / tool, place)
    garbage = [b"", b"\n", b"\x00" * 50, b"[" * 3_000, b'{"log_history": 3}', b"PK\x03\x04", b"#{}\nr,l,t\n1,2\n",
               b"SQLite format 3\x00" + b"\x01" * 200, b'{"op_code": 6, "trial_id": -1}\n', b"step\n1\n", b"a: *b\n"]  # fmt: skip
    for content in garbage:
        for path in place.rglob("*"):
            if path.is_file():
                path.write_bytes(content)
        outcome(TOOLS[tool], place)


def test_episodes_of_an_evaluation_are_not_replicates() -> None:
    run = read_all(StableBaselinesReader(), FILES / "sb3")["run"]
    assert run.notes == ("each value is the mean of 3 episodes; episodes are not replicates",)


def test_an_npz_with_objects_is_never_unpickled(tmp_path: Path) -> None:
    import numpy

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[object]]:
            return Path.touch, (tmp_path / "exploded",)

    numpy.savez(tmp_path / "evaluations.npz", timesteps=numpy.array([Bomb()], dtype=object), results=numpy.ones((1, 1)))
    found = outcome(StableBaselinesReader(), tmp_path)
    assert isinstance(found, UserError)
    assert not (tmp_path / "exploded").exists()


def test_a_torn_state_of_a_trainer_gives_way_to_the_one_before(tmp_path: Path) -> None:
    shutil.copytree(FILES / "huggingface", tmp_path / "x")
    whole = points_of(HuggingFaceReader().read(tmp_path / "x"))
    for newest in ("run/trainer_state.json", "run/checkpoint-12/trainer_state.json"):
        path = tmp_path / "x" / newest
        path.write_bytes(path.read_bytes()[:-20])
    [run] = HuggingFaceReader().read(tmp_path / "x")
    assert points_of([run]) < whole
    assert all(step <= 6 for series in run.series.values() for step in series.steps)
    assert "using an older one" in run.notes[0]


def test_a_database_in_wal_mode_is_read_with_the_rows_that_are_only_in_its_log(tmp_path: Path) -> None:
    import sqlite3

    shutil.copy(FILES / "trackio" / "demo.db", tmp_path)
    database = sqlite3.connect(tmp_path / "demo.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA wal_autocheckpoint = 0")
    columns = [row[1] for row in database.execute("PRAGMA table_info(metrics)")]
    row = dict(zip(columns, database.execute("SELECT * FROM metrics LIMIT 1").fetchone(), strict=True))
    row |= {"id": None, "run_name": "live", "step": 5, "metrics": '{"loss": NaN, "x": "Infinity"}', "log_id": None}
    kept = {name: value for name, value in row.items() if name in columns}
    marks = ", ".join("?" * len(kept))
    database.execute(f"INSERT INTO metrics ({', '.join(kept)}) VALUES ({marks})", list(kept.values()))
    live = read_all(TrackioReader(), tmp_path)["live"]
    assert {point[1:] for point in points_of([live])} == {("loss", 5.0, "nan"), ("x", 5.0, "inf")}
    database.close()


def test_a_lightning_file_that_is_replaced_is_read_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "version_0"
    folder.mkdir()
    (folder / "metrics.csv").write_text("epoch,loss,step\n0,1.5,1\n0,1.25,2\n")
    [run] = LightningReader().read(tmp_path)
    (folder / "metrics.csv").unlink()
    (folder / "metrics.csv").write_text("epoch,loss,step,val\n0,1.0,3,\n0,,4,nan\n0,0.")
    [new] = LightningReader().read(tmp_path, {run.id: run.cursor})
    assert not new.continues
    assert {point[1:] for point in points_of([new])} == {
        ("epoch", 3.0, "0x0.0p+0"), ("epoch", 4.0, "0x0.0p+0"), ("loss", 3.0, "0x1.0000000000000p+0"), ("val", 4.0, "nan"),
    }  # fmt: skip
    assert "ends inside a line" in new.notes[0]


def test_a_damaged_schema_that_is_not_text_gives_one_sentence(tmp_path: Path) -> None:
    """SQLite quotes it in its message, and Python cannot decode that."""
    content = (FILES / "optuna" / "study.db").read_bytes()
    (tmp_path / "study.db").write_bytes(content.replace(b"CREATE TABLE studies (", b"CREATE TABLE \x9f\xaf \x9f x ("))
    with pytest.raises(UserError, match="its tables are damaged"), open_database(tmp_path / "study.db"):
        pass
    assert OptunaReader().recognize(tmp_path) is None
