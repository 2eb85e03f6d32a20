"""A bundle is refused where a file of it holds what looks like a credential; what is allowed is allowed by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from fairtrial.core.paths import ProjectPaths, RunPaths
from tests.conftest import Answer
from tests.harness import edit_metadata

Cli = Callable[..., Answer]
TOKEN = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"


@pytest.fixture
def made(cli: Cli, project: ProjectPaths, monkeypatch: pytest.MonkeyPatch) -> ProjectPaths:
    """A project with one small study in its own store."""
    monkeypatch.delenv("FAIRTRIAL_STORE")
    for seed in ("1072", "2043"):
        assert cli("train", "fake", "--steps", "3", "--study", "s", "--variant", "default", "--seed", seed).code == 0
    return project


def bundle(cli: Cli, *words: str) -> Answer:
    return cli("research", "bundle", "--zip", "--no-charts", *words)


def add_notes(cli: Cli, project: ProjectPaths, text: str) -> None:
    (project.root / "notes.md").write_text(text)
    assert cli("research", "add", "notes.md").code == 0


def test_a_bundle_without_credentials_is_made(cli: Cli, made: ProjectPaths) -> None:
    assert bundle(cli).code == 0
    assert list(made.root.glob("*.zip"))


def test_a_credential_in_an_added_file_is_named_with_its_line_and_the_bundle_refused(
    cli: Cli, made: ProjectPaths
) -> None:
    add_notes(cli, made, f"first line\nexport GITHUB_TOKEN={TOKEN}\n")
    refused = bundle(cli)
    assert refused.code == 1
    assert "project/notes.md, line 2: github-token ghp_…" in refused.err
    assert TOKEN not in refused.out + refused.err
    assert "--allow project/notes.md" in refused.err
    assert not list(made.root.glob("*.zip"))


def test_a_credential_that_an_older_version_recorded_is_found_in_every_file(cli: Cli, made: ProjectPaths) -> None:
    run = RunPaths(made.root / "runs" / "s" / "default.seed1072")
    options = orjson.loads(run.metadata.read_bytes())["options"]
    edit_metadata(run, options={**options, "argv": ["prog", "--password", "hunter2"]})
    with run.events.open("a") as file:
        file.write('{"schema": 1, "event": "program_started", "at": 0.0, "argv": ["prog", "--password", "hunter2"]}\n')
    refused = bundle(cli)
    assert refused.code == 1
    assert "runs/s/default.seed1072/metadata.json" in refused.err
    assert "runs/s/default.seed1072/events.jsonl" in refused.err
    assert "hunter2" not in refused.err


def test_what_is_allowed_by_file_or_by_kind_is_packed_and_said(cli: Cli, made: ProjectPaths) -> None:
    add_notes(cli, made, f"{TOKEN}\n")
    by_file = bundle(cli, "--allow", "project/notes.md")
    assert by_file.code == 0, by_file.err
    assert "Included because of --allow: 1 text" in by_file.err
    assert TOKEN not in by_file.err
    assert bundle(cli, "--allow", "kind:github-token", "--force").code == 0
    assert bundle(cli, "--allow", "kind:aws-access-key", "--force").code == 1


@pytest.mark.parametrize("name", ["kind:githubtoken", "project/note.md"])
def test_a_name_that_allows_nothing_is_refused(cli: Cli, made: ProjectPaths, name: str) -> None:
    add_notes(cli, made, f"{TOKEN}\n")
    refused = bundle(cli, "--allow", name)
    assert refused.code == 1
    assert "did you mean" in refused.err


def test_a_folder_that_is_exported_is_held_to_the_same(cli: Cli, made: ProjectPaths, tmp_path: Path) -> None:
    add_notes(cli, made, f"{TOKEN}\n")
    assert cli("research", "export", "--to", "folder", "--no-charts", "--output", str(tmp_path / "out")).code == 1
    assert not (tmp_path / "out").exists()


def test_a_registration_of_a_command_holds_no_secret(cli: Cli, made: ProjectPaths) -> None:
    words = "launch command --base-run-name later --seeds 2 --variant a:x=1 --variant b:x=2 "
    words += f"--metric loss --direction min -- prog --x {{x}} --seed {{seed}} --api-key hunter2 {TOKEN}"
    done = cli(
        "research", "preregister", "artifact.yaml", "--hypothesis", "h", "--methods", "m", "--metric", "loss",
        "--direction", "min", "--command", words,
    )  # fmt: skip
    assert done.code == 0, done.err
    files = [path for path in made.registrations.root.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"hunter2" in path.read_bytes() or TOKEN.encode() in path.read_bytes()]
