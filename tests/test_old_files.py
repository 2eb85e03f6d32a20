"""Stores, checkpoints and bundles of earlier versions open, go on, and give the numbers that were recorded then.

`tools/make_old_files.py` made them, and asked the version that wrote them the same questions. Everything here goes
through the command line and public names, so that it holds whatever becomes of the code between.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import fairtrial
from tests.conftest import Answer

OLD = Path(__file__).parent / "old_files"
QUESTIONS = [
    pytest.param(file.with_suffix(".tar.xz"), question, id=f"{file.stem}-{question['name']}")
    for file in sorted(OLD.glob("*.json"))
    for question in json.loads(file.read_text())
]


def unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def value_at(document: Any, path: str) -> Any:
    """What stands at a path such as comparisons/0/effect/value. A name may hold dots, and slashes in studies' names."""
    return reduce(lambda value, key: value[int(key) if isinstance(value, list) else key], path.split("/"), document)


@pytest.mark.parametrize(("archive", "question"), QUESTIONS)
def test_old_files_give_the_numbers_that_were_recorded(
    archive: Path,
    question: dict[str, Any],
    cli: Callable[..., Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unpack(archive, tmp_path)
    monkeypatch.chdir(tmp_path / question["folder"])
    monkeypatch.delenv("FAIRTRIAL_STORE")
    for words in question["commands"]:
        answer = cli(*words)
        assert answer.code == question["exit"], answer.err
    document = answer.json
    differing = {
        path: (value_at(document, path), expected)
        for path, expected in question["values"].items()
        if value_at(document, path) != (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected)
    }
    assert not differing


@pytest.mark.parametrize("archive", sorted(OLD.glob("*.tar.xz")), ids=lambda path: path.name)
def test_a_script_goes_on_from_a_checkpoint_of_an_old_version(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path)
    with fairtrial.run(
        seed=4, config={"lr": 0.1}, study="scripts", variant="v", best_metric="eval_loss", store=tmp_path / "lab/runs"
    ) as run:
        checkpoint = run.resume()
        assert checkpoint is not None and checkpoint.step == 3
        assert checkpoint.state == {"weights": [1.5, -1.0], "step": 3}
        run.log(4, train_loss=0.25)
    shown = fairtrial.show_run("scripts/v.seed4", store=tmp_path / "lab/runs").run
    assert shown.status == "completed" and shown.final["train_loss"] == 0.25
    assert shown.metadata["best_checkpoint_step"] == 3


def test_old_files_are_small() -> None:
    assert sum(path.stat().st_size for path in OLD.glob("*.tar.xz")) < 300_000
