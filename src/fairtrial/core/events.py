"""`events.jsonl` as models, one per event: what its published JSON schema is made from.

A line has the number of its schema, the name of the event, the time, and the fields of that event. Jobs write lines
from plain dictionaries and pay for no checking. Tests hold every line that Fairtrial writes against these models, and
`tools/make_docs.py` makes `docs/schemas/events-1.json` of them.

A person's own script or recipe may write events of its own, with any name that is not taken here and any fields: the
open form. Whoever adds an event to Fairtrial declares it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, model_validator

from fairtrial.core.errors import UserError, unknown
from fairtrial.core.metadata_schema import SeriesExtent, Sha256, Spelled, WrittenStatus
from fairtrial.core.training import Split

Step = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[float, Field(ge=0)]
Version = Annotated[int, Field(ge=0, description="Of the policy: the number of updates that it has had.")]


class Event(BaseModel):
    """What every line has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: Literal[1] = Field(alias="schema")
    event: str
    at: float = Field(description="When it was written, in seconds since 1970.")


class RunStarted(Event):
    """A run was begun."""

    event: Literal["run_started"]
    pid: int = Field(description="The process that makes it.")
    token: int | None = Field(default=None, description="Of its claim; each claim on a run has a higher one.")


class RunResumed(Event):
    """Another attempt at a run that was interrupted."""

    event: Literal["run_resumed"]
    pid: int
    token: int | None = None


class TornLineDropped(Event):
    """A kill had left an unfinished last line, which was cut off."""

    event: Literal["torn_line_dropped"]


class Rewound(Event):
    """What was logged and saved after this step was another attempt's and no longer counts."""

    event: Literal["rewound"]
    step: int = Field(description="-1 means from the beginning.", ge=-1)


class Evaluated(Event):
    """The weights as they were after a step."""

    event: Literal["evaluated"]
    step: int
    metrics: dict[str, Spelled] = Field(description="By their full names, the split included.")


class Episodes(Event):
    """What every single episode of an evaluation gave."""

    event: Literal["episodes"]
    step: int
    split: Split
    of: Literal["last", "best"] = Field(description="The weights that played.")
    returns: list[float | None] = Field(description="Null where a return was no finite number.")


class CheckpointSaved(Event):
    """`step-N.pt` is in place."""

    event: Literal["checkpoint_saved"]
    step: int
    sha256: Sha256
    series: SeriesExtent | None = Field(None, description="The lines of metrics that it builds on.")


class CheckpointRefused(Event):
    """A checkpoint was not resumed from: it is not what was saved."""

    event: Literal["checkpoint_refused"]
    step: int
    reason: str


class BestChanged(Event):
    """`best.pt` is another one now."""

    event: Literal["best_changed"]
    step: int
    metric: str
    value: float
    sha256: Sha256


class TopKept(Event):
    """`top-N.pt` is in place: one of the best few."""

    event: Literal["top_kept"]
    step: int
    metric: str
    value: float
    sha256: Sha256


class TopDropped(Event):
    """`top-N.pt` goes: better ones took its place."""

    event: Literal["top_dropped"]
    step: int


class ProgramStarted(Event):
    """The program of the recipe `command` runs."""

    event: Literal["program_started"]
    argv: list[str]
    pid: int


class SeedRead(Event):
    """That program asked `fairtrial.run()` for the seed of its run, for the first time in this attempt."""

    event: Literal["seed_read"]


class ProgramEnded(Event):
    """It ended."""

    event: Literal["program_ended"]
    status: int = Field(description="Its exit status, or minus the number of the signal that ended it.")


class Evaluation(Event):
    """A checkpoint was evaluated again, after the run."""

    event: Literal["evaluation"]
    checkpoint: str
    step: int
    metrics: dict[str, float | None]
    intervals: dict[str, list[float | None] | None] = Field(description="Lower and upper limit by metric.")
    episodes: Count | None
    fresh: bool = Field(description="Whether on data or episodes that nobody had seen.")
    selected: float | None = Field(description="The value by which the checkpoint was chosen.")
    gap: float | None = Field(description="How much better it looked then.")


class RunEnded(Event):
    """The last word of an attempt."""

    event: Literal["run_ended"]
    status: WrittenStatus
    reason: str | None


class Device(BaseModel):
    """One card at one moment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    load_percent: float = Field(ge=0, le=100)
    memory_bytes: Count
    memory_total_bytes: Count


class DeviceStats(Event):
    """What the graphics cards do: `devices`, or `unavailable` with the reason. A card that is not there has no load."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={"oneOf": [{"required": [x]} for x in ("devices", "unavailable")]},
    )

    event: Literal["device_stats"]
    step: Step | None = None
    devices: list[Device] = Field([], min_length=1)
    unavailable: str = Field("", min_length=1)

    @model_validator(mode="after")
    def _says_one_of_the_two(self) -> Self:
        if bool(self.devices) == bool(self.unavailable):
            raise ValueError("device_stats has devices or says why they are unavailable")
        return self


class InferenceResponse(Event):
    """A language model has answered one request. Null: the engine does not tell."""

    event: Literal["inference_response"]
    version: Version
    phase: str = Field(description="The kind of decision that it was asked for, in the words of the game.")
    queue_ms: Milliseconds | None
    prefill_ms: Milliseconds | None
    decode_ms: Milliseconds | None
    prompt_tokens: Count
    completion_tokens: Count


class TrainingStep(Event):
    """A policy has learned from a rollout."""

    event: Literal["training_step"]
    step: Step
    version: Version
    lag: Count = Field(description="Updates between the policy that played and the one that learned from it.")
    trained_tokens: Count = Field(description="Tokens that the loss was taken over.")
    forwarded_tokens: Count = Field(description="Tokens that went through the model for it, prompts included.")
    buffered: Count = Field(description="Further rollouts that were ready when this one was taken.")
    phases_ms: dict[str, Milliseconds]


class RolloutComplete(Event):
    """All games of a step have been played."""

    event: Literal["rollout_complete"]
    step: Step
    version: Version
    groups: Count
    samples: Count
    generated_tokens: Count
    seconds: float = Field(ge=0, description="From the first that began to play to the last that ended.")
    overlap_s: float = Field(ge=0, description="Seconds of playing in which the trainer was busy with earlier steps.")
    reward_mean: float | None = Field(description="Null where there is none that is a finite number.")


class Trouble(Event):
    """Something went wrong and the run went on."""

    event: Literal["error"]
    where: str
    message: str


Known = Annotated[
    RunStarted | RunResumed | TornLineDropped | Rewound | Evaluated | Episodes | CheckpointSaved | CheckpointRefused
    | BestChanged | TopKept | TopDropped | ProgramStarted | SeedRead | ProgramEnded | Evaluation | RunEnded
    | DeviceStats | InferenceResponse | TrainingStep | RolloutComplete | Trouble,
    Field(discriminator="event"),
]  # fmt: skip


class KnownEvent(RootModel[Known]):
    """Every event that Fairtrial itself writes."""


NAMES: tuple[str, ...] = tuple(
    get_args(model.model_fields["event"].annotation)[0] for model in get_args(get_args(Known)[0])
)


class OtherEvent(Event):
    """The open form, for events of a person's own script or recipe: any other name, any fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    event: str = Field(min_length=1, json_schema_extra={"not": {"enum": list(NAMES)}})


class EventLine(RootModel[Known | OtherEvent]):
    """One line: an event of Fairtrial, or in the open form one of a person's own script or recipe."""


def check_event(line: Mapping[str, Any]) -> None:
    """Refuse a line that no event of Fairtrial has the form of: an unknown name, a field too few or too many."""
    name = str(line.get("event"))
    if name not in NAMES:
        raise UserError(unknown("event", name, NAMES), hint="Declare it in core/events.py.")
    try:
        KnownEvent.model_validate(dict(line))
    except ValidationError as error:
        messages = [f"{'.'.join(map(str, each['loc'][1:])) or name}: {each['msg']}" for each in error.errors()]
        raise UserError(f"event '{name}' is not as declared: {messages[0]}", problems=messages[1:]) from None
