"""Typed models of the notes in a mailbox. Notes are validated because other users may have write access to it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fairtrial.core.runs import Status


class _Note(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class TaskNote(_Note):
    """The task of a remote job, and the id that the engine assigned to the job."""

    engine: str
    job: str | None
    at: float
    requests: dict[str, dict[str, Any]]


class StartedNote(_Note):
    """The start of an attempt. `mark` is the attempt id, which becomes part of the names of other notes."""

    mark: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{0,64}$")] = ""


class StopNote(_Note):
    kill: bool


class OutcomeNote(_Note):
    status: Literal[tuple(map(str, Status))]  # type: ignore[valid-type]
    reason: str | None
    hint: str | None
    already_done: bool


class AnswerNote(_Note):
    """The result of one cell."""

    exit: Annotated[int, Field(ge=-255, le=255)]
    outcome: OutcomeNote | None


class ClaimNote(_Note):
    token: Annotated[int, Field(ge=0)]
