"""Only runs of this store are removed, and what is removed is archived first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.api.running.runs import list_runs, remove_runs
from fairtrial.core.errors import FairtrialError
from fairtrial.record.claims import Claim, ClaimedElsewhere
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import make

Cli = Callable[..., Answer]


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    """Somebody's folder that happens to hold a metadata.json."""
    folder = tmp_path / "thesis"
    (folder / "chapter").mkdir(parents=True)
    (folder / "metadata.json").write_text("{}")
    (folder / "chapter" / "text.tex").write_text("years of work")
    return folder


def test_a_folder_that_is_not_a_run_of_this_store_is_not_removed(cli: Cli, store: Store, thesis: Path) -> None:
    make(store, "fake", steps=5)
    for extra in ([], ["--purge"] if "--purge" in cli("runs", "rm", "--help").out else []):
        for reference in ("thesis", str(thesis), "./thesis", "store/../thesis"):
            refused = cli("runs", "rm", reference, "--yes", *extra)
            assert refused.code == 1, refused.out
            assert "is not in the store" in refused.err
    assert (thesis / "chapter" / "text.tex").read_text() == "years of work"
    assert len(list_runs()) == 1


def test_a_folder_in_the_store_that_is_not_a_run_is_not_removed(cli: Cli, store: Store, thesis: Path) -> None:
    make(store, "fake", steps=5)
    inside = store.root / "s" / "thesis"
    thesis.rename(inside)
    refused = cli("runs", "rm", "s/*", "--yes")
    assert refused.code == 1 and "not a run recorded by Fairtrial" in refused.err
    assert (inside / "chapter" / "text.tex").exists()
    assert len(list(store.root.glob("s/v.seed1/metadata.json"))) == 1, "all or nothing"


def test_a_link_to_a_run_elsewhere_is_not_removed(cli: Cli, store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    make(other, "fake", steps=5)
    make(store, "fake", steps=5, seed=2)
    (store.root / "s" / "v.seed1").symlink_to(other.root / "s" / "v.seed1")
    refused = cli("runs", "rm", "s/v.seed1", "--yes")
    assert refused.code == 1 and "symbolic link" in refused.err
    assert other.run("s", "v.seed1") is not None


def test_a_run_of_the_store_wins_over_a_folder_of_its_name(cli: Cli, store: Store, tmp_path: Path) -> None:
    make(store, "fake", steps=5)
    other = Store(tmp_path / "other")
    make(other, "fake", steps=5)
    (other.root / "s" / "v.seed1").rename(tmp_path / "v.seed1")
    assert cli("runs", "show", "v.seed1", "--format", "json").json["path"] == str(store.root / "s" / "v.seed1")
    assert cli("runs", "rm", "v.seed1", "--yes").code == 0
    assert (tmp_path / "v.seed1" / "metadata.json").exists()
    assert list_runs() == []


def test_what_is_removed_lies_in_the_archive_and_can_be_put_back(cli: Cli, store: Store) -> None:
    make(store, "fake", steps=5)
    removed = cli("runs", "rm", "s/v.seed1", "--yes")
    assert removed.code == 0 and "s/.archive" in removed.out
    [archived] = store.paths.archive("s").iterdir()
    archived.rename(store.root / "s" / "v.seed1")
    assert [row["status"] for row in list_runs()] == ["completed"]


def test_purging_deletes_for_good(cli: Cli, store: Store) -> None:
    make(store, "fake", steps=5)
    removed = cli("runs", "rm", "s/v.seed1", "--yes", "--purge", "--format", "json")
    assert removed.code == 0 and removed.json["removed"] == ["s/v.seed1"] and removed.json["purged"] is True
    assert not list(store.root.rglob("metadata.json"))


@pytest.mark.parametrize("purge", [False, True])
def test_removing_while_others_try_to_claim_the_run_never_finds_the_folder_full(store: Store, purge: bool) -> None:
    """Whoever tries to claim a run opens files in its folder: emptying that folder in place would fail now and then."""
    make(store, "fake", steps=5)
    paths = store.paths.run("s", "v.seed1")
    over = threading.Event()

    def try_to_claim() -> None:
        while not over.is_set():
            try:
                Claim(paths).release()
            except (ClaimedElsewhere, OSError):
                continue

    trying = [threading.Thread(target=try_to_claim) for _ in range(2)]
    for thread in trying:
        thread.start()
    try:
        for _ in range(15):
            if not paths.metadata.exists():
                make(store, "fake", steps=5)
            try:
                remove_runs(["s/v.seed1"], **({"purge": True} if purge else {}))
            except FairtrialError as error:
                assert "in progress" in error.message or "no run named" in error.message, error
    finally:
        over.set()
        for thread in trying:
            thread.join()
    assert not purge or not list(store.paths.archive("s").iterdir())
