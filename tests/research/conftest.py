"""A project with a registration, and a key that is nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairtrial.api.preregister import Intent, preregister
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


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProjectPaths]:
    """The folder of an artifact, which is where the person works."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "artifact.yaml").write_text("id: tea\ntitle: Tea\n")
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
