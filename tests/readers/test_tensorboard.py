"""TensorBoard event files: equal to EventAccumulator, rewound by restarts, and safe whatever the bytes are."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from fairtrial.core.errors import UserError
from fairtrial.readers.crc32c import crc32c
from fairtrial.readers.tensorboard import FLOAT32, TensorBoardReader
from tests.readers.checking import FILES, assert_equals, expected_runs, outcome, points_of, read_all

READER = TensorBoardReader()


@pytest.mark.parametrize("folder", ["tensorboard", "tensorboardx", "tensorboard_v2"])
def test_every_value_equals_what_eventaccumulator_gives(folder: str) -> None:
    found = read_all(READER, FILES / folder)
    for name, expected in expected_runs(folder).items():
        assert_equals(found[name], expected)


def test_it_says_that_values_are_float32_and_only_where_they_are() -> None:
    runs = read_all(READER, FILES / "tensorboard")
    assert FLOAT32 in runs["purged"].notes
    assert runs["styles"].series["double"].values[3] == 0.1
    assert runs["plain/seed_1"].series["train/loss"].values[3] == np.float32(0.1)


def test_a_restart_without_purge_step_is_rewound() -> None:
    run = read_all(READER, FILES / "tensorboard")["restarted"]
    assert run.series["loss"].steps.tolist() == list(range(12))
    assert any("restart" in note for note in run.notes)


def test_writers_at_the_same_time_are_runs_of_their_own() -> None:
    runs = [run for name, run in read_all(READER, FILES / "tensorboard").items() if name.startswith("at_once")]
    assert sorted(run.series["loss"].values[0] for run in runs) == [0.5, 0.75]
    assert all(any("at the same time" in note for note in run.notes) for run in runs)


def test_a_single_file_can_be_named() -> None:
    [file] = (FILES / "tensorboard_v2" / "train").iterdir()
    [run] = READER.read(file)
    assert run.id == file.name
    assert len(run.series["epoch_loss"]) == 10


def test_it_recognizes_its_files_and_no_others(tmp_path: Path) -> None:
    assert READER.recognize(FILES / "tensorboard" / "purged") == "2 event files"
    assert READER.recognize(FILES / "tensorboard") == "10 event files in 6 folders"
    (tmp_path / "metrics.csv").write_text("a,b\n")
    assert READER.recognize(tmp_path) is None
    with pytest.raises(UserError, match="no TensorBoard event files"):
        list(READER.read(tmp_path))


def test_checksums_are_those_of_the_standard() -> None:
    assert int(crc32c(np.frombuffer(b"123456789", dtype=np.uint8)[None])[0]) == 0xE3069283
    assert int(crc32c(np.zeros((1, 32), dtype=np.uint8))[0]) == 0x8A9136AA
    assert int(crc32c(np.frombuffer(b"a", dtype=np.uint8)[None])[0]) == 0xC1D04330
    assert int(crc32c(np.zeros((1, 0), dtype=np.uint8))[0]) == 0


@pytest.mark.parametrize("length", [3, 4, 70, 1023, 1024, 1025, 5000])
def test_checksums_of_many_and_of_few_agree_with_a_plain_loop(length: int) -> None:
    rows = np.random.default_rng(length).integers(0, 256, (60, length), dtype=np.uint8)
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 * (byte & 1))
        table.append(byte)
    plain = []
    for row in rows[:3].tolist():
        crc = 0xFFFFFFFF
        for byte in row:
            crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        plain.append(crc ^ 0xFFFFFFFF)
    assert crc32c(rows)[:3].tolist() == plain == crc32c(rows[:3]).tolist()


# Damage


def folder_with(tmp_path: Path, content: bytes) -> Path:
    (tmp_path / "events.out.tfevents.1.host.1.0").write_bytes(content)
    return tmp_path


def source(name: str) -> bytes:
    return min((FILES / name).glob("*tfevents*")).read_bytes()


def test_a_file_cut_off_anywhere_gives_the_records_before(tmp_path: Path) -> None:
    content = source("tensorboard/purged")
    whole, _ = outcome(READER, folder_with(tmp_path, content))  # type: ignore[misc]
    previous = 0
    for size in range(0, len(content), 3):
        points, notes = outcome(READER, folder_with(tmp_path, content[:size]))  # type: ignore[misc]
        assert points <= whole
        assert len(points) >= previous
        assert (points == whole) or any("ends inside" in note for note in notes) or _at_a_record(content, size)
        previous = len(points)


def _at_a_record(content: bytes, size: int) -> bool:
    position = 0
    while position < size:
        position += int.from_bytes(content[position : position + 8], "little") + 16
    return position == size


@pytest.mark.parametrize("name", ["tensorboard/purged", "tensorboard/styles", "tensorboard/plain/seed_1"])
def test_a_flipped_bit_never_gives_a_wrong_number(tmp_path: Path, name: str) -> None:
    content = source(name)
    whole, _ = outcome(READER, folder_with(tmp_path, content))  # type: ignore[misc]
    drawn = random.Random(1)
    places = drawn.sample(range(len(content)), 200)
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << drawn.randrange(8)
        points, notes = outcome(READER, folder_with(tmp_path, bytes(flipped)))  # type: ignore[misc]
        assert points <= whole
        assert any("damaged" in note or "ends inside" in note for note in notes), place


def test_garbage_is_said_to_be_damaged(tmp_path: Path) -> None:
    for content in (b"", b"x" * 40, bytes(40), random.Random(1).randbytes(5000), b"\xff" * 100):
        points, notes = outcome(READER, folder_with(tmp_path, content))  # type: ignore[misc]
        assert not points
        assert any("damaged" in note for note in notes) or not content


# Growth


def test_reading_on_gives_exactly_what_was_added(tmp_path: Path) -> None:
    content = source("tensorboard/plain/seed_1")
    whole = points_of(READER.read(folder_with(tmp_path, content)))
    collected, since = set(), None
    for size in (0, 10, 100, 1000, 1001, 5000, len(content), len(content)):
        [run] = READER.read(folder_with(tmp_path, content[:size]), since)
        assert run.continues == (since is not None)
        added = points_of([run])
        assert not added & collected
        collected |= added
        since = {run.id: run.cursor}
    assert collected == whole


def test_reading_on_over_restarts_gives_the_same_run(tmp_path: Path) -> None:
    for name in ("purged", "restarted"):
        folder, kept, since = tmp_path / name, {}, None
        folder.mkdir()
        for file in sorted((FILES / "tensorboard" / name).iterdir()):
            shutil.copy(file, folder)
            [run] = READER.read(folder, since)
            for metric, step in run.rewound.items():
                kept = {key: value for key, value in kept.items() if key[0] != metric or key[1] < step}
            kept |= {(metric, step): value for _, metric, step, value in points_of([run])}
            since = {run.id: run.cursor}
        [whole] = READER.read(FILES / "tensorboard" / name)
        assert {(whole.id, *key, value) for key, value in kept.items()} == points_of([whole])
