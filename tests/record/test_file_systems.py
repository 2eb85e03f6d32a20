"""Stores on file systems that lack hard links work; on those that lack locks they are refused before the first run."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import StoreError
from fairtrial.core.runs import Status
from fairtrial.record.checkpoints import read_checkpoint
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import fill_up, make, request_for, series_of

FAKE = {"steps": 9, "eval_every": 3, "log_every": 1, "checkpoint_every": 4, "jitter": 0.1, "keep_best": 2}
LACKING = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/file.h>
#include <unistd.h>
int link(const char *a, const char *b) { errno = EPERM; return -1; }
int linkat(int d, const char *a, int e, const char *b, int f) { errno = EPERM; return -1; }
#ifdef NO_LOCKS
int flock(int d, int operation) { errno = ENOLCK; return -1; }
#endif
"""


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """The environment of a real process whose file system has no hard links, and with `locks=False` no locks."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make such a file system with")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(LACKING)

    def environment(*, locks: bool) -> dict[str, str]:
        library = folder / f"{locks}.so"
        flags = [] if locks else ["-DNO_LOCKS"]
        subprocess.run(
            [compiler, "-shared", "-fPIC", *flags, "-o", library, folder / "shim.c"], check=True, capture_output=True
        )
        return {"LD_PRELOAD": str(library)}

    return environment


def test_training_works_without_hard_links(
    store: Store, shell: Callable[..., Answer], lacking: Callable[..., dict[str, str]]
) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in FAKE.items()]
    answer = shell("train", "fake", *words, "--seed=1", "--study=s", "--variant=v", env=lacking(locks=True))
    assert answer.code == 0, answer.err
    run = store.run("s", "v.seed1")
    assert run is not None and run.status is Status.COMPLETED
    assert run.paths.last.stat().st_nlink == 1 and read_checkpoint(run.paths.last).step == 9


def test_a_store_without_locks_is_refused_before_the_first_run(
    store: Store, shell: Callable[..., Answer], lacking: Callable[..., dict[str, str]]
) -> None:
    for command in (("train", "fake", "--steps=3"), ("launch", "fake", "--seeds=2", "--steps=3")):
        answer = shell(*command, env=lacking(locks=False))
        assert answer.code == 1, answer.err
        assert "its file system does not support file locks (flock: No locks available)" in answer.err
        assert "Choose a folder on a local disk" in answer.err and "Traceback" not in answer.err
    assert store.studies() == [] and not list(store.root.glob(".probe*"))


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS])
def test_a_run_without_hard_links_gives_the_same_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    linked, copied = Store(tmp_path / "linked"), Store(tmp_path / "copied")
    make(linked, "fake", **FAKE)
    monkeypatch.setattr(os, "link", _failing(code))
    from fairtrial.jobs.run_session import run_cell

    seen = iter(range(100))
    job = request_for(copied, "fake", **FAKE)
    run_cell(job, should_stop=lambda: next(seen) >= 6)
    run_cell(job)
    assert series_of(copied) == series_of(linked)
    first, second = linked.run("s", "v.seed1"), copied.run("s", "v.seed1")
    assert first is not None and second is not None
    for name in ("best_checkpoint_step", "best_metric_value", "final", "status"):
        assert first.metadata[name] == second.metadata[name]
    assert not list(second.path.rglob("*.tmp"))


def test_links_that_fail_for_another_reason_are_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtrial.record.atomic import link_file

    source = store.root / "source"
    store.root.mkdir()
    source.write_bytes(b"content")
    monkeypatch.setattr(os, "link", _failing(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        link_file(source, store.root / "target")
    assert [path.name for path in store.root.iterdir()] == ["source"]


def test_a_full_disk_while_a_checkpoint_is_copied_leaves_the_old_one(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairtrial.record.atomic import link_file

    monkeypatch.setattr(os, "link", _failing(errno.EPERM))
    source, target = small_disk / "step-2.pt", small_disk / "last.pt"
    source.write_bytes(b"n" * 100_000)
    target.write_bytes(b"old")
    fill_up(small_disk, leave=20_000)
    with pytest.raises(StoreError, match="the disk is full"):
        link_file(source, target)
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in small_disk.iterdir()) == ["ballast", "last.pt", "step-2.pt"]


def _failing(code: int) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return call


def test_locks_that_keep_nobody_out_are_noticed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(StoreError, match="has file locks that are not exclusive"):
        store.check_writable()


def test_a_file_system_that_does_not_append_is_noticed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def without_append(path: Any, flags: int, *more: Any, **settings: Any) -> int:
        return opened(path, flags & ~os.O_APPEND, *more, **settings)

    monkeypatch.setattr(os, "open", without_append)
    with pytest.raises(StoreError, match="does not append to files"):
        store.check_writable()


def test_a_file_system_that_copies_when_it_should_replace_is_noticed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "replace", shutil.copyfile)
    with pytest.raises(StoreError, match="does not replace files atomically"):
        store.check_writable()


def test_folders_that_cannot_be_synced_are_no_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_files(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", only_files)
    assert make(store, "fake", **FAKE).status is Status.COMPLETED


def test_other_errors_of_a_sync_are_errors(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtrial.core.durable import sync_path

    store.root.mkdir()
    file = store.root / "file"
    file.touch()
    for path, code in ((store.root, errno.EIO), (file, errno.EINVAL)):
        monkeypatch.setattr(os, "fsync", _failing(code))
        with pytest.raises(OSError, match=os.strerror(code)):
            sync_path(path)


def test_the_store_is_asked_once_and_quickly(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.check_writable()
    monkeypatch.setattr(fcntl, "flock", _failing(errno.ENOLCK))
    began = time.process_time()
    for _ in range(100):
        store.check_writable()
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_real_file_systems_in_memory_are_stores(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", kind, kind, str(place)], capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs rights that this process does not have")
    try:
        assert make(Store(place / "store"), "fake", **FAKE).status is Status.COMPLETED
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
