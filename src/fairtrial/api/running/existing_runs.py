"""Runs that are there already, for verbs that go on with them."""

from __future__ import annotations

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Run, Status
from fairtrial.record.metadata import HINT, DamagedRun
from fairtrial.record.store import Store


def require_existing(store: Store, reference: str) -> Run:
    return _not_of_a_script(not_damaged(store.find(reference)))


def require_all_existing(store: Store, reference: str) -> list[Run]:
    """Every run that an id, a path or a glob names, damaged ones too."""
    return [run if run.status is Status.DAMAGED else _not_of_a_script(run) for run in store.match([reference])]


def not_damaged(run: Run) -> Run:
    """The run, for those who go on with it."""
    if run.status is Status.DAMAGED:
        raise DamagedRun(f"run {run.name} is damaged: {run.reason}", hint=run.metadata.hint or HINT)
    return run


def _not_of_a_script(run: Run) -> Run:
    if run.metadata.recipe == "script":
        raise UserError(f"run {run.name} was made by a script", hint="Start that script again: it resumes by itself.")
    return run
