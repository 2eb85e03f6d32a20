"""Metrics that were cut off or changed: no run goes on behind them as if nothing had happened, and readers say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fairtrial
from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Status
from fairtrial.jobs.run_session import run_cell
from fairtrial.record.checkpoints import read_checkpoint, write_checkpoint
from fairtrial.record.columns import read_header
from fairtrial.record.series import read_lines, read_series, series_in_brief
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import make, request_for, series_of

FAKE: dict[str, Any] = {"steps": 12, "eval_every": 3, "log_every": 1, "checkpoint_every": 4, "jitter": 0.1}


def interrupted(store: Store, after: int = 9) -> RunPaths:
    """A run that was stopped after some steps; it has checkpoints of steps 4, 8 and 9."""
    seen = iter(range(1, 10_000))
    run_cell(request_for(store, "fake", **FAKE), should_stop=lambda: next(seen) >= after)
    return store.paths.run("s", "v.seed1")


def emptied(content: bytes) -> bytes:
    return b""


def cut_at_a_line(content: bytes) -> bytes:
    return b"".join(content.splitlines(keepends=True)[:3])


def cut_within_a_line(content: bytes) -> bytes:
    return content[: len(content) // 2]


def last_line_lost(content: bytes) -> bytes:
    return b"".join(content.splitlines(keepends=True)[:-1])


def digit_changed(content: bytes) -> bytes:
    """In a value that was logged before the first checkpoint."""
    place = content.index(b"train_loss") + len(b'train_loss":0.')
    return content[:place] + (b"7" if content[place : place + 1] != b"7" else b"3") + content[place + 1 :]


def step_changed(content: bytes) -> bytes:
    """The step of a line after the first checkpoint becomes one before it: it would replace a value."""
    return content.replace(b'{"step":7,', b'{"step":2,', 1)


def line_end_lost(content: bytes) -> bytes:
    return content.replace(b"\n", b" ", 1)


DAMAGES = [
    emptied, cut_at_a_line, cut_within_a_line, last_line_lost, digit_changed, step_changed, line_end_lost
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_whose_metrics_were_damaged_ends_with_every_step(
    store: Store, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    reference = Store(tmp_path / "reference")
    make(reference, "fake", **FAKE)
    paths = interrupted(store)
    content = paths.metrics.read_bytes()
    assert damage(content) != content
    paths.metrics.write_bytes(damage(content))
    run_cell(request_for(store, "fake", **FAKE))
    run = store.run("s", "v.seed1")
    assert run is not None and run.status is Status.COMPLETED
    assert series_of(store) == series_of(reference)


def test_the_newest_checkpoint_whose_lines_are_still_there_is_gone_on_from(store: Store) -> None:
    paths = interrupted(store)
    paths.metrics.write_bytes(last_line_lost(paths.metrics.read_bytes()))
    run_cell(request_for(store, "fake", **FAKE))
    run = store.run("s", "v.seed1")
    assert run is not None and run.metadata["lineage"]["resumed"][0]["step"] == 8
    [refused] = [row for row in read_lines(paths.events).rows if row["event"] == "checkpoint_refused"]
    assert refused["step"] == 9 and "metrics.jsonl is shorter than" in refused["reason"]
    [caution] = [each for each in run.metadata["cautions"] if each["code"] == "damaged series"]
    assert "it resumed from step 8" in caution["text"]


def test_what_was_logged_after_the_last_checkpoint_and_cannot_be_read_is_logged_again(
    store: Store, tmp_path: Path
) -> None:
    reference = Store(tmp_path / "reference")
    make(reference, "fake", **FAKE)
    paths = interrupted(store)
    with paths.metrics.open("ab") as file:
        file.write(b'{"step":10,"_time":0.1,"train_l\xff\xff\xff\n')
    run_cell(request_for(store, "fake", **FAKE))
    assert series_of(store) == series_of(reference)
    lineage = store.run("s", "v.seed1").metadata["lineage"]  # type: ignore[union-attr]
    assert lineage["resumed"][0]["step"] == 9


def test_a_program_that_joins_a_run_whose_metrics_were_emptied_starts_over(store: Store) -> None:
    """The job has begun another attempt; its program finds an empty file, which is not a first attempt."""
    from fairtrial.record.recorder import Recorder

    first = fairtrial.run(variant="v", store=store.root, best_metric="acc")
    first.evaluated(1, {"acc": 0.9}, {"w": 1}, save=True)
    first.release()
    first.paths.metrics.write_bytes(b"")
    job = fairtrial.run(variant="v", store=store.root, best_metric="acc")
    joined = Recorder.attach(job.paths)
    assert joined.resume() is None
    joined.evaluated(1, {"acc": 0.5}, {"w": 2})
    assert joined.metadata["best_metric_value"] == 0.5
    joined.release()
    job.release()


def test_a_checkpoint_that_was_taken_back_is_not_gone_on_from_when_events_are_cut_off(store: Store) -> None:
    """The second attempt started over. Without its events, the checkpoint of the first would seem to be the newest."""
    first = fairtrial.run(variant="v", store=store.root)
    for step in range(1, 11):
        first.log(step, x=step)
    first.save(10, {"w": 1})
    first.release()
    events = first.paths.events.read_bytes()
    second = fairtrial.run(variant="v", store=store.root)
    for step in range(1, 4):
        second.log(step, x=step)
    second.release()
    first.paths.events.write_bytes(events)
    with fairtrial.run(variant="v", store=store.root) as third:
        saved = third.resume()
        for step in range(saved.step + 1 if saved else 1, 13):
            third.log(step, x=step)
    assert read_series(third.paths)["x"][0].tolist() == list(range(1, 13))


def test_a_file_that_is_cut_off_while_the_run_is_made_is_no_completed_run(store: Store) -> None:
    run = fairtrial.run(variant="v", store=store.root)
    for step in range(1, 6):
        run.log(step, x=step)
    run.save(5, {"w": 1})
    run.paths.metrics.write_bytes(b"")
    with pytest.raises(StoreError, match="was truncated while the run was in progress"):
        run.save(6, {"w": 2})
    with pytest.raises(StoreError, match="was truncated while the run was in progress"):
        run.finish(Status.COMPLETED)
    run.close()
    found = store.run("adhoc", "v.seed1072")
    assert found is not None and found.status is Status.INTERRUPTED


def test_lines_logged_after_a_checkpoint_of_their_own_step_are_kept(store: Store) -> None:
    """What an evaluation logs after `save`, at the same step, is not logged again by who goes on from there."""
    first = fairtrial.run(variant="v", store=store.root)
    first.log(1, x=1)
    first.save(1, {"w": 1})
    first.log(1, report=0.5)
    first.log(2, x=2)
    first.release()
    with fairtrial.run(variant="v", store=store.root) as second:
        assert second.resume() is not None
        second.log(2, x=3)
    series = read_series(second.paths)
    assert series["report"][1].tolist() == [0.5] and series["x"][1].tolist() == [1, 3]


def test_a_checkpoint_of_an_earlier_version_is_gone_on_from(store: Store) -> None:
    """It does not say what it builds on."""
    first = fairtrial.run(variant="v", store=store.root)
    first.log(1, x=1)
    first.save(1, {"w": 1})
    first.release()
    path = first.paths.step(1)
    old = read_checkpoint(path)
    details = {name: value for name, value in old.details.items() if name != "series"}
    sha256 = write_checkpoint(path, 1, old.state, **details)
    rows = read_lines(first.paths.events).rows
    for row in rows:
        if row["event"] == "checkpoint_saved":
            del row["series"]
            row["sha256"] = sha256
    first.paths.events.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with fairtrial.run(variant="v", store=store.root) as second:
        saved = second.resume()
        assert saved is not None and saved.state == {"w": 1}


# Reading


def ended(store: Store, steps: int = 20) -> RunPaths:
    with fairtrial.run(variant="v", study="s", seed=1, store=store.root) as run:
        for step in range(1, steps + 1):
            run.log(step, loss=1 / step, accuracy=step / 100)
    return run.paths


def test_metrics_that_were_cut_off_after_the_end_are_not_exported_as_if_they_were_all(
    cli: Callable[..., Answer], store: Store
) -> None:
    paths = ended(store)
    whole = cli("runs", "export", "s/v.seed1")
    assert whole.code == 0 and len(whole.out.splitlines()) == 41
    paths.metrics.write_bytes(cut_at_a_line(paths.metrics.read_bytes()))
    answer = cli("runs", "export", "s/v.seed1")
    assert "0.05" not in answer.out and "is shorter than recorded: 3 of 20 lines" in answer.err + answer.out


def test_a_changed_digit_is_not_read_as_a_value(cli: Callable[..., Answer], store: Store) -> None:
    """There is no columnar copy that could tell: it was deleted, or never made."""
    paths = ended(store)
    paths.columns.unlink()
    assert cli("runs", "export", "s/v.seed1").code == 0
    paths.metrics.write_bytes(paths.metrics.read_bytes().replace(b'"loss":0.25', b'"loss":0.95'))
    answer = cli("runs", "export", "s/v.seed1")
    assert "0.95" not in answer.out and "does not have the recorded hash" in answer.err + answer.out


def test_series_of_another_run_are_not_read_as_those_of_this_one(store: Store) -> None:
    """Lines and columns agree with each other; but they are not what this run ended with."""
    paths = ended(store)
    with fairtrial.run(variant="v", study="s", seed=2, store=store.root) as other:
        for step in range(1, 21):
            other.log(step, loss=2 / step, accuracy=step / 100)
    for here, there in ((paths.metrics, other.paths.metrics), (paths.columns, other.paths.columns)):
        here.write_bytes(there.read_bytes())
    with pytest.raises(StoreError, match=r"was changed|is shorter"):
        read_series(paths)


def test_a_changed_bit_of_the_columns_changes_no_value(store: Store) -> None:
    """Lines are the truth: columns that do not have their checksum are not used."""
    paths = ended(store)
    expected = {name: (s.tolist(), v.tolist()) for name, (s, v) in read_series(paths).items()}
    content = paths.columns.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 150)):
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 8)
        paths.columns.write_bytes(changed)
        assert {name: (s.tolist(), v.tolist()) for name, (s, v) in read_series(paths).items()} == expected, place
    short = content[: len(content) // 2]
    paths.columns.write_bytes(short)
    assert {name: (s.tolist(), v.tolist()) for name, (s, v) in read_series(paths).items()} == expected


@pytest.mark.slow
def test_a_changed_bit_of_the_footer_changes_no_series_in_brief(store: Store) -> None:
    """`runs show` reads the footer by itself, without pyarrow."""
    paths = ended(store)
    expected = series_in_brief(paths)
    series = read_series(paths)
    assert {name: (each.points, each.last_step, each.last) for name, each in expected.items()} == {
        name: (len(steps), steps[-1], values[-1]) for name, (steps, values) in series.items()
    }
    content = paths.columns.read_bytes()
    footer = content.index(b"fairtrial.series") - 1000
    for place in (*range(max(0, footer), len(content), 7), *range(len(content) - 8, len(content))):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            paths.columns.write_bytes(changed)
            assert series_in_brief(paths) == expected, place
    for length in (0, 3, 8, len(content) // 2, len(content) - 1):
        paths.columns.write_bytes(content[:length])
        assert series_in_brief(paths) == expected, length


@pytest.mark.parametrize("end", [b"\xff\xff\xff\x7fPAR1", b"\x10\x00\x00\x00PAR2"])
def test_a_footer_of_an_impossible_length_is_not_read(store: Store, end: bytes) -> None:
    paths = ended(store)
    content = paths.columns.read_bytes()
    paths.columns.write_bytes(content[:-8] + end)
    with pytest.raises(ValueError, match="not a Parquet file written by Fairtrial"):
        read_header(paths)


def test_series_in_brief_come_from_the_footer_and_not_from_all_lines(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ended(store)
    expected = series_in_brief(paths)
    monkeypatch.setattr("fairtrial.record.series.collect", lambda *_: pytest.fail("reads every line"))
    assert series_in_brief(paths) == expected


def test_columns_of_an_earlier_version_are_read(store: Store) -> None:
    """They have no header, and only the size of the lines."""
    import pyarrow
    import pyarrow.parquet

    paths = ended(store, steps=3)
    metadata = json.loads(paths.metadata.read_text())
    del metadata["series"]
    paths.metadata.write_text(json.dumps(metadata))
    names = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 0, 1], pyarrow.int32()), pyarrow.array(["b", "a"]))
    columns = [names, pyarrow.array([1, 2, 1]), pyarrow.array([0.5, 0.25, 7.0])]
    table = pyarrow.Table.from_arrays(columns, names=["metric", "step", "value"])
    size = str(paths.metrics.stat().st_size).encode()
    pyarrow.parquet.write_table(
        table.replace_schema_metadata({b"fairtrial.lines_bytes": size}), paths.columns, use_dictionary=["metric"]
    )
    found = read_series(paths)
    assert {name: (s.tolist(), v.tolist()) for name, (s, v) in found.items()} == {
        "b": ([1, 2], [0.5, 0.25]), "a": ([1], [7.0])
    }  # fmt: skip
    paths.metrics.write_bytes(cut_within_a_line(paths.metrics.read_bytes()))
    with pytest.raises(StoreError, match="is shorter than when the run ended"):
        read_series(paths)


def test_every_changed_bit_of_metrics_is_noticed(store: Store) -> None:
    from fairtrial.record.series import verify_series

    paths = ended(store, steps=4)
    assert verify_series(paths) is None
    content = paths.metrics.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 8)
        paths.metrics.write_bytes(changed)
        assert verify_series(paths), place
    paths.metrics.write_bytes(content)
    assert verify_series(paths) is None
    columns = bytearray(paths.columns.read_bytes())
    columns[len(columns) // 4] ^= 1
    paths.columns.write_bytes(columns)
    problem = verify_series(paths)
    assert problem is not None and problem.repairable


def test_damage_to_a_run_that_was_interrupted_is_noticed(store: Store) -> None:
    from fairtrial.record.series import verify_series

    paths = interrupted(store)
    metadata = json.loads(paths.metadata.read_text())
    paths.metadata.write_text(json.dumps({**metadata, "status": "running", "series": None, "series_sha256": None}))
    assert verify_series(paths) is None
    paths.metrics.write_bytes(digit_changed(paths.metrics.read_bytes()))
    assert "changed before the checkpoint of step 4" in str(verify_series(paths))


# Lines


def test_a_line_that_was_broken_in_two_is_not_put_together(store: Store) -> None:
    run = fairtrial.run(variant="v", store=store.root)
    run.release()
    run.paths.metrics.write_bytes(b'{"step":1,"_time":1.0\n"x":1.0}\n')
    with pytest.raises(StoreError, match=r"line 1 of .* is not JSON"):
        read_series(run.paths)


def test_a_file_without_line_ends_is_not_read_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtrial.api.running.runs import last_metrics
    from fairtrial.record import lines

    monkeypatch.setattr(lines, "LONGEST_LINE_BYTES", 2 << 20)
    run = fairtrial.run(variant="v", store=store.root)
    run.release()
    run.paths.metrics.write_bytes(b"x" * (5 << 20) + b"\n")
    with pytest.raises(StoreError, match="a line longer than 2 MB"):
        read_series(run.paths)
    with pytest.raises(StoreError, match="a line longer than 2 MB"):
        last_metrics("v.seed1072", store=store.root)


def test_a_line_that_another_process_is_writing_is_not_cut_off(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtrial.record import lines

    path = store.root / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'{"step":1}\n{"step":')

    def meanwhile(_seconds: float) -> None:
        with path.open("ab") as file:
            file.write(b"2}\n")

    monkeypatch.setattr(lines.time, "sleep", meanwhile)
    assert not lines.drop_torn_line(path)
    assert path.read_bytes() == b'{"step":1}\n{"step":2}\n'
    path.write_bytes(b'{"step":1}\n{"step":')
    monkeypatch.setattr(lines.time, "sleep", lambda _seconds: None)
    assert lines.drop_torn_line(path) and path.read_bytes() == b'{"step":1}\n'


def test_a_damaged_last_line_is_a_sentence(cli: Callable[..., Answer], store: Store) -> None:
    run = fairtrial.run(variant="v", study="s", seed=1, store=store.root)
    run.log(1, x=1.0)
    run.release()
    for line in (b'{"step":2,"_time":"later","x":1.0}\n', b"[1]\n", b"nonsense\n"):
        with run.paths.metrics.open("ab") as file:
            file.write(line)
        answer = cli("runs", "tail", "s/v.seed1")
        assert answer.code == 1 and "has an invalid line" in answer.err


# Events


def test_an_evaluation_that_lacks_its_metrics_does_not_keep_a_run_from_being_shown(
    cli: Callable[..., Answer], store: Store
) -> None:
    paths = ended(store)
    with paths.events.open("a") as file:
        file.write('{"schema":1,"event":"evaluation","at":1.0,"step":1}\n')
    answer = cli("runs", "show", "s/v.seed1")
    assert answer.code == 3 and "20 points" in answer.out and "the event evaluation" in " ".join(answer.out.split())


def test_a_rewind_that_cannot_be_read_keeps_no_checkpoint(store: Store) -> None:
    from fairtrial.record.recorder import saved_checkpoints

    paths = interrupted(store)
    assert sorted(saved_checkpoints(paths)) == [4, 8, 9]
    with paths.events.open("a") as file:
        file.write('{"schema":1,"event":"rewound","at":1.0,"step":null}\n')
    assert saved_checkpoints(paths) == {}


@pytest.mark.parametrize(
    "fields", ['"step":"5","value":1.0,"sha256":"x"', '"step":5,"value":"high","sha256":"x"', '"step":5,"value":1.0']
)
def test_an_event_of_a_kept_checkpoint_that_is_damaged_is_a_sentence(store: Store, fields: str) -> None:
    from fairtrial.record.top_checkpoints import list_top_checkpoints

    paths = interrupted(store)
    with paths.events.open("a") as file:
        file.write(f'{{"schema":1,"event":"top_kept","at":1.0,{fields}}}\n')
    with pytest.raises(StoreError, match=r"events\.jsonl has the event top_kept"):
        list_top_checkpoints(paths, "max")
