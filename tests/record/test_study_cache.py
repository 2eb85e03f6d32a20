"""A study read at once: the copy is quick, and never says anything that the run directories do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fairtrial.core.runs import Status
from fairtrial.record import study_cache as bulk
from fairtrial.record.metadata import write_metadata
from fairtrial.record.store import Store
from fairtrial.record.study_cache import is_whole_copy, read_study
from tests.harness import make


def content(store: Store) -> dict[str, object]:
    return {
        each.run.id: (
            each.run.status,
            dict(each.run.metadata),
            {
                name: (steps.tolist(), [v.hex() for v in values.tolist()])
                for name, (steps, values) in each.series.items()
            },
        )
        for each in read_study(store, "s")
    }


@pytest.fixture
def filled(store: Store) -> Store:
    for seed in (1, 2, 3):
        make(store, "fake", seed=seed, steps=20)
    make(store, "fake", seed=4, steps=20, diverge_at=9)
    return store


def test_the_copy_says_what_the_directories_say(filled: Store) -> None:
    first = content(filled)
    assert filled.paths.series_cache("s").exists()
    again = content(filled)
    assert json.dumps(first, default=str) == json.dumps(again, default=str)
    assert [status for status, *_ in first.values()] == [Status.COMPLETED] * 3 + [Status.DIVERGED]  # type: ignore[misc]


def test_the_second_reading_opens_no_run(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    content(filled)
    monkeypatch.setattr(bulk, "record_of", lambda paths: pytest.fail(f"read {paths}"))
    assert len(content(filled)) == 4


def test_new_changed_and_removed_runs_are_noticed(filled: Store) -> None:
    content(filled)
    make(filled, "fake", seed=5, steps=20)
    shutil.rmtree(filled.paths.run("s", "v.seed1").root)
    changed = filled.paths.run("s", "v.seed2")
    metadata = json.loads(changed.metadata.read_text())
    del metadata["series"], metadata["checksum"]  # as in runs of earlier versions, which have the last values alone
    changed.metadata.write_text(json.dumps(metadata))
    changed.metrics.write_bytes(changed.metrics.read_bytes() + b'{"step":99,"_time":1.0,"train_loss":7.0}\n')
    found = {each.run.id: each for each in read_study(filled, "s")}
    assert sorted(found) == ["v.seed2", "v.seed3", "v.seed4", "v.seed5"]
    added = found["v.seed2"]  # a line was added to a run that had ended
    assert added.run.status is Status.DAMAGED and "ends with train_loss 7" in (added.run.reason or "")
    assert not added.series


def test_a_run_that_was_killed_is_never_taken_from_the_copy(filled: Store) -> None:
    paths = filled.paths.run("s", "v.seed1")
    metadata = json.loads(paths.metadata.read_text())
    write_metadata(paths, {**metadata, "status": "running"})
    for _ in range(2):
        assert read_study(filled, "s")[0].run.status is Status.INTERRUPTED


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"ARROW1\0\0" + b"\0" * 40])
def test_a_damaged_copy_is_made_anew(filled: Store, damage: bytes) -> None:
    whole = content(filled)
    filled.paths.series_cache("s").write_bytes(damage)
    assert json.dumps(content(filled), default=str) == json.dumps(whole, default=str)


def test_too_many_points_are_not_copied(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MOST_POINTS", 10)
    assert len(content(filled)) == 4
    assert not filled.paths.series_cache("s").exists()


def test_a_store_that_cannot_be_written_can_be_read(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(bulk, "replace_file", refuse)
    assert len(content(filled)) == 4
    assert not Path(filled.paths.series_cache("s")).exists()


def test_reading_and_writing_columns_does_not_import_pandas(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from fairtrial.record.store import Store; from tests.harness import make;"
        "from fairtrial.record.study_cache import read_study; store = Store(Path(sys.argv[1])); make(store, 'fake', steps=20);"
        "read_study(store, 's'); read_study(store, 's'); print('pandas' in sys.modules)"
    )
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_changed_bit_of_the_copy_changes_no_value(filled: Store) -> None:
    whole = json.dumps(content(filled), default=str)
    cache = filled.paths.series_cache("s")
    good = cache.read_bytes()
    for place in range(0, len(good), max(1, len(good) // 60)):
        changed = bytearray(good)
        changed[place] ^= 1 << (place % 8)
        cache.unlink()
        cache.write_bytes(changed)
        assert json.dumps(content(filled), default=str) == whole, place


def test_no_changed_bit_of_the_footer_ends_a_command(filled: Store) -> None:
    """The footer says of which types the columns are: a changed bit can name one that does not exist."""
    read_study(filled, "s")
    cache = filled.paths.series_cache("s")
    good = cache.read_bytes()
    for place in range(len(good) - 400, len(good), 4):
        for bit in range(8):
            changed = bytearray(good)
            changed[place] ^= 1 << bit
            cache.unlink()
            cache.write_bytes(changed)
            is_whole_copy(cache)  # True only where the bit is of no importance; it never raises
