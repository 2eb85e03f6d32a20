"""Judges everything that comes from outside: names before they become paths, documents before they become values.

"Outside" is whatever another person or program may have written: objects in a bucket, bundles, imported files, study
files, tables, and run directories. Three rules hold for all of it:

- A name becomes a path only through `path_inside`, which refuses whatever could lead out of the folder.
- A file is read only through `read_file`, which refuses pipes, devices and files that are larger than they may be.
- A value is used only after `checked` has held it against a typed model.

`tests/test_architecture.py` keeps the first rule: no other module may build a path from a foreign name.
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
"""No study file, manifest, snapshot or metadata file comes near this size."""

DAMAGED = "The file was changed or damaged."

_CONTROL_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION_MARKS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class UntrustedName(StoreError):
    """A name from outside that must not become a path."""


class UntrustedDocument(StoreError):
    """A document from outside that does not have the shape it must have."""


# Names


def why_unsafe(name: object, *, reserved: Collection[str] = ()) -> str | None:
    """Why a relative name such as `checkpoints/best.pt` must not become a path; None where it may.

    `reserved` are parts, in lower case, that only this program may use in that place, such as the name of a lock file.
    """
    if not isinstance(name, str):
        return "is not text"
    if not name:
        return "is empty"
    if "\\" in name or any(_is_control(character) for character in name):
        return "has a character that no path may have"
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
    """Whether a file can hold it: a lone surrogate, such as Python makes of an argument that is not UTF-8, has no
    spelling there.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def path_inside(root: Path, name: object, *, what: str, reserved: Collection[str] = ()) -> Path:
    """The path of a foreign name below `root`. Refuses names that lead elsewhere, also through a symbolic link."""
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
        if os.path.islink(path):  # noqa: PTH114 — asked for every file of a run that is brought here
            return path
    return None


def why_names_unsafe(names: Sequence[str], *, taken: Collection[str] = ()) -> str | None:
    """Why names from outside cannot all be files of one folder; None where they can.

    `taken` are files that this program puts there itself. Names that begin with a dot are its own at the top of the
    folder, such as those of its locks.
    """
    for name in names:
        why = why_unsafe(name) or ("is reserved" if name.startswith(".") else None)
        if why is not None:
            return f"the name {name!r} {why}"
    clashing = collisions([*taken, *names])
    return f"the name {clashing[0]!r} and another one name the same file" if clashing else None


def collisions(names: Iterable[str]) -> list[str]:
    """Names that would share a file with an earlier one, also where case or Unicode forms are not told apart.

    A name that is a file here and a folder there (`a` and `a/b`) collides too. A name that ends in `/`, as archives
    list them, is a folder in which others may lie.
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
    """The content of an ordinary file of limited size. Raises FileNotFoundError where there is none.

    A pipe or a device could block for ever or never end, so neither is opened for reading.
    """
    descriptor = _open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        content = file.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:
        raise UserError(f"{path} is larger than the {most >> 20} MB that such a file may have", hint=hint)
    return content


def open_file(path: Path) -> BinaryIO:
    """An ordinary file of any size, to be read in pieces. Raises FileNotFoundError where there is none."""
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
    """What a JSON document holds. Refuses deep nesting, and a key that stands twice in one object.

    Two readers may disagree about which of two equal keys counts, so neither is taken.
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
    """The same for the many small files of a store, an order of magnitude faster: of two equal keys the last counts."""
    if content.count(b"[") + content.count(b"{") > DEEPEST and _depth(content) > DEEPEST:
        raise UntrustedDocument(f"{where} is nested more than {DEEPEST} levels deep", hint=hint)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise UntrustedDocument(f"{where} is not JSON", hint=hint) from None


def parse_json_line(line: bytes, *, where: str) -> Any:
    """One line of a file of JSON lines. As strict as `parse_json` about equal keys, and fast for flat rows.

    Each pair of a key and a value has a colon of its own. Where the line has no other colons than those and the ones
    in its texts, no key stands there twice.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:  # also NaN and Infinity, which Python writes and JSON does not have
        return parse_json(line, where=where, hint=None, error=UserError)
    if isinstance(value, dict) and (line.count(b":") == len(value) or _colons(value, line) == line.count(b":")):
        return value
    return parse_json(line, where=where, hint=None, error=UserError)


def _colons(row: dict[str, Any], line: bytes) -> int:
    """Colons that a flat row accounts for; -1 where it is not flat, or an escape may stand for one."""
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
    """How deeply brackets are nested, without a parser: brackets inside of strings do not count."""
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
    """The value as a typed model, or one sentence per problem, at most five."""
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
    """What keeps a value from having the shape of a typed model, one sentence each; empty where nothing does.

    For values that are used as they are in their file: "1" is not taken for 1. Unknown keys are not a problem: a newer
    version may have written them.
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
