"""Names the modules of which the tests run the smallest part. `make coverage` calls it after the tests."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SHOWN = 10


def least_covered(report: Mapping[str, Any], shown: int = SHOWN) -> list[tuple[str, float]]:
    """Paths with the percentage of lines and branches that ran; files without any statement are left out."""
    parts = [
        (path, file["summary"]["percent_covered"])
        for path, file in report["files"].items()
        if file["summary"]["num_statements"]
    ]
    return sorted(parts, key=lambda part: (part[1], part[0]))[:shown]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(target)], check=True)
        report = json.loads(target.read_text())
    print(f"Covered: {report['totals']['percent_covered']:.1f} %. The least covered modules:")
    for path, percent in least_covered(report):
        print(f"  {percent:5.1f} %  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
