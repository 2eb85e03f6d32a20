"""Profile snapshots, stored under their name with a number. Existing snapshots are never overwritten."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.errors import UserError, unknown
from fairtrial.core.paths import ProfilePaths, StorePaths, check_name
from fairtrial.core.untrusted import checked, parse_json_fast, path_inside, read_file
from fairtrial.record.atomic import replace_bytes, store_errors

NEWEST = "@"


def check_profile_name(name: str) -> str:
    """Check that a name is usable as a folder and cannot be confused with NAME@NUMBER or a file."""
    if NEWEST in name or name.endswith(".json"):
        raise UserError(
            f"a profile cannot be named '{name}'", hint="NAME@NUMBER and FILE.json refer to existing snapshots."
        )
    return check_name("profile", name)


def new_profile(store: StorePaths, name: str) -> ProfilePaths:
    """Reserve the paths of the next snapshot with this name. Two processes never get the same number."""
    folder = path_inside(store.profiles, name, what="profile")
    with store_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        number = max(_numbers(folder), default=0) + 1
        while True:
            with contextlib.suppress(FileExistsError):
                (folder / f"{number:d}").mkdir()
                return ProfilePaths(folder / f"{number:d}")
            number += 1


def write_profile(place: ProfilePaths, document: Mapping[str, Any], trace: Mapping[str, Any]) -> None:
    """Write a snapshot. The trace is written first, so that an existing snapshot is always complete."""
    with store_errors(place.root):
        place.trace.mkdir(exist_ok=True)
        replace_bytes(place.timeline, orjson.dumps(trace))
        replace_bytes(place.snapshot, orjson.dumps(document, option=orjson.OPT_INDENT_2))


def find_profile(store: StorePaths, word: str) -> Path:
    """Return the path of a snapshot, given a file, NAME for the newest with this name, or NAME@NUMBER."""
    if word.endswith(".json") or Path(word).is_file():
        return Path(word)
    name, _, number = word.partition(NEWEST)
    known = profile_names(store)
    if name not in known:
        raise UserError(
            unknown("profile", name, known) if known else "there are no profiles in this store yet",
            hint="Create one with: fairtrial profile e2e --profile-name NAME",
        )
    numbers = known[name]
    if number and number not in map(str, numbers):
        raise UserError(f"profile '{name}' has no number {number}", hint=f"It has {', '.join(map(str, numbers))}.")
    folder = path_inside(store.profiles, name, what="profile")
    return ProfilePaths(folder / f"{int(number or numbers[-1]):d}").snapshot


def read_profile(path: Path, schema: int) -> dict[str, Any]:
    try:
        profile = parse_json_fast(read_file(path), where=f"{path} is not a profile snapshot: it")
    except FileNotFoundError:
        raise UserError(f"cannot read {path}: no such file") from None
    if not isinstance(profile, dict) or profile.get("kind") != "profile":
        raise UserError(f"{path} is not a profile snapshot")
    missing = [key for key in ("mode", "work", "configuration", "hardware", "lanes", "bubbles") if key not in profile]
    if missing:
        raise UserError(f"{path} is not a complete snapshot: {missing[0]} is missing")
    if profile.get("schema") != schema:
        raise UserError(f"{path} has schema {profile.get('schema')}, but this version supports {schema}")
    from fairtrial.record.profile_schema import Snapshot

    checked(Snapshot, profile, where=f"{path} is not a valid snapshot")
    return profile


def profile_names(store: StorePaths) -> dict[str, list[int]]:
    """Return the names of the profiles of a store with the numbers of their snapshots."""
    folders = sorted(store.profiles.iterdir()) if store.profiles.is_dir() else []
    numbered = {folder.name: _numbers(folder) for folder in folders if folder.is_dir()}
    return {name: numbers for name, numbers in numbered.items() if numbers}


def profile_snapshots(store: StorePaths, name: str) -> list[Path]:
    """Return all snapshots with this name, oldest first."""
    folder = path_inside(store.profiles, name, what="profile")
    return [ProfilePaths(folder / f"{number:d}").snapshot for number in _numbers(folder)]


def _numbers(folder: Path) -> list[int]:
    """Return the numbers of finished snapshots. An interrupted measurement leaves a folder without one."""
    numbers = [
        int(each.name) for each in folder.iterdir() if each.name.isdigit() and ProfilePaths(each).snapshot.is_file()
    ]
    return sorted(numbers)
