"""Ways to spoil a valid input: bytes, trees of values, tables, archives, files that are not files, and words."""

from __future__ import annotations

import copy
import csv
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import yaml

ODD_NUMBERS = (
    "0", "-1", "1", "-0.0", "nan", "inf", "-inf", "1e999", "1e308", "-1e308", "5e-324", "1e-12", "1e9", "100000000",
    "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1" + "0" * 40, "1" * 5000,
    "0x10", "1_000", "1e5", "1.0", "0.5", "٣", "½", " 7 ", "+3", "--3", "1,2", "1:2", "1e-400",
)  # fmt: skip
ODD_WORDS = (
    "", " ", "-", "--", "=", ":", ",", "a=", "=b", "a=b=c", "..", "../x", "/", "/dev/null", "~", "*", "[", "{}", "{x}",
    "%s", "None", "null", "true", "no", "\x1b[31mred", "a\nb", "a\tb", "\u2028", "\u202eabc", "\ud7ff", "é" * 300,
    "x" * 5000, "𝔘𝔫𝔦", "s3", "s3://", "file:///", "http://", "@", "p@", "p@9", "s/", "/s", "s/base.seed1072", "s:base",
    "s:", ":base", "';--", "$(x)", "(" * 50, "a" + "[0]" * 50, "\ufeffx", "CON", ".", "a/b/c", "\\", "'", '"', "`x`",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.0, -0.0, 1e308, 5e-324, float("nan"), float("inf"),
    "", "x", "nan", "1", "0.5", "..", "../../x", "/etc/hostname", "\x00", "\u202e", "é" * 40, "x" * 3000, [], [[]],
    [None], {}, {"": None}, {"a": {"a": {}}}, [1, "x", None], "2026-13-45", "\x1b]0;t\x07",
)  # fmt: skip
YAML_ODDITIES = (
    "!!int x", "!!float ''", "? [a]\n: 1", "!!python/object:os.system x", "&a [*a]", "*nowhere", "!!binary '*'",
    "!!timestamp 2026-99-99", "!!set {a, b}", "!!omap [a: 1]", "%YAML 9.9\n---\na: 1", "a: &x [1]\nb: [*x, *x]",
    "<<: [1]", "<<: {a: 1}", "a: 1\na: 2", "---\n---", "\t- x", "a: |\n\tb", "!!null x", "!!bool maybe", "{" * 90,
    "[" * 90, "- " * 90, "2026-01-01", "!<x> y", "!!merge x", "a: !!seq {}", "? ? ? x", "1: 2\ntrue: 3\n1.5: 4",
)  # fmt: skip
NOT_FILES = ("folder", "fifo", "zero", "missing", "nowhere", "full", "tty")
_ALIAS_BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
ALIAS_BOMB = f"a0: &a0 [x, x, x, x, x, x, x, x, x]\n{_ALIAS_BOMB}"


# Bytes


def spoil_bytes(content: bytes, rng: Random) -> bytes:
    """Damage as disks, editors and transfers make it, or an attacker without a plan."""
    return rng.choice(_BYTE_WAYS)(content, rng)


def _flip(content: bytes, rng: Random) -> bytes:
    damaged = bytearray(content or b"\0")
    for _ in range(rng.choice((1, 1, 2, 8))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _cut(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _drop(content: bytes, rng: Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + content[start + rng.randrange(1, 40) :]


def _repeat(content: bytes, rng: Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    piece = content[start : start + rng.randrange(1, 200)]
    return content[:start] + piece * rng.choice((2, 3, 50)) + content[start:]


def _insert(content: bytes, rng: Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    pieces = (b"\0", b"\xff", b"\xef\xbb\xbf", b"\r\n", b"\xe2\x80\xa8", b'"', b"{", b"[" * 200, rng.randbytes(8))
    return content[:start] + rng.choice(pieces) + content[start:]


def _replaced(content: bytes, rng: Random) -> bytes:
    odd = (b"", b"\0" * 64, b"null", b"[]", b"{}", b"1", b'"x"', b"\n\n", rng.randbytes(100), b"[" * 3000, b"PK\3\4")
    return rng.choice(odd)


def _other_encoding(content: bytes, rng: Random) -> bytes:
    text = content.decode("utf-8", "replace")
    return text.encode(rng.choice(("utf-16", "utf-32", "latin-1", "utf-8-sig")), "replace")


_BYTE_WAYS: tuple[Callable[[bytes, Random], bytes], ...] = (
    _flip, _flip, _cut, _cut, _drop, _repeat, _insert, _replaced, _other_encoding,
)  # fmt: skip


# Trees of values: JSON and YAML


def odd_value(rng: Random) -> Any:
    """A copy: what is put into a document may be spoiled there again, and must not change what later ones get."""
    return copy.deepcopy(rng.choice(ODD_VALUES))


def spoil_tree(value: Any, rng: Random) -> Any:
    """The same document with one to three of its values, keys or shapes changed."""
    value = json.loads(json.dumps(value, default=str))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return odd_value(rng)
        _spoil_place(*rng.choice(places), rng)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with every key or index in it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _spoil_place(holder: Any, key: Any, rng: Random) -> None:
    way = rng.randrange(9)
    old = holder[key]
    if way <= 3:
        holder[key] = odd_value(rng)
    elif way == 4:
        del holder[key]
    elif way == 5:
        holder[key] = [old] if rng.random() < 0.5 else {"x": old}
    elif way == 6 and isinstance(holder, dict):
        holder[rng.choice(ODD_WORDS)] = holder.pop(key)
    elif way == 7:
        holder[key] = _nested(rng.choice((10, 70, 250)))
    elif isinstance(holder, list):
        holder.extend([old] * rng.choice((1, 2, 300)))
    else:
        holder[key] = str(old) if not isinstance(old, str) else rng.choice(ODD_NUMBERS)


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def spoil_json(content: bytes, rng: Random) -> bytes:
    return _dumped(spoil_tree(json.loads(content), rng), rng)


def _dumped(value: Any, rng: Random) -> bytes:
    text = json.dumps(value, indent=rng.choice((None, 1)), ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.05 and text.startswith("{"):  # a key twice
        text = '{"schema": 7, "kind": "x", ' + text[1:]
    return text.encode("utf-8", "surrogatepass")


def spoil_json_lines(content: bytes, rng: Random) -> bytes:
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    if rng.random() < 0.2:
        rng.shuffle(lines)
        return b"\n".join(lines)
    try:
        lines[place] = _dumped(spoil_tree(json.loads(lines[place]), rng), rng).replace(b"\n", b"")
    except ValueError:
        lines[place] = _dumped(odd_value(rng), rng)
    return b"\n".join(lines)


def spoil_yaml(content: bytes, rng: Random) -> bytes:
    text = content.decode()
    way = rng.randrange(6)
    if way == 0:
        return f"{text}\n{rng.choice(YAML_ODDITIES)}\n".encode()
    if way == 1:
        lines = text.splitlines()
        place = rng.randrange(len(lines))
        lines[place] = lines[place].partition(":")[0] + ": " + rng.choice((*YAML_ODDITIES, *ODD_NUMBERS))
        return "\n".join(lines).encode()
    if way == 2 and rng.random() < 0.2:
        return (ALIAS_BOMB + text).encode()
    tree = spoil_tree(yaml.safe_load(text), rng)
    try:
        return yaml.safe_dump(tree, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")
    except RecursionError:  # PyYAML's, for deep values; JSON is YAML too
        return _dumped(tree, rng)


# Tables


def spoil_table(content: bytes, rng: Random, separator: str) -> bytes:
    rows = list(csv.reader(io.StringIO(content.decode()), delimiter=separator))
    for _ in range(rng.choice((1, 1, 2, 4))):
        _spoil_rows(rows, rng)
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, quoting=rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)),
                        lineterminator=rng.choice(("\n", "\r\n", "\n", "\r")))  # fmt: skip
    writer.writerows(rows)
    return out.getvalue().encode("utf-8", "surrogatepass")


def _spoil_rows(rows: list[list[str]], rng: Random) -> None:
    if not rows:
        return
    row = rng.randrange(len(rows))
    way = rng.randrange(9)
    if way <= 2 and rows[row]:
        rows[row][rng.randrange(len(rows[row]))] = rng.choice((*ODD_NUMBERS, *ODD_WORDS))
    elif way == 3 and rows[0]:
        rows[0][rng.randrange(len(rows[0]))] = rng.choice((*rows[0], *ODD_WORDS))
    elif way == 4:
        del rows[row]
    elif way == 5:
        rows[row] = rows[row] + [rng.choice(ODD_WORDS)] if rng.random() < 0.5 else rows[row][:-1]
    elif way == 6:
        rows.insert(row, list(rng.choice(rows)))
    elif way == 7 and rows[0]:
        column, value = rng.randrange(len(rows[0])), rng.choice(ODD_NUMBERS)
        for each in rows[1:]:
            if column < len(each):
                each[column] = value
    else:
        rows.extend([list(rows[-1])] * rng.choice((1, 50, 2000)))


# Archives


def spoil_zip(content: bytes, rng: Random) -> bytes:
    """An archive with one member changed, renamed, doubled, left out or added; or its bytes damaged."""
    if rng.random() < 0.25:
        return spoil_bytes(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    place = rng.randrange(len(members))
    info, inner = members[place]
    way = rng.randrange(6)
    if way <= 1:
        members[place] = (info, spoil_file(info.filename, inner, rng))
    elif way == 2:
        del members[place]
    elif way == 3:
        info.filename = rng.choice(("/x", "../x", "a/../../x", "", "a\\b", "\x01", "x" * 300, "CON", "a/", "é"))
    elif way == 4:
        members.append(members[place])
    else:
        info.external_attr = rng.choice((0o120777, 0o040755, 0o010644, 0o104755)) << 16
    return _zipped(members)


def _zipped(members: list[tuple[zipfile.ZipInfo, bytes]]) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # a name twice is what is wanted
        for info, inner in members:
            archive.writestr(info, inner)
    return out.getvalue()


# Files of any kind


def spoil_file(name: str, content: bytes, rng: Random) -> bytes:
    """Spoil what the file is about, most of the time, or its bytes."""
    structured = rng.random() < 0.75
    suffix = name.rpartition(".")[2].lower()
    try:
        if structured and suffix in ("json", "cff"):
            return spoil_json(content, rng)
        if structured and suffix == "jsonl":
            return spoil_json_lines(content, rng)
        if structured and suffix in ("yaml", "yml"):
            return spoil_yaml(content, rng)
        if structured and suffix in ("csv", "tsv"):
            return spoil_table(content, rng, "," if suffix == "csv" else "\t")
        if structured and suffix == "zip":
            return spoil_zip(content, rng)
    except (ValueError, yaml.YAMLError, csv.Error, zipfile.BadZipFile):
        pass
    return spoil_bytes(content, rng)


# Command lines


def spoil_words(words: tuple[str, ...], rng: Random, fixed: int = 1) -> tuple[str, ...]:
    """The same command line with a word changed, left out, doubled or added; the first `fixed` ones stay."""
    changed = list(words)
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(fixed, len(changed) + 1)
        way = rng.randrange(6)
        if way == 0 and place < len(changed):
            del changed[place]
        elif way == 1 and place < len(changed):
            changed.insert(place, changed[place])
        elif way == 2:
            changed.insert(place, rng.choice(ODD_WORDS))
        elif place < len(changed):
            changed[place] = rng.choice((*ODD_WORDS, *ODD_NUMBERS))
    return tuple(changed)
