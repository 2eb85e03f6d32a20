"""Canonical JSON, so that equal content has equal hashes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from fairtrial.core.regular_files import open_regular


def canonical_json(value: Any) -> bytes:
    """Return the canonical bytes of a value: sorted keys, no spaces, no NaN."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def content_hash(value: Any) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()


def file_hash(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
