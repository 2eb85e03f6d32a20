"""artifact.yaml: what marks a project, where its commands write, and how it is cited."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fairtrial.api.evidence.artifact import add_file, cite, init_artifact, load_project
from fairtrial.core import paths
from fairtrial.core.errors import InvalidOptions, UserError
from fairtrial.core.project_root import find_artifact
from fairtrial.record.store_location import store_address
from fairtrial.research.artifact import ArtifactFile, parse_author
from fairtrial.research.citation import apa, bibtex, cff
from tests.conftest import Answer

ROOT = Path(__file__).parents[3]
VALUES: dict[str, Any] = {
    "id": "tea", "title": "Milk & tea: 100 % {true}", "type": "code", "license": "MIT", "date": "2026-01-02",
    "authors": [{"family": "Lovelace", "given": "Ada"}],
}  # fmt: skip
WORDS = ["--id", "tea", "--title", "Tea", "--type", "dataset", "--license", "MIT", "--author", "Ada Lovelace"]


@pytest.fixture(autouse=True)
def _no_store_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRTRIAL_STORE")


def artifact(**changed: Any) -> ArtifactFile:
    return ArtifactFile.model_validate({**VALUES, **changed})


# The project.


def test_commands_below_an_artifact_write_to_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_artifact(tmp_path / "p", VALUES)
    inside = tmp_path / "p/a/b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert store_address() == str(tmp_path / "p/runs")
    assert store_address("elsewhere") == str(inside / "elsewhere")
    monkeypatch.setenv("FAIRTRIAL_STORE", "/somewhere")
    assert store_address() == "/somewhere"
    monkeypatch.delenv("FAIRTRIAL_STORE")
    (tmp_path / "p/artifact.yaml").write_text("id: tea\nstore: s3://bucket/tea\n")
    assert store_address() == "s3://bucket/tea"
    monkeypatch.chdir(tmp_path)
    assert store_address() == str(tmp_path / "runs")


@pytest.mark.parametrize("text", ["store: [1]", "store: ''", "store: 'a\nb: c", "\x00"])
def test_an_artifact_that_cannot_be_read_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "artifact.yaml").write_text(text)
    with pytest.raises(UserError, match=r"artifact\.yaml"):
        store_address()


def test_an_artifact_of_somebody_else_above_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "artifact.yaml").write_text("id: theirs\n")
    assert find_artifact() == tmp_path / "artifact.yaml"
    (tmp_path / "mine").mkdir()
    real = os.stat

    def theirs(path: Any, *arguments: Any, **named: Any) -> Any:
        found = real(path, *arguments, **named)
        if str(path) != str(tmp_path / "artifact.yaml"):
            return found
        return os.stat_result([*found[:4], found.st_uid + 1, *found[5:]])

    monkeypatch.setattr(paths.os, "stat", theirs)
    assert find_artifact(tmp_path / "mine") is None


def test_a_folder_of_that_name_is_no_artifact(tmp_path: Path) -> None:
    (tmp_path / "artifact.yaml").mkdir()
    assert find_artifact() is None


def test_the_first_line_names_the_store_and_the_command_is_listed(tmp_path: Path, cli: Callable[..., Answer]) -> None:
    assert cli("research", "init", *WORDS).code == 0
    done = cli("train", "fake", "--steps", "3")
    assert done.code == 0 and done.err.splitlines()[0] == f"Store: {tmp_path / 'runs'}"
    cli("runs", "list")
    cli("train", "--help")
    cli("train", "fake", "--stepz", "3")
    cli("analyze", "nothing")
    entries = [json.loads(line) for line in (tmp_path / "artifact.journal.jsonl").read_text().splitlines()]
    assert [(entry["command"][0], entry["exit"]) for entry in entries] == [("train", 0), ("analyze", 1)]
    assert entries[0]["study"] == "adhoc" and entries[0]["at"] > 0 and entries[0]["result"]
    assert (tmp_path / "artifact.yaml").read_text().startswith("# A research artifact")


def test_nothing_is_listed_outside_of_a_project(tmp_path: Path, cli: Callable[..., Answer]) -> None:
    cli("train", "fake", "--steps", "3")
    assert not list(tmp_path.glob("*.jsonl"))


def test_files_are_added_from_within_the_project_alone(tmp_path: Path) -> None:
    init_artifact(tmp_path / "p", VALUES)
    project = tmp_path / "p/artifact.yaml"
    (tmp_path / "p/out.txt").write_text("verdict")
    assert add_file(tmp_path / "p/out.txt", project) == "out.txt"
    (tmp_path / "secret").write_text("s")
    (tmp_path / "p/link").symlink_to(tmp_path / "secret")
    (tmp_path / "p/.hidden").write_text("h")
    (tmp_path / "p/runs").mkdir()
    (tmp_path / "p/runs/x").write_text("x")
    for name, why in (("../secret", "outside"), ("link", "outside"), (".hidden", "hidden"), ("runs/x", "store"),
                      ("none", "no file")):  # fmt: skip
        with pytest.raises(UserError, match=why):
            add_file(tmp_path / "p" / name, project)


def test_a_command_whose_words_are_not_text_is_refused_and_not_listed(
    tmp_path: Path, cli: Callable[..., Answer]
) -> None:
    assert cli("research", "init", *WORDS).code == 0
    assert cli("analyze", "\udcff").code == 2
    assert not (tmp_path / "artifact.journal.jsonl").exists()


# The description.


@pytest.mark.parametrize("title", ["a\x7fb", "a\x00b", "\ud800"])
def test_what_cannot_be_written_down_is_refused(tmp_path: Path, title: str) -> None:
    with pytest.raises(UserError, match=r"title: .*(cannot be written into a file|valid string)"):
        init_artifact(tmp_path / "p", {**VALUES, "title": title})
    assert not (tmp_path / "p").exists()


def test_init_writes_a_file_that_fits_the_published_schema(tmp_path: Path, cli: Callable[..., Answer]) -> None:
    more = ["--author", "Beethoven, Ludwig van; orcid=0000-0002-1825-0097; affiliation=Vienna", "--keywords", "a, b"]
    assert cli("research", "init", *WORDS, *more, "--version", "2").code == 0
    values = yaml.safe_load((tmp_path / "artifact.yaml").read_text())
    schema = json.loads((ROOT / "docs/schemas/artifact-1.json").read_text())
    jsonschema.validate(json.loads(json.dumps(values, default=str)), schema)
    assert load_project().artifact.authors[1].name == "Ludwig van Beethoven" and values["version"] == "2"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**values, "titel": "x"}, schema)
    again = cli("research", "init", *WORDS)
    assert again.code == 1 and "already has artifact.yaml and CITATION.cff" in again.err


def test_all_problems_are_told_at_once_with_the_nearest_names(tmp_path: Path, cli: Callable[..., Answer]) -> None:
    bad = cli("research", "init", "--id", "a b", "--title", "T", "--type", "datset", "--license", "Apache2.0",
              "--author", "Ada; orcid=0000-0002-1825-0098", "--doi", "11.5")  # fmt: skip
    assert bad.code == 1 and not (tmp_path / "artifact.yaml").exists()
    for told in ("'a b'", "must be one of dataset, model, code or experiment", "did you mean 'Apache-2.0'?", "not a valid ORCID",
                 "is not a DOI"):  # fmt: skip
        assert told in bad.err
    (tmp_path / "artifact.yaml").write_text("id: a\ntitel: T\n")
    with pytest.raises(InvalidOptions) as error:
        load_project()
    told = "\n".join([error.value.message, *error.value.problems])
    assert "did you mean 'title'?" in told and "'authors' is missing" in told


THREE = ["--id", "tea", "--title", "Tea", "--type", "dataset"]


@pytest.fixture
def git_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Sets git's user.name for this test; nothing of the machine's own configuration is read."""
    config = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def set_name(name: str | None) -> None:
        config.write_text("" if name is None else f"[user]\n\tname = {json.dumps(name)}\n\temail = ada@example.org\n")

    return set_name


def test_three_options_suffice_and_the_author_is_the_one_of_git(
    tmp_path: Path, cli: Callable[..., Answer], git_name: Callable[[str | None], None]
) -> None:
    git_name("Ada Lovelace; Countess")
    answer = cli("research", "init", *THREE, "--output", "new/p", "--format", "json")
    assert answer.code == 0 and "Author: Ada Lovelace; Countess, from git's user.name." in answer.err
    assert "No license is chosen" in answer.err and "key 'license' in artifact.yaml" in answer.err
    told = answer.json
    assert (told["authors"], told["authors_from"], told["license"]) == (["Ada Lovelace; Countess"], "git", None)
    artifact = load_project(tmp_path / "new/p").artifact
    assert artifact.license is None and artifact.authors[0].email is None, "an address is published only if given"
    given = cli("research", "init", *WORDS, "--format", "json")
    assert (given.json["authors_from"], given.json["license"], given.err) == ("given", "MIT", "")


@pytest.mark.parametrize("name", [None, "", "a\x07b"])
def test_without_a_usable_name_in_git_the_author_is_unknown(
    cli: Callable[..., Answer], git_name: Callable[[str | None], None], name: str | None
) -> None:
    git_name(name)
    answer = cli("research", "init", *THREE, "--format", "json")
    assert answer.code == 0 and "The author is unknown. Name one under 'authors' in artifact.yaml." in answer.err
    assert (answer.json["authors"], answer.json["authors_from"]) == (["unknown"], "unknown")
    assert "unknown" not in cli("research", "cite", "--style", "apa").out
    assert "The author is unknown." in cli("research", "cite").err


def test_a_citation_without_author_and_license_invents_neither() -> None:
    bare = artifact(authors=[{"family": "unknown"}], license=None)
    assert apa(bare) == "Milk & tea: 100 % {true} (Version 0.1.0) [Computer software]. (2026).\n"
    assert "author" not in bibtex(bare) and "no license" in bibtex(bare)
    told = yaml.safe_load(cff(bare))
    assert told["authors"] == [{"name": "unknown"}] and "license" not in told, "the format requires an author"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Ada Lovelace", {"family": "Lovelace", "given": "Ada"}),
        ("Ludwig van Beethoven", {"family": "van Beethoven", "given": "Ludwig"}),
        ("de la Cruz, Juana", {"family": "de la Cruz", "given": "Juana"}),
        ("Plato", {"family": "Plato"}),
        ("{The Tea Consortium}", {"family": "The Tea Consortium"}),
        ("Ada Lovelace; email=a@b.org", {"family": "Lovelace", "given": "Ada", "email": "a@b.org"}),
    ],
)
def test_names_are_taken_apart(text: str, parts: dict[str, str]) -> None:
    assert parse_author(text) == parts


# Citations.

MANY = [{"family": "O'Neil & Sons"}, {"family": "van Beethoven", "given": "Ludwig"}, {"family": "Curie", "given": "Marie Skłodowska"},
        {"family": "Sartre", "given": "Jean-Paul"}]  # fmt: skip


def test_bibtex_is_escaped_and_keeps_names_in_one_piece() -> None:
    text = bibtex(artifact(authors=MANY))
    assert r"title = {{Milk \& tea: 100 \% \{true\}}}" in text
    assert (
        r"author = {{O'Neil \& Sons} and {van Beethoven}, Ludwig and Curie, Marie Skłodowska and Sartre, Jean-Paul}"
        in text
    )
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert "year = {2026}" in text and "doi" not in text


def test_apa_has_initials_and_an_ampersand() -> None:
    assert apa(artifact(authors=MANY)) == (
        "O'Neil & Sons, van Beethoven, L., Curie, M. S., & Sartre, J.-P. (2026). Milk & tea: 100 % {true} (Version 0.1.0) "
        "[Computer software].\n"
    )
    assert apa(artifact(date=None)).startswith("Lovelace, A. (n.d.). ")


def test_a_doi_is_told_only_if_there_is_one() -> None:
    with_doi = artifact(doi="https://doi.org/10.5281/zenodo.12")
    assert all("10.5281/zenodo.12" in style(with_doi) for style in (apa, bibtex, cff))
    assert not any("doi" in style(artifact()).lower() for style in (apa, bibtex, cff))


def test_cff_is_what_the_format_asks_for() -> None:
    told = yaml.safe_load(cff(artifact(authors=MANY, keywords=["a: b", "c"], description="One.\nTwo.")))
    assert told["cff-version"] == "1.2.0" and told["type"] == "software" and told["title"] == VALUES["title"]
    assert told["authors"][0] == {"name": "O'Neil & Sons"}
    assert told["authors"][1] == {"family-names": "van Beethoven", "given-names": "Ludwig"}
    assert told["keywords"] == ["a: b", "c"] and told["date-released"] == "2026-01-02"
    assert not re.search(r" +$", cff(artifact()), re.MULTILINE)


def test_cite_as_a_command(cli: Callable[..., Answer]) -> None:
    none = cli("research", "cite")
    assert none.code == 1 and "there is no artifact.yaml in this folder or above it" in none.err
    cli("research", "init", *WORDS)
    assert cli("research", "cite", "--style", "apa").out.startswith("Lovelace, A.")
    assert cli("research", "cite", "--output", "cite.bib").code == 0 and Path("cite.bib").read_text() == cite("bibtex")
    assert "did you mean 'bibtex'" in cli("research", "cite", "--style", "bibtx").err
