"""`python -m benchmarks.evidence [STEP …]`: measures from scratch and writes it down with commit and machine.

Every step of the project has a file, docs/evidence/<step>.json; without arguments all are made anew.

What is written was measured in this very run. A goal that was missed is written as missed.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.figures import Figure, missed, show
from benchmarks.measure import ROOT
from benchmarks.registry import BENCHMARKS
from fairtrial.record.environment import git_state, machine

SCHEMA = 1


def gather(step: int) -> dict[str, Any]:
    git = git_state(ROOT)  # before the evidence itself changes the working tree
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    figures = {name: _measured(name) for name, benchmark in BENCHMARKS.items() if benchmark.step == step}
    changed = git_state(ROOT) != git  # then the figures are not all of one code, and must not look as if they were
    return {
        "schema": SCHEMA,
        "step": step,
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


def write(step: int) -> None:
    path = ROOT / "docs" / "evidence" / f"{step:02d}.json"
    document = gather(step)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    print(f"Wrote {path}")
    print("\n".join(f"Missed: {line}" for line in document["missed"]) or "All goals met.")


def main(arguments: Sequence[str]) -> int:
    known = sorted({benchmark.step for benchmark in BENCHMARKS.values()})
    if any(word not in map(str, known) for word in arguments):
        print(f"Error: steps with evidence are {', '.join(map(str, known))}", file=sys.stderr)
        return 2
    for step in [int(word) for word in arguments] or known:
        write(step)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
