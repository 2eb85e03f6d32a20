"""`artifact.journal.jsonl`: the append-only log of commands run in a project, and of files added to it.

artifact.yaml itself belongs to the user and has comments; the program never changes it after creating it.
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
"""Commands with one of these options are not logged."""


def note_command(
    artifact: Path, arguments: Sequence[str], code: int, begun: float, result: Mapping[str, Any] | None
) -> None:
    """Append a command to the log of the project. Write errors are ignored, so that they do not lose the result."""
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
    """Return the working directory relative to the project. Paths in the command are relative to it."""
    return Path(os.path.relpath(Path.cwd(), root)).as_posix()


def _study(result: Mapping[str, Any] | None) -> str | None:
    """Return the study of a result, from its own field or from the name of its run."""
    document = result or {}
    run = document.get("run")
    named = document.get("study") or document.get("source") or (run.partition("/")[0] if isinstance(run, str) else None)
    return named if isinstance(named, str) else None


def _kept(result: Mapping[str, Any] | None) -> Any:
    """Return the result of the command, or None if it is too large for the log."""
    if result is None:
        return None
    content = orjson.dumps(result, default=str, option=orjson.OPT_NON_STR_KEYS)
    return orjson.loads(content) if len(content) <= LARGEST_RESULT else None


def note_file(project: ProjectPaths, name: str, sha256: str | None) -> None:
    """Record that a file was added to the project, or, without a hash, that it was removed."""
    append(project, {"kind": FILE, "at": time.time(), "path": name, "sha256": sha256})


def append(project: ProjectPaths, entry: Mapping[str, Any]) -> None:
    """Append one line with a single write, so that lines of concurrent commands do not interleave."""
    line = orjson.dumps({"schema": SCHEMA, **entry}, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
    target = open_to_append(project.command_log)
    try:
        size = os.fstat(target).st_size
        torn = size > 0 and os.pread(target, 1, size - 1) != b"\n"  # a power cut left a partial line; start a new one
        os.write(target, b"\n" + line if torn else line)
        os.fsync(target)
    finally:
        os.close(target)
    if not size:
        sync_path(project.command_log.parent)


def read_command_log(path: Path) -> list[dict[str, Any]]:
    """Return every readable entry. A torn or manually changed line does not affect the others."""
    entries: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError):
        for line in read_file(path, most=LARGEST).split(b"\n"):
            with contextlib.suppress(UntrustedDocument):
                entry: Any = parse_json_fast(line, where=path.name) if line else None
                if _is_whole(entry):
                    entries.append(entry)
    return entries


def _is_whole(entry: Any) -> bool:
    """Whether an entry has all fields that its kind requires."""
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
    """Return the files that were added and not removed since, with the hashes from when they were last added."""
    last = {each["path"]: each["sha256"] for each in entries if each["kind"] == FILE}
    return {name: sha256 for name, sha256 in last.items() if sha256 is not None}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def removed_runs(entries: Sequence[Mapping[str, Any]], study: str) -> list[str]:
    """Return the names of runs of a study that were deleted with a command."""
    named = [
        name
        for each in entries
        if each["kind"] == COMMAND and each["command"][:2] == ["runs", "rm"] and isinstance(each.get("result"), dict)
        for name in _listed(each["result"].get("removed"))
    ]
    return sorted({str(name) for name in named if str(name).partition("/")[0] == study})
