"""Find files in untrusted folders: regular files only, without following links to folders, and within limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from fairtrial.core.errors import UserError
from fairtrial.core.regular_files import open_unbuffered

MOST_ENTRIES = 200_000
MOST_GLANCED_ENTRIES = 20_000
DEEPEST_FOLDER = 12


def files_below(place: Path, wanted: Callable[[str], bool], *, most: int = MOST_ENTRIES) -> list[Path]:
    """Return the files below a folder whose names match, sorted by path; or the path itself if it is such a file.

    Raises UserError if the folder has more than `most` entries.
    """
    if place.is_file():
        return [place] if wanted(place.name) else []
    paths: list[Path] = []
    seen = 0
    for folder, names in _walk(place):
        seen += len(names)
        if seen > most:
            raise UserError(
                f"{place} has more than {most:,} files and folders", hint="Pass the folder that contains the results."
            )
        paths += [Path(folder, name) for name in names if wanted(name)]
    return sorted(path for path in paths if path.is_file())


def glance(place: Path, wanted: Callable[[str], bool]) -> list[Path]:
    """Return the same for recognition: an empty list if there are too many entries or the path cannot be read."""
    try:
        return files_below(place, wanted, most=MOST_GLANCED_ENTRIES)
    except (UserError, OSError, ValueError):
        return []


def _walk(place: Path) -> Iterator[tuple[str, list[str]]]:
    base = len(place.parts)
    for folder, folders, names in os.walk(place, followlinks=False):
        folders.sort()
        if len(Path(folder).parts) - base >= DEEPEST_FOLDER:
            folders.clear()
        yield folder, names


def relative_name(path: Path, place: Path) -> str:
    """Return the path relative to `place`; for `place` itself, its own name."""
    if path == place:
        return place.name or str(place)
    return path.relative_to(place).as_posix()


def first_bytes(path: Path, count: int) -> bytes:
    """Return the first bytes of a regular file; empty if it cannot be read."""
    try:
        with open_unbuffered(path) as file:
            return file.read(count) or b""
    except (OSError, ValueError):
        return b""
