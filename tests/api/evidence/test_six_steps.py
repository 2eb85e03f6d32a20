"""The documented workflow, in one go: init, preregister, sweep, cost-performance, recommend, bundle; then verified."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.record.series import read_series
from fairtrial.record.store import Store
from tests.conftest import Answer

SCRIPT = Path(__file__).parents[3] / "examples/research.sh"
NOTE_THE_CALL = """printf '%s\\037' "$@" >> "$CALLS"; printf '\\n' >> "$CALLS"
"""


def commands_of(script: Path, folder: Path) -> list[list[str]]:
    """What the script calls, as a shell reads it: the program that it calls here only notes its arguments."""
    (folder / "stub").write_text(NOTE_THE_CALL)
    environment = {**os.environ, "FAIRTRIAL": f"sh {folder / 'stub'}", "CALLS": str(folder / "calls")}
    subprocess.run(["sh", str(script)], cwd=folder, env=environment, check=True)
    return [line.split("\037")[:-1] for line in (folder / "calls").read_text().splitlines()]


def test_from_a_question_to_evidence_in_six_steps(
    with_data: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Answer]
) -> None:
    """All in this process: what it would cost is to import everything eight times."""
    project, aside = tmp_path / "project", tmp_path / "aside"
    project.mkdir()
    aside.mkdir()
    monkeypatch.chdir(project)
    told = {}
    for words in commands_of(SCRIPT, aside):
        answer = cli(*words)
        assert answer.code == 0, (words, answer.err)
        name = " ".join(words[:2]) if words[0] == "research" else words[0]
        told[name] = answer.out
        if name == "recommend":
            Path("choice.json").write_text(answer.out)  # as the shell does
    assert list(told) == ["research init", "research preregister", "sweep", "cost-performance", "recommend", "research add",
                          "research bundle", "research verify"]  # fmt: skip
    assert "widths-0.1.0.zip: intact, signer unknown" in told["research verify"]
    for step in ("sweep of widths", "cost-performance of widths", "recommend of widths", "registered analysis"):
        assert f"✓ {step}" in told["research verify"]
    advice = json.loads(told["recommend"])
    assert advice["expected"]["constraints"] and all(each["met"] for each in advice["expected"]["constraints"])
    runs = with_data.match([f"widths/{advice['recommended']['name']}.*"])
    measured = [float(read_series(run.paths)["report_accuracy"][1][-1]) for run in runs]
    assert len(measured) == 3
    assert advice["expected"]["accuracy"] == pytest.approx(statistics.fmean(measured), rel=1e-12)
    assert statistics.fmean(measured) >= 0.2
