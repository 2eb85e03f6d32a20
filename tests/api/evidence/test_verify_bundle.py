"""One character changed anywhere is found, and named."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.core.canonical import canonical_json
from fairtrial.core.errors import CheckFailed, UserError
from fairtrial.core.paths import ProjectPaths
from fairtrial.record.store import Store
from fairtrial.research.ed25519 import ORDER, is_signed
from fairtrial.research.keys import Signer, load_signer
from fairtrial.research.ledger import append, held, parse_ledger, read_ledger
from fairtrial.research.register import Registered, register
from fairtrial.research.registration import plan_hash, read_registration, signed_text, spell
from fairtrial.research.verify import Checked, RunStart, verify_registration
from tests.api.evidence.conftest import register_study, text_plan
from tests.harness import make

RFC_8032 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("public_key", "message", "signature"), RFC_8032)
def test_signatures_of_the_standard_are_accepted_and_changed_ones_are_not(
    public_key: str, message: str, signature: str
) -> None:
    public, text, signed = (bytes.fromhex(each) for each in (public_key, message, signature))
    assert is_signed(public, text, signed)
    assert not is_signed(public, text + b" ", signed)
    assert not is_signed(public, text, signed[:-1] + bytes([signed[-1] ^ 1]))
    larger = int.from_bytes(signed[32:], "little") + ORDER  # the same point, spelled otherwise
    assert not is_signed(public, text, signed[:32] + larger.to_bytes(32, "little"))


@settings(max_examples=20, deadline=None)
@given(secret=st.binary(min_size=32, max_size=32), message=st.binary(max_size=40))
def test_what_the_package_signs_is_accepted(secret: bytes, message: bytes) -> None:
    private = Ed25519PrivateKey.from_private_bytes(secret)
    public = private.public_key().public_bytes_raw()
    assert is_signed(public, message, private.sign(message))
    assert not is_signed(public, message, private.sign(message + b"!"))


def mismatches(path: Path, **how: object) -> dict[str, str]:
    checked = verify_registration(path, **how)  # type: ignore[arg-type]
    return {check.name: check.detail for check in checked.mismatches}


def test_an_untouched_registration_is_intact_and_its_signer_unknown(registered: Registered) -> None:
    checked = verify_registration(registered.registration.path)
    assert checked.intact and not checked.mismatches
    assert checked.sentence == "intact, signer unknown"


@pytest.mark.slow
def test_every_changed_byte_of_a_registration_is_found(registered: Registered) -> None:
    path = registered.registration.path
    content = path.read_bytes()
    for place in range(len(content)):
        is_letter = chr(content[place]).isalpha()  # of a letter the other case, which readers of digits might forgive
        flip = 0x20 if is_letter and place % 2 else 0x01
        path.write_bytes(content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :])
        assert not verify_registration(path).intact, (place, content[max(0, place - 20) : place + 20])
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place])
        assert not verify_registration(path).intact
    path.write_bytes(content)
    assert verify_registration(path).intact


def test_the_same_content_in_another_spelling_is_found(registered: Registered) -> None:
    path = registered.registration.path
    content = path.read_bytes()
    spelled = json.dumps(json.loads(content)).encode()
    twice = content.replace(b'"hypothesis": ', b'"hypothesis": "Before.",\n    "hypothesis": ')
    for changed in (spelled, twice, content + b" ", content.replace(b"\n  ", b"\n   ", 1), b"\xef\xbb\xbf" + content):
        path.write_bytes(changed)
        assert mismatches(path).keys() == {"form"}


def test_a_registration_under_another_name_is_found(registered: Registered) -> None:
    path = registered.registration.path
    moved = path.rename(path.with_name("0" * 64 + ".json"))
    assert "is not named after its hash" in mismatches(moved)["hash"]


@pytest.mark.parametrize("other", [{"time": 1.0}, {"kind": "amendment"}, {"about": {"amends": "0" * 64}}])
def test_a_ledger_that_its_author_wrote_anew_contradicts_the_registration(
    project: ProjectPaths, signer: Signer, registered: Registered, other: dict[str, Any]
) -> None:
    """The chain and the signatures are right; what they say is not what was registered."""
    folder, found = project.registrations, registered.registration
    folder.ledger.unlink()
    told = {"kind": "registration", "time": found.plan["time"], "about": {}, **other}
    with held(folder):
        append(folder, registration=found.sha256, signer=signer, **told)
    assert mismatches(found.path).keys() == {"place in the ledger"}


@pytest.mark.slow
def test_every_changed_byte_of_a_ledger_is_found(project: ProjectPaths, signer: Signer, registered: Registered) -> None:
    content = project.registrations.ledger.read_bytes()
    assert not parse_ledger(content).problems
    for place in range(len(content)):
        changed = content[:place] + bytes([content[place] ^ 0x01]) + content[place + 1 :]
        assert parse_ledger(changed).problems, place


def rewritten(registered: Registered, **changed: object) -> Checked:
    """The same file with another plan, everything else as it was."""
    found = registered.registration
    found.path.write_bytes(spell({**found.plan, **changed}, found.sha256, found.signature))
    return verify_registration(found.path)


def test_what_was_changed_is_named(registered: Registered) -> None:
    for changed in ({"hypothesis": "Tea first is better."}, {"time": registered.registration.plan["time"] + 1}):
        assert "hash" in {check.name for check in rewritten(registered, **changed).mismatches}


def test_another_hash_or_signature_is_named(registered: Registered) -> None:
    found = registered.registration
    other = plan_hash({**found.plan, "hypothesis": "Other."})
    found.path.write_bytes(spell(found.plan, other, found.signature))
    assert {"hash", "signature", "place in the ledger"} <= mismatches(found.path).keys()
    found.path.write_bytes(spell(found.plan, found.sha256, "ab" * 64))
    assert mismatches(found.path).keys() == {"signature"}


def test_a_registration_that_somebody_else_made_anew_is_not_in_the_ledger(
    registered: Registered, tmp_path: Path
) -> None:
    other = load_signer(tmp_path / "other.pem")
    plan = {**registered.registration.plan, "hypothesis": "Whatever came out.", "signer": other.public}
    sha256 = plan_hash(plan)
    path = registered.registration.path.with_name(f"{sha256}.json")
    path.write_bytes(spell(plan, sha256, other.sign(signed_text(sha256))))
    found = mismatches(path, trust=registered.signer)
    assert found["place in the ledger"] == "the ledger does not list it"
    assert f"not with {registered.signer[:16]}" in found["signer"]


@pytest.fixture
def three(project: ProjectPaths, signer: Signer) -> list[Registered]:
    return [register(project, text_plan(methods=f"Plan {n}."), signer, anchor=None) for n in range(3)]


@pytest.mark.parametrize("kept", [(1, 2), (0, 2), (1, 0, 2), (0, 2, 1), (0, 1, 1, 2)])
def test_lines_of_the_ledger_that_were_dropped_or_swapped_are_found(
    project: ProjectPaths, three: list[Registered], kept: tuple[int, ...]
) -> None:
    lines = project.registrations.ledger.read_bytes().splitlines(keepends=True)
    project.registrations.ledger.write_bytes(b"".join(lines[n] for n in kept))
    for each in three:
        assert "ledger" in mismatches(each.registration.path)


def test_a_last_line_that_was_dropped_leaves_a_registration_that_nobody_lists(
    project: ProjectPaths, three: list[Registered]
) -> None:
    lines = project.registrations.ledger.read_bytes().splitlines(keepends=True)
    project.registrations.ledger.write_bytes(b"".join(lines[:2]))
    assert mismatches(three[2].registration.path)["place in the ledger"] == "the ledger does not list it"
    assert "does not list" in mismatches(three[0].registration.path)["other registrations"]


def test_a_registration_that_is_gone_is_missed(three: list[Registered]) -> None:
    three[1].registration.path.unlink()
    assert three[1].registration.name in mismatches(three[0].registration.path)["other registrations"]


def test_a_registration_without_its_ledger_is_not_intact(project: ProjectPaths, registered: Registered) -> None:
    project.registrations.ledger.unlink()
    assert "no ledger.jsonl" in mismatches(registered.registration.path)["ledger"]


def test_nothing_is_added_to_a_ledger_that_was_changed(
    project: ProjectPaths, signer: Signer, registered: Registered
) -> None:
    ledger = project.registrations.ledger
    row = json.loads(ledger.read_bytes())
    ledger.write_bytes(canonical_json({**row, "time": row["time"] - 86400}) + b"\n")
    assert "signature does not match" in mismatches(registered.registration.path)["ledger"]
    with pytest.raises(CheckFailed, match="signature does not match"):
        register(project, text_plan(), signer, anchor=None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"study: s\n", "is not a registration"), (b"[1]", "is not a registration"), (b"{}", "is not a registration"),
        (b'{"fairtrial":"registration","schema":2}', "another version"), (b"\xff\xfe", "is not a registration"),
        (b"[" * 100_000, "is not a registration"),
    ],
)  # fmt: skip
def test_what_is_no_registration_is_refused_in_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    checked = verify_registration(path)
    assert not checked.intact and said in checked.sentence
    with pytest.raises(UserError, match=r"file\.json"):
        read_registration(path)


def test_what_nobody_could_read_is_not_registered(project: ProjectPaths, signer: Signer) -> None:
    for changed in ({"basis": "study"}, {"late": None}, {"code": {}}, {"more": 1}):
        with pytest.raises(UserError, match=r"from another version: .* is invalid"):
            register(project, text_plan(**changed), signer, anchor=None)
    assert not read_ledger(project.registrations).entries and not list(project.registrations.root.glob("*.json"))


def test_a_registration_that_was_cut_off_is_called_so(registered: Registered) -> None:
    path = registered.registration.path
    path.write_bytes(path.read_bytes()[:-200])
    assert verify_registration(path).sentence.endswith("is truncated: its end is missing")


def test_the_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings" / "key.pem"
    first = load_signer(path)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o077 == 0
    assert load_signer(path).public == first.public
    path.chmod(0o640)
    with pytest.raises(UserError, match="other users can read"):
        load_signer(path)


def test_a_trusted_key_is_given_as_digits_or_file(registered: Registered, key: Path, tmp_path: Path) -> None:
    path = registered.registration.path
    for trust in (registered.signer, str(key.with_suffix(".pub"))):
        assert verify_registration(path, trust=trust).sentence == "intact, signed by the key that you trust"
    other = load_signer(tmp_path / "other.pem").public
    assert verify_registration(path, trust=other).sentence.startswith("not intact: signed with key")
    with pytest.raises(UserError, match="is not a public key"):
        verify_registration(path, trust="mine")


def test_the_order_is_by_the_clock_and_runs_before_it_are_named(
    project: ProjectPaths, study: Path, store: Store
) -> None:
    found = register_study(project, study, store).registration
    at = found.plan["time"]
    later, other = RunStart("s/a.seed1", at + 9), RunStart("other/a.seed1", at - 9)
    order = {c.name: c for c in verify_registration(found.path, runs=[later, other]).checks}["order"]
    assert order.ok and order.detail.endswith("before the first of 1 run, by the author's clock")
    assert "s/a.seed1 began" in mismatches(found.path, runs=[RunStart("s/a.seed1", at - 9), later])["order"]


def test_a_late_registration_excuses_only_the_runs_that_it_lists(
    project: ProjectPaths, study: Path, store: Store
) -> None:
    make(store, "fake", study="s", variant="base", seed=1072, steps=20)
    found = register_study(project, study, store, late=True).registration
    at = found.plan["time"]
    listed, other = RunStart("s/base.seed1072", at - 9), RunStart("s/base.seed2043", at - 8)
    order = {c.name: c for c in verify_registration(found.path, runs=[listed]).checks}["order"]
    assert order.ok and "registered late, as stated" in order.detail
    assert "s/base.seed2043 began" in mismatches(found.path, runs=[listed, other])["order"]


def test_every_line_of_the_ledger_must_be_by_somebody_trusted(
    project: ProjectPaths, registered: Registered, tmp_path: Path
) -> None:
    stranger = load_signer(tmp_path / "stranger.pem")
    register(project, text_plan(methods="Nine cups."), stranger, anchor=None)
    path = registered.registration.path
    assert verify_registration(path).intact
    assert "entry 2 of the ledger" in mismatches(path, trust=registered.signer)["signers of the ledger"]
    assert verify_registration(path, trust=[registered.signer, stranger.public]).intact


def test_a_published_copy_is_looked_at_also_where_nothing_was_anchored(registered: Registered, tmp_path: Path) -> None:
    path, copy = registered.registration.path, tmp_path / "copy.txt"
    with pytest.raises(UserError, match="cannot read"):
        verify_registration(path, published=copy)
    copy.write_text("another hash")
    assert "does not contain this hash" in mismatches(path, published=copy)["anchor"]
    copy.write_text(f"as published: {registered.registration.sha256} on the board")
    assert verify_registration(path, published=copy).anchored


@pytest.mark.parametrize("given", ["~nobody-of-that-name", "a\0b", "x" * 5000])
def test_what_is_no_key_is_a_sentence(registered: Registered, given: str) -> None:
    with pytest.raises(UserError, match="is not a public key"):
        verify_registration(registered.registration.path, trust=given)


def test_digits_of_a_key_may_be_capitals_in_a_file_too(registered: Registered, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(registered.signer.upper() + "\n")
    assert verify_registration(registered.registration.path, trust=str(tmp_path / "key.pub")).trusted


def test_a_private_key_is_not_kept_under_the_name_of_a_public_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has the name of a public key"):
        load_signer(tmp_path / "key.pub")


def test_many_who_register_at_once_make_one_chain(project: ProjectPaths, signer: Signer) -> None:
    with ThreadPoolExecutor(6) as workers:
        done = list(workers.map(lambda n: register(project, text_plan(methods=f"{n}"), signer, anchor=None), range(12)))
    assert sorted(each.entry for each in done) == list(range(1, 13))
    assert all(verify_registration(each.registration.path).intact for each in done)


def test_a_checker_needs_no_package_for_signatures(registered: Registered) -> None:
    code = (
        "import sys; from pathlib import Path; from fairtrial.research.verify import verify_registration as verify\n"
        "print(verify(Path(sys.argv[1])).sentence, 'cryptography' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(registered.registration.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "intact, signer unknown False"


def test_an_amendment_must_follow_what_it_amends(project: ProjectPaths, signer: Signer, registered: Registered) -> None:
    first = registered.registration
    later = register(project, text_plan(methods="Ten cups.", amends=first.sha256), signer, anchor=None)
    assert verify_registration(later.registration.path).intact
    assert any(
        note.startswith(f"Amended by {later.registration.name}") for note in verify_registration(first.path).notes
    )
    assert [entry.kind for entry in read_ledger(project.registrations).entries] == ["registration", "amendment"]
    with pytest.raises(UserError, match="lists no registration"):
        register(project, text_plan(amends="1" * 64), signer, anchor=None)
