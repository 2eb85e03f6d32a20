"""Record the arguments and the result of every verb in the project's command log, from the shell and from Python.

`@recorded` turns a function into a verb that logs itself when Python calls it. A shell command calls the same verb
through its `LoggedCommand`, because only the shell command knows the words that the user typed, its end and its exit
code. Either way, one call is one line in the same format. A verb that calls another verb does so through `unrecorded`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, ParamSpec, TypeVar

from fairtrial.core.errors import EXIT_OK, FairtrialError
from fairtrial.core.project_root import find_artifact

P = ParamSpec("P")
R = TypeVar("R")
Document = Mapping[str, Any]


@dataclass(frozen=True)
class RecordedVerb:
    """The undecorated function of a verb, and how to turn its result into a log document."""

    compute: Callable[..., Any]
    document: Callable[[Any], Document]


_verbs: dict[Callable[..., Any], RecordedVerb] = {}
"""Decorated function → its verb. Filled when the modules of the verbs are imported."""


def verb_of(function: Callable[..., Any]) -> RecordedVerb:
    return _verbs[function]


def recorded(
    *words: str, document: Callable[[Any], Document] = lambda result: result.to_dict()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Log calls of the decorated verb under its shell command's words. `document` converts a result for the log."""

    def decorate(compute: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(compute)
        def verb(*args: P.args, **kwargs: P.kwargs) -> R:
            artifact = find_artifact()
            if artifact is None:
                return compute(*args, **kwargs)
            from fairtrial.research.command_log import note_command

            begun = time.time()

            def log(code: int, result: Document | None) -> None:
                # A failure to write the log must not discard the computed result.
                with contextlib.suppress(OSError, TypeError, ValueError):
                    note_command(artifact, [*words, *_spelled(compute, args, kwargs)], code, begun, result)

            try:
                result = compute(*args, **kwargs)
            except FairtrialError as error:
                log(error.exit_code, None)
                raise
            log(EXIT_OK, document(result))
            return result

        _verbs[verb] = RecordedVerb(compute, document)
        return verb

    return decorate


def unrecorded(verb: Callable[P, R]) -> Callable[P, R]:
    """Return a verb without logging, for use inside another verb, which logs the whole call."""
    return _verbs[verb].compute


def _spelled(compute: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a Python call as NAME=VALUE words: strings as they are, other values as JSON.

    Omits default values and callables such as a watcher. Fields of dataclasses such as `terms` appear under their own
    names. As in metadata, an option that is declared secret, or looks like one, is replaced by {env:NAME}.
    """
    import orjson

    from fairtrial.core.secrets import Concealer

    signature = inspect.signature(compute)
    given: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= value
        elif value is not parameter.default:
            given[name] = value
    plain: dict[str, Any] = {}
    for name, value in given.items():
        own = _plain(value)
        plain |= own if is_dataclass(value) else {name: own}
    declared = [*plain.get("secrets", ()), *getattr(given.get("study"), "secrets", ())]
    concealed = Concealer(declared, environment=dict(os.environ)).mapping(plain)
    return [
        f"{name}={value if isinstance(value, str) else orjson.dumps(value, default=str).decode()}"
        for name, value in concealed.items()
        if not (value is None or callable(value))
    ]


def _plain(value: Any) -> Any:
    """Convert a value to JSON-compatible types; dataclasses keep only their non-default fields."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        defaults = {each.name: _default(each) for each in fields(value)}
        return {
            name: _plain(item)
            for name, item in own.items()
            if item is not None and item != defaults[name] and not callable(item)
        }
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence | Set) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", exclude_defaults=True) if dump else value


def _default(each: Field[Any]) -> Any:
    return each.default_factory() if each.default_factory is not MISSING else each.default
