"""What launchers and jobs write into their notes, as typed models: others may be able to write into the same folder."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fairtrial.core.runs import Status


class _Note(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class TaskNote(_Note):
    """What to do, and what the engine calls the job."""

    engine: str
    job: str | None
    at: float
    requests: dict[str, dict[str, Any]]


class StartedNote(_Note):
    """A start of the job. Its mark becomes a part of the names of other notes."""

    mark: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{0,64}$")] = ""


class StopNote(_Note):
    kill: bool


class OutcomeNote(_Note):
    status: Literal[tuple(map(str, Status))]  # type: ignore[valid-type]
    reason: str | None
    hint: str | None
    already_done: bool


class AnswerNote(_Note):
    """How a cell ended."""

    exit: Annotated[int, Field(ge=-255, le=255)]
    outcome: OutcomeNote | None


class ClaimNote(_Note):
    token: Annotated[int, Field(ge=0)]
