"""Validation of untrusted input: names before they become paths, documents before they become values.

Untrusted is everything that another user or program may have written: objects in a bucket, bundles, imported files,
study files, tables, and run directories. Three rules apply to all of it:

- A name becomes a path only through `path_inside`, which rejects every name that could leave the folder.
- A file is read only through `read_file`, which rejects pipes, devices and files above a size limit.
- A value is used only after `checked` has validated it against a typed model.

`tests/test_architecture.py` enforces the first rule: no other module may build a path from an untrusted name.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import orjson

from fairtrial.core.errors import StoreError, UserError
from fairtrial.core.regular_files import irregular_kind

if TYPE_CHECKING:
    from pydantic import BaseModel

LONGEST_PART_BYTES = 255
LONGEST_NAME_BYTES = 1024
DEEPEST = 64
LARGEST_DOCUMENT_BYTES = 64 << 20
"""Size limit in bytes; real study files, manifests, snapshots and metadata files are far smaller."""

DAMAGED = "The file was changed or damaged."

_CONTROL_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION_MARKS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class UntrustedName(StoreError):
    """An untrusted name that must not become a path."""


class UntrustedDocument(StoreError):
    """An untrusted document that does not have the required structure."""


# Names


def why_unsafe(name: object, *, reserved: Collection[str] = ()) -> str | None:
    """Return why a relative name such as `checkpoints/best.pt` must not become a path; None if it may.

    `reserved` are parts, in lower case, that only Fairtrial itself may use there, such as the name of a lock file.
    """
    if not isinstance(name, str):
        return "is not text"
    if not name:
        return "is empty"
    if "\\" in name or any(_is_control(character) for character in name):
        return "contains a character that is not allowed in a path"
    if name.startswith(("/", "~")) or (len(name) > 1 and name[1] == ":"):
        return "is absolute"
    parts = name.split("/")
    if ".." in parts:
        return "leads out of the folder"
    if "" in parts or "." in parts:
        return "has an empty part"
    if reserved and any(_folded(part) in reserved for part in parts):
        return "is reserved"
    if len(name.encode()) > LONGEST_NAME_BYTES or any(len(part.encode()) > LONGEST_PART_BYTES for part in parts):
        return "is too long"
    return None


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in _CONTROL_CATEGORIES or character in _DIRECTION_MARKS


def is_text(value: str) -> bool:
    """Return whether a string can be encoded in UTF-8. Lone surrogates, which Python uses for command-line arguments
    that are not UTF-8, cannot.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def path_inside(root: Path, name: object, *, what: str, reserved: Collection[str] = ()) -> Path:
    """Return the path of an untrusted name below `root`. Rejects names that leave it, also through a symbolic link."""
    why = why_unsafe(name, reserved=reserved)
    if why is None and (link := _first_link(root, str(name))):
        why = f"leads through the symbolic link {link}"
    if why is not None:
        raise UntrustedName(f"{what}: the name {name!r} {why}", hint="Nothing was written for it.")
    return root / str(name)


def _first_link(root: Path, name: str) -> str | None:
    path = os.fspath(root)
    for part in name.split("/"):
        path = f"{path}/{part}"
        if os.path.islink(path):  # noqa: PTH114 — called for every downloaded file of a run, so it must be fast
            return path
    return None


def why_names_unsafe(names: Sequence[str], *, taken: Collection[str] = ()) -> str | None:
    """Return why untrusted names cannot all be files of one folder; None if they can.

    `taken` are files that Fairtrial itself writes there. At the top of the folder, names that begin with a dot are
    reserved for Fairtrial, for example for locks.
    """
    for name in names:
        why = why_unsafe(name) or ("is reserved" if name.startswith(".") else None)
        if why is not None:
            return f"the name {name!r} {why}"
    clashing = collisions([*taken, *names])
    return f"the name {clashing[0]!r} and another name refer to the same file" if clashing else None


def collisions(names: Iterable[str]) -> list[str]:
    """Return names that share a file with an earlier name, also on file systems that ignore case or Unicode forms.

    A name that would be both a file and a folder (`a` and `a/b`) collides too. A name that ends in `/`, as archives
    list them, is a folder that may contain others.
    """
    files: set[str] = set()
    folders: set[str] = set()
    listed: set[str] = set()
    clashing = []
    for name in names:
        folded = _folded(name.removesuffix("/"))
        parents = {folded[:at] for at, character in enumerate(folded) if character == "/"}
        taken = listed if name.endswith("/") else folders
        if folded in files or folded in taken or parents & files:
            clashing.append(name)
            continue
        folders |= parents
        if name.endswith("/"):
            listed.add(folded)
            folders.add(folded)
        else:
            files.add(folded)
    return clashing


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


# Files


def read_file(path: Path, *, most: int = LARGEST_DOCUMENT_BYTES, hint: str | None = None) -> bytes:
    """Return the content of a regular file of limited size. Raises FileNotFoundError if it does not exist.

    Pipes and devices are rejected, because reading them could block forever or never end.
    """
    descriptor = _open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        content = file.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:
        raise UserError(f"{path} is larger than {most >> 20} MB, the limit for such a file", hint=hint)
    return content


def open_file(path: Path) -> BinaryIO:
    """Open a regular file of any size, to read it in chunks. Raises FileNotFoundError if it does not exist."""
    return os.fdopen(_open_regular(path), "rb")


def _open_regular(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if kind := irregular_kind(descriptor):
        os.close(descriptor)
        raise UserError(f"{path} is {kind}, not a file", hint="Save the content to a file first.")
    return descriptor


# Documents


def parse_json(
    content: bytes, *, where: str, hint: str | None = DAMAGED, error: type[UserError] = UntrustedDocument
) -> Any:
    """Parse a JSON document. Rejects deep nesting and duplicate keys in an object.

    Parsers disagree about which of two duplicate keys counts, so such a document is ambiguous.
    """
    try:
        if content.count(b"[") + content.count(b"{") > DEEPEST and _depth(content) > DEEPEST:
            raise error(f"{where} is nested more than {DEEPEST} levels deep", hint=hint)
        return json.loads(content, object_pairs_hook=_unique)
    except _KeyTwice as twice:
        raise error(f"{where} has the key {str(twice)!r} twice in one object", hint=hint) from None
    except json.JSONDecodeError as problem:
        place = f"line {problem.lineno}, column {problem.colno}"
        raise error(f"{where} is not valid JSON at {place}: {problem.msg}", hint=hint) from None
    except (ValueError, RecursionError):  # not UTF-8, or a number with thousands of digits
        raise error(f"{where} is not valid JSON", hint=hint) from None


def parse_json_fast(content: bytes, *, where: str, hint: str | None = DAMAGED) -> Any:
    """Parse like `parse_json` but ten times as fast, for many small files. Of duplicate keys, the last one wins."""
    if content.count(b"[") + content.count(b"{") > DEEPEST and _depth(content) > DEEPEST:
        raise UntrustedDocument(f"{where} is nested more than {DEEPEST} levels deep", hint=hint)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise UntrustedDocument(f"{where} is not JSON", hint=hint) from None


def parse_json_line(line: bytes, *, where: str) -> Any:
    """Parse one line of a JSON-lines file. As strict as `parse_json` about duplicate keys, and fast for flat rows.

    Each key-value pair has one colon. If the line has no colons other than these and those inside its strings, it has
    no duplicate keys.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:  # also NaN and Infinity, which Python writes and JSON does not have
        return parse_json(line, where=where, hint=None, error=UserError)
    if isinstance(value, dict) and (line.count(b":") == len(value) or _colons(value, line) == line.count(b":")):
        return value
    return parse_json(line, where=where, hint=None, error=UserError)


def _colons(row: dict[str, Any], line: bytes) -> int:
    """Return how many colons a flat row explains; -1 if it is not flat or an escape may encode a colon."""
    if b"\\" in line or any(isinstance(each, dict | list) for each in row.values()):
        return -1
    return len(row) + sum(
        key.count(":") + (each.count(":") if isinstance(each, str) else 0) for key, each in row.items()
    )


class _KeyTwice(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        raise _KeyTwice(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return values


def _depth(content: bytes) -> int:
    """Return how deeply brackets are nested, without parsing; brackets inside strings do not count."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in content:
        if in_string:
            in_string = escaped or byte != 0x22
            escaped = not escaped and byte == 0x5C
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


Model = TypeVar("Model", bound="BaseModel")


def checked(model: type[Model], value: Any, *, where: str, hint: str | None = DAMAGED) -> Model:
    """Return the value as a typed model; raise an error with one message per problem, at most five."""
    from pydantic import ValidationError

    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = [_problem(each) for each in error.errors(include_url=False)]
        raise UntrustedDocument(
            f"{where}: {problems[0]}", problems=[f"{where}: {each}" for each in problems[1:5]], hint=hint
        ) from None
    except RecursionError:
        raise UntrustedDocument(f"{where} is nested too deeply", hint=hint) from None


def shape_problems(model: type[BaseModel], value: Any) -> list[str]:
    """Return why a value does not have the structure of a typed model, one message per problem; empty if it does.

    Validation is strict, because the values are used as they are in their file: "1" is not accepted for 1. Unknown keys
    are accepted: a newer version may have written them.
    """
    from pydantic import ValidationError

    try:
        model.model_validate(value, strict=True)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        return [_problem(each) for each in errors if each["type"] != "extra_forbidden"]
    except RecursionError:
        return ["the document is nested too deeply"]
    return []


def _problem(error: Any) -> str:
    path = ".".join(str(part) for part in error["loc"]) or "the document"
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"'{path}' is missing"
    if error["type"] == "extra_forbidden":
        return f"'{path}' is not a known key"
    return f"{path}: {re.sub(r'^[A-Z][a-z]+ should ', 'must ', message)}"
