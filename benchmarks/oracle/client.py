"""Asks rliable in its own environment, and gives back what it says and what it took."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, Spent, Unavailable

PYTHON = ROOT / ".venv-rliable/bin/python"
WORKER = Path(__file__).with_name("worker.py")


def ask(request: dict[str, Any]) -> dict[str, Any]:
    if not PYTHON.exists():
        raise Unavailable("rliable's environment is missing; make golden builds it")
    done = subprocess.run(
        [str(PYTHON), "-I", str(WORKER)], input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"rliable ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def spent(request: dict[str, Any]) -> Spent:
    """The time of the call alone, as the worker measured it: starting and importing are not charged."""
    answer = ask(request)
    return Spent(answer["cpu_s"], answer["wall_s"])
