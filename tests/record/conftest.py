"""Receivers of events, and what a run wrote for them. Other tests of the record do without their packages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fairtrial.core.metadata_schema import Metadata
from fairtrial.record.metadata import load_metadata
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store

if TYPE_CHECKING:
    from tests.record.receiver import Receiver

FAKE: dict[str, Any] = {"steps": 12, "eval_every": 3, "log_every": 1, "checkpoint_every": 4, "jitter": 0.1}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    from tests.record.receiver import Receiver

    with Receiver() as found:
        yield found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a run waits a moment only: what is tested is not how long that is."""
    from fairtrial.record import otlp
    from fairtrial.record.otlp_exporter import OtlpExporter

    monkeypatch.setattr(OtlpExporter.__init__, "__defaults__", (otlp.send, 0.3))


def lines_of(store: Store, run: str = "v.seed1") -> list[dict[str, Any]]:
    return read_lines(store.paths.run("s", run).events).rows


def telemetry_of(store: Store, run: str = "v.seed1") -> dict[str, Any]:
    metadata = load_metadata(store.paths.run("s", run))
    assert metadata is not None
    Metadata.model_validate(metadata)
    found: dict[str, Any] = metadata["telemetry"]
    return found
