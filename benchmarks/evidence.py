"""`python -m benchmarks.evidence [FILE]`: measures everything from scratch and writes it down with commit and machine.

What is written was measured in this very run. A goal that was missed is written as missed.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, missed, show
from benchmarks.measure import ROOT
from benchmarks.registry import BENCHMARKS
from fairtrial.record.environment import git_state, machine

STEP = 1
SCHEMA = 1


def gather() -> dict[str, Any]:
    git = git_state(ROOT)  # before the evidence itself changes the working tree
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    figures = {name: _measured(name) for name in BENCHMARKS}
    changed = git_state(ROOT) != git  # then the figures are not all of one code, and must not look as if they were
    return {
        "schema": SCHEMA,
        "step": STEP,
        "commit": git["git_commit"],
        "dirty": git["git_dirty"] or changed,
        "changed_while_measured": changed,
        "date": date,
        "machine": _machine(),
        "figures": {name: {figure.name: figure.to_dict() for figure in each} for name, each in figures.items()},
        "missed": [f"{name}: {figure}" for name, each in figures.items() for figure in missed(each)],
    }


def _measured(name: str) -> list[Figure]:
    figures = BENCHMARKS[name].run()
    show(BENCHMARKS[name].title, figures)
    return figures


def _machine() -> dict[str, Any]:
    """What the figures depend on, without the name of the machine."""
    facts = machine()
    return {
        "cpu": facts["cpu"],
        "cores": facts["cpu_count"],
        "memory_bytes": facts["memory_bytes"],
        "python": facts["python"],
        "torch": facts["versions"]["torch"],
        "platform": facts["platform"],
    }


def write(path: Path) -> int:
    document = gather()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    print(f"Wrote {path}")
    print("\n".join(f"Missed: {line}" for line in document["missed"]) or "All goals met.")
    return 0


if __name__ == "__main__":
    sys.exit(write(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs" / "evidence" / f"{STEP:02d}.json"))
