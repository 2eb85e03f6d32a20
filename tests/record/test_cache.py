"""The cache of a store: what is read is what was made, or it is made again, and somebody is told."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from fairtrial.core.errors import StoreError
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import make

KEY = {"name": "numbers"}


def made(folder: Path) -> dict[str, Any]:
    (folder / "inner").mkdir()
    (folder / "inner" / "a.bin").write_bytes(b"a" * 10_000)
    (folder / "b.bin").write_bytes(b"b" * 5_000)
    return {"sha256": "of the values"}


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def test_zeroed_labels_are_noticed_and_made_again(
    store: Store, cli: Callable[..., Answer], shell: Callable[..., Answer]
) -> None:
    """The reproduction of the defect: the labels that are reported on are zeroed between two runs."""
    arguments = ("train", "classify", "--model", "linear", "--data", "digits", "--steps", "60", "--seed", "1")
    first = cli(*arguments, "--study", "before")
    assert first.code == 0, first.err
    [labels] = store.paths.cache.glob("data/*/report_y.npy")
    content = labels.read_bytes()
    labels.write_bytes(content[:128] + bytes(len(content) - 128))
    second = shell(*arguments, "--study", "after")  # this process has read the labels, and would not read them again
    assert second.code == 0, second.err
    runs = [store.run(study, entry.name) for study, entry in store.directories()]
    accuracies = [run.metadata["final"]["report_accuracy"] for run in runs if run]
    assert accuracies[0] == accuracies[1], "the second run was judged by labels that are not the recorded ones"
    assert "report_y.npy does not have the recorded hash" in second.err
    [aside] = store.paths.cache.glob("data/*.damaged-*")
    assert (aside / "report_y.npy").read_bytes() == content[:128] + bytes(len(content) - 128)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda e: zero(e / "b.bin"), "b.bin does not have the recorded hash"),
        (lambda e: (e / "inner" / "a.bin").write_bytes(b"a" * 9_999), "a.bin does not have the recorded hash"),
        (lambda e: (e / "b.bin").unlink(), "does not contain b.bin"),
        (lambda e: (e / "c.bin").write_bytes(b""), "c.bin does not have the recorded hash"),
        (lambda e: zero(e / "manifest.json"), "manifest.json cannot be read"),
        (lambda e: (e / "manifest.json").write_text("[]"), "is not a valid manifest"),
        (lambda e: (e / "manifest.json").unlink(), "has no manifest.json"),
        (lambda e: rewrite(e / "manifest.json", sha256="of other values"), "manifest.json does not have the recorded"),
        (lambda e: rewrite(e / "manifest.json", files={"../b.bin": {"size": 1, "sha256": ""}}), "manifest.json does"),
    ],
)
def test_a_damaged_entry_is_set_aside_and_made_again(store: Store, damage: Any, told: str) -> None:
    from fairtrial.record.cache import StoreCache

    lines: list[str] = []
    cache = StoreCache(store.paths.cache, lines.append)
    entry = cache.entry("data", KEY, made)
    damage(entry.folder)
    again = cache.entry("data", KEY, made)
    assert again.folder == entry.folder and dict(again.manifest) == dict(entry.manifest)
    assert (again.folder / "b.bin").read_bytes() == b"b" * 5_000
    assert [line for line in lines if told in line and "is created again" in line]
    assert len(list(store.paths.cache.glob("data/*.damaged-*"))) == 1
    lines.clear()
    assert cache.entry("data", KEY, made).manifest == again.manifest and not lines


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}))


def test_damage_that_keeps_size_and_time_is_noticed_within_a_process(store: Store) -> None:
    store.cache.entry("data", KEY, made)
    entry = store.cache.entry("data", KEY, made)  # from here on this process knows what it has hashed
    before = (entry.folder / "b.bin").stat()
    (entry.folder / "b.bin").write_bytes(b"x" * 5_000)
    os.utime(entry.folder / "b.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    store.cache.entry("data", KEY, made)
    assert (entry.folder / "b.bin").read_bytes() == b"b" * 5_000


def test_what_cannot_be_made_again_is_refused_with_both_reasons(store: Store) -> None:
    def refuse(_: Path) -> dict[str, Any]:
        raise ModuleNotFoundError("No module named 'sklearn'")

    zero(store.cache.entry("data", KEY, made).folder / "b.bin")
    with pytest.raises(StoreError, match=r"b.bin does not have .* cannot be created again: No module named 'sklearn'"):
        store.cache.entry("data", KEY, refuse)
    assert store.cache.entry("data", KEY, made).manifest["sha256"] == "of the values"


def as_before(folder: Path) -> None:
    """The manifest as earlier versions wrote it."""
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps({name: content[name] for name in content if name not in ("files", "manifest_sha256")}))


def test_an_entry_of_an_earlier_version_is_checked_by_its_values_and_brought_up_to_date(
    with_data: Store, tmp_path: Path
) -> None:
    from fairtrial.recipes.data import load_data

    shared = load_data("digits", with_data.cache)
    own = Store(tmp_path / "own")
    copy = own.paths.cache / "data" / shared.folder.name
    copy.mkdir(parents=True)
    for path in shared.folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    as_before(copy)
    inode = (copy / "report_y.npy").stat().st_ino
    assert load_data("digits", own.cache).sha256 == shared.sha256
    assert (copy / "report_y.npy").stat().st_ino == inode, "it was made again though it is whole"
    assert "report_y.npy" in json.loads((copy / "manifest.json").read_bytes())["files"]
    as_before(copy)
    labels = numpy.load(copy / "report_y.npy")
    numpy.save(copy / "report_y.npy", numpy.zeros_like(labels))
    assert (load_data("digits", own.cache).array("report_y") == labels).all()
    assert len(list(copy.parent.glob("*.damaged-*"))) == 1


def test_an_entry_of_an_earlier_version_that_nobody_can_check_is_made_again(store: Store) -> None:
    entry = store.cache.entry("teacher-outputs", KEY, made)
    zero(entry.folder / "b.bin")
    as_before(entry.folder)
    store.cache.entry("teacher-outputs", KEY, made)
    assert (entry.folder / "b.bin").read_bytes() == b"b" * 5_000


def test_all_damage_of_a_cache_is_listed(store: Store) -> None:
    from fairtrial.record.cache import damaged_entries

    whole, changed, gone = (store.cache.entry("data", {"name": name}, made).folder for name in "abc")
    assert list(damaged_entries(store.paths.cache)) == []
    zero(changed / "b.bin")
    (gone / "inner" / "a.bin").unlink()
    found = {damage.path: damage.reason for damage in damaged_entries(store.paths.cache)}
    assert found.keys() == {changed, gone} and whole not in found
    assert "recorded hash" in found[changed] and "does not contain inner/a.bin" in found[gone]
    store.cache.entry("data", {"name": "b"}, made)
    kept = [damage for damage in damaged_entries(store.paths.cache) if not damage.remade]
    assert len(kept) == 1 and "set aside" in kept[0].reason


def test_a_run_is_not_made_with_other_data_than_it_was_planned_with(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairtrial.jobs.run_session import run_cell
    from fairtrial.recipes.data import digits
    from tests.harness import request_for

    job = request_for(store, "classify", data="digits", model="linear", steps=3, batch_size=32)
    whole = digits.make()
    monkeypatch.setattr(digits, "make", lambda: {**whole, "report_y": whole["report_y"] * 0})
    for path in store.paths.cache.glob("data/*/report_y.npy"):
        zero(path)
    with pytest.raises(Exception, match="was planned with data"):
        run_cell(job)
    assert make(store, "classify", data="digits", model="linear", steps=3, batch_size=32).status.value == "completed"


def test_a_full_disk_while_an_entry_is_made_leaves_nothing_that_looks_finished(store: Store) -> None:
    def full(folder: Path) -> dict[str, Any]:
        made(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match="the disk is full"):
        store.cache.entry("data", KEY, full)
    assert store.cache.entry("data", KEY, made).manifest["sha256"] == "of the values"
