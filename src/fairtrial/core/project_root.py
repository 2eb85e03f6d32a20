"""Find the project of a folder: the nearest `artifact.yaml` in it or above it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fairtrial.core.paths import ARTIFACT


def find_artifact(start: Path | None = None) -> Path | None:
    """Return the `artifact.yaml` in this folder or the nearest one above it. Commands below it belong to its project.

    A file of another user above this folder, for example in /tmp, is ignored.
    """
    here = Path.cwd() if start is None else start.absolute()
    try:
        trusted = {os.geteuid(), here.stat().st_uid}
    except OSError:  # the folder is gone
        return None
    for folder in (here, *here.parents):
        try:
            file_status = os.stat(f"{folder}/{ARTIFACT}")  # noqa: PTH116 — runs often, so it must be fast
        except OSError:
            continue
        if stat.S_ISREG(file_status.st_mode) and file_status.st_uid in trusted:
            return folder / ARTIFACT
    return None
