"""Schema numbers of the file formats, and upgrades from old schemas.

A file contains the number of its schema. Readers call `upgrade`. When a format changes, add
`upgrade_1_to_2` to `UPGRADES` and keep one file with the old schema in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairtrial.core.errors import StoreError

METADATA_SCHEMA = 1
EVENTS_SCHEMA = 1
OUTPUT_SCHEMA = 1
STUDY_SCHEMA = 1
PROFILE_SCHEMA = 1
REGISTRATION_SCHEMA = 1
ARTIFACT_SCHEMA = 1

UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def upgrade(document: dict[str, Any], *, where: str) -> dict[str, Any]:
    """Upgrade metadata of any known schema to the current one."""
    version = document.get("schema")
    if not isinstance(version, int) or version < 1:
        raise StoreError(f"{where} has no schema number", hint="Is this a run directory of Fairtrial?")
    if version > METADATA_SCHEMA:
        raise StoreError(
            f"{where} was written by a newer Fairtrial (schema {version}; this version supports {METADATA_SCHEMA})",
            hint="Upgrade Fairtrial to read it.",
        )
    while version < METADATA_SCHEMA:
        document = UPGRADES[version](document)
        version += 1
    return document
