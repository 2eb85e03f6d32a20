"""Parameters of the function that a benchmark's command passes its options to."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.errors import UserError, nearest
from fairtrial.sync.parameters import Parameter

BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Accepted:
    """The keyword parameters of a function. `takes_any`: it has **kwargs, so it accepts every option."""

    function: str
    names: frozenset[str]
    takes_any: bool

    def to_dict(self) -> dict[str, Any]:
        return {"function": self.function, "takes_any": self.takes_any, "parameters": sorted(self.names)}


@dataclass(frozen=True)
class NotAccepted:
    """An option that the function has no parameter for, with the most similar parameter name."""

    parameter: Parameter
    nearest: str | None

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.parameter.name, "parameter": self.parameter.variable, "nearest": self.nearest}


def read_function(function: Callable[..., Any], word: str) -> Accepted:
    """Return the parameter names of a function, including the fields of option classes among its parameters."""
    if not callable(function):
        raise UserError(
            f"'{word}' is of type {type(function).__name__}, not a function",
            hint="Pass --interface the function that BENCH calls: pkg.mod:function",
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise UserError(f"the parameters of '{word}' cannot be determined: it has no signature") from None
    taken = [each for each in signature.parameters.values() if each.kind in BY_NAME]
    inner = {name for kind in _option_classes(function, taken) for name in inspect.signature(kind).parameters}
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())
    return Accepted(word, frozenset({each.name for each in taken} | inner), takes_any)


def _option_classes(function: Callable[..., Any], taken: Sequence[inspect.Parameter]) -> Iterator[type]:
    """Yield dataclasses and pydantic models among the annotations, because their fields are parameters as well."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 — annotations may name anything; those that cannot be read say nothing
        hints = {}
    for each in taken:
        for kind in (hints.get(each.name), *typing.get_args(hints.get(each.name))):
            if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields")):
                yield kind


def not_accepted(accepted: Accepted, parameters: Sequence[Parameter]) -> list[NotAccepted]:
    """Return the options of BENCH that the function has no parameter for, except options that are not passed on."""
    if accepted.takes_any:
        return []
    return [
        NotAccepted(each, nearest(each.variable, accepted.names))
        for each in parameters
        if each.passed and each.variable not in accepted.names
    ]
