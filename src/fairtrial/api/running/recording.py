"""What a verb was asked and what it answered goes into the command log of the project, from shell and Python alike.

`@recorded` makes a function a verb that logs itself when Python calls it. A shell command calls the same verb through
its `LoggedCommand`: only the shell knows the words that were typed, when the command ends and with which exit code.
Either way one call is one line, in one format. A verb that is part of another one is called through `unrecorded`.
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
    """What `@recorded` knows of a function."""

    compute: Callable[..., Any]
    document: Callable[[Any], Document]


_verbs: dict[Callable[..., Any], RecordedVerb] = {}
"""By the function that callers see; filled when their modules are imported."""


def verb_of(function: Callable[..., Any]) -> RecordedVerb:
    return _verbs[function]


def recorded(
    *words: str, document: Callable[[Any], Document] = lambda result: result.to_dict()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A verb that a project logs, under the words of its shell command. `document`: what the log keeps of a result."""

    def decorate(compute: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(compute)
        def verb(*args: P.args, **kwargs: P.kwargs) -> R:
            artifact = find_artifact()
            if artifact is None:
                return compute(*args, **kwargs)
            from fairtrial.research.command_log import note_command

            begun = time.time()

            def log(code: int, result: Document | None) -> None:
                # A log that cannot be written must not take away what was computed.
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
    """A verb as part of something else: nothing is logged, because the whole is."""
    return _verbs[verb].compute


def _spelled(compute: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The arguments of a Python call as NAME=VALUE words: text as it is, anything else as JSON.

    What has its default, and functions such as a watcher, are left out. Fields of `terms` and the like stand by their
    own names. Secrets are left out as in metadata: an option that is declared secret, or looks like one, is {env:NAME}.
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
    """A value as JSON has it."""
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
