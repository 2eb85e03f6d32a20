"""Description of the values that an option accepts, in the same form for Click and Typer.

Two types are equal if they accept the same words. What the program converts them to, such as a `Path` instead of text,
does not matter. Newer versions of Typer have parameters without Click's types, so both are read by duck typing.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

CLICK_NAMES = {
    "Int": "integer", "IntRange": "integer", "Float": "float", "FloatRange": "float", "String": "text",
    "Bool": "boolean", "UUID": "uuid", "Choice": "choice", "Path": "path", "File": "file", "DateTime": "datetime",
    "Unprocessed": "unprocessed",
}  # fmt: skip
TYPER_NAMES = {int: "integer", float: "float", str: "text", bool: "boolean", UUID: "uuid", datetime: "datetime"}
TYPER_FILE_MODES = {"FileText": "r", "FileTextWrite": "w", "FileBinaryRead": "rb", "FileBinaryWrite": "wb"}
PATH_LIMITS = {
    ("exists", True): "must exist",
    ("file_okay", False): "no file",
    ("dir_okay", False): "no folder",
    ("writable", True): "must be writable",
    ("readable", False): "need not be readable",
    ("executable", True): "must be executable",
    ("allow_dash", True): "- is allowed",
}


@dataclass(frozen=True)
class ValueType:
    """The kind of value that an option accepts, its limits, and its choices if there are any."""

    base: str
    limits: tuple[str, ...] = ()
    choices: tuple[str, ...] | None = None
    any_case: bool = False

    def __str__(self) -> str:
        return f"{self.base} ({', '.join(self.limits)})" if self.limits else self.base


def value_type(parameter: Any) -> ValueType:
    """Return the type of a Click or Typer parameter."""
    described = getattr(parameter, "type_descriptor", None)
    if described is None:
        return _of_click(parameter.type)
    return _of_annotation(described.annotation, described.parameter_info, parameter)


def _of_click(kind: Any) -> ValueType:
    info = kind.to_info_dict()
    described = str(info["param_type"])
    if described == "Tuple":
        return ValueType(_together(_of_click(each) for each in kind.types))
    if described == "Func":
        return ValueType(_name(kind.func))
    if hasattr(kind, "choices"):
        words = tuple(each.name if isinstance(each, enum.Enum) else str(each) for each in kind.choices)
        base = CLICK_NAMES.get(described, type(kind).__name__)
        return ValueType(base, choices=words, any_case=not getattr(kind, "case_sensitive", True))
    if described not in CLICK_NAMES:
        own = {key: value for key, value in info.items() if key not in ("param_type", "name")}
        return ValueType(type(kind).__name__, tuple(f"{key} {value}" for key, value in own.items()))
    return ValueType(CLICK_NAMES[described], _limits(CLICK_NAMES[described], kind, kind))


def _of_annotation(annotation: Any, info: Any, numbers: Any) -> ValueType:
    """Return the type of a Typer parameter, from its annotation, the number limits, and the parameter info."""
    origin = typing.get_origin(annotation)
    inner = typing.get_args(annotation)
    if origin is list:
        return _of_annotation(inner[0], info, numbers)
    if origin is tuple:
        return ValueType(_together(_of_annotation(each, info, numbers) for each in inner))
    if info.parser is not None:
        return ValueType(_name(info.parser))
    if origin is Literal:
        return ValueType("choice", choices=tuple(map(str, inner)), any_case=not info.case_sensitive)
    if not isinstance(annotation, type):
        return ValueType(str(annotation))
    if issubclass(annotation, enum.Enum):
        words = tuple(str(member.value) for member in annotation)
        return ValueType("choice", choices=words, any_case=not info.case_sensitive)
    if annotation.__name__ in TYPER_FILE_MODES:
        mode = info.mode or TYPER_FILE_MODES[annotation.__name__]
        return ValueType("file", _file_limits(mode, info.encoding))
    base = "path" if issubclass(annotation, Path) else TYPER_NAMES.get(annotation, annotation.__name__)
    return ValueType(base, _limits(base, info, numbers))


def _limits(base: str, holder: Any, numbers: Any) -> tuple[str, ...]:
    if base in ("integer", "float"):
        return _number_limits(numbers, clamped=bool(getattr(holder, "clamp", False)))
    if base == "path":
        return tuple(word for (name, value), word in PATH_LIMITS.items() if getattr(holder, name, None) is value)
    if base == "file":
        return _file_limits(holder.mode, holder.encoding)
    return tuple(holder.formats or ()) if base == "datetime" else ()


def _number_limits(numbers: Any, *, clamped: bool) -> tuple[str, ...]:
    low, high = getattr(numbers, "min", None), getattr(numbers, "max", None)
    words = []
    if low is not None:
        words.append(f"{'>' if getattr(numbers, 'min_open', False) else '≥'} {_plain(low)}")
    if high is not None:
        words.append(f"{'<' if getattr(numbers, 'max_open', False) else '≤'} {_plain(high)}")
    return (*words, "clamped") if clamped and words else tuple(words)


def _plain(number: float) -> float:
    """Normalize a limit: 1.0 becomes 1, without losing digits of a large integer."""
    return int(number) if float(number).is_integer() else number


def _file_limits(mode: str, encoding: str | None) -> tuple[str, ...]:
    return (f"mode {mode}", f"encoding {encoding}") if encoding else (f"mode {mode}",)


def _together(kinds: Iterable[ValueType]) -> str:
    return f"({', '.join(_with_choices(kind) for kind in kinds)})"


def _with_choices(kind: ValueType) -> str:
    return "|".join(kind.choices) if kind.choices else str(kind)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
