"""Look up existing runs for verbs that continue or re-evaluate them."""

from __future__ import annotations

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Run, Status
from fairtrial.record.metadata import HINT, DamagedRun
from fairtrial.record.store import Store


def require_existing(store: Store, reference: str) -> Run:
    return _not_of_a_script(not_damaged(store.find(reference)))


def require_all_existing(store: Store, reference: str) -> list[Run]:
    """Return every run that an id, a path or a glob matches, including damaged ones."""
    return [run if run.status is Status.DAMAGED else _not_of_a_script(run) for run in store.match([reference])]


def not_damaged(run: Run) -> Run:
    """Return the run, or raise `DamagedRun` if it is damaged."""
    if run.status is Status.DAMAGED:
        raise DamagedRun(f"run {run.name} is damaged: {run.reason}", hint=run.metadata.hint or HINT)
    return run


def _not_of_a_script(run: Run) -> Run:
    if run.metadata.recipe == "script":
        raise UserError(f"run {run.name} was created by a script", hint="Start that script again; it resumes the run.")
    return run
