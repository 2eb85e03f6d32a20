"""Bundles, journals and ledgers of others: no name in them leads elsewhere, and no value in them is trusted."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.api.evidence.bundle import BundleStaging
from fairtrial.api.evidence.verify_bundle import verify_bundle
from fairtrial.core.canonical import canonical_json
from fairtrial.core.errors import FairtrialError, UserError
from fairtrial.core.paths import BundlePaths, ProjectPaths, RegistrationPaths
from fairtrial.core.untrusted import UntrustedName
from fairtrial.record.store import Store
from fairtrial.research.archive import refuse_unsafe
from fairtrial.research.command_log import note_file, read_command_log, removed_runs
from fairtrial.research.ledger import KEYS, parse_ledger, read_ledger
from fairtrial.research.manifest import BundleManifest, read_manifest
from tests.api.evidence.conftest import Made
from tests.api.evidence.test_bundle import content_of, packed, rehashed, zip_with
from tests.conftest import Answer
from tests.harness import edit_metadata, make

Cli = Callable[..., Answer]


@pytest.mark.parametrize("change", [{"study": "../../../../outside"}, {"run_id": "../../../../../outside/x"}])
def test_metadata_cannot_make_a_bundle_write_elsewhere(
    project: ProjectPaths, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    """The folder of a run in a bundle has the names that the run tells of itself."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "deep" / "er"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    store = Store(tmp_path / "store")
    make(store, "fake", steps=5)
    paths = store.paths.run("s", "v.seed1")
    edit_metadata(paths, **change)
    answer = cli("research", "bundle", "--store", str(store.root), "--output", str(tmp_path / "b.zip"))
    assert not list(tmp_path.rglob("outside"))
    assert answer.code == 3 and "does not belong here" in answer.err, answer.err


def test_a_bundle_in_the_making_takes_no_name_that_leads_elsewhere(tmp_path: Path) -> None:
    stage = BundleStaging(tmp_path / "stage")
    stage.put("runs/s/x.json", b"{}")
    with pytest.raises(UntrustedName, match="leads out of the folder"):
        stage.put("runs/../../x.json", b"{}")
    for name in ("..", "a/b", "/x"):
        with pytest.raises(UserError):
            BundlePaths(tmp_path).charts(name)
        with pytest.raises(UserError):
            BundlePaths(tmp_path).analysis(name)


def test_a_file_that_was_added_lies_in_the_project(project: ProjectPaths, cli: Cli, tmp_path: Path) -> None:
    from fairtrial.core.canonical import file_hash

    make(Store(tmp_path / "store"), "fake", steps=5)
    (tmp_path / "secret").write_text("secret")
    note_file(project, "../secret", file_hash(tmp_path / "secret"))
    answer = cli("research", "bundle", "--store", str(tmp_path / "store"))
    assert answer.code == 1 and "'../secret' leads out of the folder" in answer.err, answer.err


def test_lines_of_a_journal_that_no_command_wrote_are_left_out(project: ProjectPaths) -> None:
    fine = {"kind": "command", "command": ["runs", "rm", "x"], "at": 1.0, "result": {"removed": ["s/x"]}}
    wrong = [{"at": 1e300}, {"at": True}, {"at": -1}, {"folder": 5}, {"command": "x"}, {"command": [5]}]
    lines = [fine, *({**fine, **change} for change in wrong), {**fine, "result": {"removed": 5}}]
    project.command_log.write_text("".join(json.dumps(line) + "\n" for line in lines) + "[" * 2000 + "\n{")
    found = read_command_log(project.command_log)
    assert found == [fine, lines[-1]] and removed_runs(found, "s") == ["s/x"]


def a_manifest(**changes: Any) -> bytes:
    document = json.loads(BundleManifest({"a": (1, "0" * 64)}, made_with="x").render())
    return json.dumps({**document, **changes}).encode()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"files": {"../x": {"bytes": 1, "sha256": "0" * 64}}}, "leads out of the folder"),
        ({"files": {n: {"bytes": 1, "sha256": "0" * 64} for n in "aA"}}, "refer to the same file"),
        ({"files": {"a": {"bytes": -1, "sha256": "0" * 64}}}, "files.a.bytes: must be"),
        ({"files": {"a": {"bytes": "1", "sha256": "0" * 64}}}, "files.a.bytes: must be"),
        ({"files": {"a": {"bytes": 1 << 50, "sha256": "0" * 64}}}, "files.a.bytes: must be"),
        ({"files": {"a": {"bytes": 1, "sha256": "x"}}}, "files.a.sha256: must match"),
        ({"files": []}, "files: must be"),
        ({"signer": "x"}, "signer: must match"),
        ({"excluded": 5}, "excluded: must be"),
        ({"about": None}, "about: must be"),
    ],
)
def test_the_manifest_of_a_bundle_has_one_form(changes: dict[str, Any], why: str) -> None:
    found, problems = read_manifest(a_manifest(**changes))
    assert found is None and "is not the manifest of a bundle" in problems[0] and why in problems[0]


def test_a_manifest_of_another_version_says_so() -> None:
    assert "schema 7" in read_manifest(a_manifest(schema=7))[1][0]
    assert read_manifest(BundleManifest({"a": (1, "0" * 64)}, made_with="x").render())[1] == []
    for content in (b"", b"[]", b"\xff", b"[" * 10_000):
        assert read_manifest(content)[0] is None


def test_a_result_about_a_study_elsewhere_is_not_computed(made: Made, tmp_path: Path) -> None:
    content = content_of(made.bundle)
    headlines = json.loads(content["report/headlines.json"])
    headlines["results"][0]["asked"]["study"] = "../../../elsewhere"
    changed = rehashed({**content, "report/headlines.json": json.dumps(headlines).encode()})
    found = verify_bundle(packed(changed, tmp_path / "changed.zip"))
    assert any(check.detail == "its study is not in the bundle" for check in found.mismatches)


def test_a_moment_that_no_calendar_has_is_not_one_of_a_ledger() -> None:
    row = {**dict.fromkeys(KEYS, "x"), "about": {}, "entry": 1, "registration": "0" * 64}
    for moment in (1e300, -1.0, True):
        found = parse_ledger(canonical_json({**row, "time": moment}) + b"\n")
        assert found.entries == () and "entry 1 of the ledger is not in its original form" in found.problems[0]
    assert len(parse_ledger(canonical_json({**row, "time": 5.0}) + b"\n").entries) == 1


def test_a_ledger_that_is_no_file_is_a_sentence(tmp_path: Path) -> None:
    paths = RegistrationPaths(tmp_path)
    paths.ledger.mkdir()
    with pytest.raises(FairtrialError, match="is a folder"):
        read_ledger(paths)


def test_a_registration_does_not_ask_for_a_billion_seeds() -> None:
    from pydantic import ValidationError

    from fairtrial.research.plan_schema import Seeds

    assert Seeds(count=5, derived=True, given=5, listed=None).count == 5
    with pytest.raises(ValidationError, match="less than or equal to"):
        Seeds(count=10**9, derived=True, given=5, listed=None)


def test_names_in_an_archive_are_judged_before_anything_is_unpacked(tmp_path: Path) -> None:
    path = zip_with(tmp_path / "x.zip", ("fine", b"x", 0o100644), ("../evil", b"x", 0o100644))
    with zipfile.ZipFile(path) as archive, pytest.raises(UserError, match="leads out of the folder"):
        refuse_unsafe(archive, path)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_a_device_is_not_a_bundle(cli: Cli, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading one would never end: it is refused before anything is read."""
    monkeypatch.setattr("zipfile.ZipFile._RealGetContents", lambda _: pytest.fail("it was read"))
    (tmp_path / "bundle.zip").symlink_to(device)
    answer = cli("research", "verify", "bundle.zip")
    assert answer.code == 1 and "not a file" in answer.err, answer.err
