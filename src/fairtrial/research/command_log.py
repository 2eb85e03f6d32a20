"""`artifact.journal.jsonl`: what was run below an artifact.yaml, and which files were added to it. Append-only.

artifact.yaml itself is a person's file, with comments; the program never writes to it once it is there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.durable import sync_path
from fairtrial.core.paths import ProjectPaths
from fairtrial.core.private_files import open_to_append
from fairtrial.core.secrets import redact_all, redact_words
from fairtrial.core.untrusted import UntrustedDocument, parse_json_fast, read_file
from fairtrial.research.plan_schema import LAST_MOMENT

SCHEMA = 1
COMMAND, FILE = "command", "file"
LARGEST_RESULT = 1 << 20
LARGEST = 1 << 30
QUIET = ("--help", "-h", "--dry-run")
"""With one of these a command does nothing that anyone would want to find again."""


def note_command(
    artifact: Path, arguments: Sequence[str], code: int, begun: float, result: Mapping[str, Any] | None
) -> None:
    """List a command of a project. What cannot be written must not spoil what was computed."""
    if code == 2 or any(word in QUIET for word in arguments):
        return
    entry = {
        "kind": COMMAND, "at": begun, "seconds": round(time.time() - begun, 3),
        "command": redact_words(arguments),
        "folder": _folder(artifact.parent), "exit": code, "study": _study(result), "result": redact_all(_kept(result)),
    }  # fmt: skip
    with contextlib.suppress(OSError, TypeError):
        append(ProjectPaths(artifact.parent), entry)


def _folder(root: Path) -> str:
    """Where in the project the command was given: the paths in it are meant from there."""
    return Path(os.path.relpath(Path.cwd(), root)).as_posix()


def _study(result: Mapping[str, Any] | None) -> str | None:
    """The study that a result is about: by its name, or by that of its run."""
    document = result or {}
    run = document.get("run")
    named = document.get("study") or document.get("source") or (run.partition("/")[0] if isinstance(run, str) else None)
    return named if isinstance(named, str) else None


def _kept(result: Mapping[str, Any] | None) -> Any:
    """What the command found, unless it is as large as the data that it was found in."""
    if result is None:
        return None
    content = orjson.dumps(result, default=str, option=orjson.OPT_NON_STR_KEYS)
    return orjson.loads(content) if len(content) <= LARGEST_RESULT else None


def note_file(project: ProjectPaths, name: str, sha256: str | None) -> None:
    """A file belongs to the project from now on; without a hash, it no longer does."""
    append(project, {"kind": FILE, "at": time.time(), "path": name, "sha256": sha256})


def append(project: ProjectPaths, entry: Mapping[str, Any]) -> None:
    """One write per line, so that two commands at the same moment do not mix theirs."""
    line = orjson.dumps({"schema": SCHEMA, **entry}, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
    target = open_to_append(project.command_log)
    try:
        size = os.fstat(target).st_size
        torn = size > 0 and os.pread(target, 1, size - 1) != b"\n"  # by a power cut: it must not take this line along
        os.write(target, b"\n" + line if torn else line)
        os.fsync(target)
    finally:
        os.close(target)
    if not size:
        sync_path(project.command_log.parent)


def read_command_log(path: Path) -> list[dict[str, Any]]:
    """Every line that can be read: a torn one, or one that a person has changed, takes nothing else with it."""
    entries: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError):
        for line in read_file(path, most=LARGEST).split(b"\n"):
            with contextlib.suppress(UntrustedDocument):
                entry: Any = parse_json_fast(line, where=path.name) if line else None
                if _is_whole(entry):
                    entries.append(entry)
    return entries


def _is_whole(entry: Any) -> bool:
    """Whether an entry says all that an entry of its kind must say."""
    if not isinstance(entry, dict):
        return False
    if entry.get("kind") == FILE:
        return isinstance(entry.get("path"), str) and isinstance(entry.get("sha256", 0), str | None)
    words: Any = entry.get("command")
    at: Any = entry.get("at")
    valid = isinstance(words, list) and all(isinstance(word, str) for word in words)
    valid = valid and isinstance(entry.get("folder", "."), str) and type(at) in (int, float) and 0 <= at < LAST_MOMENT
    return entry.get("kind") == COMMAND and valid


def added_files(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The files that were added and not removed since, with their hashes when they last were."""
    last = {each["path"]: each["sha256"] for each in entries if each["kind"] == FILE}
    return {name: sha256 for name, sha256 in last.items() if sha256 is not None}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def removed_runs(entries: Sequence[Mapping[str, Any]], study: str) -> list[str]:
    """Runs of a study that were deleted by command, as they were called."""
    named = [
        name
        for each in entries
        if each["kind"] == COMMAND and each["command"][:2] == ["runs", "rm"] and isinstance(each.get("result"), dict)
        for name in _listed(each["result"].get("removed"))
    ]
    return sorted({str(name) for name in named if str(name).partition("/")[0] == study})
