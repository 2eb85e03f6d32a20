"""Names and documents from outside are judged in one place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from fairtrial.core.errors import UserError
from fairtrial.core.untrusted import (
    DEEPEST,
    UntrustedDocument,
    UntrustedName,
    checked,
    collisions,
    parse_json,
    parse_json_fast,
    path_inside,
    read_file,
    why_unsafe,
)
from fairtrial.core.yaml_values import load_yaml


@pytest.mark.parametrize(
    "name",
    [
        None, 5, "", "/etc/passwd", "../x.sh", "a/../../x", "a//b", "./a", "a/.", "a/..", "~/x", "C:/x", "a\\b", "a\0b",
        "a\nb", "a\x1b[2Jb", "a\u2028b", "a\u202eb", "a" * 256, "/".join(["a" * 100] * 11), "\udcff",
    ],
)  # fmt: skip
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: Any) -> None:
    assert why_unsafe(name)
    with pytest.raises(UntrustedName, match="a manifest: the name"):
        path_inside(tmp_path, name, what="a manifest")


@pytest.mark.parametrize(
    "name", ["metadata.json", "checkpoints/step-5.pt", "ein Name/ü", ".held-best-5.pt", "a..b", "a" * 255]
)
def test_an_ordinary_name_becomes_a_path(tmp_path: Path, name: str) -> None:
    assert path_inside(tmp_path, name, what="a manifest") == tmp_path / name


def test_a_reserved_part_is_refused_at_any_depth() -> None:
    assert why_unsafe("a/.lock", reserved={".lock"}) == "is reserved"
    assert why_unsafe("a/.lock") is None


def test_a_symbolic_link_on_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("link/x", "link"):
        with pytest.raises(UntrustedName, match="symbolic link"):
            path_inside(tmp_path / "root", name, what="a manifest")


def test_names_that_share_a_file_collide() -> None:
    assert collisions(["a", "b/c", "A"]) == ["A"]
    assert collisions(["\u00e9", "e\u0301"]) == ["e\u0301"]
    assert collisions(["a", "a/b"]) == ["a/b"]
    assert collisions(["a/b", "a"]) == ["a"]
    assert collisions(["a/b", "a/c", "b"]) == []


def test_only_ordinary_files_of_a_limited_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_file(tmp_path / "file") == b"content"
    with pytest.raises(UserError, match="larger than"):
        read_file(tmp_path / "file", most=6)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(UserError, match="not a file"):
            read_file(path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "nothing")


@pytest.mark.parametrize("parse", [parse_json, parse_json_fast])
def test_deep_nesting_is_refused_and_brackets_in_text_are_not_nesting(parse: Any) -> None:
    assert parse(json.dumps({"a": "[" * 500 + '\\"{' * 50}).encode(), where="x")["a"].startswith("[[")
    deep = b"[" * DEEPEST + b"]" * DEEPEST
    assert parse(deep, where="x")
    for content in (b"[" + deep + b"]", b"[" * 100_000):
        with pytest.raises(UntrustedDocument):
            parse(content, where="x")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"a": 1, "a": 2}', "x has the key 'a' twice"),
        (b'{"a": ', "x is not valid JSON at line 1"),
        (b"\xff\xfe", "x is not valid JSON"),
        (b"9" * 5000, "x is not valid JSON"),
    ],
)
def test_a_document_that_is_not_json_is_one_sentence(content: bytes, told: str) -> None:
    with pytest.raises(UntrustedDocument, match=told):
        parse_json(content, where="x")


class Point(BaseModel):
    name: str
    hours: float


def test_every_problem_of_a_shape_is_told() -> None:
    assert checked(Point, {"name": "a", "hours": 1}, where="x").hours == 1
    with pytest.raises(UntrustedDocument) as raised:
        checked(Point, {"hours": []}, where="x")
    assert [raised.value.message, *raised.value.problems] == [
        "x: 'name' is missing",
        "x: hours: must be a valid number",
    ]
    with pytest.raises(UntrustedDocument, match="x: the document: must be a valid dictionary"):
        checked(Point, [], where="x")


@pytest.mark.parametrize(
    "text",
    [
        "!!int x", "!!float ''", "? [a]\n: 1", "? {a: 1}\n: 1", "[" * 5000, "- " * 5000, "!!timestamp x", "!!binary ü",
        "&a [*a]", "!!python/object:os.system x", "--- 1\n--- 2", "a: 1\na: 2", "!!set 5", "!!omap 5", "!!int ''", "!!bool x",
        "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]),
    ],
)  # fmt: skip
def test_yaml_that_cannot_be_read_is_a_yaml_error_and_nothing_else(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)


def test_ordinary_aliases_are_fine() -> None:
    assert load_yaml("base: &b {lr: 1e-3}\nnew: *b") == {"base": {"lr": 0.001}, "new": {"lr": 0.001}}
    assert load_yaml("") is None


def test_yaml_that_is_nested_too_deeply_is_refused() -> None:
    assert load_yaml("[" * (DEEPEST - 1) + "]" * (DEEPEST - 1))
    with pytest.raises(yaml.YAMLError, match="nested more than"):
        load_yaml("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))


def test_a_yaml_key_that_is_a_list_is_refused_by_name() -> None:
    with pytest.raises(yaml.YAMLError, match="a key must be text or a number"):
        load_yaml("? [a]\n: 1")
