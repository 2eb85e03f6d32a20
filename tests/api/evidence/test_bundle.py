"""A bundle says where its numbers come from, and every change to it is found and named."""

from __future__ import annotations

import io
import json
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.analyze import analyze
from fairtrial.api.evidence.artifact import add_file
from fairtrial.api.evidence.bundle import BundleTerms, bundle
from fairtrial.api.evidence.claims import BY_THE_AUTHOR, differences
from fairtrial.api.evidence.preregister import Intent, preregister
from fairtrial.api.evidence.verify_bundle import CheckedBundle, verify_bundle
from fairtrial.api.running.launch import launch, run_study
from fairtrial.core.errors import UserError
from fairtrial.core.paths import ProjectPaths
from fairtrial.core.run_metadata import RunMetadata
from fairtrial.core.runs import Status
from fairtrial.plan.study import read_study
from fairtrial.record.environment import machine
from fairtrial.record.interim_looks import read_interim_looks
from fairtrial.record.store import Store
from fairtrial.research.archive import EPOCH, refuse_unsafe, write_zip
from fairtrial.research.keys import Signer, load_signer
from fairtrial.research.manifest import BundleManifest, read_manifest
from fairtrial.research.scrub import Scrubber
from fairtrial.research.signature import sign_manifest
from tests.api.evidence.conftest import STUDY, TEA, Made
from tests.conftest import Answer

GOLDEN = Path(__file__).parent / "golden/crate.json"
Content = dict[str, bytes]


def content_of(path: Path) -> Content:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def packed(content: Content, path: Path) -> Path:
    """A zip of this content, packed as Fairtrial packs it."""
    folder = path.with_suffix(".content")
    for name, each in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(each)
    write_zip(path, {name: folder / name for name in content})
    return path


def rehashed(content: Content) -> Content:
    """What a forger without the key does: every hash fits again, and the signature is gone."""
    known, _ = read_manifest(content["manifest.json"])
    assert known is not None
    rest = {name: each for name, each in content.items() if not name.startswith("manifest.")}
    import hashlib

    files = {name: (len(each), hashlib.sha256(each).hexdigest()) for name, each in rest.items()}
    manifest = BundleManifest(files, known.excluded, known.scrubbed, known.made_with, known.about)
    return {**rest, "manifest.json": manifest.render()}


@pytest.fixture
def content(made: Made) -> Content:
    return content_of(made.bundle)


@pytest.fixture
def verified(tmp_path: Path) -> Callable[[Content], CheckedBundle]:
    return lambda changed: verify_bundle(packed(changed, tmp_path / "changed.zip"))


def told(found: CheckedBundle) -> str:
    return "\n".join(f"{check.name}: {check.detail}" for check in found.mismatches)


def some_run(content: Content, file: str = "metrics.jsonl", study: str = "tea") -> str:
    return next(name for name in sorted(content) if name.startswith(f"runs/{study}/") and name.endswith(file))


# What is in it.


def test_an_untouched_bundle_is_intact_and_its_signer_unknown(made: Made) -> None:
    found = verify_bundle(made.bundle)
    assert found.intact and found.sentence == "intact, signer unknown"
    assert found.numbers > 60 and "by the author's clock" in str([check.detail for check in found.checks])
    labels = [check.name for check in found.checks]
    assert "headline numbers of tea" in labels and "sweep of cups" in labels
    assert any(label.startswith("registered analysis") for label in labels)
    assert all("to the last bit" in check.detail for check in found.checks if "numbers" in check.name)


def test_a_trusted_key_is_said_and_a_wrong_one_refused(made: Made, signer: Signer, tmp_path: Path) -> None:
    assert verify_bundle(made.bundle, trust=signer.public).sentence == "intact, signed by the key that you trust"
    found = verify_bundle(made.bundle, trust="ab" * 32)
    assert not found.intact and "which you trust" in told(found)
    unsigned = packed(rehashed(content_of(made.bundle)), tmp_path / "unsigned.zip")
    assert verify_bundle(unsigned).intact
    assert "not signed with" in told(verify_bundle(unsigned, trust=signer.public))


def test_two_bundles_of_one_state_are_the_same_bytes(
    in_project: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # from elsewhere, too
    bundle(in_project.artifact, output=tmp_path / "again.zip", terms=BundleTerms(charts=False))
    assert (tmp_path / "again.zip").read_bytes() == in_project.bundle.read_bytes()


def test_nobody_looks_when_a_bundle_is_made_or_verified(
    in_project: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> bool:
        raise AssertionError("a look was recorded")

    monkeypatch.setattr("fairtrial.api.running.interim_looks.record_interim_looks", refuse)
    with pytest.raises(AssertionError, match="a look was recorded"):
        analyze("tea", store=in_project.root / "runs")
    bundle(in_project.artifact, output=tmp_path / "unseen.zip", terms=BundleTerms(charts=False))
    assert (tmp_path / "unseen.zip").read_bytes() == in_project.bundle.read_bytes()
    assert verify_bundle(in_project.bundle).intact


def test_other_analyses_of_a_bundle_come_after_its_registered_one(own: Path) -> None:
    """Its reader has seen the registered numbers, although no look at them is recorded anywhere."""
    study = read_study(own / "tea.yaml").model_copy(update={"study": "cold"})
    registered = Intent(study=study, question=Question(method="wilcoxon"))
    preregister(own / "artifact.yaml", hypothesis="h", methods="m", intent=registered)
    run_study(study)
    bundle(own / "artifact.yaml", output=own / "b.zip", terms=BundleTerms(studies=["cold"], charts=False))
    analysis = json.loads(content_of(own / "b.zip")["report/cold/analysis.json"])
    assert "first asked for report_accuracy, wilcoxon" in analysis["comparisons"][0]["label"]
    assert not read_interim_looks(Store(own / "runs"), "cold")


def test_a_folder_has_the_same_content_and_verifies(in_project: Made, tmp_path: Path) -> None:
    bundle(in_project.artifact, zipped=False, output=tmp_path / "crate", terms=BundleTerms(charts=False))
    there = {
        p.relative_to(tmp_path / "crate").as_posix(): p.read_bytes()
        for p in (tmp_path / "crate").rglob("*")
        if p.is_file()
    }
    assert there == content_of(in_project.bundle)
    assert verify_bundle(tmp_path / "crate").intact
    after = {p.relative_to(tmp_path / "crate").as_posix() for p in (tmp_path / "crate").rglob("*") if p.is_file()}
    assert after == there.keys()  # checking leaves nothing behind
    (tmp_path / "crate/extra").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match="is a link"):
        verify_bundle(tmp_path / "crate")


def test_it_holds_what_others_need_and_names_what_it_leaves_out(made: Made, content: Content) -> None:
    for name in ("artifact.yaml", "CITATION.cff", "artifact.journal.jsonl", "environment.json", "report/report.md",
                 "registrations/ledger.jsonl", "project/tea.yaml", "project/notes.txt", "runs/tea/study.json"):  # fmt: skip
        assert name in content
    manifest = json.loads(content["manifest.json"])
    assert {each["what"] for each in manifest["excluded"]} >= {"columnar copies", "logs", "charts", "checkpoints"}
    assert all(name not in content for each in manifest["excluded"] for name in each["names"])
    assert sum(name.endswith("metrics.jsonl") for name in content) == manifest["about"]["runs"] == 10


def test_it_tells_nothing_of_the_machine(made: Made, content: Content) -> None:
    host = machine()["hostname"]
    for name, each in content.items():
        assert str(made.root).encode() not in each, name
        assert str(Path.home()).encode() + b"/" not in each, name
        assert len(host) < 4 or not re.search(rb"(?<![\w.-])" + re.escape(host.encode()) + rb"(?![\w-])", each), name
    environment = json.loads(content[some_run(content, "metadata.json")])["environment"]
    assert environment["hostname"] is None and environment["executable"] is None and environment["python"]


def test_series_are_bundled_byte_by_byte(made: Made, content: Content) -> None:
    for name in (name for name in content if name.endswith("metrics.jsonl")):
        assert content[name] == (made.root / name).read_bytes()


def test_the_crate_is_as_it_was_agreed(content: Content) -> None:
    """Golden: the graph without what differs from run to run."""
    crate = json.loads(content["ro-crate-metadata.json"])
    ids = {entity["@id"] for entity in crate["@graph"]}
    parts = [part["@id"] for entity in crate["@graph"] for part in entity.get("hasPart", ())]
    assert len(ids) == len(crate["@graph"]) and set(parts) <= ids and len(set(parts)) == len(parts)
    files = {entity["@id"] for entity in crate["@graph"] if entity["@type"] == "File"}
    described = {"ro-crate-metadata.json", "manifest.signature.json"}
    from urllib.parse import unquote

    assert {unquote(each) for each in files} == content.keys() - described
    kept = [
        entity for entity in crate["@graph"] if not entity["@id"].startswith(("runs/", "report/", "registrations/"))
    ]
    text = json.dumps({**crate, "@graph": kept}, indent=1, sort_keys=True)
    text = re.sub(r'"(sha256|contentSize|startTime|endTime|version)": "[^"]*"', r'"\1": "…"', text)
    text = re.sub(r"(registrations/)[0-9a-f]{64}", r"\1…", text)
    assert json.loads(text) == json.loads(GOLDEN.read_text())


def test_a_recorded_result_that_no_longer_holds_is_no_headline(in_project: Made, tmp_path: Path) -> None:
    project = tmp_path / "copy"
    shutil.copytree(in_project.root, project)
    journal = project / "artifact.journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"best":{"value":', b'"best":{"value":1e9,"was":'))
    found = bundle(project / "artifact.yaml", output=tmp_path / "stale.zip", terms=BundleTerms(charts=False))
    assert found.stale == ["sweep of cups"]


def test_a_changed_added_file_is_refused(in_project: Made, tmp_path: Path) -> None:
    project = tmp_path / "copy"
    shutil.copytree(in_project.root, project)
    (project / "notes.txt").write_text("Nine.")
    with pytest.raises(UserError, match=r"notes\.txt has changed since"):
        bundle(project / "artifact.yaml", dry_run=True)
    add_file(project / "notes.txt", project / "artifact.yaml")
    assert bundle(project / "artifact.yaml", dry_run=True, terms=BundleTerms(charts=False)).path is None


def test_checkpoints_come_along_when_they_are_wanted(in_project: Made) -> None:
    found = bundle(
        in_project.artifact, dry_run=True, terms=BundleTerms(studies=["tea"], checkpoints=True, charts=False)
    )
    without = bundle(in_project.artifact, dry_run=True, terms=BundleTerms(studies=["tea"], charts=False))
    [left] = [each for each in without.excluded if each["what"] == "checkpoints"]
    assert all(name.endswith("best.pt") for name in left["names"])
    assert found.files == without.files + left["files"] == without.files + 6


def test_a_run_that_goes_on_is_waited_for(in_project: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairtrial.record.metadata.true_status", lambda *_: Status.RUNNING)
    with pytest.raises(UserError, match=r"is still running, and so are 9 more"):
        bundle(in_project.artifact, dry_run=True)


def test_the_command_shows_the_size_first_and_overwrites_nothing(in_project: Made, cli: Callable[..., Answer]) -> None:
    shown = cli("research", "bundle", "--zip", "--dry-run", "--no-charts")
    assert shown.code == 0 and re.search(r"10 runs of 2 studies: \d+ files, \d+\.\d MB", shown.err)
    assert "Left out: logs" in shown.err
    again = cli("research", "bundle", "--zip", "--no-charts")
    assert again.code == 1 and "already exists" in again.err
    wrong = cli("research", "bundle", "--zip", "--study", "te", "--dry-run")
    assert wrong.code == 1 and "did you mean 'tea'" in wrong.err


def test_verify_as_a_command_ends_with_3(
    in_project: Made, content: Content, cli: Callable[..., Answer], tmp_path: Path
) -> None:
    fine = cli("research", "verify", str(in_project.bundle), "--format", "json")
    assert fine.code == 0 and fine.json["result"] == "intact, signer unknown"
    del content["project/notes.txt"]
    bad = cli("research", "verify", str(packed(content, tmp_path / "bad.zip")))
    assert bad.code == 3 and "project/notes.txt is missing" in bad.out


# Tampering.


def test_a_character_changed_in_any_file_is_found_and_named(content: Content, verified: Any) -> None:
    """In every file at once, so that it takes a second; each is named by itself."""
    files = [name for name in content if not name.startswith("manifest.") and content[name]]
    changed = dict(content)
    for name in files:
        middle = len(content[name]) // 2
        changed[name] = content[name][:middle] + bytes([content[name][middle] ^ 1]) + content[name][middle + 1 :]
    from fairtrial.research.manifest import compare_files

    known, _ = read_manifest(content["manifest.json"])
    assert known is not None
    import hashlib

    found = {name: (len(changed[name]), hashlib.sha256(changed[name]).hexdigest()) for name in files}
    problems = compare_files(known.files, found)
    assert [problem.split(" was changed")[0] for problem in problems] == sorted(files)
    assert not verified(changed).intact


@pytest.mark.parametrize("name", ["manifest.json", "manifest.signature.json"])
def test_a_character_changed_in_the_manifest_is_found(name: str, content: Content, verified: Any) -> None:
    for at in range(3, len(content[name]), len(content[name]) // 5):
        changed = content[name][:at] + bytes([content[name][at] ^ 1]) + content[name][at + 1 :]
        assert name in told(verified({**content, name: changed})), at


def test_a_signature_that_was_taken_away_or_made_by_another_is_found(
    content: Content, verified: Any, tmp_path: Path
) -> None:
    known, _ = read_manifest(content["manifest.json"])
    assert known is not None
    name = "manifest.signature.json"
    assert f"{name} is missing" in told(verified({each: content[each] for each in content if each != name}))
    other = load_signer(tmp_path / "other-key.pem")
    assert "was made with key" in told(verified({**content, name: sign_manifest(known.sha256, other)}))
    anew = rehashed(content)
    unsigned, _ = read_manifest(anew["manifest.json"])
    assert unsigned is not None
    forged = {**anew, name: sign_manifest(unsigned.sha256, other)}
    assert "but the manifest names no key" in told(verified(forged))


def test_a_forged_metric_with_fitting_hashes_gives_other_numbers(content: Content, verified: Any) -> None:
    name = some_run(content)
    forged = re.sub(
        rb'("report_accuracy":0\.\d\d)(\d)',
        lambda found: found[1] + (b"1" if found[2] == b"9" else b"9"),
        content[name],
    )
    assert forged != content[name]
    found = verified(rehashed({**content, name: forged}))
    assert {check.name for check in found.mismatches} >= {"headline numbers of tea"}
    assert "is claimed, the runs give" in told(found)


def test_a_forged_headline_with_fitting_hashes_is_found(content: Content, verified: Any) -> None:
    said = json.loads(content["report/headlines.json"])
    said["studies"]["tea"]["comparisons"][0]["verdict"] = "equivalent"
    said["results"][0]["numbers"]["best"] = 7
    forged = {**content, "report/headlines.json": orjson.dumps(said)}
    found = told(verified(rehashed(forged)))
    assert (
        "comparisons[milk].verdict: 'equivalent' is claimed" in found and "sweep of cups: best: 7 is claimed" in found
    )


def test_files_added_removed_and_renamed_are_named(content: Content, verified: Any) -> None:
    moved = some_run(content, "events.jsonl")
    changed = {**content, "runs/tea/more.txt": b"more", "runs/tea/moved": content[moved]}
    del changed[moved], changed["environment.json"]
    found = told(verified(changed))
    assert "runs/tea/more.txt was added" in found and "environment.json is missing" in found
    assert f"{moved} was renamed to runs/tea/moved" in found


def test_swapped_runs_are_found_even_with_fitting_hashes(content: Content, verified: Any) -> None:
    first, second = sorted(
        {name.split("/")[2] for name in content if name.startswith("runs/tea/") and name.count("/") == 3}
    )[:2]
    swapped = dict(content)
    for name in [name for name in content if f"/{first}/" in name]:
        other = name.replace(f"/{first}/", f"/{second}/")
        swapped[name], swapped[other] = content[other], content[name]
    assert first in told(verified(swapped)) and second in told(verified(swapped))
    assert f"tea/{first} contains the run tea/{second}" in told(verified(rehashed(swapped)))


def test_a_dropped_ledger_entry_is_found_even_with_fitting_hashes(content: Content, verified: Any) -> None:
    emptied = {**content, "registrations/ledger.jsonl": b""}
    found = told(verified(rehashed(emptied)))
    assert "the ledger does not list it" in found


def test_a_run_from_before_the_registration_is_found(content: Content, verified: Any) -> None:
    name = some_run(content, "metadata.json")
    metadata = json.loads(content[name])
    metadata["timings"]["created"] -= 86_400
    found = told(verified(rehashed({**content, name: json.dumps(metadata).encode()})))
    assert "before the registration" in found


def test_a_missing_study_in_the_headlines_is_found(content: Content, verified: Any) -> None:
    said = json.loads(content["report/headlines.json"])
    del said["studies"]["cups"]
    found = told(verified(rehashed({**content, "report/headlines.json": orjson.dumps(said)})))
    assert "study cups is only in the runs" in found


# Archives that are no bundles.


def zip_with(path: Path, *entries: tuple[str, bytes, int]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, each, mode in entries:
            info = zipfile.ZipInfo(name, EPOCH)
            info.external_attr = mode << 16
            archive.writestr(info, each)
    return path


@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("../evil", 0o100644, "leads out of the folder"),
        ("a/../../evil", 0o100644, "leads out of the folder"),
        ("/etc/evil", 0o100644, "is absolute"),
        ("C:/evil", 0o100644, "is absolute"),
        ("a\\..\\evil", 0o100644, "not allowed in a path"),
        ("a//b", 0o100644, "has an empty part"),
        ("link", stat.S_IFLNK | 0o777, "is a link"),
        ("pipe", stat.S_IFIFO | 0o644, "neither a regular file"),
    ],
)
def test_a_zip_that_could_write_elsewhere_is_refused(tmp_path: Path, name: str, mode: int, why: str) -> None:
    path = zip_with(tmp_path / "x.zip", ("manifest.json", b"{}", 0o100644), (name, b"x", mode))
    with pytest.raises(UserError, match=why):
        verify_bundle(path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "store") == ["x.zip"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_stand_for_one_file_are_refused(tmp_path: Path) -> None:
    for other in ("a.txt", "A.txt"):
        with pytest.raises(UserError, match=r"it contains .* twice"):
            verify_bundle(zip_with(tmp_path / "x.zip", ("a.txt", b"1", 0o100644), (other, b"2", 0o100644)))


def test_a_truncated_zip_and_other_files_are_refused(made: Made, tmp_path: Path) -> None:
    whole = made.bundle.read_bytes()
    for size in (0, 100, len(whole) // 2, len(whole) - 10):
        (tmp_path / "cut.zip").write_bytes(whole[:size])
        with pytest.raises(UserError, match="is not a complete zip file"):
            verify_bundle(tmp_path / "cut.zip")
    with pytest.raises(UserError, match="no bundle"):
        verify_bundle(tmp_path / "none.zip")
    with pytest.raises(UserError, match=r"it has no manifest\.json"):
        verify_bundle(zip_with(tmp_path / "x.zip", ("a.txt", b"1", 0o100644)))


def test_a_damaged_stream_is_a_sentence(made: Made, tmp_path: Path) -> None:
    whole = bytearray(made.bundle.read_bytes())
    with zipfile.ZipFile(made.bundle) as archive:
        info = archive.getinfo("artifact.journal.jsonl")
    whole[info.header_offset + 30 + len(info.filename) + 40] ^= 0xFF
    (tmp_path / "x.zip").write_bytes(whole)
    with pytest.raises(UserError, match="is not a complete zip file"):
        verify_bundle(tmp_path / "x.zip")


def test_a_zip_that_was_made_to_fill_a_disk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b"0" * 1000)
    with zipfile.ZipFile(path) as archive:
        for size, why in ((1 << 40, "more than a bundle may"), (1 << 30, "looks like a zip bomb")):
            archive.infolist()[0].file_size = size
            with pytest.raises(UserError, match=why):
                refuse_unsafe(archive, path)


def test_a_container_that_was_touched_is_named(made: Made, content: Content, tmp_path: Path) -> None:
    whole = made.bundle.read_bytes()
    (tmp_path / "first.zip").write_bytes(b"#!/bin/sh\n" + whole)
    assert "before the first file" in told(verify_bundle(tmp_path / "first.zip"))
    rezipped = io.BytesIO()
    with zipfile.ZipFile(rezipped, "w") as archive:
        for name, each in reversed(content.items()):
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), each)
    (tmp_path / "other.zip").write_bytes(rezipped.getvalue())
    found = told(verify_bundle(tmp_path / "other.zip"))
    assert "not in the original order" in found and "the time, mode or comment of its entry was changed" in found


def test_no_byte_of_the_container_is_left_unlooked_at(made: Made, tmp_path: Path) -> None:
    """Whatever is changed in headers, directory and end record is found, and what is added anywhere."""
    whole = made.bundle.read_bytes()
    with zipfile.ZipFile(made.bundle) as archive:
        start, entries = archive.start_dir, archive.infolist()
        first, folder = entries[0], next(info for info in entries if info.is_dir())
    places = [
        *range(first.header_offset, first.header_offset + 30, 3), *range(folder.header_offset, folder.header_offset + 30, 3),
        *range(start, start + 46, 2), *range(len(whole) - 22, len(whole)),
    ]  # fmt: skip
    path = tmp_path / "touched.zip"
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert not verify_bundle(path).intact, place
        except UserError:
            continue  # refused before anything of it was unpacked
    path.write_bytes(whole + b"HELLO")
    assert "after the directory" in told(verify_bundle(path))
    moved = whole[:start] + b"x" * 600 + whole[start:-6] + (start + 600).to_bytes(4, "little") + whole[-2:]
    path.write_bytes(moved)
    assert "between the last file of the archive and its directory" in told(verify_bundle(path))


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        ("metadata.json", b'"created"', b'"creates"', "does not describe a run"),
        ("metadata.json", b'"completed"', b'"completes"', "its status is 'completes'"),
        ("metadata.json", b'"timings": {', b'"timings": [], "x": {', "does not describe a run"),
    ],
)
def test_a_run_that_was_changed_to_nonsense_is_named(
    content: Content, verified: Any, file: str, before: bytes, after: bytes, said: str
) -> None:
    name = some_run(content, file)
    assert before in content[name]
    changed = {**content, name: content[name].replace(before, after, 1)}
    assert f"{name} was changed" in told(verified(changed))
    assert said in told(verified(rehashed(changed)))


@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"1.50"])
def test_a_ledger_that_was_changed_to_nonsense_is_named(content: Content, verified: Any, number: bytes) -> None:
    changed = re.sub(rb'"time":[0-9.e+]+', b'"time":' + number, content["registrations/ledger.jsonl"])
    found = told(verified(rehashed({**content, "registrations/ledger.jsonl": changed})))
    assert "entry 1 of the ledger is not in its original form" in found


@pytest.mark.parametrize("part", ["about", "excluded", "files", "signer"])
def test_a_manifest_that_was_changed_to_nonsense_is_named(content: Content, verified: Any, part: str) -> None:
    manifest = {**json.loads(content["manifest.json"]), part: 5}
    found = told(verified({**content, "manifest.json": orjson.dumps(manifest)}))
    assert found.startswith("manifest: manifest.json")
    unsigned = {name: each for name, each in content.items() if name != "manifest.signature.json"}
    assert not verified({**unsigned, "manifest.json": orjson.dumps(manifest)}).intact


@pytest.mark.parametrize("part", ["deviations", BY_THE_AUTHOR, "arms", "late"])
def test_a_registered_analysis_that_was_changed_to_nonsense_is_a_check_and_no_accident(
    content: Content, verified: Any, part: str
) -> None:
    said = json.loads(content["report/headlines.json"])
    for each in said["registered"].values():
        each[part] = 5
    found = verified(rehashed({**content, "report/headlines.json": orjson.dumps(said)}))
    assert found.intact == (part == BY_THE_AUTHOR)  # which nobody else can compute


def test_registered_analyses_must_be_among_the_headlines(content: Content, verified: Any) -> None:
    said = {**json.loads(content["report/headlines.json"]), "registered": {}}
    found = told(verified(rehashed({**content, "report/headlines.json": orjson.dumps(said)})))
    assert "it is not in the headline numbers" in found


def test_a_bundle_of_two_authors_needs_the_trust_in_both(
    made: Made, content: Content, signer: Signer, tmp_path: Path
) -> None:
    other = load_signer(tmp_path / "other.pem")
    known, _ = read_manifest(content["manifest.json"])
    assert known is not None
    manifest = replace(known, signer=other.public)
    files = {**content, "manifest.json": manifest.render(),
             "manifest.signature.json": sign_manifest(manifest.sha256, other)}  # fmt: skip
    path = packed(files, tmp_path / "two.zip")
    assert verify_bundle(path).intact
    for alone in (signer.public, other.public):
        assert not verify_bundle(path, trust=alone).intact
    assert (
        verify_bundle(path, trust=[signer.public, other.public]).sentence == "intact, signed by the key that you trust"
    )


def test_a_published_anchor_is_about_a_registration_of_the_bundle(made: Made, tmp_path: Path) -> None:
    [plan] = (made.root / "registrations").glob("*.json")
    copy = tmp_path / "copy.txt"
    copy.write_text(f"Fairtrial registration\nsha256 {plan.stem}\n")
    found = verify_bundle(made.bundle, published=copy)
    assert found.intact and "if copy.txt was published before them" in str(found.to_dict())
    copy.write_text("nothing of the kind")
    assert "contains the hash of no registration" in told(verify_bundle(made.bundle, published=copy))
    with pytest.raises(UserError, match="cannot read"):
        verify_bundle(made.bundle, published=tmp_path / "none")


# Deviations.


@pytest.fixture
def own(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project, to do with as one likes."""
    monkeypatch.delenv("FAIRTRIAL_STORE", raising=False)
    shutil.copytree(made.root, tmp_path / "own")
    (tmp_path / "own" / made.bundle.name).unlink()
    monkeypatch.chdir(tmp_path / "own")
    return tmp_path / "own"


def test_a_bundle_states_where_its_plan_was_not_followed(own: Path, cli: Callable[..., Answer]) -> None:
    assert cli("launch", "tea.yaml", "--replace", "--quiet").code == 0
    [first, *_] = sorted(path.name for path in (own / "runs/tea").glob("tea.seed*"))
    assert cli("runs", "rm", f"tea/{first}", "--yes").code == 0
    seed = first.rpartition("seed")[2]
    assert cli("launch", "tea.yaml", "--quiet").code == 0
    again = ["--study", "tea", "--variant", "tea", "--steps", "8", "--eval-every", "4", "--checkpoint-every", "0"]
    assert cli("train", "fake", *again, "--seed", seed, "--again").code == 0
    assert cli("research", "bundle", "--zip", "--no-charts").code == 0
    found = cli("research", "verify", "tea-0.1.0.zip")
    assert found.code == 0
    assert (
        "3 deviations stated, 2 of them reported by the author: repeated runs, replaced runs, removed runs" in found.out
    )
    report = content_of(own / "tea-0.1.0.zip")["report/report.md"].decode()
    assert f"- removed runs: deleted, and made anew or not at all: tea/{first} (reported by the author)" in report
    assert f"- repeated runs: made again beside the run that counts, and not used: tea/{first}.again2" in report


def test_the_report_says_that_nothing_deviated(content: Content) -> None:
    assert "No deviation from the plan was found." in content["report/report.md"].decode()


def test_names_that_others_could_not_unpack_are_refused(own: Path, cli: Callable[..., Answer]) -> None:
    for name in ("X.txt", "x.txt"):
        (own / name).write_text(name)
        assert cli("research", "add", name).code == 0
    refused = cli("research", "bundle", "--zip", "--no-charts")
    assert refused.code == 1 and "'project/x.txt' and another name differ only in case" in refused.err
    assert cli("research", "remove", "x.txt").code == 0 and (own / "x.txt").exists()
    assert cli("research", "bundle", "--zip", "--no-charts").code == 0
    assert "project/x.txt" not in content_of(own / "tea-0.1.0.zip")
    assert "unknown added file 'x.txt'" in cli("research", "remove", "x.txt").err
    assert cli("research", "remove", "X.txt", "notes.txt").code == 0
    assert "x.txt was not added; no file was added" in cli("research", "remove", "x.txt").err
    assert cli("research", "add", "artifact.journal.jsonl").code == 1


def test_a_machine_that_is_called_like_a_variant_stays(own: Path) -> None:
    for path in (own / "runs").glob("*/*/metadata.json"):
        metadata = json.loads(path.read_text())
        metadata["environment"]["hostname"] = "milk"
        del metadata["checksum"]
        path.write_text(json.dumps(metadata))
    said: list[str] = []
    done = bundle(terms=BundleTerms(charts=False, tell=said.append))
    assert done.path is not None and verify_bundle(done.path).intact
    assert any("It still contains local paths or host names: milk" in line for line in said)


def test_paths_in_registrations_are_told_before_they_are_published(
    project: ProjectPaths, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRTRIAL_STORE", raising=False)
    monkeypatch.setenv("HOME", str(project.root.parent))
    secret = f"{project.root.parent}/secret/data.csv"
    study.write_text(STUDY.replace("label: new", f"label: {secret}"))
    plan = preregister(
        project.artifact, hypothesis="h", methods="m", intent=Intent(study=read_study(study))
    ).registration
    launch(read_study(study))
    said: list[str] = []
    done = bundle(terms=BundleTerms(charts=False, tell=said.append))
    assert done.path is not None and any(secret in line for line in said)
    assert verify_bundle(done.path).intact
    told = json.loads(content_of(done.path)["report/headlines.json"])["registered"][plan.sha256]
    assert told["deviations"] == [] == told[BY_THE_AUTHOR]


def test_a_study_file_is_taken_from_where_its_command_was_given(
    own: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Answer]
) -> None:
    (own / "sub").mkdir()
    (own / "sub/mine.yaml").write_text(TEA.replace("study: tea", "study: mine"))
    (own / "mine.yaml").write_text("never: used")
    monkeypatch.chdir(own / "sub")
    assert cli("launch", "mine.yaml", "--quiet").code == 0
    assert cli("research", "bundle", "--zip", "--no-charts").code == 0
    names = content_of(own / "tea-0.1.0.zip")
    assert "project/sub/mine.yaml" in names and "project/mine.yaml" not in names


@pytest.mark.parametrize("zipped", [True, False])
def test_a_bundle_that_is_interrupted_leaves_nothing(own: Path, zipped: bool) -> None:
    before = {path.name for path in own.iterdir()}

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bundle(zipped=zipped, terms=BundleTerms(charts=False, watch=stop))
    assert {path.name for path in own.iterdir()} == before
    assert bundle(zipped=zipped, terms=BundleTerms(charts=False)).path


def test_a_journal_that_a_person_changed_takes_nothing_with_it(own: Path) -> None:
    with (own / "artifact.journal.jsonl").open("a") as journal:
        journal.write(
            '{"kind":"command"}\n{"kind":"file","path":"tea.yaml"}\n[1]\n{"kind":"command","command":["sweep"]}\n'
        )
    done = bundle(terms=BundleTerms(charts=False))
    assert done.path is not None and verify_bundle(done.path).intact


# On other machines.


CORE_ONLY = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from fairtrial.cli.app import run
sys.exit(run(["research", "verify", {bundle!r}]))
"""
EXTRAS = ("torch", "sklearn", "mnist1d", "peft", "transformers", "gymnasium", "altair", "vl_convert", "cryptography", "ray",
          "fsspec", "s3fs", "submitit", "nbformat", "rocrate", "pandas", "requests")  # fmt: skip


def test_verifying_needs_nothing_but_the_core(made: Made, tmp_path: Path) -> None:
    """No extra is imported, and not the package that signs either."""
    code = CORE_ONLY.format(absent=EXTRAS, bundle=str(made.bundle))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "intact, signer unknown" in done.stdout


def test_no_code_of_a_bundle_is_run(content: Content, verified: Any, tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    changed = dict(content)
    for name in [name for name in content if name.endswith("metadata.json") and "/tea/" in name]:
        metadata = {**json.loads(content[name]), "recipe": "trap", "recipe_file": "trap.py"}
        changed[name] = json.dumps(metadata).encode()
    verified(rehashed({**changed, "trap.py": trap.read_bytes()}))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("said", "found", "same"),
    [
        (1.0, 1.0 + 1e-12, True), (1.0, 1.0 + 1e-8, False), (0.0, 1e-12, False), (3, 3.0, True), (3, 4, False),
        (None, 0.0, False), ("better", "worse", False), ([1], [1, 2], False), (True, 1, True), ({"a": 1}, {}, False),
    ],
)  # fmt: skip
def test_numbers_may_differ_by_rounding_and_nothing_else_may(said: Any, found: Any, same: bool) -> None:
    assert (not differences({"x": said}, {"x": found})) is same


@pytest.mark.parametrize(
    ("claimed", "computed", "same"),
    [
        ("2 of 5 runs diverged", "Of 2 runs, 5 diverged", True),
        ("2 of 5 runs diverged", "3 of 5 runs diverged", False),
        (None, "too few runs", False),
        ("too few runs", None, False),
    ],
)
def test_a_sentence_may_be_worded_differently_by_another_version(claimed: Any, computed: Any, same: bool) -> None:
    assert (not differences({"reason": claimed}, {"reason": computed})) is same
    assert differences({"verdict": "2 a"}, {"verdict": "2 b"}), "what is not a sentence must be equal"


def test_a_damaged_run_is_not_bundled(own: Path, cli: Any) -> None:
    """Others could not check numbers that rest on it: the author repairs it, or takes it out, which is seen."""
    path = sorted((own / "runs").glob("tea/*/metadata.json"))[0]
    path.write_text(path.read_text().replace('"completed"', '"complete!"'))
    refused = cli("research", "bundle", "--no-charts")
    assert refused.code == 3 and f"run tea/{path.parent.name} is damaged" in refused.err
    assert "doctor --damage" in refused.err and not list(own.glob("*.zip"))
    lines = sorted((own / "runs").glob("cups/*/metrics.jsonl"))[0]
    lines.write_bytes(lines.read_bytes()[:-20])
    assert f"run cups/{lines.parent.name} is damaged" in cli("research", "bundle", "--no-charts").err


def test_a_bundled_command_line_tells_no_folder_of_the_machine() -> None:
    scrubber = Scrubber.of(
        project=Path("/srv/project"), store=Path("/srv/runs"), home=Path("/home/kim"), hosts=["lab-seven"]
    )
    words = [
        "fairtrial", "launch", "/srv/project/tea.yaml", "--store=/srv/runs", "--store", "s3://bucket/tea/runs", "--",
        "/opt/conda/bin/python", "data=/mnt/secret-client/train.csv,/mnt/other/b.csv", "/home/kim/x.py", "on lab-seven",
        "file:///mnt/secret-client/a", "{run_dir}/out.jsonl", "a/b", "./c/d", "1/2",
    ]  # fmt: skip
    assert scrubber.command_line(words) == [
        "fairtrial", "launch", "./tea.yaml", "--store=runs", "--store", "s3://bucket/tea/runs", "--",
        "python", "data=train.csv,b.csv", "~/x.py", "on HOST", "file://a", "{run_dir}/out.jsonl", "a/b", "./c/d", "1/2",
    ]  # fmt: skip
    environment = {"hostname": "lab-seven", "executable": "/opt/p", "command_line": words}
    metadata = RunMetadata.of({"environment": environment})
    assert b"secret-client" not in scrubber.metadata(metadata) and b"/opt" not in scrubber.metadata(metadata)
