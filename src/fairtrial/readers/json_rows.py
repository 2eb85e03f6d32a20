"""Rows of JSON as training programs write them: with NaN and Infinity, as words or as text."""

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
    """A JSON document in which NaN and Infinity may stand. Raises UserError for everything else."""
    encoded = content.encode(errors="replace") if isinstance(content, str) else content
    if encoded.count(b"{") + encoded.count(b"[") < 32:
        try:
            return orjson.loads(encoded)
        except orjson.JSONDecodeError:
            pass
    return parse_json(encoded, where=where, hint=None)


def number_of(value: Any) -> float | None:
    """A number, a truth value as 1 or 0, or a text that stands for NaN or infinity; None for everything else."""
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        try:
            return float(value)
        except OverflowError:
            return None
    return _TEXTS.get(value) if isinstance(value, str) else None
