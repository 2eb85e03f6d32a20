"""What leaves a project: a folder, a report, a notebook that computes again, a deposit that never pretends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from fairtrial.api.evidence.bundle import BundleTerms
from fairtrial.api.evidence.export import export
from fairtrial.core.errors import UserError
from fairtrial.research.artifact import ArtifactFile, Author
from fairtrial.research.crate import crate_document
from fairtrial.research.zenodo import check_api
from tests.api.evidence.conftest import Made
from tests.conftest import Answer

RUN_CELLS = """
import json, sys
space = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), space)
"""


def run_cells(notebook: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", RUN_CELLS, str(notebook)]
    return subprocess.run(argv, cwd=notebook.parent, capture_output=True, text=True, check=False)


def check_format(document: dict[str, Any]) -> None:
    """The rules of nbformat 4.5 that our cells can break."""
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5) and document["metadata"]["kernelspec"]["name"]
    ids = [cell["id"] for cell in document["cells"]]
    assert len(set(ids)) == len(ids) and all(1 <= len(each) <= 64 for each in ids)
    for cell in document["cells"]:
        assert cell["cell_type"] in ("code", "markdown") and isinstance(cell["source"], list)
        extra = {"outputs", "execution_count"} if cell["cell_type"] == "code" else set()
        assert cell.keys() == {"cell_type", "id", "metadata", "source"} | extra


def test_the_notebook_reproduces_the_analysis_and_notices_other_runs(
    in_project: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crate = export(in_project.artifact, to="folder", output=tmp_path / "crate", terms=BundleTerms(charts=False))
    notebook = crate / "analysis.ipynb"
    check_format(json.loads(notebook.read_text()))
    before = sorted(path for path in crate.rglob("*"))
    done = run_cells(notebook)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("comparisons as claimed") == 2
    assert sorted(path for path in crate.rglob("*")) == before
    series = next((crate / "runs/tea").glob("milk*/metrics.jsonl"))
    series.write_text(series.read_text().replace('"report_accuracy":0.', '"report_accuracy":0.9'))
    monkeypatch.chdir(crate)
    space: dict[str, Any] = {}
    with pytest.raises(AssertionError, match="milk"):
        for cell in json.loads(notebook.read_text())["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), space)


def test_a_notebook_in_the_project_finds_its_store(in_project: Made, tmp_path: Path) -> None:
    path = export(to="notebook", output=tmp_path / "again.ipynb")
    document = json.loads(path.read_text())
    check_format(document)
    relative = os.path.relpath(in_project.root / "runs", tmp_path)
    assert f"RUNS = {relative!r}" in "".join(document["cells"][1]["source"])
    with pytest.raises(UserError, match="already exists"):
        export(to="notebook", output=path)


def test_the_report_has_the_verdict(in_project: Made, tmp_path: Path, cli: Callable[..., Answer]) -> None:
    done = cli("research", "export", "--to", "markdown", "--output", str(tmp_path / "r.md"))
    text = (tmp_path / "r.md").read_text()
    assert done.code == 0 and text.startswith("# Milk & tea") and "## Registered analysis" in text and "Best: " in text
    assert str(in_project.root) not in text
    assert "did you mean 'notebook'" in cli("research", "export", "--to", "notebok").err


# Zenodo.


class Zenodo(BaseHTTPRequestHandler):
    """Stands in for the API: takes a draft and its file, and keeps what it was sent."""

    def do_POST(self) -> None:
        self._answer(201, {"id": 7, "links": {"bucket": f"{self._server.address}/files/b", "html": "https://z/7"}})

    def do_PUT(self) -> None:
        self._answer(200, {"checksum": "md5:0"})

    @property
    def _server(self) -> Stand:
        assert isinstance(self.server, Stand)
        return self.server

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        token = self.headers["Authorization"]
        self._server.taken.append((self.command, self.path, token, body))
        if token != "Bearer good":
            status, document = 401, {"message": "no such token"}
        if self._server.elsewhere and self.command == "POST":
            document = {"id": 7, "links": {"bucket": "http://127.0.0.2:1/steal"}}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: Any) -> None:
        pass


class Stand(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Zenodo)
        self.taken: list[tuple[str, str, str, bytes]] = []
        self.elsewhere = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api"


@pytest.fixture
def zenodo() -> Iterator[Stand]:
    server = Stand()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def zipped(made: Made, tmp_path: Path) -> Path:
    path = tmp_path / "tea.zip"
    path.write_bytes(made.bundle.read_bytes())
    return path


def test_without_a_token_it_stops_with_the_exact_commands(
    zipped: Path, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZENODO_TOKEN", raising=False)
    done = cli("research", "deposit", str(zipped), "--yes")
    assert done.code == 1 and "nothing was uploaded: $ZENODO_TOKEN is not set" in done.err
    assert 'curl --fail -H "Authorization: Bearer $ZENODO_TOKEN"' in done.out
    assert "https://zenodo.org/api/deposit/depositions" in done.out and "--upload-file" in done.out
    told = json.loads(zipped.with_suffix(".zenodo.json").read_text())["metadata"]
    assert told["creators"] == [{"name": "Lovelace, Ada"}] and told["license"] == "cc-by-4.0" and "doi" not in told


def test_with_a_token_nothing_is_sent_before_yes_and_then_a_draft(
    zipped: Path, zenodo: Stand, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENODO_TOKEN", "good")
    monkeypatch.setenv("ZENODO_API", zenodo.address)
    asked = cli("research", "deposit", str(zipped))
    assert asked.code == 1 and "--yes was not given" in asked.err and not zenodo.taken
    done = cli("research", "deposit", str(zipped), "--yes", "--format", "json")
    assert done.code == 0 and done.json["deposited"] and done.json["published"] is False
    assert [(method, path) for method, path, *_ in zenodo.taken] == [
        ("POST", "/api/deposit/depositions"), ("PUT", "/api/files/b/tea.zip"),
    ]  # fmt: skip
    assert zenodo.taken[1][3] == zipped.read_bytes()
    assert "good" not in done.out + done.err


def test_a_refusal_and_a_foreign_bucket_are_told(
    zipped: Path, zenodo: Stand, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENODO_TOKEN", "bad")
    refused = cli("research", "deposit", str(zipped), "--api", zenodo.address, "--yes")
    assert refused.code == 1 and "refused with 401: no such token" in refused.err and "bad" not in refused.out
    monkeypatch.setenv("ZENODO_TOKEN", "good")
    zenodo.elsewhere = True
    assert "which is on another host" in cli("research", "deposit", str(zipped), "--api", zenodo.address, "--yes").err


def test_a_token_goes_to_encrypted_places_alone() -> None:
    for api in ("http://zenodo.org/api", "ftp://x", "zenodo.org"):
        with pytest.raises(UserError, match="not a safe address to send a token"):
            check_api(api)


def test_a_bundle_that_was_changed_is_not_uploaded(zipped: Path, cli: Callable[..., Answer]) -> None:
    zipped.write_bytes(b"x" + zipped.read_bytes())
    done = cli("research", "deposit", str(zipped))
    assert done.code == 3 and "not intact" in done.err


def test_a_bundle_without_author_and_license_says_so_and_only_a_deposit_asks_for_them(
    tmp_path: Path, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRTRIAL_STORE")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    assert cli("research", "init", "--id", "tea", "--title", "Tea", "--type", "dataset").code == 0
    assert cli("train", "fake", "--steps", "3", "--eval-every", "0", "--checkpoint-every", "0").code == 0
    done = cli("research", "bundle", "artifact.yaml", "--zip", "--no-charts", "--format", "json")
    assert done.code == 0 and [told.split(".")[0] for told in done.json["not_stated"]] == [
        "The author is unknown", "No license is chosen, so others have no permission to reuse this",
    ]  # fmt: skip
    assert all(told in done.err for told in done.json["not_stated"])
    assert cli("research", "verify", "tea-0.1.0.zip").code == 0
    refused = cli("research", "deposit", "tea-0.1.0.zip")
    assert refused.code == 1 and "under 'authors'" in refused.err and "the key 'license'" in refused.err

    described = tmp_path / "artifact.yaml"
    text = described.read_text().replace('family: "unknown"', "family: Lovelace").replace("# license:", "license: MIT")
    described.write_text(text)
    assert cli("research", "bundle", "--output", "b", "--no-charts", "--format", "json").json["not_stated"] == []
    citation = (tmp_path / "b/CITATION.cff").read_text()
    assert 'name: "Lovelace"' in citation and 'license: "MIT"' in citation, "what init left open follows artifact.yaml"
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0 # mine\n")
    assert cli("research", "bundle", "--output", "c", "--no-charts").code == 0
    assert (tmp_path / "c/CITATION.cff").read_text() == "cff-version: 1.2.0 # mine\n", "a person's own file stays"


def test_the_crate_of_a_bundle_without_a_license_says_that_there_is_none() -> None:
    bare = ArtifactFile(id="tea", title="Tea", type="dataset", authors=[Author(family="unknown")])
    graph = {each["@id"]: each for each in json.loads(crate_document(bare, {}, [], version="1"))["@graph"]}
    assert "author" not in graph["./"] and graph["./"]["license"] == {"@id": "#no-license"}
    assert graph["#no-license"]["name"] == "No license" and graph["#no-license"]["description"]
