"""--gpus: every run has a card of its own, and gives it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.record.store import Store
from tests.conftest import Answer

Cli = Callable[..., Answer]

SEER = """
import os, time
from fairtrial.core.options import LoopOptions
from fairtrial.core.specs import Metric

SUMMARY, REQUIRES, EXTRA, METRIC = "Says which card it sees.", (), None, Metric("card", "max")

class Options(LoopOptions):
    pass

class Seer:
    def step(self, step, watch):
        time.sleep(0.15)
        return {"card": float(os.environ["CUDA_VISIBLE_DEVICES"]), "at": time.time()}

    def evaluate(self, split):
        return {"card": float(os.environ["CUDA_VISIBLE_DEVICES"])}

    def state(self):
        return {}

    def load_state(self, state): ...

def build(options, setting):
    return Seer()
"""


def test_runs_that_go_on_at_the_same_time_see_different_cards(
    cli: Cli, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seer.py").write_text(SEER)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,7,9")
    answer = cli(
        "launch", "./seer.py", "--base-run-name", "s", "--seeds", "5", "--gpus", "2", "--steps", "2", "--log-every", "1"
    )
    assert answer.code == 0, answer.err
    runs = [run for _, entry in store.directories("s") if (run := store.run("s", entry.name))]
    spans = sorted(
        (run.metadata["timings"]["created"], run.metadata["timings"]["ended"], run.final["train_card"]) for run in runs
    )
    assert {card for _, _, card in spans} == {3.0, 7.0}
    for begun, ended, card in spans:
        others = [c for b, e, c in spans if b < ended and e > begun and (b, e) != (begun, ended)]
        assert card not in others, "two runs shared a card"


def test_cards_that_are_not_there_are_refused_before_anything_is_written(
    cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    told = cli("launch", "fake", "--gpus", "2")
    assert told.code == 1 and "--gpus 2: no NVIDIA driver answers" in told.err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "$CUDA_VISIBLE_DEVICES names 1" in cli("launch", "fake", "--gpus", "2").err
    assert "several runs on one" in cli("launch", "fake", "--gpus", "1", "--jobs", "2").err
    assert not store.root.exists()
