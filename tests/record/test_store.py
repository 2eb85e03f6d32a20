"""The store: listing, finding, claiming, indexing, asking."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.api.running.runs import export_runs, list_runs, query, remove_runs
from fairtrial.core.errors import FairtrialError
from fairtrial.core.paths import RunPaths, short_id
from fairtrial.core.runs import Status
from fairtrial.jobs.run_session import run_cell
from fairtrial.record.claims import Claim, ClaimedElsewhere, is_claimed
from fairtrial.record.index import list_rows
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import eventually, forked, make, request_for, wait

Cli = Callable[..., Answer]


@pytest.fixture
def filled(store: Store) -> Store:
    for variant, effect in (("a", 0.0), ("b", 0.1)):
        for seed in (1, 2, 3):
            make(store, "fake", seed=seed, study="one", variant=variant, effect=effect, steps=5)
    make(store, "fake", seed=1, study="two", variant="bad", steps=5, diverge_at=3, log_every=1)
    return store


def test_runs_are_listed_newest_first_and_filtered(filled: Store) -> None:
    assert len(list_runs()) == 7
    assert list_runs()[0]["study"] == "two"
    assert len(list_runs(study="one", variant="a")) == 3
    assert [row["run"] for row in list_runs(status="diverged")] == ["bad.seed1"]
    assert len(list_runs(where=["effect>0.05", "seed<=2"])) == 2
    assert len(list_runs(where=["report_accuracy>0.75"])) == 3
    assert len(list_runs(where=["variant!=a"])) == 4


def test_the_index_can_be_deleted_at_any_time(filled: Store) -> None:
    first = list_rows(filled)
    assert filled.paths.index.exists()
    filled.paths.index.unlink()
    assert list_rows(filled) == first
    filled.paths.index.write_text("garbage")
    assert list_rows(filled) == first


def test_the_index_notices_new_changed_and_removed_runs(filled: Store) -> None:
    list_rows(filled)
    make(filled, "fake", seed=4, study="one", variant="a", steps=5)
    shutil.rmtree(filled.paths.run("two", "bad.seed1").root)
    rows = {row["run"]: row for row in list_rows(filled)}
    assert "a.seed4" in rows and "bad.seed1" not in rows


def test_a_run_whose_process_is_gone_is_interrupted_and_one_whose_process_lives_is_running(store: Store) -> None:
    job = request_for(store, "fake", steps=1000, step_time=0.01, log_every=1)
    pid = forked(lambda: run_cell(job))
    eventually(lambda: store.paths.run("s", "v.seed1").metrics.exists() and list_rows(store))
    assert list_rows(store)[0]["status"] == Status.RUNNING
    os.kill(pid, 9)
    wait(pid)
    assert list_rows(store)[0]["status"] == Status.INTERRUPTED
    run = store.run("s", "v.seed1")
    assert run is not None and "killed" in (run.reason or "")


def test_damaged_metadata_is_listed_not_hidden(filled: Store) -> None:
    filled.paths.run("one", "a.seed1").metadata.write_text('{"schema": 1, "run_id"')
    rows = {(row["study"], row["run"]): row for row in list_rows(filled)}
    assert "is not JSON" in rows["one", "a.seed1"]["reason"]
    assert rows["one", "a.seed1"]["status"] == "damaged"
    assert len(rows) == 7


def test_a_newer_schema_is_refused_with_what_to_do(filled: Store) -> None:
    path = filled.paths.run("one", "a.seed1").metadata
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99'))
    with pytest.raises(FairtrialError, match="newer Fairtrial"):
        filled.run("one", "a.seed1")


def test_only_one_process_may_write_a_run(store: Store) -> None:
    paths = store.paths.run("s", "r")
    claim = Claim(paths)
    assert is_claimed(paths)
    with pytest.raises(ClaimedElsewhere):
        Claim(paths)
    claim.release()
    assert not is_claimed(paths)
    Claim(paths).release()


def test_a_claim_ends_with_its_process(store: Store) -> None:
    paths = store.paths.run("s", "r")
    pid = forked(lambda: (Claim(paths), os.kill(os.getpid(), 9)))
    wait(pid)
    assert not is_claimed(paths)


def test_a_run_is_found_by_id_name_path_and_glob(filled: Store) -> None:
    assert filled.find("bad.seed1").study == "two"
    assert filled.find("one/a.seed2").seed == 2
    assert filled.find(str(filled.paths.run("one", "b.seed3").root)).variant == "b"
    assert len(filled.match(["one/a.*", "a.seed1"])) == 3
    with pytest.raises(FairtrialError, match="matches 3 runs"):
        filled.find("a.*")
    with pytest.raises(FairtrialError) as caught:
        filled.find("a.seed11")
    assert "Did you mean 'a.seed1'" in (caught.value.hint or "")


def test_a_run_is_found_by_its_short_id_and_by_the_beginning_of_its_id(filled: Store) -> None:
    short = short_id("one", "a.seed2")
    assert len(short) == 8
    for reference in (short, short[:4], "one/a.seed2", "one/b.seed3"[:5] + ".seed3", "bad"):
        assert filled.find(reference).status
    assert filled.find(short).name == "one/a.seed2"
    assert filled.find("bad").name == "two/bad.seed1"
    assert filled.match([short, "one/a.seed2"]) == [filled.find("one/a.seed2")]


def test_an_ambiguous_beginning_lists_the_candidates_and_never_means_all_of_them(filled: Store) -> None:
    with pytest.raises(FairtrialError) as caught:
        filled.match_paths(["one/a"])
    assert "'one/a' matches" in caught.value.message
    assert f"{short_id('one', 'a.seed2')}  one/a.seed2" in caught.value.message
    assert "STUDY/RUN" in (caught.value.hint or "")
    with pytest.raises(FairtrialError, match="no run named ''"):
        filled.match_paths([""])


def test_a_run_that_is_being_written_cannot_be_removed(filled: Store) -> None:
    paths = RunPaths(filled.paths.run("one", "a.seed1").root)
    claim = Claim(paths)
    with pytest.raises(FairtrialError, match="in progress"):
        remove_runs(["one/a.seed1"])
    claim.release()
    assert remove_runs(["one/a.seed1"]) == ["one/a.seed1"]
    assert len(list_runs()) == 6


def test_sql_sees_runs_and_metrics_and_nothing_else(filled: Store, tmp_path: Path) -> None:
    _, rows = query("select variant, count(*), avg(value) from runs where study = 'one' group by 1 order by 1")
    assert [(name, count) for name, count, _ in rows] == [("a", 3), ("b", 3)]
    assert rows[1][2] > rows[0][2]
    _, rows = query("select max(step) from metrics where metric = 'train_loss' and study = 'one'")
    assert rows == [(5,)]
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FairtrialError):
        query(f"select * from '{tmp_path / 'secret.csv'}'")
    with pytest.raises(FairtrialError) as caught:
        query("select nonsense from runs")
    assert "Table runs has" in (caught.value.hint or "")


def test_export_gives_every_value_once(filled: Store) -> None:
    rows = list(export_runs(["one/*"], metrics=["report_accuracy"]))
    assert len(rows) == 6 and {row["seed"] for row in rows} == {1, 2, 3}
    with pytest.raises(FairtrialError, match="did you mean 'report_accuracy'"):
        list(export_runs(["one/*"], metrics=["report_acuracy"]))


@pytest.mark.slow
def test_a_study_that_was_merged_by_copying_plans_the_seeds_of_both_sides(cli: Cli, tmp_path: Path) -> None:
    words = ("launch", "fake", "--steps", "5", "--base-run-name", "s", "--variant", "a", "--variant", "b", "--quiet")
    for side, seeds in (("left", "1,2"), ("right", "3,4,5")):
        assert cli(*words, "--seeds", seeds, "--store", str(tmp_path / side)).code == 0
    shutil.rmtree(tmp_path / "left" / "s" / "b.seed2")  # planned there, and not made
    shutil.copytree(tmp_path / "right" / "s", tmp_path / "left" / "s", dirs_exist_ok=True)
    left = ("--store", str(tmp_path / "left"))
    arms = {arm["variant"]: arm for arm in cli("analyze", "s", "--format", "json", *left).json["arms"]}
    assert (arms["a"]["planned"], arms["b"]["planned"], arms["b"]["used"]) == (5, 5, 4)
    assert [cell["run"] for cell in _cells(cli, left) if cell["place"] == "queued"] == ["b.seed2"]
    assert cli(*words, "--seeds", "6", *left).code == 0
    assert set(json.loads((tmp_path / "left" / "s" / "study.json").read_text())["seeds"]) >= {1, 2, 3, 4, 5}


def _cells(cli: Cli, left: tuple[str, ...]) -> list[Any]:
    cells: list[Any] = cli("runs", "watch", "s", "--format", "json", *left).json["cells"]
    return cells
