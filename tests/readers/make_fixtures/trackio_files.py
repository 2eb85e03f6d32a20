"""trackio: a project in sqlite. Run: python trackio_files.py (version in expected.json)

Expected values: what was logged.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from _expected import fresh, points, write_expected

LOSSES = [1.0, 0.1, math.nan, math.inf, -math.inf, 1e-300, 0.30000000000000004, 3]


def main() -> None:
    out = fresh("trackio")
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"TRACKIO_DIR": name, "HF_HUB_OFFLINE": "1", "HF_HOME": f"{name}/hf"}
        import trackio

        runs = {}
        for seed in (1, 2):
            trackio.init(project="demo", name=f"ppo-{seed}", config={"lr": 0.25, "seed": seed, "net": {"width": 8}})
            for step, value in enumerate(LOSSES):
                trackio.log({"train/loss": value, "nested": {"a": step * 0.5}, "text": "x"}, step=step)
            trackio.finish()
            steps = list(range(len(LOSSES)))
            runs[f"ppo-{seed}"] = {
                "series": {
                    "train/loss": points(steps, LOSSES),
                    "nested.a": points(steps, [step * 0.5 for step in steps]),
                },
                "config": {"lr": 0.25, "seed": seed, "net.width": 8},
            }
        [file] = Path(name).glob("*.db")
        with sqlite3.connect(file) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.execute("VACUUM")
        shutil.copy(file, out)
    write_expected(out, runs, "trackio")


if __name__ == "__main__":
    main()
