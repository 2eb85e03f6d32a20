"""Writes tests/launch/golden/*.yaml: task files of launches of many kinds, after SkyPilot itself has accepted them.

Needs SkyPilot's own environment (`make sky`). The tests need only the files.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.cluster_skypilot import LAUNCHES, SKY, as_kept

from fairtrial.launch.sky_program import Sky
from fairtrial.launch.skypilot import require_accepted

GOLDEN = Path(__file__).resolve().parent.parent / "tests/launch/golden"


def main() -> int:
    if not SKY.exists():
        print(f"Error: {SKY} does not exist.\nHint: make sky", file=sys.stderr)
        return 1
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, launch in LAUNCHES.items():
            tasks = launch.tasks(Path(folder))
            judged = require_accepted(Sky(str(SKY)).judge(tasks))
            (GOLDEN / f"{name}.yaml").write_text(as_kept(tasks, Path(folder)))
            print(f"{name}.yaml: {len(tasks)} task files, accepted by SkyPilot {judged.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
