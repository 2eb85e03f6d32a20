"""Where a run happened: the commit, the versions, the machine. Recorded beside the fingerprint, not in it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fairtrial.core.paths import NOT_CODE
from fairtrial.core.regular_files import read_regular

CODE = (":/", *(f":(top,exclude,glob){pattern}" for pattern in NOT_CODE))
"""What git is asked about: everything but what a project writes about itself."""
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
PACKAGES = ("fairtrial", "torch", "numpy", "mnist1d", "scikit-learn", "peft", "transformers")


def git_state(folder: Path) -> dict[str, Any]:
    """Commit and dirtiness of the working tree around `folder`; null where there is no repository."""
    commit = git_output(folder, "rev-parse", "HEAD")
    if commit is None:
        return {"git_commit": None, "git_dirty": None, "git_dirty_hash": None}
    changes = (git_output(folder, "diff", "HEAD", "--", *CODE) or "").encode() + _untracked(folder)
    digest = hashlib.sha256(changes).hexdigest() if changes else None
    return {"git_commit": commit.strip(), "git_dirty": bool(changes), "git_dirty_hash": digest}


def _untracked(folder: Path) -> bytes:
    """New files by name and content; large ones, which are data rather than code, by name and size."""
    top = Path((git_output(folder, "rev-parse", "--show-toplevel") or str(folder)).strip())
    names = (git_output(top, "ls-files", "-z", "--others", "--exclude-standard", "--", *CODE) or "").split("\0")
    told = []
    for path in (top / name for name in names if name):
        with contextlib.suppress(OSError):  # gone again, or not ours to read
            size = path.stat().st_size
            told += [f"{path.relative_to(top)} {size}".encode(), read_regular(path) if size < 1 << 20 else b""]
    return b"\n".join(told)


def changed_files(folder: Path, before: str, after: str) -> list[str] | None:
    """The files of code that differ between two commits; None where git cannot say."""
    if not all(_COMMIT.fullmatch(commit) for commit in (before, after)):  # what others wrote is no option of git
        return None
    names = git_output(folder, "diff", "--name-only", "-z", before, after, "--", *CODE)
    return None if names is None else [name for name in names.split("\0") if name]


def git_output(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def machine(packages: Iterable[str] = PACKAGES) -> dict[str, Any]:
    """What could make another machine give other numbers or times."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hostname": platform.node(),
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": None if not Path("/dev/nvidia0").exists() else "nvidia",
        "versions": {name: _version(name) for name in packages},
        "executable": sys.executable,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or None
