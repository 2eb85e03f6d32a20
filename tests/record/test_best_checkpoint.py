"""The best checkpoint: the weights that were evaluated, never a NaN, the earlier of two equals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fairtrial.api.running.script import run as record
from fairtrial.core.paths import RunPaths
from fairtrial.record.checkpoints import read_checkpoint
from fairtrial.record.metadata import load_metadata
from fairtrial.record.recorder import Recorder
from fairtrial.record.top_checkpoints import TopCheckpoints, list_top_checkpoints


def begin(mode: Any = "max") -> Recorder:
    return record(seed=1, best_metric="eval_score", best_mode=mode, variant="v")


def judge(recorder: Recorder, values: list[float]) -> None:
    for step, value in enumerate(values, 1):
        recorder.evaluated(step, {"eval_score": value}, {"weights": step})


def kept(recorder: Recorder) -> tuple[int | None, float | None]:
    metadata = load_metadata(recorder.paths)
    assert metadata is not None
    if metadata["best_checkpoint_step"] is not None:
        best = read_checkpoint(recorder.paths.best, sha256=metadata["best_checkpoint_sha256"])
        assert best.state == {"weights": metadata["best_checkpoint_step"]}
    return metadata["best_checkpoint_step"], metadata["best_metric_value"]


@pytest.mark.parametrize(
    ("mode", "values", "expected"),
    [
        ("max", [0.1, 0.3, 0.2], (2, 0.3)),
        ("min", [0.3, 0.1, 0.2], (2, 0.1)),
        ("max", [0.3, 0.3, 0.3], (1, 0.3)),
        ("min", [0.3, 0.3], (1, 0.3)),
        ("max", [math.nan, 0.2], (2, 0.2)),
        ("max", [0.2, math.nan, math.inf, 0.1], (1, 0.2)),
        ("min", [-math.inf, 5.0], (2, 5.0)),
        ("max", [-0.0, 0.0], (1, -0.0)),
        ("max", [math.nan, math.inf], (None, None)),
        ("max", [-5.0, -3.0, -4.0], (2, -3.0)),
    ],
)
def test_which_evaluation_wins(mode: str, values: list[float], expected: tuple[Any, Any]) -> None:
    with begin(mode) as recorder:
        judge(recorder, values)
        assert kept(recorder) == expected


def test_a_state_is_made_only_when_it_wins() -> None:
    made = []
    with begin() as recorder:
        for step, value in enumerate([0.5, 0.4, 0.6], 1):
            recorder.evaluated(step, {"eval_score": value}, lambda step=step: made.append(step) or {"weights": step})
    assert made == [1, 3]


def test_a_save_at_the_same_step_provides_the_weights_that_were_evaluated() -> None:
    with begin() as recorder:
        assert recorder.evaluated(1, {"eval_score": 0.5})
        recorder.save(1, {"weights": 1})
        assert kept(recorder) == (1, 0.5)
        assert recorder.evaluated(2, {"eval_score": 0.6})
        recorder.save(3, {"weights": 3})  # other weights than those evaluated: not the best
        assert kept(recorder) == (1, 0.5)


def test_another_metric_selects_nothing() -> None:
    with begin() as recorder:
        assert not recorder.evaluated(1, {"eval_other": 1.0}, {"weights": 1})
        assert kept(recorder) == (None, None)


def test_a_resumed_run_inherits_its_best() -> None:
    recorder = begin()
    judge(recorder, [0.1, 0.9])
    recorder.save(2, {"weights": 2})
    recorder.release()  # as if it had been killed
    with begin() as again:
        saved = again.resume()
        assert saved is not None and saved.step == 2
        judge(again, [0.5])
        assert kept(again) == (2, 0.9)
        resumed = again.metadata["lineage"]["resumed"][0]
        assert (resumed["step"], resumed["best_step"], resumed["best_value"]) == (2, 2, 0.9)


def test_another_metric_after_a_resume_is_noticed() -> None:
    recorder = begin()
    judge(recorder, [0.1, 0.9])
    recorder.save(2, {"weights": 2})
    recorder.release()
    with record(seed=1, best_metric="eval_renamed", best_mode="max", variant="v") as again:
        assert again.resume() is not None and kept(again) == (None, None)
        assert [caution["code"] for caution in again.metadata["cautions"]] == ["other best metric"]
        again.evaluated(3, {"eval_renamed": 0.2}, {"weights": 3})
        assert kept(again) == (3, 0.2)


def test_a_run_directory_that_was_moved_has_its_best(tmp_path: Path) -> None:
    with begin() as recorder:
        judge(recorder, [0.1, 0.9, 0.5])
    moved = tmp_path / "elsewhere" / "adhoc" / "v.seed1"
    moved.parent.mkdir(parents=True)
    recorder.paths.root.rename(moved)
    metadata = load_metadata(RunPaths(moved))
    assert metadata is not None and metadata["best_checkpoint_path"] == "checkpoints/best.pt"
    best = read_checkpoint(moved / metadata["best_checkpoint_path"], sha256=metadata["best_checkpoint_sha256"])
    assert best.step == metadata["best_checkpoint_step"] == 2


def test_tensors_come_back_as_they_were() -> None:
    import torch

    state = {"w": torch.randn(3, 3), "moments": {0: {"step": torch.tensor(3.0)}}, "big": 2**100}
    with begin() as recorder:
        recorder.save(5, state)
        loaded = read_checkpoint(recorder.paths.last).state
    assert torch.equal(loaded["w"], state["w"]) and loaded["moments"][0]["step"] == 3 and loaded["big"] == 2**100


def test_a_state_that_could_not_be_read_back_is_refused_in_one_sentence() -> None:
    from fairtrial.core.errors import FairtrialError

    with begin() as recorder, pytest.raises(FairtrialError, match="cannot be saved"):
        recorder.save(1, {"thing": object()})


@pytest.mark.parametrize(
    ("mode", "values", "expected"),
    [
        ("max", [0.1, 0.3, 0.2, 0.25], [2, 4, 3]),
        ("min", [0.1, 0.3, 0.2, 0.25], [1, 3, 4]),
        ("max", [0.3, 0.3, 0.3, 0.3], [1, 2, 3]),
        ("max", [math.nan, 0.2, math.inf, 0.1], [2, 4]),
    ],
)
def test_the_best_few_are_kept(tmp_path: Path, mode: str, values: list[float], expected: list[int]) -> None:
    paths = RunPaths(tmp_path / "run")
    paths.checkpoints.mkdir(parents=True)
    paths.events.touch()

    def event(name: str, **fields: Any) -> None:
        with paths.events.open("a") as file:
            file.write(json.dumps({"event": name, **fields}) + "\n")

    top = TopCheckpoints(paths, 3, mode, event)
    for step, value in enumerate(values, 1):
        top.consider(step, value, "eval_score", lambda step=step: {"weights": step})
    found = list_top_checkpoints(paths, mode)
    assert [each.step for each in found] == expected
    assert [read_checkpoint(each.path, sha256=each.sha256).state for each in found] == [
        {"weights": s} for s in expected
    ]
    assert len(list(paths.checkpoints.glob("top-*.pt"))) == len(expected)
