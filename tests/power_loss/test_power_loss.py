"""After a power cut, what somebody was told is there, nothing loads wrong, and work goes on as if nothing had been.

Every format has its piece of work. Here a few hundred crash states are tried, the same ones every time: right after
everything that somebody is told, and after every few operations. `benchmarks/power_loss.py` tries thousands.
"""

from __future__ import annotations

from pathlib import Path

from tests.power_loss.recording import Recording, Sync
from tests.power_loss.states import crash_states
from tests.power_loss.workloads import (
    WORKLOADS,
    begun,
    campaign,
    finish_run,
    outcome_of,
    recorded,
    run_paths,
    train,
    undisturbed,
)

STRIDES = {
    "run": 9, "take-over": 40, "return to an earlier best": 1000, "run without hard links": 1000,
    "index and series": 40, "mirror": 12, "mirror of a run that is being made": 12, "shared run": 30, "archive": 1000,
}  # fmt: skip


def survives(name: str) -> None:
    tally = campaign(name, samples=0, stride=STRIDES.get(name, 1), most_wrong=5)
    assert tally.wrong == []
    assert tally.states >= 5 and tally.told >= 1


def test_a_run_survives_a_power_cut() -> None:
    survives("run")


def test_a_run_that_is_taken_over_survives_a_power_cut() -> None:
    survives("take-over")


def test_a_return_to_an_earlier_best_survives_a_power_cut() -> None:
    survives("return to an earlier best")


def test_a_run_without_hard_links_survives_a_power_cut() -> None:
    survives("run without hard links")


def test_an_archived_run_survives_a_power_cut() -> None:
    survives("archive")


def test_the_cache_survives_a_power_cut() -> None:
    survives("cache")


def test_a_cache_of_an_earlier_version_survives_a_power_cut() -> None:
    survives("cache of an earlier version")


def test_a_damaged_cache_survives_a_power_cut() -> None:
    survives("damaged cache")


def test_the_index_and_series_survive_a_power_cut() -> None:
    survives("index and series")


def test_plans_and_looks_survive_a_power_cut() -> None:
    survives("plans and looks")


def test_registrations_survive_a_power_cut() -> None:
    survives("registrations")


def test_a_mirror_survives_a_power_cut() -> None:
    survives("mirror")


def test_a_mirror_of_a_run_that_is_being_made_survives_a_power_cut() -> None:
    survives("mirror of a run that is being made")


def test_a_run_of_a_shared_store_survives_a_power_cut() -> None:
    survives("shared run")


def test_every_format_has_its_test() -> None:
    source = Path(__file__).read_text()
    assert [name for name in WORKLOADS if f'survives("{name}")' not in source] == []


def test_columns_and_series_are_whole_after_a_power_cut() -> None:
    """They have no hashes, and zeros in the middle of them would be read as values: they are whole, or not there."""
    contents: dict[str, set[bytes]] = {}
    whole: dict[str, set[bytes]] = {}
    for state in crash_states(recorded("index and series"), samples=2):
        for name, content in state.files.items():
            if name.endswith(("metrics.parquet", ".arrow")):
                contents.setdefault(name, set()).add(content)
                if state.how == "everything":
                    whole.setdefault(name, set()).add(content)
    assert len(contents) >= 3 and contents == whole


def test_a_hole_in_lines_that_were_not_synced_is_taken_out_and_kept(tmp_path: Path) -> None:
    """A block of lines after the last checkpoint did not reach the disk, and a later one did."""
    recorder = begun(run_paths(tmp_path))
    train(recorder, lambda *_: None, until=4)
    synced = recorder.paths.metrics.stat().st_size
    for step in range(5, 200):
        recorder.log(step, loss=1.0, other=2.0)
    recorder.release()
    whole = recorder.paths.metrics.read_bytes()
    hole = whole[:synced] + bytes(1024) + whole[synced + 1024 :]
    recorder.paths.metrics.write_bytes(hole)
    finish_run(tmp_path)
    assert outcome_of(tmp_path) == undisturbed()
    [aside] = recorder.paths.root.glob(".metrics.jsonl.lost-*")
    assert aside.read_bytes() == hole[synced:]


def test_what_is_taken_out_of_lines_is_always_in_one_of_two_places(tmp_path: Path) -> None:
    from fairtrial.core.durable import set_lost_tail_aside

    path = tmp_path / "metrics.jsonl"
    content = b'{"step": 1}\n' + bytes(500) + b'{"step": 9}\n'
    path.write_bytes(content)
    recording = Recording(tmp_path)
    with recording.active():
        assert set_lost_tail_aside(path)
        recording.tell("taken out")
    for state in crash_states(recording, samples=6):
        kept = [found for name, found in state.files.items() if ".lost-" in name]
        assert state.files["metrics.jsonl"] == content or kept == [content[12:]], state.how
    assert path.read_bytes() == content[:12]


def test_a_copied_run_is_whole_or_not_there(tmp_path: Path) -> None:
    """A file of the same size and time is not copied again, so it must have its content."""
    from fairtrial.api.running.stores import _copy

    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "metrics.jsonl").write_bytes(b'{"step": 1}\n' * 100)
    recording = Recording(tmp_path)
    with recording.active():
        _copy(tmp_path / "from" / "metrics.jsonl", tmp_path / "to" / "metrics.jsonl")
    found = {state.files.get("to/metrics.jsonl") for state in crash_states(recording, samples=4)}
    assert found == {None, b'{"step": 1}\n' * 100}


def test_the_recording_is_complete(tmp_path: Path) -> None:
    """Nothing that happens below the folder is missed, by whatever means it was written."""
    recording = Recording(tmp_path)
    with recording.active():
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x").write_bytes(b"one")
        with (tmp_path / "a" / "y").open("ab") as file:
            file.write(b"two")
        (tmp_path / "a" / "x").rename(tmp_path / "z")
        (tmp_path / "a" / "y").unlink()
    states = [(dict(state.files), set(state.folders)) for state in crash_states(recording, samples=0)]
    assert ({"a/x": b"one"}, {"", "a"}) in states and ({"z": b"one"}, {"", "a"}) in states


def test_the_model_loses_and_reorders_what_was_not_synced(tmp_path: Path) -> None:
    """The classic mistake, a rename without a sync of the content, gives the old file, the new one, and zeros."""
    (tmp_path / "f").write_bytes(b"old")
    recording = Recording(tmp_path)
    with recording.active():
        (tmp_path / "new").write_bytes(b"new content")
        (tmp_path / "new").replace(tmp_path / "f")
        recording.tell("written")
    found = {state.files.get("f") for state in crash_states(recording, samples=4) if state.told}
    assert {b"old", b"new content", b"", bytes(11)} <= found


def test_the_model_keeps_what_was_synced(tmp_path: Path) -> None:
    from fairtrial.record.atomic import replace_bytes

    (tmp_path / "f").write_bytes(b"old")
    recording = Recording(tmp_path)
    with recording.active():
        replace_bytes(tmp_path / "f", b"new content")
        recording.tell("written")
    states = list(crash_states(recording, samples=8))
    assert {state.files["f"] for state in states} == {b"old", b"new content"}
    assert {state.files["f"] for state in states if state.told} == {b"new content"}


def test_a_log_line_syncs_nothing() -> None:
    """Lines are synced with checkpoints and at the end: a log call must stay as cheap as one write."""
    syncs = sum(isinstance(operation, Sync) for operation in recorded("run").operations)
    assert syncs < 90, "operations of a run of eleven lines, five checkpoints, two bests and two attempts"
