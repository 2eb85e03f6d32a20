"""Read the parameters of a Click or Typer command into plain data that can be compared.

No code of the program is run: computed defaults are named, never called.
"""

from __future__ import annotations

import enum
import functools
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairtrial.sync.value_types import ValueType, value_type

OF_EVERY_PROGRAM = frozenset({"help", "version", "install-completion", "show-completion"})
"""Switches such as --help that print information about a program. They are not compared."""


@dataclass(frozen=True)
class Parameter:
    """One option or argument. `default` is text that distinguishes 0, False, "" and None."""

    name: str
    variable: str
    kind: str
    flags: tuple[str, ...]
    off_flags: tuple[str, ...]
    type: ValueType
    default: str
    given: str
    repeats: str
    required: bool
    envvars: tuple[str, ...] = ()
    help: str = ""
    hidden: bool = False
    passed: bool = True
    role: str | None = None
    excluded_reason: str | None = None

    @property
    def is_option(self) -> bool:
        return self.kind == "option"

    @property
    def long_flags(self) -> tuple[str, ...]:
        return tuple(flag for flag in self.flags if flag.startswith("--"))

    @property
    def shown(self) -> str:
        """The option as typed, or the argument as in a usage line."""
        if not self.is_option:
            return self.name.upper()
        return next(iter(self.long_flags or self.flags), self.name)

    @property
    def names(self) -> frozenset[str]:
        """Every name that an exclusion may use. Short flags are not included: `t*` must not match a flag -t."""
        return frozenset(map(plain_name, (*self.long_flags, self.name, self.variable)))


def plain_name(word: str) -> str:
    """Normalize a flag or a variable: `--learning-rate` and `learning_rate` give the same name."""
    return word.lstrip("-").replace("_", "-")


def read_parameters(command: Any) -> list[Parameter]:
    """Return the options and arguments of a command, in the order of declaration."""
    context = command.context_class(command, info_name=command.name)
    parameters = [_read(parameter, context) for parameter in command.get_params(context)]
    return [each for each in parameters if not (each.name in OF_EVERY_PROGRAM and each.given == "a switch")]


def _read(parameter: Any, context: Any) -> Parameter:
    is_option = parameter.param_type_name == "option"
    flags = tuple(parameter.opts) if is_option else ()
    kind = value_type(parameter)
    return Parameter(
        name=plain_name(_longest_prefix(flags) or str(parameter.name)),
        variable=str(parameter.name),
        kind=str(parameter.param_type_name),
        flags=flags,
        off_flags=tuple(parameter.secondary_opts),
        type=kind,
        default=_default(parameter, kind, context),
        given=_given(parameter),
        repeats=_repeats(parameter),
        required=bool(parameter.required),
        envvars=_envvars(parameter.envvar),
        help=" ".join((getattr(parameter, "help", None) or "").split()),
        hidden=bool(getattr(parameter, "hidden", False)),
        passed=bool(parameter.expose_value),
        role=_word(parameter, "role"),
        excluded_reason=_word(parameter, "excluded_reason"),
    )


def _longest_prefix(flags: tuple[str, ...]) -> str | None:
    """Return the first long flag, else the first flag, which is what Click derives the name of an option from."""
    return max(flags, key=lambda flag: len(flag) - len(flag.lstrip("-")), default=None)


def _word(parameter: Any, attribute: str) -> str | None:
    value = getattr(parameter, attribute, None)
    return str(value) if value else None


def _envvars(given: Any) -> tuple[str, ...]:
    return () if not given else (given,) if isinstance(given, str) else tuple(given)


def _given(parameter: Any) -> str:
    """Return how a value is given: after the flag, by the flag alone, or either way."""
    value = getattr(parameter, "flag_value", None)
    stands_for = None if value is None or _is_unset(value) else value
    if getattr(parameter, "is_flag", False):
        return "a switch" if stands_for is None or stands_for is True else f"a switch for {stands_for!r}"
    if stands_for is not None and parameter.param_type_name == "option":
        return f"a value, or {stands_for!r} by the flag alone"
    return "a value"


def _repeats(parameter: Any) -> str:
    if getattr(parameter, "count", False):
        return "counted"
    values = "any number of values" if parameter.nargs == -1 else f"{parameter.nargs} values"
    several = "" if parameter.nargs == 1 else values
    return " ".join(filter(None, [several, "many times" if parameter.multiple else ""])) or "once"


def _is_unset(value: Any) -> bool:
    """Whether a value is Click's UNSET sentinel, which older versions do not have."""
    return isinstance(value, enum.Enum) and type(value).__module__.startswith("click.") and value.name == "UNSET"


def _default(parameter: Any, kind: ValueType, context: Any) -> str:
    value = parameter.get_default(context, call=False)
    value = None if _is_unset(value) else value
    if value is None and parameter.multiple:
        value = ()
    return _shown_default(value, kind)


def _shown_default(value: Any, kind: ValueType) -> str:
    if callable(value) and not isinstance(value, (enum.Enum, type)):
        return f"computed by {_computed_by(value)}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(_as_typed(value, kind)))


def _as_typed(value: Any, kind: ValueType) -> Any:
    """Return the default as the type converts it: 1 becomes 1.0 for a float, an enum member its name or value."""
    if isinstance(value, (list, tuple)):
        return tuple(_as_typed(each, kind) for each in value)
    if isinstance(value, enum.Enum):
        words = {value.name, str(value.value)} & set(kind.choices or ())
        return min(words, default=value.name)
    convert: Callable[[Any], Any] | None = _CONVERSIONS.get(kind.base)
    if value is None or isinstance(value, bool) or convert is None:
        return value
    try:
        return convert(value)
    except (TypeError, ValueError):
        return value


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "integer": int,
    "float": float,
    "text": str,
    "path": str,
    "file": str,
}


def _computed_by(function: Any) -> str:
    """Return the name of a function. For a lambda, add a checksum of its code, which distinguishes lambdas."""
    if isinstance(function, functools.partial):
        return f"{_computed_by(function.func)} with {function.args} {function.keywords}"
    name = str(getattr(function, "__name__", type(function).__name__))
    code = getattr(function, "__code__", None)
    if name != "<lambda>" or code is None:
        return name
    said = repr((code.co_code, code.co_consts, code.co_names))
    return f"{name} {zlib.crc32(said.encode()):08x}"
