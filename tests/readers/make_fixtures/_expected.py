"""Writes what a tool's own reader, or the script that logged, says about the files: `expected.json` in their folder.

NaN and infinities are written as Python writes them. Every number is spelled so that it is read back bit for bit.
"""

from __future__ import annotations

import json
import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent.parent / "files"


def fresh(name: str) -> Path:
    """An empty folder for the files of one tool and version."""
    folder = FILES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def write_expected(folder: Path, runs: dict[str, Any], *packages: str) -> None:
    made = {"python": platform.python_version(), **{package: version(package) for package in packages}}
    text = json.dumps({"made_with": made, "runs": runs}, indent=1, sort_keys=True)
    (folder / "expected.json").write_text(text + "\n")


def points(steps: list[Any], values: list[Any], times: list[Any] | None = None) -> dict[str, Any]:
    found = {"steps": list(steps), "values": [float(value) for value in values]}
    return found if times is None else {**found, "times": list(times)}
