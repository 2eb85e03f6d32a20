"""Text from elsewhere never reaches a terminal as a command: everything for people spells control characters out."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from fairtrial.record.store import Store
from tests.conftest import Answer

Cli = Callable[..., Answer]
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x9b31m\u202eetirw\u2066\x7f\r"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u2028\u2029]")


@pytest.fixture
def hostile(cli: Cli, store: Store) -> Store:
    """A store whose run has escapes in every text that is shown: reason, hint, log, options, cautions, metrics."""
    assert cli("train", "fake", "--steps", "3", "--study", "s", "--variant", "default").code == 0
    paths = store.paths.run("s", "default.seed1072")
    metadata = orjson.loads(paths.metadata.read_bytes())
    metadata.update(status="failed", reason=f"it said {EVIL}[/red]", hint=f"do {EVIL}", metric=f"metric {EVIL}")
    metadata["options"]["profile"] = EVIL
    metadata["cautions"].append({"code": "x", "text": f"careful {EVIL}", "remedy": EVIL})
    metadata["environment"]["git_commit"] = EVIL
    for name in ("checksum", "sealed", "series"):  # as an attacker writes it: nothing tells that it was changed
        metadata.pop(name, None)
    paths.metadata.write_bytes(orjson.dumps(metadata))
    paths.columns.unlink()
    paths.log.write_text(f"printed {EVIL}\n")
    with paths.metrics.open("ab") as file:
        file.write(orjson.dumps({"step": 4, "_time": 1.0, f"loss{EVIL}": 1.5}) + b"\n")
    return store


SHOWING = [
    ["runs", "list"],
    ["runs", "show", "s/default.seed1072"],
    ["runs", "tail", "s/default.seed1072"],
    ["runs", "tail", "s/default.seed1072", "--follow"],
    ["runs", "tail", "s/default.seed1072", "--log"],
    ["runs", "watch", "s", "--once"],
    ["runs", "sql", f"select '{EVIL}' as \"a{EVIL}\""],
    ["runs", "sql", f"select '{EVIL}' as b", "--format", "markdown"],
    ["runs", "sql", f"select '{EVIL}' as b", "--format", "latex"],
    ["runs", "list", "--format", "markdown"],
    ["launch", "fake", "--steps", "3", "--seeds", "1", "--base-run-name", "s"],
    ["runs", "show", f"no {EVIL}"],
    ["runs", "sql", f"select {EVIL}"],
    [f"nonsense{EVIL}"],
    ["analyze", "--from", f"/no/{EVIL}"],
]


@pytest.mark.parametrize("words", SHOWING, ids=lambda words: re.sub(r"[^a-z -]", "", " ".join(words[:4])))
def test_nothing_for_people_holds_a_control_character(cli: Cli, hostile: Store, words: list[str]) -> None:
    shown = cli(*words)
    text = shown.out + shown.err
    assert "Traceback" not in text
    assert not CONTROLS.findall(text), CONTROLS.findall(text)


def test_what_was_escaped_can_be_read(cli: Cli, hostile: Store) -> None:
    assert "printed \\x1b]0;owned\\x07\\x1b[2J" in cli("runs", "tail", "s/default.seed1072", "--log").out
    assert "\\u202e" in cli("runs", "show", "s/default.seed1072").out


def test_a_file_of_text_holds_no_escape_either(cli: Cli, hostile: Store, tmp_path: Path) -> None:
    cli("runs", "show", "s/default.seed1072", "--output", "shown.txt")
    assert not CONTROLS.findall((tmp_path / "shown.txt").read_text())


def test_json_and_csv_stay_data(cli: Cli, hostile: Store) -> None:
    query = f"select '{EVIL}' as b"
    assert cli("runs", "sql", query, "--format", "json").json["rows"] == [{"b": EVIL}]
    assert EVIL.rstrip("\r") in cli("runs", "sql", query, "--format", "csv").out


def on_a_terminal(*words: str) -> str:
    """What a command prints where its standard output is a terminal."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairtrial", *words], stdout=terminal, stderr=subprocess.DEVNULL, close_fds=True
    )
    os.close(terminal)
    said = b""
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        said += chunk
    os.close(controller)
    assert process.wait() == 0
    return said.decode().replace("\r\n", "\n")


@pytest.mark.slow
def test_on_a_terminal_json_is_escaped_without_a_change_of_meaning_and_csv_is_escaped(hostile: Store) -> None:
    shown = on_a_terminal("runs", "sql", f"select '{EVIL}' as b", "--format", "json")
    assert not CONTROLS.findall(shown)
    assert json.loads(shown)["rows"] == [{"b": EVIL}]
    assert not CONTROLS.findall(on_a_terminal("runs", "sql", f"select '{EVIL}' as b", "--format", "csv"))


def test_brackets_and_colons_from_elsewhere_are_text(cli: Cli) -> None:
    shown = cli("runs", "sql", "select '[red]a[/red] :smile: [/nothing]' as b").out
    assert "[red]a[/red] :smile: [/nothing]" in shown
