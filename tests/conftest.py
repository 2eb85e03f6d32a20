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
    yield


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def data_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data sets are generated once for all tests of a worker."""
    return tmp_path_factory.mktemp("data") / "cache"


@pytest.fixture
def with_data(store: Store, data_cache: Path) -> Store:
    """The test's store, with the data cache of the session."""
    data_cache.mkdir(exist_ok=True)
    store.root.mkdir(parents=True, exist_ok=True)
    store.paths.cache.symlink_to(data_cache)
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
