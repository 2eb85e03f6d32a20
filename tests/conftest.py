"""What the tests share: a store of their own, and the command line as a person calls it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

# Before torch is loaded anywhere: two test processes with two threads each wait for each other more than they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Test workers get the width of the terminal that started them. What commands print must not depend on it.
os.environ.pop("COLUMNS", None)

from fairtrial.core.events import NAMES, check_event
from fairtrial.record.recorder import Recorder
from fairtrial.record.store import Store
from tests.harness import eventually
from tests.warm_job_server import WarmJobServers, warm_job_servers

# The same examples every time, so that a submission does not fail by luck; HYPOTHESIS_EXPLORE=1 looks for new ones.
settings.register_profile("fixed", derandomize=True, deadline=None)
if not os.environ.get("HYPOTHESIS_EXPLORE"):
    settings.load_profile("fixed")

# A shell starts what it puts into the background with Ctrl-C ignored, and so would everything that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()


def pytest_collection_finish() -> None:
    """What the modules of all tests brought in stays: nobody has to look through it for garbage again and again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # tests make and drop many objects at once: collecting less often saves 3 %
    gc.enable()


FULL_ONLY = ("documents", "fuzz", "launch", "power_loss", "recipes/lm", "recipes/rl")
"""Folders that `--fast` does not even import: they train, or start processes and wait for them."""

FULL_ONLY_FIXTURES = {"made", "moto", "receiver", "shell", "small_disk", "with_data"}
"""What takes long to set up: a test that asks for it is not fast."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="the inner loop: the first case of every test that is quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("--fast") and any(collection_path == Path(__file__).parent / each for each in FULL_ONLY):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        kept = fast_of(items)
        config.hook.pytest_deselected(items=[*set(items).difference(kept)])
        items[:] = kept


def fast_of(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Of a test with many cases the first one: a bug that only another case shows waits for the whole suite."""
    first: dict[str, pytest.Item] = {}
    for item in items:
        slow = item.get_closest_marker("slow") or FULL_ONLY_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if not slow:
            first.setdefault(item.nodeid.partition("[")[0], item)
    return list(first.values())


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
    monkeypatch.setattr(os, "fsync", do_not_wait_for_the_disk)
    yield


def do_not_wait_for_the_disk(descriptor: int) -> None:
    """No test cuts the power, so none can tell; a file that is not open is still an error.

    Processes that a test launches wait as they do for a person.
    """
    os.fstat(descriptor)


@pytest.fixture(autouse=True)
def _only_declared_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that `core/events.py` does not declare is refused by the writer, in every test of this process.

    Scripts, programs that join a run and recipes from a file are a person's: they may write events of their own.
    """
    write = Recorder.write_event

    def checked(self: Recorder, event: str, **fields: Any) -> None:
        is_ours = self.metadata["recipe"] not in ("script", "command") and self.metadata["recipe_file"] is None
        if is_ours or event in NAMES:
            check_event({"schema": 1, "event": event, "at": 0.0, **fields})
        write(self, event, **fields)

    monkeypatch.setattr(Recorder, "write_event", checked)


@pytest.fixture(scope="session")
def _job_servers() -> Iterator[WarmJobServers]:
    with warm_job_servers() as servers:
        yield servers


@pytest.fixture(autouse=True)
def _warm_job_servers(_job_servers: WarmJobServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches get a job server that has torch loaded. tests/launch has real ones."""
    stand_in = SimpleNamespace(Popen=_job_servers.popen, PIPE=subprocess.PIPE)
    monkeypatch.setattr(importlib.import_module("fairtrial.launch.local"), "subprocess", stand_in)


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of two megabytes."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs rights that this process does not have")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@dataclass
class Moto:
    """An S3 server in a process of its own, which can be stopped for a while. All tests of a worker share it."""

    process: subprocess.Popen[bytes]
    endpoint: str
    buckets: int = field(default=0)

    @property
    def surroundings(self) -> dict[str, str]:
        """Its address and credentials, as a person has them in the environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }  # fmt: skip

    def bucket(self) -> str:
        self.buckets += 1
        name = f"lab-{self.buckets}"
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")).read()
        return name

    @contextlib.contextmanager
    def out_of_reach(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = Moto(process, f"http://127.0.0.1:{port}")
    try:
        eventually(lambda: _answers(found.endpoint), what="the start of the S3 server")
        yield found
    finally:
        process.kill()
        process.wait()


def _answers(endpoint: str) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(endpoint).read()
        return True
    return False
