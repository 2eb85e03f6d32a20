"""W&B offline runs (`.wandb` files), made with three versions of wandb from three years.

Environments: wandb==0.16.6 with numpy<2, wandb==0.19.11, wandb==0.31.0. Run with each: python wandb_files.py
Expected values: what was logged; where wandb still has a reader of its own (0.16, 0.19), the script holds it against
that, record by record.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _expected import fresh, points, write_expected

os.environ |= {
    "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DISABLE_GIT": "true", "WANDB_DISABLE_CODE": "true",
    "WANDB_HOST": "host", "WANDB_USERNAME": "user", "WANDB_CONSOLE": "off", "WANDB__DISABLE_STATS": "true",
    "WANDB_X_DISABLE_STATS": "true", "WANDB_X_DISABLE_META": "true", "WANDB__DISABLE_META": "true",
    "WANDB_ERROR_REPORTING": "false", "WANDB_PROGRAM": "train.py", "WANDB_X_DISABLE_MACHINE_INFO": "true",
}  # fmt: skip

LOSSES = [1.0, 0.1, math.nan, math.inf, -math.inf, 1e-320, 1.7976931348623157e308, 0.30000000000000004, -0.0, 3]
CONFIG = {"lr": 0.001, "seed": 7, "algo": "ppo", "optimizer": {"name": "adam", "betas": [0.9, 0.999]}, "none": None}


def log_run(folder: Path, run_id: str, *, crash: bool = False, exit_code: int = 0, rows: int = 0) -> dict[str, Any]:
    import wandb

    run = wandb.init(dir=str(folder), project="demo", name=f"name of {run_id}", id=run_id, config=CONFIG, tags=["t"])
    series: dict[str, list[tuple[int, float]]] = {}

    def log(row: dict[str, Any], step: int | None = None) -> None:
        at = run.step if step is None else step
        run.log(row, step=step)
        for key, value in row.items():
            if isinstance(value, dict):
                for inner, number in value.items():
                    series.setdefault(f"{key}.{inner}", []).append((at, number))
            elif not isinstance(value, str):
                series.setdefault(key, []).append((at, float(value)))

    for value in LOSSES:
        log({"train/loss": value, "epoch": 1})
    log({"nested": {"a": 1.5, "b": 2}, "text": "hello"})
    log({"eval/return": 12.25, "flag": True}, step=100)
    log({"eval/return": 13.25}, step=200)
    for row in range(rows):
        log({"train/loss": row / 7, "accuracy": row / 3}, step=300 + row)
    run.config.update({"added": "later"})
    run.summary["best"] = 0.25
    if crash:
        time.sleep(3)
        os._exit(0)
    run.finish(exit_code=exit_code)
    return {
        "series": {key: points([s for s, _ in found], [v for _, v in found]) for key, found in series.items()},
        "config": {"lr": 0.001, "seed": 7, "algo": "ppo", "optimizer.name": "adam", "added": "later"},
        "summary": {"best": 0.25},
        "status": "failed" if exit_code else "completed",
    }


def records_of(path: Path) -> list[tuple[int, dict[str, str]]]:
    """The history by wandb's own reader."""
    import wandb
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    wandb._assert_is_internal_process = True
    store = DataStore()
    store.open_for_scan(str(path))
    rows = []
    while data := store.scan_data():
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
            for key, text in list(row.items()):  # wandb 0.16 keeps a nested value as one object
                if text.startswith("{"):
                    row |= {f"{key}.{inner}": json.dumps(value) for inner, value in json.loads(text).items()}
            rows.append((int(row["_step"]), row))  # `history.step` is 0 for rows with a step of their own
    return rows


def hold_against_own_reader(path: Path, expected: dict[str, Any]) -> None:
    rows = records_of(path)
    for key, found in expected["series"].items():
        own = [(step, json.loads(row[key])) for step, row in rows if key in row]
        assert [step for step, _ in own] == found["steps"], key
        for (_, value), logged in zip(own, found["values"], strict=True):
            same = value == logged or (isinstance(value, str) and not math.isfinite(logged)) or value != value
            assert same, (key, value, logged)


def main() -> None:
    import wandb

    out = fresh(f"wandb_{wandb.__version__.rsplit('.', 1)[0].replace('.', '_')}")
    runs = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs["finished"] = log_run(folder, "finished")
        runs["failed"] = log_run(folder, "failed", exit_code=1)
        runs["long"] = log_run(folder, "long", rows=120)
        subprocess.run([sys.executable, __file__, "--crash", str(folder)], check=False)
        time.sleep(3)  # the process that writes for a crashed one goes on for a while
        for run in sorted((folder / "wandb").glob("offline-run-*")):
            [file] = run.glob("*.wandb")
            run_id = file.stem.removeprefix("run-")
            kept = out / "wandb" / f"offline-run-20250101_000000-{run_id}"
            kept.mkdir(parents=True)
            shutil.copy(file, kept)
            with contextlib.suppress(ImportError):
                if run_id in runs:
                    hold_against_own_reader(file, runs[run_id])
                    print("own reader agrees on", run_id)
    write_expected(out, runs, "wandb")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--crash"]:
        log_run(Path(sys.argv[2]), "crashed", crash=True)
    else:
        main()
