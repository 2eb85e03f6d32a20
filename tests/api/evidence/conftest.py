"""A project with a registration, and a key that is nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairtrial.api.evidence.preregister import Intent, preregister
from fairtrial.core.paths import KEY_VARIABLE, ProjectPaths
from fairtrial.plan.study import read_study
from fairtrial.record.store import Store
from fairtrial.research.keys import Signer, load_signer
from fairtrial.research.register import Registered, register


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("key") / "key.pem"


@pytest.fixture(scope="session")
def signer(key: Path) -> Signer:
    return load_signer(key)


@pytest.fixture(autouse=True)
def _own_key(key: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, str(key))


ARTIFACT = "id: tea\ntitle: Tea\ntype: experiment\nlicense: MIT\nauthors: [{family: Lovelace, given: Ada}]\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProjectPaths]:
    """The folder of an artifact, which is where the person works."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "artifact.yaml").write_text(ARTIFACT)
    monkeypatch.chdir(root)
    yield ProjectPaths(root)


CODE: dict[str, Any] = {"git_commit": None, "git_dirty": None, "git_dirty_hash": None, "versions": {}}


def text_plan(**changed: Any) -> dict[str, Any]:
    """The shortest plan there is."""
    plan = {
        "amends": None, "analysis": None, "artifact": {"id": "tea", "sha256": "0" * 64}, "basis": "text only",
        "code": CODE, "command": None, "exclusions": [], "hypothesis": "Milk first is better.",
        "late": [], "methods": "Eight cups.", "seeds": None, "stopping_rule": "fixed", "study": None,
    }  # fmt: skip
    return {**plan, **changed}


@pytest.fixture
def registered(project: ProjectPaths, signer: Signer) -> Registered:
    return register(project, text_plan(), signer, anchor=None)


STUDY = """study: s
recipe: fake
options: {steps: 20}
variants:
  base: {}
  new: {effect: 0.2, label: new}
seeds: 3
sesoi: 0.01
"""


@pytest.fixture
def study(project: ProjectPaths) -> Path:
    path = project.root / "s.yaml"
    path.write_text(STUDY)
    return path


def register_study(
    project: ProjectPaths, study: Path, store: Store, *, derive: int | None = None, intent: dict[str, Any] | None = None,
    **settings: Any,
) -> Registered:  # fmt: skip
    planned = Intent(study=read_study(study), derive=derive, **(intent or {}))
    words = {"hypothesis": "new is better", "methods": "as in the study file"}
    return preregister(project.artifact, **words, intent=planned, store=store.root, **settings)


@dataclass(frozen=True)
class Made:
    """A project with a registered study, a recorded sweep and an added file, and its bundle."""

    root: Path
    bundle: Path

    @property
    def artifact(self) -> Path:
        return self.root / "artifact.yaml"


TEA = """\
study: tea  # milk first, or tea first?
recipe: fake
options: {steps: 8, eval_every: 4, checkpoint_every: 0}
variants: {tea: {}, milk: {effect: 0.03}}
seeds: 3
sesoi: 0.01
"""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, key: Path, signer: Signer) -> Made:
    """Made once by the commands that a person types; nobody may change it."""
    from fairtrial.cli.app import run

    root = tmp_path_factory.mktemp("made") / "project"
    root.mkdir()
    words = ["--id", "tea", "--title", "Milk & tea", "--type", "experiment", "--license", "CC-BY-4.0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.delenv("FAIRTRIAL_STORE", raising=False)
        patch.setenv(KEY_VARIABLE, str(key))
        assert run(["research", "init", *words, "--author", "Ada Lovelace", "--date", "2026-01-02"]) == 0
        (root / "tea.yaml").write_text(TEA)
        said = ["--hypothesis", "Milk first is better.", "--methods", "Launch, then analyze --plan."]
        assert (
            run(["research", "preregister", "artifact.yaml", *said, "--study", "tea.yaml", "--derive-seeds", "3"]) == 0
        )
        assert run(["launch", "tea.yaml", "--quiet"]) == 0
        sweep = ["--param", "effect=0,0.02", "--runs", "2", "--steps", "4", "--eval-every", "0"]
        assert run(["sweep", "fake", *sweep, "--study", "cups", "--quiet"]) == 0
        (root / "notes.txt").write_text("Eight cups were tasted.\n")
        assert run(["research", "add", "notes.txt"]) == 0
        assert run(["research", "bundle", "--zip", "--no-charts", "--quiet"]) == 0
    return Made(root, root / "tea-0.1.0.zip")


@pytest.fixture
def in_project(made: Made, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A person who works in the made project, with no store but its own."""
    monkeypatch.delenv("FAIRTRIAL_STORE", raising=False)
    monkeypatch.chdir(made.root)
    return made
