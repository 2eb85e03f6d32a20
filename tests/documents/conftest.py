"""The desks at which documented lines are tried, with trainings in this process."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fairtrial.core.paths import KEY_VARIABLE
from fairtrial.jobs import server
from fairtrial.record.store import Store
from tests.conftest import Answer as CliAnswer
from tests.conftest import link_data
from tests.documents.desk import Answer, Desk
from tests.documents.in_process import InProcess
from tests.documents.places import PLACES
from tests.documents.table import SCRIPTS


def not_open(words: Sequence[str]) -> Answer:
    raise AssertionError("a line was run outside of a test")


@pytest.fixture(scope="session")
def all_desks(tmp_path_factory: pytest.TempPathFactory, data_cache: Path) -> Desk:
    """One for all items of this worker: what an item has run, the next one finds done."""
    root = tmp_path_factory.mktemp("documents")
    furnish = lambda folder: link_data(Store(folder / "runs"), data_cache)  # noqa: E731
    return Desk(root, PLACES, not_open, furnish=furnish, scripts=SCRIPTS)


@pytest.fixture
def desk(
    all_desks: Desk,
    cli: Callable[..., CliAnswer],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:
    def call(words: Sequence[str]) -> Answer:
        told = cli(*words)
        return Answer(told.code, told.out, told.err)

    monkeypatch.setattr(importlib.import_module("fairtrial.launch.local"), "open_launcher", InProcess)
    monkeypatch.setattr(importlib.import_module("fairtrial.api.benchmarking.self_check"), "AA_BLOCK_S", 1e-4)
    monkeypatch.setattr(server, "printed_to_log", lambda paths: contextlib.nullcontext())
    monkeypatch.setenv(KEY_VARIABLE, str(all_desks.root / "key.pem"))
    monkeypatch.setattr(all_desks, "call", call)
    yield all_desks
