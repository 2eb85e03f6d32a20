"""What the tests share: a store of their own, and the command line as a person calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Before torch is loaded anywhere: two test processes with two threads each wait for each other more than they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from fairtrial.core.events import NAMES, check_event
from fairtrial.record.recorder import Recorder
from fairtrial.record.store import Store

# The same examples every time, so that a submission does not fail by luck; HYPOTHESIS_EXPLORE=1 looks for new ones.
settings.register_profile("fixed", derandomize=True, deadline=None)
if not os.environ.get("HYPOTHESIS_EXPLORE"):
    settings.load_profile("fixed")


@dataclass
class Answer:
    """What a command line gave back."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has its own store and folder, and one thread."""
    monkeypatch.setenv("FAIRTRIAL_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("FAIRTRIAL_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", _do_not_wait_for_the_disk)
    yield


def _do_not_wait_for_the_disk(descriptor: int) -> None:
    """No test cuts the power, so none can tell; a file that is not open is still an error.

    Processes that a test launches wait as they do for a person.
    """
    os.fstat(descriptor)


@pytest.fixture(autouse=True)
def _only_declared_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that `core/events.py` does not declare is refused by the writer, in every test of this process.

    Scripts, programs that join a run and recipes from a file are a person's: they may write events of their own.
    """
    write = Recorder.event

    def checked(self: Recorder, event: str, **fields: Any) -> None:
        is_ours = self.metadata["recipe"] not in ("script", "command") and self.metadata["recipe_file"] is None
        if is_ours or event in NAMES:
            check_event({"schema": 1, "event": event, "at": 0.0, **fields})
        write(self, event, **fields)

    monkeypatch.setattr(Recorder, "event", checked)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this session that all of its workers have in common."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def data_cache(shared: Path) -> Path:
    """Data sets are generated once for all tests of all workers: the cache of a store is made for that."""
    return shared / "data-cache"


@pytest.fixture
def with_data(store: Store, data_cache: Path) -> Store:
    """The test's store, with what the session knows of data and machine. What else is cached stays its own."""
    return link_data(store, data_cache)


def link_data(store: Store, data_cache: Path) -> Store:
    store.paths.cache.mkdir(parents=True)
    for kind in ("data", "tokenizer", "calibration"):
        (data_cache / kind).mkdir(parents=True, exist_ok=True)
        (store.paths.cache / kind).symlink_to(data_cache / kind)
    return store


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """The command line in this process: quick."""
    from fairtrial.cli.app import run

    def call(*arguments: str) -> Answer:
        capfd.readouterr()
        code = run(arguments)
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return call


def start(*arguments: str, **settings: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fairtrial", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings.pop("env", {})},
        **settings,
    )


@pytest.fixture
def shell() -> Callable[..., Answer]:
    def call(*arguments: str, **settings: Any) -> Answer:
        process = start(*arguments, **settings)
        out, err = process.communicate(timeout=120)
        return Answer(process.returncode, out, err)

    return call
