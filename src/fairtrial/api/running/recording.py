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
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from fairtrial.core.errors import EXIT_OK, FairtrialError
from fairtrial.core.project_root import find_artifact

P = ParamSpec("P")
R = TypeVar("R")
Document = Mapping[str, Any]


@dataclass(frozen=True)
class _Verb:
    """What `@recorded` knows of a function."""

    compute: Callable[..., Any]
    document: Callable[[Any], Document]


_verbs: dict[Callable[..., Any], _Verb] = {}
"""By the function that callers see; filled when their modules are imported."""


@dataclass
class LoggedCommand:
    """A command line while it runs; `write` adds it to the log of the project around, if there is one."""

    words: Sequence[str] = ()
    begun: float = 0.0
    _answer: Callable[[], Document] | None = field(default=None, init=False)
    _further: dict[str, Any] = field(default_factory=dict, init=False)

    def answer(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a verb for this command and keep its result for the log."""
        known = _verbs[verb]
        result: R = known.compute(*args, **kwargs)
        self._answer = functools.partial(known.document, result)
        return result

    def add(self, document: Document) -> None:
        """Keep what this command says in addition to the result of its verb, or instead of one."""
        self._further.update(document)

    def write(self, code: int) -> None:
        artifact = find_artifact()
        if artifact is not None:
            document = {**(self._answer() if self._answer else {}), **self._further}
            _log(artifact, self.words, code, self.begun, document or None)


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
            begun = time.time()

            def log(code: int, result: Document | None) -> None:
                # A log that cannot be written must not take away what was computed.
                with contextlib.suppress(OSError, TypeError, ValueError):
                    _log(artifact, [*words, *_spelled(compute, args, kwargs)], code, begun, result)

            try:
                result = compute(*args, **kwargs)
            except FairtrialError as error:
                log(error.exit_code, None)
                raise
            log(EXIT_OK, document(result))
            return result

        _verbs[verb] = _Verb(compute, document)
        return verb

    return decorate


def unrecorded(verb: Callable[P, R]) -> Callable[P, R]:
    """A verb as part of something else: nothing is logged, because the whole is."""
    return _verbs[verb].compute


def _log(artifact: Path, words: Sequence[str], code: int, begun: float, result: Document | None) -> None:
    from fairtrial.research.command_log import note_command

    note_command(artifact, words, code, begun, result)


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
            name: _plain(item) for name, item in own.items()
            if item is not None and item != defaults[name] and not callable(item)
        }  # fmt: skip
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
