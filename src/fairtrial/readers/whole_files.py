"""Helpers for sources that are rewritten as a whole: resuming means detecting that nothing has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fairtrial.core.errors import UserError
from fairtrial.readers.contract import Cursor, SourceFile, SourceRun


def file_stamps(paths: Iterable[Path]) -> dict[str, list[int]]:
    """Return the inode, size and modification time of each file, which detect a changed or replaced file."""
    stamps = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        stamps[path.name] = [status.st_ino, status.st_size, status.st_mtime_ns]
    return stamps


def sized(paths: Iterable[Path]) -> tuple[SourceFile, ...]:
    try:
        return tuple(SourceFile(path, path.stat().st_size) for path in paths)
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}") from None


def finished(run: SourceRun, stamps: Mapping[str, list[int]], since: Mapping[str, Cursor] | None) -> SourceRun:
    """Return the run with its cursor; without points if the files have not changed since the given cursor."""
    cursor = {"files": dict(stamps)}
    if since and since.get(run.id) == cursor:
        return replace(run, series={}, cursor=cursor, continues=True)
    return replace(run, cursor=cursor)
