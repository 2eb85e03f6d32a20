"""The project around a folder: the nearest `artifact.yaml` above it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fairtrial.core.paths import ARTIFACT


def find_artifact(start: Path | None = None) -> Path | None:
    """The `artifact.yaml` of this folder or the nearest one above it: commands run below it belong to its project.

    One that somebody else has put above a folder of yours, such as into /tmp, is not taken.
    """
    here = Path.cwd() if start is None else start.absolute()
    try:
        trusted = {os.geteuid(), here.stat().st_uid}
    except OSError:  # the folder is gone
        return None
    for folder in (here, *here.parents):
        try:
            file_status = os.stat(f"{folder}/{ARTIFACT}")  # noqa: PTH116 — looked for by every command, in every folder above
        except OSError:
            continue
        if stat.S_ISREG(file_status.st_mode) and file_status.st_uid in trusted:
            return folder / ARTIFACT
    return None
