"""The documented workflow, in one go: init, preregister, sweep, cost-performance, recommend, bundle; then verified."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from fairtrial.record.series import read_series
from fairtrial.record.store import Store

SCRIPT = Path(__file__).parent.parent.parent / "examples/research.sh"


def test_from_a_question_to_evidence_in_six_steps(with_data: Store, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    environment = {**os.environ, "FAIRTRIAL": f"{sys.executable} -m fairtrial"}
    done = subprocess.run(
        ["sh", str(SCRIPT)], cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "widths-0.1.0.zip: intact, signer unknown" in done.stdout
    for step in ("sweep of widths", "cost-performance of widths", "recommend of widths", "registered analysis"):
        assert f"✓ {step}" in done.stdout
    advice = json.loads((project / "choice.json").read_text())
    assert advice["expected"]["constraints"] and all(each["met"] for each in advice["expected"]["constraints"])
    runs = with_data.match([f"widths/{advice['recommended']['name']}.*"])
    measured = [float(read_series(run.paths)["report_accuracy"][1][-1]) for run in runs]
    assert len(measured) == 3 and advice["expected"]["accuracy"] == statistics.fmean(measured) >= 0.2
