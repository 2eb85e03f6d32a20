"""Parsing of table cells that other programs wrote: numbers, seeds, headers and records, in various notations.

The files may come from any source, so an ambiguous cell is never interpreted: `1,5` is not a number, `true` is not a
number, and two columns with the same name are not merged.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from fairtrial.core.errors import UserError

_MISSING = frozenset({"", "na", "n/a", "<na>", "null", "none"})
_PLAIN_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?", re.ASCII)
_INDEX = re.compile(r"(?:Unnamed: \d+(?:_level_\d+)?(?:\.\d+)*)?", re.ASCII)
_BEGINS_NUMBER = frozenset("0123456789+-.nNiI \t\r\n\v\f")
_LONGEST_WHOLE = 40
"""Maximum number of digits of an integer; longer numbers remain text."""


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty or contains a missing-value marker of pandas or R."""
    if value is None:
        return True
    return isinstance(value, str) and len(value) < 8 and value.strip().lower() in _MISSING


def number_in(value: Any) -> float | None:
    """Return the number in a cell, including `nan` and `inf`; None if the cell is not a number."""
    if isinstance(value, str):
        if value[:1] not in _BEGINS_NUMBER:  # skips most text without the cost of an exception
            return None
        try:
            number = float(value)
        except ValueError:
            return None
        return number if value.isascii() and "_" not in value else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def why_no_number(value: Any) -> str:
    """Return what a cell is instead of a number, as the end of a sentence."""
    if isinstance(value, bool):
        return f"is {str(value).lower()}, not a number; write 1 or 0"
    if isinstance(value, list | dict):
        return f"is {_kind(value)}, not a number"
    if isinstance(value, int):
        return "is a number with too many digits"
    text = str(value).strip()
    if _DECIMAL_COMMA.fullmatch(text):
        return f"is {_short(text)}, not a number; write decimals with a point, as in 1.5"
    if text.endswith("%"):
        return f"is {_short(text)}, not a number; leave out the percent sign"
    return f"is {_short(value)}, not a number"


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "an object"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…{shown[-1]}"


def seed_text(value: Any) -> str:
    """Return a seed as normalized text: `1`, `1.0`, `" 1 "` and `1e0` are the same seed; other text stays unchanged."""
    text = str(value).strip()
    if len(text) <= _LONGEST_WHOLE and _PLAIN_NUMBER.fullmatch(text):
        number = Decimal(text)
        if number.adjusted() < _LONGEST_WHOLE and number == number.to_integral_value():
            return str(int(number))
    return text


def id_text(value: Any) -> str:
    """Return a run or task ID as text: `3` and `3.0` (pandas, column with gaps) are equal; `3e5` may be a hash."""
    text = str(value).strip()
    whole, point, zeros = text.partition(".")
    is_whole = point and whole.isascii() and whole.removeprefix("-").isdigit()
    return whole if is_whole and not zeros.strip("0") else text


def refuse_shape(value: Any, *, bools: bool = False) -> str | None:
    """Return why a cell cannot name a seed, a run, a task or a variant; None if it can."""
    if isinstance(value, list | dict):
        return f"is {_kind(value)}, not text or a number"
    if isinstance(value, bool) and not bools:
        return f"is {str(value).lower()}, not text or a number"
    return None


# Headers


def header_names(cells: Sequence[Any], where: str) -> list[str]:
    """Return the column names without surrounding spaces. Raises an error for duplicate names.

    Columns without a name stay "": they cannot be requested, so duplicates of them are harmless.
    """
    names = [str(cell).strip().removeprefix("\ufeff").strip() for cell in cells]
    problems = [
        f"{where} has the column '{name}' twice, as columns {first} and {second}"
        for name, first, second in repeated(names)
    ]
    if problems:
        raise UserError(
            problems[0], problems=problems[1:5], hint="Rename or remove one: it is ambiguous which one counts."
        )
    return names


def repeated(names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return duplicate names in a header, with both 1-based positions."""
    first: dict[str, int] = {}
    twice = []
    for position, name in enumerate(names, 1):
        if name and first.setdefault(name, position) != position:
            twice.append((name, first[name], position))
    return twice


def is_index(name: str) -> bool:
    """Return whether a column is the row index that pandas writes: unnamed, or `Unnamed: 0` after a round trip."""
    return _INDEX.fullmatch(name) is not None


# Records


def csv_records(lines: Iterable[str], delimiter: str = ",") -> Iterator[tuple[list[str], bool, int]]:
    """Yield the rows of a CSV text, whether each is complete, and the line on which it ends.

    Only the last row can be incomplete, if the text ends inside a quoted cell. Raises `csv.Error` for text after a
    closing quote: a lenient reader would treat everything after a missing quote as one long cell.
    """
    ended = False

    def given() -> Iterator[str]:
        nonlocal ended
        yield from lines
        ended = True

    reader = csv.reader(given(), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield row, not ended, reader.line_num
    except csv.Error as error:
        if not ended:
            raise csv.Error(f"line {reader.line_num}: {error}") from None
        yield [], False, reader.line_num
