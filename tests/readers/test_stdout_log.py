"""Printed output: patterns, progress bars, colors, restarts, and proposals."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairtrial.core.errors import UserError
from fairtrial.readers.contract import SourceRun
from fairtrial.readers.stdout_log import StdoutReader, compile_pattern, propose_patterns


def run_of(path: Path, content: str, *patterns: str) -> SourceRun:
    path.write_bytes(content.encode())
    [run] = StdoutReader(patterns).read(path)
    return run


def points(run: SourceRun, metric: str) -> list[tuple[float, float]]:
    series = run.series[metric]
    return list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_several_patterns_in_the_style_of_a_language_model(tmp_path: Path) -> None:
    text = (
        "number of parameters: 10.65M\nstep 0: train loss 4.2874, val loss 4.2823\niter 0: loss 4.2588, time 100.5ms\n"
        "iter 10: loss nan, time 90.1ms\nstep 250: train loss 1.5e-1, val loss inf\n"
    )
    run = run_of(
        tmp_path / "log.txt", text,
        "step {step:int}: train loss {train_loss:float}, val loss {val_loss:float}", "iter {step:int}: loss {loss:float},",
    )  # fmt: skip
    assert points(run, "train_loss") == [(0, 4.2874), (250, 0.15)]
    assert points(run, "val_loss") == [(0, 4.2823), (250, float("inf"))]
    assert str(points(run, "loss")) == "[(0, 4.2588), (10, nan)]"


def test_progress_bars_and_colors_are_understood(tmp_path: Path) -> None:
    bar = "".join(
        f"\r\x1b[32m{n}%\x1b[0m|█   | {n}/100 [00:01<00:10,  3.2it/s, loss={1 / (n + 1):.3f}]" for n in range(5)
    )
    run = run_of(tmp_path / "log.txt", bar + "\n", "| {step:int}/{_} [{_} {_}, loss={loss:float}]")
    assert points(run, "loss") == [(0, 1.0), (1, 0.5), (2, 0.333), (3, 0.25), (4, 0.2)]


def test_a_step_that_is_printed_again_is_replaced_and_said(tmp_path: Path) -> None:
    run = run_of(tmp_path / "log.txt", "step 1 x 1\nstep 2 x 2\nstep 3 x 3\nstep 2 x 9\n", "step {step:int} x {x}")
    assert points(run, "x") == [(1, 1.0), (2, 9.0)]
    assert run.notes == ("steps went backward: points that were printed again were replaced",)


def test_a_line_without_a_step_belongs_to_the_last_one(tmp_path: Path) -> None:
    run = run_of(
        tmp_path / "log.txt",
        "epoch 3\nstep 7 loss 1\naccuracy: 0.5\n",
        "step {step:int} loss {loss}",
        "accuracy: {acc}",
    )
    assert points(run, "acc") == [(7, 0.5)]
    counted = run_of(tmp_path / "b.txt", "accuracy: 0.5\naccuracy: 0.75\n", "accuracy: {acc}")
    assert points(counted, "acc") == [(1, 0.5), (2, 0.75)]


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("step 1 loss 0.5\nstep 2 loss 0.2")
    reader = StdoutReader(["step {step:int} loss {loss:float}"])
    [run] = reader.read(path)
    assert points(run, "loss") == [(1, 0.5)]
    path.write_text("step 1 loss 0.5\nstep 2 loss 0.25\n")
    [more] = reader.read(path, {run.id: run.cursor})
    assert more.continues
    assert points(more, "loss") == [(2, 0.25)]


def test_no_match_is_said(tmp_path: Path) -> None:
    run = run_of(tmp_path / "log.txt", "nothing here\n" + "x" * 50_000 + "\n\xff\x00\n", "loss {loss:float}")
    assert not run.series
    assert run.notes == ("no line matches 'loss {loss:float}'",)


@pytest.mark.parametrize("pattern", ["step {step:int}", "loss {loss:double}", "{a} {a}", "no field"])
def test_a_pattern_that_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(UserError):
        compile_pattern(pattern)


def test_patterns_are_proposed_and_catch_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    lines = [
        f"step {n}: train loss {1 / (n + 1):.4f}, val loss {2 / (n + 1):.4f}\nlr=0.1 acc={n / 10}\n" for n in range(6)
    ]
    path.write_text("hello 3 worlds\n" + "".join(lines))
    proposals = propose_patterns(path)
    assert proposals[0].pattern == "step {step:int}: train loss {train_loss:float}, val loss {val_loss:float}"
    assert proposals[0].lines == 6
    [run] = StdoutReader([each.pattern for each in proposals]).read(path)
    assert points(run, "val_loss")[-1] == (5, 0.3333)
    assert points(run, "acc")[-1] == (5, 0.5)
