"""How long the files of a run were when it ended, and their CRC-32: what tells whether one was changed since.

The seals are in `metadata.json`, which has a checksum of its own. Runs that are going on have none, nor have runs of
earlier versions. `events.jsonl` may grow after the end (a checkpoint is evaluated again), so a seal is about the bytes
that were there.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

from fairtrial.core.paths import RunPaths
from fairtrial.core.regular_files import open_unbuffered
from fairtrial.core.run_metadata import RunMetadata

BLOCK_BYTES = 1 << 20
Seals = dict[str, dict[str, Any]]


def seals_of(paths: RunPaths) -> Seals:
    """The seals of the files as they are now, by their names."""
    seals: Seals = {}
    for path in (paths.events,):  # metadata have the extent of the lines of metrics, which have their own checks
        try:
            size, checksum = _checksum(path)
        except OSError:  # this run has no such file
            continue
        seals[path.name] = {"bytes": size, "crc32": f"{checksum:08x}"}
    return seals


def why_broken(path: Path, metadata: RunMetadata, *, most: int | None = None) -> str | None:
    """Why a file is not the one that the run ended with; None where it is, or nothing is known about it.

    Beyond `most` bytes only the length is compared: whoever shows the end of a file does not read all of it.
    """
    seal = (metadata.sealed or {}).get(path.name)
    if seal is None:
        return None
    try:
        size = os.stat(path).st_size  # noqa: PTH116 — asked for every run of a study
    except OSError:
        return f"{path} is missing"
    if size < seal["bytes"]:
        return f"{path} has {size:,} of the {seal['bytes']:,} bytes that it had when the run ended"
    if most is not None and size > most:
        return None
    try:
        _, checksum = _checksum(path, seal["bytes"])
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None if f"{checksum:08x}" == seal["crc32"] else f"{path} was changed after the run ended"


def _checksum(path: Path, size: int | None = None) -> tuple[int, int]:
    """Length and CRC-32 of a file, or of its first bytes."""
    read = checksum = 0
    with open_unbuffered(path) as file:
        while block := file.read(BLOCK_BYTES if size is None else min(BLOCK_BYTES, size - read)):
            checksum = zlib.crc32(block, checksum)
            read += len(block)
    return read, checksum
