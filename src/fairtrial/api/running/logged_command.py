"""A running shell command. Every command line imports this module, even `--help`, so it loads no heavy modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Document = Mapping[str, Any]


class LoggedCommand:
    """A command line and its result. `write` appends both to the log of the enclosing project, if there is one."""

    def __init__(self, words: Sequence[str] = (), begun: float = 0.0) -> None:
        self.words = words
        self._begun = begun
        self._answer: Callable[[], Document] = dict
        self._further: dict[str, Any] = {}

    def answer(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a verb for this command and keep its result for the log."""
        from fairtrial.api.running.recording import verb_of

        known = verb_of(verb)
        result: R = known.compute(*args, **kwargs)
        self._answer = lambda: known.document(result)
        return result

    def add(self, document: Document) -> None:
        """Add fields to the log entry of this command, next to the result of its verb or in place of one."""
        self._further.update(document)

    def write(self, code: int) -> None:
        from fairtrial.core.project_root import find_artifact

        artifact = find_artifact()
        if artifact is not None:
            from fairtrial.research.command_log import note_command

            document = {**self._answer(), **self._further}
            note_command(artifact, self.words, code, self._begun, document or None)
