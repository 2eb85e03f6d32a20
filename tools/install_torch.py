"""Install torch as pinned, and never gigabytes of CUDA packages on a machine without a GPU.

Asks pip what it would install before it installs anything. Run with the interpreter of the environment.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
CUDA = re.compile(r"^(nvidia|cuda|triton)")


def main() -> int:
    pinned = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    wanted = pinned[1]
    if installed_version().partition("+")[0] == wanted:
        return 0
    request = f"torch=={wanted}"
    if not has_gpu() and (cuda := [name for name in would_install(request) if CUDA.match(name)]):
        print(
            f"Error: pip would install the CUDA build of {request} ({len(cuda)} NVIDIA packages) on a machine "
            "without a GPU.\nHint: point pip at PyTorch's index of CPU builds, which its installation page names: "
            "PIP_EXTRA_INDEX_URL=… make setup",
            file=sys.stderr,
        )
        return 1
    return subprocess.run([*PIP, "--constraint", str(ROOT / "constraints.txt"), request], check=False).returncode


def installed_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def has_gpu() -> bool:
    return Path("/dev/nvidia0").exists() or bool(os.environ.get("FAIRTRIAL_CUDA"))


def would_install(request: str) -> list[str]:
    """The packages that pip would bring, without bringing them."""
    report = subprocess.run([*PIP, "--dry-run", "--report", "-", request], capture_output=True, text=True, check=False)
    if report.returncode != 0:
        sys.exit(report.stderr)
    return [item["metadata"]["name"].lower() for item in json.loads(report.stdout)["install"]]


if __name__ == "__main__":
    sys.exit(main())
