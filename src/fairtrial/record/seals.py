"""Seals: the length and CRC-32 of a run's files when it ended, which reveal later changes.

The seals are in `metadata.json`, which has its own checksum. Runs in progress and runs of earlier versions have none.
`events.jsonl` may grow after the end, for example when a checkpoint is re-evaluated, so a seal covers only the bytes
that existed when it was made.
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
    """Return file name → seal for the files as they are now."""
    seals: Seals = {}
    for path in (paths.events,):  # `metrics.jsonl` is covered by the extent in the metadata
        try:
            size, checksum = _checksum(path)
        except OSError:  # for example, a run without this file
            continue
        seals[path.name] = {"bytes": size, "crc32": f"{checksum:08x}"}
    return seals


def why_broken(path: Path, metadata: RunMetadata, *, most: int | None = None) -> str | None:
    """Return why a file differs from its seal, or None if it matches or has no seal.

    For files larger than `most` bytes, only the length is compared, so that `tail`-like commands stay fast.
    """
    seal = (metadata.sealed or {}).get(path.name)
    if seal is None:
        return None
    try:
        size = os.stat(path).st_size  # noqa: PTH116 — called for every run of a study
    except OSError:
        return f"{path} is missing"
    if size < seal["bytes"]:
        return f"{path} has {size:,} bytes, but had {seal['bytes']:,} when the run ended"
    if most is not None and size > most:
        return None
    try:
        _, checksum = _checksum(path, seal["bytes"])
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None if f"{checksum:08x}" == seal["crc32"] else f"{path} was changed after the run ended"


def _checksum(path: Path, size: int | None = None) -> tuple[int, int]:
    """Return the length and CRC-32 of a file, or of its first `size` bytes."""
    read = checksum = 0
    with open_unbuffered(path) as file:
        while block := file.read(BLOCK_BYTES if size is None else min(BLOCK_BYTES, size - read)):
            checksum = zlib.crc32(block, checksum)
            read += len(block)
    return read, checksum
