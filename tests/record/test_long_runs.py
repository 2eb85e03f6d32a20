"""Memory does not grow with a run: finishing, showing, tailing and exporting read and write in blocks.

The full size, 10 million points, is measured by `benchmarks/long_run.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fairtrial
from fairtrial.record.series import read_series
from fairtrial.record.store import Store
from tests.conftest import Answer

ROOT = Path(__file__).parent.parent.parent
POINTS = 400_000
MOST_GROWTH_MB = 45
"""Blocks of lines, points and rows. Without blocks the same takes more than a hundred."""

PROGRAM = """
import contextlib, resource, sys
import fairtrial
from fairtrial.api.running.runs import export_runs, last_metrics, show_run
from fairtrial.cli.app import main

store, metrics, lines = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def whole_life(variant, lines):
    run = fairtrial.run(study="s", variant=variant, seed=1, store=store)
    values = ",".join(f'"m{n}":0.{n}1' for n in range(metrics))
    with run.paths.metrics.open("a") as file:
        for step in range(1, lines + 1):
            file.write(f'{{"step":{step},"_time":1.0,{values}}}\\n')
    run.save(lines, {"w": 1})
    run.release()
    show_run(f"s/{variant}.seed1", store=store)
    with fairtrial.run(study="s", variant=variant, seed=1, store=store) as run:
        assert run.resume().step == lines
    assert show_run(f"s/{variant}.seed1", store=store).metrics["m0"]["points"] == lines
    assert [row["step"] for row in last_metrics(f"s/{variant}.seed1", store=store)][-1] == lines
    with contextlib.suppress(SystemExit):
        main(["runs", "export", f"s/{variant}.seed1", "--store", store, "--output", f"{store}/{variant}.csv"])

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

whole_life("short", 100)
before = peak()
whole_life("long", lines)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("metrics", [2, 1_000])
def test_a_long_run_takes_no_more_memory_than_a_short_one(tmp_path: Path, metrics: int) -> None:
    lines = POINTS // metrics
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(metrics), str(lines)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) <= MOST_GROWTH_MB
    with (tmp_path / "store" / "long.csv").open() as file:
        assert sum(1 for _ in file) == POINTS + 1


def test_points_are_held_in_memory_up_to_a_limit() -> None:
    import tracemalloc

    from fairtrial.record.spill import Spill

    with Spill(block_points=1_000) as spill:
        tracemalloc.start()
        try:
            for step in range(50_000):
                spill.add(step, {"x": step / 3})
            spill.close_input()
            points = sum(len(steps) for steps, _ in spill.blocks("x"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert points == 50_000 and peak < 1_000_000


def test_the_newest_lines_are_found_from_the_end(store: Store, cli: Callable[..., Answer]) -> None:
    """Lines longer than what is read at once, control lines between them, and an end that was cut off."""
    long = {f"metric_{number}": float(number) for number in range(1_000)}
    first = fairtrial.run(study="s", variant="v", seed=1, store=store.root)
    for step in range(1, 4):
        first.log(step, long)
    first.save(3, {"w": 1})
    first.release()
    second = fairtrial.run(study="s", variant="v", seed=1, store=store.root)
    assert second.resume() is not None
    second.log(4, x=1.0)
    second.release()  # not ended: a line that is cut off is no damage then
    with second.paths.metrics.open("ab") as file:
        file.write(b'{"step":5,"_ti')
    for lines in (0, 1, 2, 3, 4, 10):
        answer = cli("runs", "tail", "s/v.seed1", "--lines", str(lines), "--format", "json")
        steps = [row["step"] for row in json.loads(answer.out)["metrics"]]
        assert steps == [1, 2, 3, 4][max(0, 4 - lines) :]
    assert json.loads(cli("runs", "tail", "s/v.seed1", "--lines", "2", "--format", "json").out)["metrics"][0][
        "metric_999"
    ] == 999.0  # fmt: skip


def test_following_shows_every_line_once(store: Store, cli: Callable[..., Answer]) -> None:
    from fairtrial.api.running.runs import follow

    run = fairtrial.run(study="s", variant="v", seed=1, store=store.root)
    for step in range(1, 6):
        run.log(step, x=step)
    found = follow("s/v.seed1", store=store.root, lines=2, poll_s=0.01)
    assert [next(found)["step"] for _ in range(2)] == [4, 5]
    run.log(6, x=6)
    with run.paths.metrics.open("ab") as file:
        file.write(b'{"step":7,"_time":1.0,')
        file.flush()
        assert next(found)["step"] == 6
        file.write(b'"x":7.0}\n')
    assert next(found)["step"] == 7
    run.finish(fairtrial.core.runs.Status.COMPLETED)
    assert list(found) == []


@pytest.mark.parametrize("output", ["csv", "json", "markdown", "latex"])
def test_an_export_in_pieces_is_the_whole_document(
    cli: Callable[..., Answer], store: Store, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairtrial.report import documents

    with fairtrial.run(study="s", variant="v", seed=1, store=store.root) as run:
        for step in range(1, 8):
            run.log(step, {'a "quoted", name_&|': step / 3, "b": float("nan") if step == 3 else step})
    steps, values = zip(*(read_series(run.paths)[name] for name in sorted(read_series(run.paths))), strict=True)
    names = sorted(read_series(run.paths))
    rows = [
        {"study": "s", "variant": "v", "seed": 1, "run": "v.seed1", "attempt": 1, "status": "completed",
         "step": int(step), "metric": name, "value": float(value)}
        for name, own_steps, own_values in zip(names, steps, values, strict=True)
        for step, value in zip(own_steps, own_values, strict=True)
    ]  # fmt: skip
    expected = documents.render(output, {"rows": rows}, rows)
    assert cli("runs", "export", "s/v.seed1", "--format", output).out == expected
    monkeypatch.setattr(documents, "ROWS_AT_ONCE", 3)
    assert cli("runs", "export", "s/v.seed1", "--format", output).out == expected


def test_an_export_that_fails_on_the_way_leaves_nothing_behind(
    cli: Callable[..., Answer], store: Store, tmp_path: Path
) -> None:
    for seed, metric in ((1, "x"), (2, "y")):
        with fairtrial.run(study="s", variant="v", seed=seed, store=store.root) as run:
            run.log(1, {metric: 1.0})
    answer = cli("runs", "export", "s/*", "--metric", "x", "--output", str(tmp_path / "rows.csv"))
    assert answer.code == 1 and "metric" in answer.err and not (tmp_path / "rows.csv").exists()
    assert cli("runs", "export", "s/*", "--metric", "x").out == ""
