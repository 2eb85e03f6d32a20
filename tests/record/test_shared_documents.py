"""Every document of a shared store is held against a model before anybody uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths, SharedPaths, StorePaths, number_of
from fairtrial.core.untrusted import UntrustedDocument, collisions, why_names_unsafe, why_unsafe
from fairtrial.record import leases, mirror
from fairtrial.record.heartbeat import read_heartbeat
from fairtrial.record.leases import parse_link, top_token
from fairtrial.record.recorder import saved_checkpoints
from fairtrial.record.remote import ObjectEntry
from fairtrial.record.remote_state import RemoteState, read_remote_state, write_remote_state
from fairtrial.record.top_checkpoints import KEPT, list_top_checkpoints
from fairtrial.record.upload import RunManifest
from tests.record.hostile_bucket import SHA256

NAMES = SharedPaths("s", "v.seed1")
FACTS: dict[str, Any] = {"sha256": SHA256, "size": 7, "token": 1}
MANIFEST: dict[str, Any] = {
    "schema": 1, "token": 1, "metadata": "{}", "appended": {"metrics.jsonl": 5, "events.jsonl": 0, "log.txt": 0},
    "files": {"checkpoints/best.pt": FACTS},
}  # fmt: skip
CLAIM: dict[str, Any] = {"kind": "claim", "token": 2, "lease_s": 120.0, "prior": "1", "mark": "x", "later": "ignored"}


def manifest(**changes: Any) -> bytes:
    return json.dumps({**MANIFEST, **changes}).encode()


def files(*names: str, **facts: Any) -> dict[str, Any]:
    return {"files": {name: {**FACTS, **facts} for name in names}}


def test_a_manifest_of_our_own_is_read() -> None:
    found = RunManifest.from_bytes(manifest(), 1)
    assert found.files == {"checkpoints/best.pt": FACTS} and found.appended["metrics.jsonl"] == 5
    assert RunManifest.from_bytes(found.to_bytes(), 1) == found


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (files("../x"), "leads out of the folder"),
        (files("/x"), "is absolute"),
        (files(".lock"), "is reserved"),
        (files(".shared.json"), "is reserved"),
        (files("a", "A"), "refer to the same file"),
        (files("Metadata.json"), "refer to the same file"),
        (files("metrics.jsonl"), "refer to the same file"),
        (files("a", size=-1), "greater than or equal to 0"),
        (files("a", size="7"), "must be a valid integer"),
        (files("a", size=True), "must be a valid integer"),
        (files("a", size=(5 << 40) + 1), "less than or equal to"),
        (files(*map(str, range(9)), size=2 << 40), "20 TB, more than allowed"),
        (files("a", sha256="../../x"), "must match pattern"),
        (files("a", token=0), "greater than or equal to 1"),
        (files("a", token=2), "belongs to a later claim"),
        ({"files": dict.fromkeys(map(str, range(100_001)), 0)}, "100,001 files, more than the allowed 100,000"),
        ({"appended": {"../x": 1}}, "must be 'metrics.jsonl'"),
        ({"appended": {"log.txt": (16 << 30) + 1}}, "less than or equal to"),
        ({"metadata": "nonsense"}, "is not JSON"),
        ({"metadata": "[]"}, "must be the metadata of a run"),
        ({"token": 2}, "states that it belongs to claim 2"),
        ({"schema": 2}, "must be 1"),
    ],
)
def test_a_manifest_that_no_run_has_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UntrustedDocument, match=why):
        RunManifest.from_bytes(manifest(**changes), 1)


def test_a_key_that_stands_twice_in_a_manifest_is_refused() -> None:
    with pytest.raises(UntrustedDocument, match="twice"):
        RunManifest.from_bytes(manifest().replace(b'"token": 1', b'"token": 1, "token": 1', 1), 1)


def test_a_claim_of_our_own_is_read() -> None:
    assert parse_link(json.dumps(CLAIM).encode(), 2).prior == "1"
    end = {**CLAIM, "kind": "end", "of": 1, "publish": True}
    assert not parse_link(json.dumps(end).encode(), 2).is_claim


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"token": 3}, "contains the number 3"),
        ({"kind": "steal"}, "must be 'claim', 'end' or 'gone'"),
        ({"kind": "end", "of": 2}, "does not precede it"),
        ({"kind": "gone", "of": 0}, "does not precede it"),
        ({"prior": "../../x"}, "must match pattern"),
        ({"lease_s": 1e9}, "less than or equal to"),
        ({"lease_s": float("nan")}, "finite"),
        ({"publish": "no"}, "must be a valid boolean"),
    ],
)
def test_a_claim_that_nobody_writes_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UntrustedDocument, match=why):
        parse_link(json.dumps({**CLAIM, **changes}).encode(), 2)


@pytest.mark.parametrize("name", ["x.json", "1.json", "00000001", "00000001.json/x", "+0000001.json", "٠٠٠٠٠٠٠١.json",
                                  "00000001_0.json", "9" * 5000 + ".json", "-0000001.json", "000000001.json"])  # fmt: skip
def test_names_that_are_not_numbers_are_no_claims(name: str) -> None:
    assert number_of(f"s/v.seed1/.claims/{name}") is None
    entry = ObjectEntry(1, "t", None)
    assert top_token(NAMES, {f"{NAMES.claims}/{name}": entry, NAMES.claim(7): entry}) == 7
    assert NAMES.token_of(f"{NAMES.live}/{name.removesuffix('.json')}x/manifest.json") is None
    assert NAMES.offset_of(1, "metrics.jsonl", f"{NAMES.live}/00000001/metrics.jsonl/{name}") is None


def test_names_of_our_own_are_numbers() -> None:
    assert number_of(NAMES.claim(7)) == 7 and number_of(NAMES.claim(123_456_789)) == 123_456_789
    assert NAMES.token_of(NAMES.manifest(12)) == 12
    assert NAMES.offset_of(3, "log.txt", NAMES.segment(3, "log.txt", 10**14)) == 10**14
    assert NAMES.offset_of(3, "log.txt", NAMES.segment(4, "log.txt", 5)) is None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"token": "x"}', b'{"source": "../x"}', b'{"absent": []}', b'{"tags": {"a": 5}}']
)
def test_what_is_known_of_a_run_is_nothing_where_it_was_damaged(tmp_path: Path, content: bytes) -> None:
    paths = RunPaths(tmp_path)
    write_remote_state(paths, RemoteState(3, mine=True, source="plain", tags={"a": "b"}, absent={"c": {"size": 1}}))
    assert read_remote_state(paths) == RemoteState(
        3, mine=True, source="plain", tags={"a": "b"}, absent={"c": {"size": 1}}
    )
    paths.remote_state.write_bytes(content)
    assert read_remote_state(paths) is None


@pytest.mark.parametrize("change", [{"pid": "x"}, {"step": None}, {"at": "now"}, {"host": 5}])
def test_a_sign_of_life_of_another_form_is_none(tmp_path: Path, change: dict[str, Any]) -> None:
    paths = RunPaths(tmp_path)
    beat = {"host": "h", "pid": 1, "token": None, "at": 1.0, "step": 3, "saved": 2}
    paths.heartbeat.write_text(json.dumps(beat))
    assert read_heartbeat(paths) is not None
    paths.heartbeat.write_text(json.dumps({**beat, **change}))
    assert read_heartbeat(paths) is None


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a\0b"])
def test_a_study_is_one_folder(tmp_path: Path, name: str) -> None:
    from fairtrial.core.errors import UserError

    paths = StorePaths(tmp_path)
    for make in (paths.study, paths.study_plan, paths.interim_looks, paths.archive, paths.launcher, paths.series_cache):
        with pytest.raises(UserError, match="cannot be the name"):
            make(name)
    with pytest.raises(UserError, match="cannot be the name"):
        paths.run("s", name)


def test_a_step_in_an_event_does_not_become_a_path(tmp_path: Path) -> None:
    """Checkpoints that events tell of are deleted when better ones come."""
    paths = RunPaths(tmp_path / "run")
    (paths.checkpoints / "top-").mkdir(parents=True)
    paths.top(3).write_text("ours")
    (tmp_path / "victim.pt").write_text("not ours")
    told = {"event": KEPT, "value": 1.0, "sha256": "x"}
    saved = {"event": "checkpoint_saved", "sha256": "x"}
    rows = [{**row, "step": step} for row in (told, saved) for step in (3, "/../../../victim")]
    paths.events.write_text("".join(json.dumps({"schema": 1, "at": 1.0, **row}) + "\n" for row in rows))
    with pytest.raises(StoreError, match="with invalid step"):
        list_top_checkpoints(paths, "max")
    assert saved_checkpoints(paths) == {3: "x"}
    with pytest.raises(ValueError, match="format code 'd'"):
        paths.step("/../../../victim")  # type: ignore[arg-type]


def test_only_checkpoints_of_steps_count_when_a_run_is_resumed() -> None:
    names = ["checkpoints/step-5.pt", "checkpoints/step-10.pt", "checkpoints/step-x.pt", "checkpoints/best.pt"]
    chosen = mirror.needed_to_resume(names)
    assert [name for name in names if chosen(name)] == [names[1], names[2], names[3]]


def test_names_that_cannot_share_a_folder() -> None:
    assert why_names_unsafe(["a", "b/c"]) is None
    assert "is reserved" in (why_names_unsafe(["a", ".lock"]) or "")
    assert "same file" in (why_names_unsafe(["A"], taken=["a"]) or "")
    assert why_unsafe("LAUNCH.log", reserved={"launch.log"}) == "is reserved"
    assert collisions(["a/", "a/b", "a/B/", "c/d", "c/"]) == ["a/B/"]
    assert collisions(["a/", "A/"]) == ["A/"] and collisions(["a", "a/"]) == ["a/"]


def test_a_lease_is_never_longer_than_others_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(leases.LEASE_VARIABLE, "1e12")
    claim = {**CLAIM, "lease_s": leases.lease_seconds()}
    assert parse_link(json.dumps(claim).encode(), 2).lease_s == leases.LONGEST_LEASE_S
