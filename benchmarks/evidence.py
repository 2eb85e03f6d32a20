"""`python -m benchmarks.evidence [STEP|NAME …]`: measures from scratch and writes it down with commit and machine.

Every step of the project has a file, docs/evidence/<step>.json; without arguments all are made anew. The name of a
benchmark measures that one anew and keeps the others of its step as they are, each with the commit that it was
measured at. A goal that was missed is written as missed.
"""

from __future__ import annotations

import datetime
import importlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import Figure, missed, show
from benchmarks.measure import ROOT
from benchmarks.registry import BENCHMARKS
from fairtrial.record.environment import git_state, machine, torch_instruction_set

SCHEMA = 1
EVIDENCE = "docs/evidence"


def gather(step: int, wanted: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured now, and beside it what the file of this step had of other benchmarks."""
    git, dirty = git_state(ROOT), _is_dirty()
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found = {name: _measured(name) for name in wanted}
    changed = git_state(ROOT) != git  # then the figures are not all of one code, and must not look as if they were
    about = {
        "commit": git["git_commit"], "dirty": dirty or changed, "changed_while_measured": changed,
        "date": date, "machine": _machine(),
    }  # fmt: skip
    kept = [name for name in _of_step(step) if name in known.get("figures", {}) and name not in found]
    before = {name: value for name, value in known.items() if name in about}
    figures = {name: {figure.name: figure.to_dict() for figure in each} for name, each in found.items()}
    old = [line for line in known.get("missed", []) if line.partition(":")[0] in kept]
    return {
        "schema": SCHEMA,
        "step": step,
        **about,
        "measured_before": {name: known.get("measured_before", {}).get(name, before) for name in kept},
        "figures": {**{name: known["figures"][name] for name in kept}, **figures},
        "missed": [*old, *(f"{name}: {figure}" for name, each in found.items() for figure in missed(each))],
    }


def _is_dirty() -> bool:
    """Whether anything but evidence differs from the commit: its files change no measurement."""
    words = ["git", "status", "--porcelain", "--", ".", f":(exclude){EVIDENCE}"]
    return bool(subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip())


def _of_step(step: int) -> list[str]:
    return [name for name, benchmark in BENCHMARKS.items() if benchmark.step == step]


def _measured(name: str) -> list[Figure]:
    figures = BENCHMARKS[name].run()
    show(BENCHMARKS[name].title, figures)
    return figures


def _machine() -> dict[str, Any]:
    """What the figures depend on, without the name of the machine."""
    importlib.import_module("torch")  # it says which instruction set its kernels use once it is loaded
    facts = machine()
    return {
        "cpu": facts["cpu"],
        "cpu_model": facts["cpu_model"],
        "cpu_features": facts["cpu_features"],
        "torch_instruction_set": torch_instruction_set(),
        "cores": facts["cpu_count"],
        "memory_bytes": facts["memory_bytes"],
        "python": facts["python"],
        "torch": facts["versions"]["torch"],
        "platform": facts["platform"],
    }


def write(step: int, wanted: Sequence[str]) -> None:
    path = ROOT / EVIDENCE / f"{step:02d}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    document = gather(step, wanted, known)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    print(f"Wrote {path}")
    print("\n".join(f"Missed: {line}" for line in document["missed"]) or "All goals met.")


def main(arguments: Sequence[str]) -> int:
    steps = {str(benchmark.step): _of_step(benchmark.step) for benchmark in BENCHMARKS.values()}
    unknown = [word for word in arguments if word not in steps and word not in BENCHMARKS]
    if unknown:
        hint = f"steps are {', '.join(steps)}; benchmarks {', '.join(BENCHMARKS)}"
        print(f"Error: there is no evidence '{unknown[0]}'\nHint: {hint}", file=sys.stderr)
        return 2
    wanted = {name for word in arguments or steps for name in steps.get(word, [word])}
    for step, names in steps.items():
        if chosen := [name for name in names if name in wanted]:
            write(int(step), chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
