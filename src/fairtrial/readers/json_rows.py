"""Parse JSON rows as training programs write them: with NaN and Infinity, bare or as strings."""

from __future__ import annotations

import math
from typing import Any

import orjson

from fairtrial.core.untrusted import parse_json

_TEXTS = {
    "NaN": math.nan,
    "nan": math.nan,
    "Infinity": math.inf,
    "inf": math.inf,
    "-Infinity": -math.inf,
    "-inf": -math.inf,
}


def parse_loosely(content: str | bytes, *, where: str) -> Any:
    """Parse a JSON document that may contain NaN and Infinity. Raises UserError if it is invalid."""
    encoded = content.encode(errors="replace") if isinstance(content, str) else content
    if encoded.count(b"{") + encoded.count(b"[") < 32:
        try:
            return orjson.loads(encoded)
        except orjson.JSONDecodeError:
            pass
    return parse_json(encoded, where=where, hint=None)


def number_of(value: Any) -> float | None:
    """Convert a number, a bool (to 1 or 0), or a string such as "NaN" or "inf" to float; None for anything else."""
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        try:
            return float(value)
        except OverflowError:
            return None
    return _TEXTS.get(value) if isinstance(value, str) else None
