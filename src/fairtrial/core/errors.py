"""The exception hierarchy. Each error has a message for the user, a hint on what to do, and an exit code.

Only `cli/app.py` prints errors; all other code raises them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

EXIT_OK = 0
EXIT_USER = 1
EXIT_USAGE = 2
EXIT_CHECK = 3
EXIT_RUNS = 4
EXIT_INTERRUPTED = 130


class FairtrialError(Exception):
    """An error that the user can act on. `problems` contains further messages if there are several.

    >>> try:
    ...     fairtrial.analyze("nowhere")
    ... except fairtrial.FairtrialError as error:
    ...     print(error.exit_code)
    1
    """

    exit_code = EXIT_USER

    def __init__(self, message: str, *, hint: str | None = None, problems: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.problems = tuple(problems)

    def __str__(self) -> str:
        """Return all messages and the hint; a traceback in a user's own script ends with this text."""
        message = "; ".join([self.message, *self.problems])
        return f"{message}. {self.hint}" if self.hint else message

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "problems": list(self.problems),
        }


class UserError(FairtrialError):
    """The request cannot be fulfilled: an invalid file, a missing run, a conflict."""


class UsageError(FairtrialError):
    """The command line itself is wrong."""

    exit_code = EXIT_USAGE


class InvalidOptions(UserError):
    """Invalid option values; lists every problem, not only the first."""


class MissingExtra(UserError):
    """A package that this recipe or command needs is not installed."""


class NothingToDraw(UserError):
    """The requested chart has no data."""


class CellConflict(UserError):
    """A cell of the study already exists with different options."""


class StoreError(UserError):
    """The store cannot be read or written: read-only, full, not a store."""


class CheckFailed(FairtrialError):
    """A required verdict or check was not met."""

    exit_code = EXIT_CHECK


class RunsFailed(FairtrialError):
    """Some runs failed, diverged or were stopped; everything recorded is intact."""

    exit_code = EXIT_RUNS


class Interrupted(FairtrialError):
    """The user pressed Ctrl-C, or the job received a request to stop."""

    exit_code = EXIT_INTERRUPTED


class Diverged(Exception):
    """The training produced a value that is not finite. This is a result, not a failure."""

    def __init__(self, step: int, metric: str, value: float) -> None:
        super().__init__(f"{metric} became {value} at step {step}")
        self.step = step
        self.metric = metric
        self.value = value


def all_at_once(*checks: Callable[[], Any]) -> list[Any]:
    """Run all checks and return their results; if any fail, raise one error that lists every problem."""
    given, errors = [], []
    for check in checks:
        try:
            given.append(check())
        except UserError as error:
            errors.append(error)
    if errors:
        messages = [sentence for error in errors for sentence in (error.message, *error.problems)]
        hint = next((error.hint for error in errors if error.hint), None)
        raise InvalidOptions(messages[0], problems=messages[1:], hint=hint) if len(errors) > 1 else errors[0]
    return given


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """Return the valid name closest to a mistyped one, or None if no name is similar."""
    import difflib  # imported here because only errors need it, and start-up must be fast

    matches = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.6)
    return matches[0] if matches else None


def unknown(kind: str, word: str, valid: Iterable[str], *, within: str = "") -> str:
    """Return the message for an unknown name, with the closest valid name or, if none is close, all of them.

    `within` is the path that precedes the name.
    """
    names = sorted(valid)
    guess = nearest(word, names)
    if guess:
        return f"unknown {kind} '{within}{word}'; did you mean '{within}{guess}'?"
    return f"unknown {kind} '{within}{word}'; valid: {', '.join(names)}"
