"""Flatten configurations of other tools: `{"optimizer": {"lr": 1}}` becomes `optimizer.lr`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.core.untrusted import DEEPEST
from fairtrial.readers.contract import ConfigValue

MOST_KEYS = 5_000
LONGEST_TEXT = 4_000
MOST_DIGITS = 2**63


def flatten(nested: Mapping[Any, Any], where: str) -> dict[str, ConfigValue]:
    """Map the dotted path of each value to the value. A list becomes JSON text; long text is truncated with `…`.

    Raises UserError if one path has two values (`{"a.b": 1, "a": {"b": 2}}`), because either could be the right one.
    """
    flat: dict[str, ConfigValue] = {}
    _flatten_into(flat, nested, "", where, 0)
    return flat


def _flatten_into(flat: dict[str, ConfigValue], nested: Mapping[Any, Any], prefix: str, where: str, depth: int) -> None:
    if depth > DEEPEST:
        raise UserError(f"the configuration of {where} is nested more than {DEEPEST} levels deep")
    for key, value in nested.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            _flatten_into(flat, value, f"{path}.", where, depth + 1)
            continue
        if path in flat:
            raise UserError(f"the configuration of {where} has two values for '{_short(path)}'")
        if len(flat) >= MOST_KEYS:
            raise UserError(f"the configuration of {where} has more than {MOST_KEYS:,} values")
        flat[path] = plain_value(value)


def plain_value(value: Any) -> ConfigValue:
    """Convert a value to a configuration value: str, int, float, bool or None."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -MOST_DIGITS <= value < MOST_DIGITS else _short(_digits(value))
    if isinstance(value, str):
        return _short(value)
    try:
        return _short(json.dumps(value, default=str))
    except (ValueError, TypeError, RecursionError):
        return _short(type(value).__name__)


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python limits the number of digits in str(int)
        return hex(value)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
