"""W&B offline files of three versions: every value, every checksum, and what a crash leaves."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.readers.wandb_offline import WandbReader
from tests.readers.checking import FILES, assert_equals, expected_runs, outcome, points_of, read_all

READER = WandbReader()
VERSIONS = ("wandb_0_16", "wandb_0_19", "wandb_0_31")


def file_of(version: str, run: str) -> Path:
    return FILES / version / "wandb" / f"offline-run-20250101_000000-{run}" / f"run-{run}.wandb"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_value_equals_what_was_logged(version: str) -> None:
    found = {name.split("-")[-1].removesuffix(".wandb"): run for name, run in read_all(READER, FILES / version).items()}
    for name, expected in expected_runs(version).items():
        assert_equals(found[name], expected)
        assert not found[name].notes
    assert found["finished"].name == "name of finished"
    assert found["failed"].reason == "exit code 1"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_that_was_killed_has_no_status(version: str) -> None:
    [run] = READER.read(file_of(version, "crashed"))
    assert run.status is None
    assert run.notes == ("run-crashed.wandb has no records yet",)


def test_it_recognizes_runs_by_their_first_bytes(tmp_path: Path) -> None:
    assert READER.recognize(FILES / "wandb_0_31") == "4 offline runs"
    (tmp_path / "run-x.wandb").write_bytes(b"something else")
    assert READER.recognize(tmp_path) is None
    with pytest.raises(UserError, match="is not a W&B offline run"):
        list(READER.read(tmp_path))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_cut_off_anywhere_gives_the_records_before(tmp_path: Path, version: str) -> None:
    content, path = file_of(version, "finished").read_bytes(), tmp_path / "run-x.wandb"
    path.write_bytes(content)
    whole = points_of(READER.read(path))
    before = 0
    for size in sorted(random.Random(2).sample(range(7, len(content)), 120)):
        path.write_bytes(content[:size])
        [run] = READER.read(path)
        points = points_of([run])
        assert before <= len(points) and points <= whole
        assert run.status is None or size > 0.8 * len(content)
        before = len(points)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("run", ["finished", "long"])
def test_a_flipped_bit_never_gives_a_wrong_number(tmp_path: Path, version: str, run: str) -> None:
    content, path = file_of(version, run).read_bytes(), tmp_path / "run-x.wandb"
    path.write_bytes(content)
    whole = points_of(READER.read(path))
    drawn = random.Random(3)
    for place in [*range(7), *drawn.sample(range(7, len(content)), 120 if run == "finished" else 25)]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << drawn.randrange(8)
        path.write_bytes(flipped)
        found = outcome(READER, path)
        if place < 7:
            assert isinstance(found, UserError)
            continue
        points, notes = found  # type: ignore[misc]
        assert points <= whole
        assert any("damaged" in note or "ends inside" in note for note in notes), place


def test_after_damage_the_next_block_is_read_again(tmp_path: Path) -> None:
    content, path = bytearray(file_of("wandb_0_31", "long").read_bytes()), tmp_path / "run-x.wandb"
    content[200] ^= 1
    path.write_bytes(content)
    [run] = READER.read(path)
    assert run.status is Status.COMPLETED
    assert 0 < len(run.series["accuracy"]) < 120


def test_garbage_gives_one_sentence_or_a_note(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    for seed in range(20):
        path.write_bytes(b":W&B\xe1\xbe\x00" + random.Random(seed).randbytes(70_000))
        points, notes = outcome(READER, path)  # type: ignore[misc]
        assert not points
        assert notes


def test_reading_on_gives_exactly_what_was_added(tmp_path: Path) -> None:
    content, path = file_of("wandb_0_31", "long").read_bytes(), tmp_path / "run-x.wandb"
    path.write_bytes(content)
    [whole] = READER.read(path)
    collected, since = set(), None
    for size in (0, 5, 7, 500, 501, 20_000, 32_760, 32_770, 40_000, len(content), len(content)):
        path.write_bytes(content[:size])
        [run] = READER.read(path, since)
        added = points_of([run])
        assert not added & collected
        collected |= added
        since = {run.id: run.cursor}
    assert collected == points_of([whole])
    assert (run.config, run.summary, run.status, run.name) == (whole.config, whole.summary, whole.status, whole.name)
