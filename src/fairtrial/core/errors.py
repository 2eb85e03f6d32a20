"""One tree of errors. Each is a sentence for people, a hint on what to do, and an exit code.

Only `cli/app.py` prints them; everyone else raises.
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
    """Something a person can act on. `problems` holds further sentences when there are several."""

    exit_code = EXIT_USER

    def __init__(self, message: str, *, hint: str | None = None, problems: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.problems = tuple(problems)

    def __str__(self) -> str:
        """In a person's own script the trace ends with this: the sentences, and what to do."""
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
    """The request cannot be met as it stands: a bad file, a missing run, a conflict."""


class UsageError(FairtrialError):
    """The command line itself is wrong."""

    exit_code = EXIT_USAGE


class InvalidOptions(UserError):
    """Option values that do not fit; lists every problem, not only the first."""


class MissingExtra(UserError):
    """A package that this recipe or command needs is not installed."""


class NothingToDraw(UserError):
    """A chart was asked for that has no numbers."""


class CellConflict(UserError):
    """A cell of the study exists already, with other options."""


class StoreError(UserError):
    """The store cannot be read or written: read-only, full, not a store."""


class CheckFailed(FairtrialError):
    """A verdict or check that was required was not met."""

    exit_code = EXIT_CHECK


class RunsFailed(FairtrialError):
    """Some runs failed, diverged or were stopped; everything recorded is intact."""

    exit_code = EXIT_RUNS


class Interrupted(FairtrialError):
    """The person pressed Ctrl-C, or the job was asked to stop."""

    exit_code = EXIT_INTERRUPTED


class Diverged(Exception):
    """The training produced a value that is not finite. A result, not a failure."""

    def __init__(self, step: int, metric: str, value: float) -> None:
        super().__init__(f"{metric} became {value} at step {step}")
        self.step = step
        self.metric = metric
        self.value = value


def all_at_once(*checks: Callable[[], Any]) -> list[Any]:
    """What every check gives, or one error with all that they found: nobody mends a request word by word."""
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
    """The valid name that a mistyped one most likely meant."""
    import difflib  # only an error needs it, and start-up is to be instant

    matches = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.6)
    return matches[0] if matches else None


def unknown(kind: str, word: str, valid: Iterable[str], *, within: str = "") -> str:
    """One sentence for an unknown name, with the nearest valid one or all of them; `within` is the path before it."""
    names = sorted(valid)
    guess = nearest(word, names)
    if guess:
        return f"unknown {kind} '{within}{word}'; did you mean '{within}{guess}'?"
    return f"unknown {kind} '{within}{word}'; valid: {', '.join(names)}"
