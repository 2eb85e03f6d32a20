"""Runs that an attacker puts into a bucket: each is valid but for one thing, which is what its reader must name."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass(frozen=True)
class Hostile:
    """One run: its objects, what a refusal must say of it, and links that somebody planted in the mirror before."""

    name: str
    kind: str
    says: str
    objects: Mapping[str, bytes]
    links: Mapping[str, Path] = field(default_factory=dict)
    """Names below the mirror, and where they lead."""


class Template:
    """A run that is being made, as another machine would have left it. Everything in it is right."""

    def __init__(self, name: str, metadata: str) -> None:
        self.name = name
        self.claim: Any = {
            "kind": "claim", "token": 1, "host": "elsewhere", "pid": 7, "mirror": "m", "lease_s": 120.0, "prior": None,
            "of": 0, "status": None, "publish": False, "at": 1.7e9, "mark": "0" * 32,
        }  # fmt: skip
        self.facts: dict[str, Any] = {"sha256": SHA256, "size": len(CONTENT), "token": 1}
        self.manifest: Any = {
            "schema": 1, "token": 1, "metadata": metadata,
            "appended": {"metrics.jsonl": 0, "events.jsonl": 0, "log.txt": 0},
            "files": {"checkpoints/best.pt": self.facts},
        }  # fmt: skip
        self.raw: bytes | None = None
        self.more: dict[str, bytes] = {}
        self.links: dict[str, Path] = {}

    def put(self, *names: str) -> None:
        """Files of these names, as well as the ones that are there."""
        self.manifest["files"].update({name: dict(self.facts) for name in names})

    def objects(self) -> dict[str, bytes]:
        manifest = json.dumps(self.manifest).encode() if self.raw is None else self.raw
        claim = self.claim if isinstance(self.claim, bytes) else json.dumps(self.claim).encode()
        live = f"{self.name}/.live/00000001"
        return {f"{self.name}/.claims/00000001.json": claim, f"{live}/manifest.json": manifest, **self.more}

    def as_plain(self, *names: str) -> dict[str, bytes]:
        """The same run after its end, with more files."""
        content = self.manifest["metadata"].encode()
        return {f"{self.name}/metadata.json": content, **{f"{self.name}/{name}": b"x" for name in names}}


Attack = Callable[[Template, random.Random, Path], str]
"""Changes a run, and tells what must be said of it."""


def _traversal(run: Template, draw: random.Random, _outside: Path) -> str:
    up = "../" * draw.randint(1, 9)
    tail = draw.choice(["x.sh", "outside/evil.sh", ".bashrc", "etc/cron.d/evil"])
    run.put(draw.choice([f"{up}{tail}", f"checkpoints/{up}{tail}", f"a/b/c/../../../{up}{tail}", ".."]))
    return "leads out of the folder"


def _absolute(run: Template, draw: random.Random, outside: Path) -> str:
    run.put(draw.choice([f"{outside}/evil{draw.random()}.sh", "/etc/cron.d/evil", "~/.bashrc", "~root/x", "C:/x.bat"]))
    return "is absolute"


def _characters(run: Template, draw: random.Random, _outside: Path) -> str:
    strange = draw.choice(["\0", "\n", "\x1b[2J", "\x7f", "\u2028", "\u202e", "\ud800", "\\..\\", "\x85"])
    run.put(f"checkpoints/a{strange}b.pt")
    return "contains a character that is not allowed in a path"


def _empty_parts(run: Template, draw: random.Random, _outside: Path) -> str:
    run.put(draw.choice(["a//b", "./a", "a/./b", "checkpoints/", "a/."]))
    return "has an empty part"


def _reserved(run: Template, draw: random.Random, _outside: Path) -> str:
    own = [".lock", ".shared.json", ".pulse", ".taking-over", ".LOCK", ".claims/00000009.json", ".live/x", ".launcher"]
    run.put(draw.choice(own))
    return "is reserved"


def _too_long(run: Template, draw: random.Random, _outside: Path) -> str:
    run.put(draw.choice(["a" * 256, "é" * 128, "/".join(["a" * 100] * 11)]))
    return "is too long"


def _case(run: Template, draw: random.Random, _outside: Path) -> str:
    run.put(draw.choice(["Checkpoints/best.pt", "checkpoints/BEST.pt", "METADATA.json", "Metrics.jsonl", "log.TXT"]))
    return "refer to the same file"


def _unicode(run: Template, draw: random.Random, _outside: Path) -> str:
    run.put(*draw.choice([("é", "e\u0301"), ("straße", "strasse"), ("ﬁne", "fine"), ("Å", "\u212b"), ("x/é", "X/É")]))
    return "refer to the same file"


def _file_and_folder(run: Template, draw: random.Random, _outside: Path) -> str:
    run.put(draw.choice(["checkpoints", "metadata.json/x", "metrics.jsonl/0", "checkpoints/best.pt/x"]))
    return "refer to the same file"


def _links(run: Template, draw: random.Random, outside: Path) -> str:
    study = run.name
    target = outside / f"target{draw.randrange(3)}"
    place = draw.choice(["", "/checkpoints", "/metrics.jsonl", "/metadata.json"])
    run.links[f"{study}{place}"] = target if place in ("", "/checkpoints") else outside / "canary"
    return "leads through the symbolic link"


def _huge_sizes(run: Template, draw: random.Random, _outside: Path) -> str:
    run.facts["size"] = draw.choice([10**15, 2**63, 2**200, 10**18, (5 << 40) + 1])
    return "must be less than or equal to"


def _huge_series(run: Template, draw: random.Random, _outside: Path) -> str:
    run.manifest["appended"]["metrics.jsonl"] = draw.choice([10**15, 2**64, (16 << 30) + 1])
    return "must be less than or equal to"


def _huge_total(run: Template, draw: random.Random, _outside: Path) -> str:
    run.facts["size"] = 4 << 40
    run.put(*(f"checkpoints/step-{step}.pt" for step in range(draw.randint(5, 300))))
    return "TB, more than allowed"


def _many_files(run: Template, _draw: random.Random, _outside: Path) -> str:
    run.manifest["files"] = dict.fromkeys(map(str, range(100_001)), 0)
    return "files, more than the allowed 100,000"


def _wrong_facts(run: Template, draw: random.Random, _outside: Path) -> str:
    key, value = draw.choice([
        ("size", "7"), ("size", -1), ("size", 7.5), ("size", True), ("size", None), ("size", [7]), ("size", {}),
        ("token", 0), ("token", "1"), ("token", -1), ("token", 10**12), ("token", None), ("token", 1.5), ("token", "../../x"),
        ("sha256", "ab"), ("sha256", SHA256.upper()), ("sha256", 7), ("sha256", "../" * 21 + "x"), ("sha256", None),
        ("sha256", SHA256 + "\n"),
    ])  # fmt: skip
    run.facts[key] = value
    return f"files.checkpoints/best.pt.{key}: must"


def _wrong_shape(run: Template, draw: random.Random, _outside: Path) -> str:
    key = draw.choice([*run.manifest])
    wrong: dict[str, list[Any]] = {
        "schema": [2, "1", None, [1]], "token": [0, "1", -3, 2.5, None, 10**15],
        "metadata": [5, None, {}, "not JSON", "[]", "{", "[" * 200 + "]" * 200],
        "appended": [[], None, 7, {"../../x": 1}, {"metrics.jsonl": "5"}, {"log.txt": -1}, {"/etc/passwd": 0}],
        "files": [[], None, "x", {"x": None}, {"x": []}, {"x": "y"}, {"x": {"sha256": 1}}],
    }  # fmt: skip
    run.manifest[key] = draw.choice(wrong[key])
    return f"manifest.json: {key}"


def _missing_key(run: Template, draw: random.Random, _outside: Path) -> str:
    key = draw.choice([*run.manifest])
    del run.manifest[key]
    return f"manifest.json: '{key}' is missing"


def _not_json(run: Template, draw: random.Random, _outside: Path) -> str:
    run.raw = draw.choice([
        b"", b"\xff\xfe", b"{", b"[1, 2", b'{"token": 01}', b"[" * 100_000, b"null", b"[]", b'"x"', b"1" * 5000, b"\0",
        b'{"token": 1, "token": 2}',
    ])  # fmt: skip
    return "manifest.json"


def _other_content(run: Template, draw: random.Random, _outside: Path) -> str:
    """A file at the top of the run, which every reader takes, with other content than its manifest says."""
    name = f"{run.name}/.live/00000001/files/{SHA256}"
    content = draw.choice([b"WEIGHTS", b"weights and more", b""])
    run.put("extra.txt")
    run.more[name] = content
    return "does not have the size and SHA-256" if len(content) == len(CONTENT) else "bytes, not 7"


def _other_claim(run: Template, draw: random.Random, _outside: Path) -> str:
    run.manifest["token"] = draw.randint(2, 99)
    return "states that it belongs to claim"


def _later_blob(run: Template, draw: random.Random, _outside: Path) -> str:
    run.facts["token"] = draw.randint(2, 99)
    return "belongs to a later claim"


def _bad_claim(run: Template, draw: random.Random, _outside: Path) -> str:
    key, value = draw.choice([
        ("kind", "steal"), ("kind", None), ("token", 2), ("token", "1"), ("token", None), ("lease_s", "120"),
        ("lease_s", 1e300), ("lease_s", -1), ("prior", "../../x"), ("prior", 7), ("prior", "0"), ("host", 5),
        ("host", "h" * 5000), ("pid", -1), ("pid", "7"), ("publish", "yes"), ("status", 3), ("at", "now"), ("of", -1),
        ("lease_s", float("inf")), ("lease_s", float("nan")),
    ])  # fmt: skip
    run.claim[key] = value
    return "claim 1"


def _bad_end(run: Template, draw: random.Random, _outside: Path) -> str:
    end = {**run.claim, "kind": draw.choice(["end", "gone"]), "token": 2, "of": draw.choice([0, 2, 3, 99])}
    run.more[f"{run.name}/.claims/00000002.json"] = json.dumps(end).encode()
    return "does not precede it"


def _claim_is_not_json(run: Template, draw: random.Random, _outside: Path) -> str:
    run.claim = draw.choice([b"", b"[]", b"7", b"{", b"\xff", b'"claim"', b"x" * 70_000])
    return "claim 1" if len(run.claim) < 70_000 else "bytes, more than"


ATTACKS: Mapping[Attack, int] = {
    _traversal: 6, _absolute: 6, _characters: 5, _empty_parts: 3, _reserved: 5, _too_long: 2, _case: 5, _unicode: 5,
    _file_and_folder: 3, _links: 6, _huge_sizes: 4, _huge_series: 2, _huge_total: 1, _wrong_facts: 9, _wrong_shape: 9,
    _missing_key: 2, _not_json: 4, _other_content: 4, _other_claim: 2, _later_blob: 1, _bad_claim: 6, _bad_end: 2,
    _claim_is_not_json: 2,
}  # fmt: skip
"""Kinds of attacks, and how often each is drawn."""


def hostile_runs(count: int, metadata: str, outside: Path, *, seed: int = 10) -> Iterator[Hostile]:
    """Runs with one attack each: every kind at least once, and the rest drawn. The same seed gives the same runs."""
    draw = random.Random(seed)
    kinds = [_many_files, *ATTACKS]
    kinds += draw.choices([*ATTACKS], [*ATTACKS.values()], k=max(0, count - len(kinds)))
    for number, attack in enumerate(kinds[:count]):
        run = Template(f"hostile/run{number}.seed1", metadata)
        says = attack(run, draw, outside)
        yield Hostile(run.name, attack.__name__.strip("_"), says, run.objects(), run.links)


def hostile_names(metadata: str) -> Iterator[Hostile]:
    """Attacks by the names of objects: of a study, of a run, of a file of a run that has ended."""
    bad = {
        "..": "leads out",
        "~root": "is absolute",
        "a\\b": "contains a character",
        "c\u202ed": "contains a character",
        "": "empty",
    }
    for at, (part, says) in enumerate(bad.items()):
        for name in (f"{part}/v.seed1", f"names/{part}" if part else f"names{at}/"):
            run = Template(name, metadata)
            yield Hostile(name, "name of a folder", "" if not part else says, run.as_plain())
    for part in ("study.json", "LOOKS.jsonl", "launch.log"):
        yield Hostile(f"names/{part}", "reserved", "is reserved", Template(f"names/{part}", metadata).as_plain())
    files = {
        "../../../evil.sh": "leads out", "checkpoints/../../x": "leads out", "/etc/evil": "is absolute",
        "~/x": "is absolute", "a\\b": "contains a character", "checkpoints/\x01": "contains a character", "a/./b": "empty part",
        "Metadata.json": "refer to the same file", "checkpoints/x\u202ey": "contains a character", "a" * 250: "path is too long",
    }  # fmt: skip
    for number, (file, says) in enumerate(files.items()):
        run = Template(f"files/run{number}.seed1", metadata)
        yield Hostile(run.name, "name of a plain file", says, run.as_plain(file))
    for number, content in enumerate((b"", b"{", b"[]", b"\xff", b"[" * 300)):
        name = f"files/metadata{number}.seed1"
        yield Hostile(name, "metadata", "metadata.json", {f"{name}/metadata.json": content})
