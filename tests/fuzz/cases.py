"""One input of the fuzzer: a command line, the files that it reads, and what must come out of it."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
WORKSPACE = CORPUS / "workspace"
"""Valid files of every kind; a case names those that it needs."""
_IN_USE = [WORKSPACE]
"""The copy of them that cases are laid out from."""

SPECIAL = {"zero": "/dev/zero", "full": "/dev/full", "tty": "/dev/tty", "nowhere": "no-such-target"}
"""Names of symbolic links to what must never be read to its end."""


@dataclass(frozen=True)
class Expected:
    """What a kept case must give, so that refusing everything is not a way to pass."""

    exit_code: int | None = None
    contains: tuple[str, ...] = ()
    """Words that its standard output and standard error together must have."""


@dataclass(frozen=True)
class Case:
    """`files` are written over a copy of the files of the workspace that `uses` names.

    A file is bytes, or a word that says what is there instead: `folder`, `fifo`, `missing`, or a key of SPECIAL.
    """

    kind: str
    argv: tuple[str, ...]
    uses: tuple[str, ...] = ()
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    expected: Expected = field(default_factory=Expected)
    name: str = ""
    owner: str | None = None
    """The part of the program whose open defect this input shows; None where there is none."""
    valid: bool = False
    """Whether this is a seed: a valid input, from which others are made."""

    def lay_out(self, folder: Path) -> None:
        """Make its files in an empty folder."""
        for name in self.uses:
            source = workspace() / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            else:
                shutil.copy2(source, folder / name)
        for name, content in self.files.items():
            _put(folder / name, content)

    def content(self, name: str) -> bytes:
        """What a file of the case holds now, from the case or the workspace."""
        own = self.files.get(name)
        if isinstance(own, bytes):
            return own
        return (workspace() / name).read_bytes()

    def changed(self, **changes: Any) -> Case:
        return replace(self, **{"name": "", "valid": False, "expected": Expected(), "owner": None, **changes})

    def to_dict(self) -> dict[str, Any]:
        files = {name: _spelled(content) for name, content in self.files.items()}
        said: dict[str, Any] = {"kind": self.kind, "argv": list(self.argv), "uses": list(self.uses), "files": files}
        if self.valid:
            said["valid"] = True
        if self.owner:
            said["owner"] = self.owner
        if self.expected.exit_code is not None:
            said["exit_code"] = self.expected.exit_code
        if self.expected.contains:
            said["contains"] = list(self.expected.contains)
        return said

    @classmethod
    def from_dict(cls, said: Mapping[str, Any], name: str) -> Case:
        return cls(
            said["kind"], tuple(said["argv"]), tuple(said.get("uses", ())),
            {path: _content(spelled) for path, spelled in said.get("files", {}).items()},
            Expected(said.get("exit_code"), tuple(said.get("contains", ()))), name, said.get("owner"),
            bool(said.get("valid")),
        )  # fmt: skip

    def command(self) -> str:
        return f"fairtrial {shlex.join(self.argv)}"


def workspace() -> Path:
    return _IN_USE[0]


def use_workspace(folder: Path) -> None:
    """Lay cases out from this copy of the workspace, which may hold what a store caches."""
    _IN_USE[0] = folder


def _put(path: Path, content: bytes | str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "folder":
        path.mkdir()
    elif content == "fifo":
        os.mkfifo(path)
    elif content in SPECIAL:
        path.symlink_to(SPECIAL[content])
    elif content != "missing":
        raise ValueError(f"unknown kind of file: {content}")


def _spelled(content: bytes | str) -> dict[str, str]:
    """Readable where it can be, so that a kept input can be understood and edited."""
    if isinstance(content, str):
        return {"is": content}
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _content(spelled: Mapping[str, str]) -> bytes | str:
    if "is" in spelled:
        return spelled["is"]
    return spelled["text"].encode() if "text" in spelled else base64.b64decode(spelled["base64"])


def kept_cases() -> Iterator[Case]:
    """Every case of the corpus, in a fixed order."""
    for path in sorted(CORPUS.glob("*.json")):
        for name, said in json.loads(path.read_text()).items():
            yield Case.from_dict(said, f"{path.stem}/{name}")
