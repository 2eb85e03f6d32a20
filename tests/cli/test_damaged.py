"""One damaged run is a row with its reason. It stops no command, and no result silently goes without it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.paths import RunPaths
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import make

Cli = Callable[..., Answer]
LAUNCH = (
    "launch", "fake", "--variant", "base:", "--variant", "new:effect=0.2", "--steps", "20", "--base-run-name", "s",
    "--seeds", "4", "--jobs", "1",
)  # fmt: skip
BAD = "base.seed1072"


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of eight runs, made once."""
    from fairtrial.api.running.launch import launch
    from fairtrial.launch.policy import ExecutionPolicy
    from fairtrial.plan.study import Study

    root = tmp_path_factory.mktemp("launched") / "store"
    variants: dict[str, dict[str, Any]] = {"base": {}, "new": {"effect": 0.2}}
    study = Study(study="s", recipe="fake", options={"steps": 20}, variants=variants, seeds=[1072, 2043, 3014, 4085])
    launch(study, store=root, terms=ExecutionPolicy(jobs=1))
    return root


@pytest.fixture
def damaged(launched: Path, store: Store) -> RunPaths:
    """A copy of the study in the store of the test; the run that is to be damaged."""
    shutil.copytree(launched, store.root)
    return store.paths.run("s", BAD)


def change(paths: RunPaths, name: str, value: Any) -> None:
    """Change one value, in a file without a checksum: as earlier versions wrote it, or a program that knows of none."""
    metadata = json.loads(paths.metadata.read_text())
    metadata.pop("checksum", None)
    *above, last = name.split(".")
    place = metadata
    for key in above:
        place = place[key]
    place[last] = value
    paths.metadata.write_text(json.dumps(metadata))


WRONG: list[tuple[str, Any]] = [
    ("environment", None), ("timings", None), ("timings.created", "now"), ("seed", -1), ("seed", 2**63),
    ("final", {"report_accuracy": []}), ("options", None), ("cautions", [1]), ("lineage", None), ("resources", None),
    ("status", "done"), ("data", "x"), ("best_pending", {}), ("final", None), ("timings.wall_s", "1"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{name}={value}"[:40] for name, value in WRONG])
def test_a_wrong_type_in_one_file_stops_no_command(damaged: RunPaths, cli: Cli, name: str, value: Any) -> None:
    change(damaged, name, value)
    listed = cli("runs", "list", "--format", "json")
    assert listed.code == 0
    status = {row["run"]: (row["status"], row["reason"]) for row in listed.json["runs"]}
    assert status[BAD][0] == "damaged" and name.partition(".")[0] in status[BAD][1]
    assert sorted(run for run, (told, _) in status.items() if told == "completed") == sorted({*status} - {BAD})
    found = cli("analyze", "s", "--format", "json")
    assert found.code == 0 and "damaged runs" in [each["code"] for each in found.json["cautions"]]
    watched = cli("runs", "watch", "s", "--once", "--format", "json")
    assert watched.code == 4 and watched.json["counts"] == {"completed": 7, "damaged": 1}


@pytest.mark.slow
def test_every_command_names_the_damaged_run_and_goes_on(damaged: RunPaths, cli: Cli) -> None:
    change(damaged, "environment", None)
    exported = cli("runs", "export", "s/*", "--format", "json")
    assert exported.code == 4 and f"s/{BAD} is damaged" in exported.err
    assert len({row["run"] for row in exported.json["rows"] if row["value"] is not None}) == 7
    asked = cli("runs", "sql", "select count(distinct run) as runs from metrics", "--format", "json")
    assert asked.code == 4 and asked.json["rows"] == [{"runs": 7}] and f"s/{BAD} is damaged" in asked.err
    asked = cli(
        "runs", "sql", "select status, count(*) as runs from runs group by all order by all", "--format", "json"
    )
    assert asked.json["rows"] == [{"status": "completed", "runs": 7}, {"status": "damaged", "runs": 1}]
    for told in (
        cli("variance", "s:base", "--metric", "report_accuracy", "--format", "json"),
        cli("power", "--pilot", "s:base", "--sesoi", "0.1", "--format", "json"),
    ):
        assert told.code == 0 and BAD in json.dumps(told.json["cautions"])
    assert cli("runs", "tail", f"s/{BAD}").code == 1
    shown = cli("runs", "show", f"s/{BAD}", "--format", "json")
    assert shown.code == 3 and shown.json["status"] == "damaged" and "environment" in shown.json["damage"][0]


@pytest.mark.slow
def test_launching_again_leaves_a_damaged_run_alone_until_it_is_replaced(damaged: RunPaths, cli: Cli) -> None:
    change(damaged, "environment", None)
    shutil.rmtree(damaged.root.with_name("new.seed3014"))
    content = damaged.metadata.read_bytes()
    again = cli(*LAUNCH, "--format", "json")
    assert again.code == 4 and again.json["made"] == ["s/new.seed3014"]  # nobody tried to make the damaged one
    assert f"s/{BAD}" in json.dumps(again.json["cautions"])
    assert damaged.metadata.read_bytes() == content
    assert RunPaths(damaged.root.with_name("new.seed3014")).metadata.exists()
    assert cli(*LAUNCH, "--replace").code == 0
    archived = list(damaged.root.parent.glob(f".archive/{BAD}.*/metadata.json"))
    assert [path.read_bytes() for path in archived] == [content]


def test_metadata_of_another_run_are_named_as_such(damaged: RunPaths, cli: Cli) -> None:
    other = RunPaths(damaged.root.with_name("new.seed1072"))
    shutil.copyfile(other.metadata, damaged.metadata)
    rows = {row["run"]: row for row in cli("runs", "list", "--format", "json").json["runs"]}
    assert rows[BAD]["status"] == "damaged" and f"s/{BAD} contains the run s/new.seed1072" in rows[BAD]["reason"]
    assert rows["new.seed1072"]["status"] == "completed"
    found = cli("analyze", "s", "--format", "json")
    assert found.code == 0 and found.json["arms"][0]["used"] == 3


def test_a_flipped_digit_in_metadata_is_noticed(damaged: RunPaths, cli: Cli) -> None:
    """The value is a number as before: only the checksum tells."""
    before = damaged.metadata.read_text()
    value = str(json.loads(before)["final"]["report_accuracy"])
    damaged.metadata.write_text(before.replace(value, value.replace("6", "9", 1) if "6" in value else f"{value}9"))
    rows = {row["run"]: row for row in cli("runs", "list", "--format", "json").json["runs"]}
    assert rows[BAD]["status"] == "damaged" and "checksum" in rows[BAD]["reason"]


def test_events_that_changed_after_the_end_are_not_shown(damaged: RunPaths, cli: Cli) -> None:
    lines = damaged.events.read_bytes().splitlines(keepends=True)
    damaged.events.write_bytes(b"".join(lines[:-1]))
    shown = cli("runs", "show", f"s/{BAD}", "--format", "json")
    assert shown.code == 3 and "events.jsonl" in shown.json["damage"][0]


def test_a_damaged_index_changes_nothing(damaged: RunPaths, store: Store, cli: Cli) -> None:
    before = cli("runs", "list", "--format", "json").out
    content = store.paths.index.read_bytes()
    at = content.index(b"0.6")
    store.paths.index.write_bytes(content[:at] + b"0.9" + content[at + 3 :])
    assert cli("runs", "list", "--format", "json").out == before


@pytest.mark.parametrize(
    "plan",
    [
        {"seeds": "many"},
        {"variants": []},
        {"variants": {"base": 1}},
        {"seeds": [None]},
        {"alpha": "5 %"},
        {"study": "t"},
    ],
)
def test_a_damaged_plan_is_one_sentence_and_hides_no_run(damaged: RunPaths, store: Store, cli: Cli, plan: Any) -> None:
    path = store.paths.study_plan("s")
    whole = json.loads(path.read_text())
    whole.pop("checksum", None)
    path.write_text(json.dumps({**whole, **plan}))
    refused = cli("analyze", "s")
    assert refused.code == 1 and "study.json is not the plan of a study" in refused.err
    watched = cli("runs", "watch", "s", "--once", "--format", "json")
    assert watched.code == 0 and watched.json["counts"] == {"completed": 8} and "study.json" in watched.json["problem"]


def test_a_lost_look_is_noticed(damaged: RunPaths, store: Store, cli: Cli) -> None:
    assert cli("analyze", "s").code == 0
    store.paths.interim_looks("s").write_bytes(b"")
    found = cli("analyze", "s", "--format", "json").json
    assert "looks damaged" in [caution["code"] for caution in found["comparisons"][0]["cautions"]]


def test_evaluating_goes_on_with_the_other_runs(damaged: RunPaths, cli: Cli) -> None:
    damaged.best.write_bytes(b"{}")
    found = cli("evaluate", f"s/{BAD}", "s/base.seed2043", "--format", "json")
    assert found.code == 4 and list(found.json["damaged"]) == [f"s/{BAD}"] and len(found.json["runs"]) == 1
    alone = cli("evaluate", f"s/{BAD}")
    assert alone.code == 1 and "recorded hash" in alone.err


def test_a_metadata_file_that_is_a_pipe_does_not_hang(damaged: RunPaths, cli: Cli) -> None:
    import os

    damaged.metadata.unlink()
    os.mkfifo(damaged.metadata)
    rows = {row["run"]: row for row in cli("runs", "list", "--format", "json").json["runs"]}
    assert rows[BAD]["status"] == "damaged" and "pipe" in rows[BAD]["reason"]
    assert cli("analyze", "s").code == 0


def test_the_seed_of_a_damaged_run_that_nothing_names_is_unknown(cli: Cli, store: Store) -> None:
    make(store, "fake", steps=3)
    (store.root / "s" / "v.seed1").rename(store.root / "s" / "weird")
    (store.root / "s" / "weird" / "metadata.json").write_text("garbage")
    assert cli("runs", "show", "s/weird", "--format", "json").json["seed"] is None
    assert cli("runs", "list", "--format", "json").json["runs"][0]["seed"] is None
