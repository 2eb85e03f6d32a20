"""Asks rocrate and roc-validator, in their own environment, what they think of a crate."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, Unavailable

PYTHON = Path(os.environ.get("FAIRTRIAL_CRATE_PYTHON") or ROOT / ".venv-crate/bin/python")
WORKER = Path(__file__).with_name("worker.py")


def judged(crate: Path) -> dict[str, Any]:
    if not PYTHON.exists():
        raise Unavailable("the environment of rocrate is missing; make .venv-crate/.installed builds it")
    done = subprocess.run([str(PYTHON), "-I", str(WORKER), str(crate)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"rocrate ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
