"""What is damaged is found, told apart from what is old or new, and repaired without loss."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import StoreError
from fairtrial.core.metadata_schema import Metadata
from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import shape_problems
from fairtrial.record.heartbeat import read_heartbeat
from fairtrial.record.index import list_rows
from fairtrial.record.metadata import (
    DamagedRun,
    has_usual_shape,
    load_metadata,
    load_run,
    load_run_or_damage,
    write_metadata,
)
from fairtrial.record.otlp_exporter import Delivered, read_delivered
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.damage_campaign import _VALUES, _WRONG, _places, campaign
from tests.harness import make

Cli = Callable[..., Answer]


@pytest.fixture
def run(store: Store) -> RunPaths:
    make(store, "fake", steps=20)
    return store.paths.run("s", "v.seed1")


def document(paths: RunPaths) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(paths.metadata.read_text())
    return found


def rewrite(paths: RunPaths, metadata: dict[str, Any]) -> None:
    """As a version wrote it that knew of no checksum."""
    paths.metadata.write_text(json.dumps({name: value for name, value in metadata.items() if name != "checksum"}))


# What is metadata, and what is not


def test_the_quick_check_takes_nothing_that_the_model_refuses(run: RunPaths) -> None:
    """Two judges, one rule: whatever passes by hand passes the typed model."""
    whole = document(run)
    whole["environment"] |= {"git_dirty_hash": "b" * 64, "recipe_file_sha256": "c" * 64}
    whole["resources"]["tensor_bytes"] = {"parameters": 12}
    whole["data"] = {"name": "d", "sha256": "d" * 64}
    whole["final"]["train_loss"] = "NaN"
    whole["lineage"]["resumed"] = [
        {"step": 5, "at": 1.5, "best_step": None, "best_value": None},
        {"step": 9, "at": 2, "best_step": 5, "best_value": 0.5},
    ]
    assert has_usual_shape(whole) and shape_problems(Metadata, whole) == []
    chance, refused = random.Random(1), 0
    for _ in range(1500):
        changed = json.loads(json.dumps(whole))
        place, key = chance.choice(list(_places(changed)))
        if isinstance(place, dict) and chance.random() < 0.1:
            del place[key]
        else:
            place[key] = chance.choice((*_VALUES, "max", "a" * 64, {"name": "x", "sha256": "a" * 64}, ["init"]))
        try:
            usual = has_usual_shape(changed)
        except KeyError:  # a key is missing: readers look for that before
            continue
        problems = shape_problems(Metadata, changed)
        assert not (usual and problems), problems
        refused += bool(problems)
    assert refused > 300


@pytest.mark.parametrize(("name", "value"), _WRONG, ids=[f"{name}={value}"[:40] for name, value in _WRONG])
def test_a_value_of_a_wrong_type_is_damage(run: RunPaths, store: Store, name: str, value: Any) -> None:
    metadata = document(run)
    *above, last = name.split(".")
    place = metadata
    for key in above:
        place = place[key]
    place[last] = value
    rewrite(run, metadata)
    with pytest.raises(DamagedRun):
        load_run(run)
    [row] = list_rows(store)
    found = load_run_or_damage(run)
    assert found is not None and found.status is Status.DAMAGED and found.reason == row["reason"]
    assert (row["status"], row["variant"], row["seed"]) == ("damaged", "v", 1)


def test_runs_of_earlier_versions_load(run: RunPaths) -> None:
    metadata = document(run)
    for name in ("sealed", "series", "telemetry", "checksum"):
        metadata.pop(name, None)
    del metadata["timings"]["stacked"], metadata["lineage"]["streams"]
    metadata["resources"], metadata["environment"] = {}, {}
    metadata["lineage"]["resumed"] = [{"step": 5, "at": 1.5}]
    rewrite(run, metadata)
    found = load_run(run)
    assert found is not None and found.status is Status.COMPLETED


def test_keys_of_newer_versions_load(run: RunPaths) -> None:
    metadata = document(run)
    metadata["of_tomorrow"] = {"a": [1]}
    metadata["environment"]["moon"] = 5
    metadata["timings"]["idle_s"] = [1]
    write_metadata(run, metadata)
    found = load_run(run)
    assert found is not None and found.status is Status.COMPLETED and found.metadata["of_tomorrow"] == {"a": [1]}


def test_another_layout_of_the_same_content_is_no_damage(run: RunPaths) -> None:
    run.metadata.write_text(json.dumps(document(run)))
    assert load_run(run) is not None


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_noticed(run: RunPaths, bit: int) -> None:
    whole, kept = run.metadata.read_bytes(), load_metadata(run)
    keys = (whole.index(b'"checksum"'), whole.index(b'"sealed"'))  # without them the file would look like an older one
    for at in (*range(bit, len(whole), 41), *(start + place for start in keys for place in range(10))):
        run.metadata.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        try:
            assert load_metadata(run) == kept  # white space between two keys
        except DamagedRun:
            continue


def test_a_run_outside_of_its_store_is_read_by_its_own_name(run: RunPaths, store: Store, tmp_path: Path) -> None:
    copy = tmp_path / "somewhere" / "v.seed1"
    shutil.copytree(run.root, copy)
    assert store.find(str(copy)).status is Status.COMPLETED
    copy.rename(copy.with_name("v.seed2"))
    assert store.find(str(copy.with_name("v.seed2"))).status is Status.DAMAGED


def test_an_archived_run_is_in_its_place(run: RunPaths, store: Store) -> None:
    target = store.archive(run, "s")
    found = load_run(RunPaths(target))
    assert found is not None and found.id == "v.seed1"


@pytest.mark.parametrize("content", ["[]", '{"host": 5}', '{"host":"a","pid":1,"token":1,"at":"x","step":1,"saved":1}'])
def test_a_pulse_of_another_shape_is_none(run: RunPaths, content: str) -> None:
    run.heartbeat.write_text(content)
    assert read_heartbeat(run) is None


@pytest.mark.parametrize("content", ['{"offset": "x"}', '{"offset": -1}', '{"offset": 99999999}', '{"lines": null}'])
def test_a_damaged_note_of_delivery_sends_everything_again(run: RunPaths, content: str) -> None:
    run.delivered.write_text(content)
    assert read_delivered(run) == Delivered()


def test_an_event_of_another_shape_is_named(run: RunPaths, cli: Cli) -> None:
    with run.events.open("ab") as file:
        file.write(b'{"schema":1,"event":"evaluation","at":1.0,"step":"x"}\n')
    shown = cli("runs", "show", "s/v.seed1", "--format", "json")
    assert shown.code == 3 and "evaluation with the invalid step 'x'" in shown.json["damage"][0]


# doctor --damage


def test_a_whole_store_has_no_damage(run: RunPaths, cli: Cli) -> None:
    found = cli("doctor", "--damage", "--format", "json")
    assert found.code == 0 and found.json["damage"] == [] and found.json["runs"] == 1
    assert "No damage in 1 run." in cli("doctor", "--damage").out


def test_repair_needs_to_be_asked_for_with_damage(cli: Cli) -> None:
    assert cli("doctor", "--repair").code == 2
    assert cli("doctor", "--damage", "--aa").code == 2


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(
        content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :]
    )


@pytest.mark.parametrize(
    "name", ["metadata.json", "metrics.jsonl", "metrics.parquet", "events.jsonl", "checkpoints/best.pt"]
)
def test_each_kind_of_file_is_held_against_what_was_recorded(run: RunPaths, cli: Cli, name: str) -> None:
    flip(run.root / name)
    found = cli("doctor", "--damage", "--format", "json")
    assert found.code == 3 and found.json["remaining"] >= 1
    assert f"s/v.seed1/{name}" in [each["path"] for each in found.json["damage"]]
    assert all(each["reason"] and each["repair"] for each in found.json["damage"])


def test_the_columns_are_made_again_from_the_lines(run: RunPaths, store: Store, cli: Cli) -> None:
    whole = run.columns.read_bytes()
    flip(run.columns)
    broken = run.columns.read_bytes()
    found = cli("doctor", "--damage", "--repair", "--format", "json")
    assert found.code == 0 and found.json["repaired"] == 1 and found.json["remaining"] == 0
    assert run.columns.read_bytes() == whole
    assert (store.root / found.json["damage"][0]["kept"]).read_bytes() == broken
    assert cli("doctor", "--damage").code == 0


def test_metadata_come_back_from_the_copy_that_a_kill_left(run: RunPaths, cli: Cli) -> None:
    whole = run.metadata.read_bytes()
    run.root.joinpath(".metadata.json.1-ab.tmp").write_bytes(whole)
    run.metadata.write_bytes(whole[:100])
    assert cli("doctor", "--damage").code == 3
    assert cli("doctor", "--damage", "--repair").code == 0
    assert run.metadata.read_bytes() == whole


def test_metadata_are_not_restored_from_those_of_other_files(run: RunPaths, cli: Cli) -> None:
    """A copy that names this run and was written for other lines is not a copy of what was lost."""
    whole = run.metadata.read_bytes()
    run.root.joinpath(".metadata.json.1-ab.tmp").write_bytes(whole)
    run.metadata.write_bytes(b"")
    flip(run.metrics)
    assert cli("doctor", "--damage", "--repair").code == 3
    assert run.metadata.read_bytes() == b""


def test_swapped_metadata_are_put_back(run: RunPaths, store: Store, cli: Cli) -> None:
    make(store, "fake", seed=2, steps=20)
    other = store.paths.run("s", "v.seed2")
    mine, theirs = run.metadata.read_bytes(), other.metadata.read_bytes()
    run.metadata.write_bytes(theirs)
    other.metadata.write_bytes(mine)
    assert cli("doctor", "--damage", "--repair").code == 0
    assert (run.metadata.read_bytes(), other.metadata.read_bytes()) == (mine, theirs)


def test_a_checkpoint_comes_back_from_a_file_with_its_hash(run: RunPaths, cli: Cli) -> None:
    whole = run.best.read_bytes()
    run.best.unlink()  # it shares its content with another name, which stays whole
    run.best.write_bytes(b"nothing")
    assert cli("doctor", "--damage", "--repair").code == 0
    assert run.best.read_bytes() == whole


def test_leftover_files_are_taken_away_once_they_are_old(run: RunPaths, store: Store, cli: Cli) -> None:
    left = run.root / ".metrics.parquet.7-00.tmp"
    left.write_bytes(b"half")
    assert cli("doctor", "--damage").code == 0  # somebody may be writing it
    os.utime(left, (time.time() - 3600,) * 2)
    assert cli("doctor", "--damage", "--repair").code == 0
    assert not left.exists() and list(store.root.glob(f".archive/*/s/v.seed1/{left.name}"))


def test_a_damaged_index_is_taken_away(run: RunPaths, store: Store, cli: Cli) -> None:
    cli("runs", "list")
    flip(store.paths.index)
    found = cli("doctor", "--damage", "--repair", "--format", "json")
    assert found.code == 0 and [each["path"] for each in found.json["damage"]] == [".cache/index.json"]
    assert not store.paths.index.exists()


def test_a_run_without_metadata_is_damage_where_something_was_recorded(run: RunPaths, cli: Cli) -> None:
    run.metadata.unlink()
    found = cli("doctor", "--damage", "--format", "json")
    assert found.code == 3 and "metadata.json is missing" in found.json["damage"][0]["reason"]


def test_plans_and_looks_are_looked_at(run: RunPaths, store: Store, cli: Cli) -> None:
    store.paths.study_plan("s").write_text("{}")
    store.paths.interim_looks("s").write_text("[]\n")
    found = cli("doctor", "--damage", "--format", "json")
    assert [each["path"] for each in found.json["damage"]] == ["s/study.json", "s/looks.jsonl"]


def test_a_run_that_is_being_made_is_left_alone(run: RunPaths, cli: Cli) -> None:
    from fairtrial.record.claims import Claim

    flip(run.metadata)
    claim = Claim(run)
    assert cli("doctor", "--damage", "--repair").code == 0
    claim.release()
    assert cli("doctor", "--damage").code == 3


def test_a_damaged_plan_is_not_extended(store: Store) -> None:
    from fairtrial.record.studies import load_plan, save_plan

    plan = {"study": "s", "recipe": "fake", "seeds": [1], "variants": {"v": {}}, "options": {}}
    save_plan(store, plan)
    assert load_plan(store, "s") == plan
    path = store.paths.study_plan("s")
    path.write_bytes(path.read_bytes().replace(b"fake", b"fakf"))
    with pytest.raises(StoreError, match="checksum"):
        save_plan(store, plan)


@pytest.mark.slow
def test_forty_damaged_stores(tmp_path: Path) -> None:
    """A slice of the campaign; `benchmarks/damaged_runs.py` runs 500."""
    found = campaign(tmp_path, 40, seed=1)
    assert found.problems == []
    assert found.cases == 40 and found.named > 40 and len(found.kinds) > 20


# What is not a regular file


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.parquet", "events.jsonl", "metadata.json"])
def test_what_is_not_a_file_is_damage_of_one_run_and_nobody_waits_for_it(
    cli: Callable[..., Answer], store: Store, name: str, kind: str
) -> None:
    """A pipe would be waited for, and a device such as /dev/zero never ends."""
    for seed in (1, 2):
        make(store, "fake", seed=seed, steps=20)
    path = store.paths.run("s", "v.seed1").root / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    listed = cli("runs", "list", "--format", "json")
    assert listed.code == 0 and len(listed.json["runs"]) == 2
    exported = cli("runs", "export", "s/*", "--format", "csv")
    assert "v.seed2" in exported.out
    if name in ("metrics.jsonl", "metadata.json"):
        assert exported.code == 4 and "v.seed1" in exported.err
    doctor = cli("doctor", "--damage")
    assert doctor.code == 3 and str(path) in doctor.out
