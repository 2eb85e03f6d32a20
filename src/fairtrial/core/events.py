"""Models of the lines of `events.jsonl`, one per event; the published JSON schema is generated from them.

A line has a schema number, the name of the event, the time, and the fields of that event. Jobs write lines from plain
dictionaries without validation, to save time. Tests validate every line that Fairtrial writes against these models, and
`tools/make_docs.py` generates `docs/schemas/events-1.json` from them.

A user's script or recipe may write its own events in the open form: any name that is not used here, with any fields.
New events of Fairtrial itself must be declared here.
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
Version = Annotated[int, Field(ge=0, description="Version of the policy: its number of updates.")]


class Event(BaseModel):
    """The fields of every line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: Literal[1] = Field(alias="schema")
    event: str
    at: float = Field(description="When it was written, as a Unix timestamp in seconds.")


class RunStarted(Event):
    """A run started."""

    event: Literal["run_started"]
    pid: int = Field(description="Process ID of the run.")
    token: int | None = Field(default=None, description="Token of its claim; each new claim on a run has a higher one.")


class RunResumed(Event):
    """An interrupted run was resumed."""

    event: Literal["run_resumed"]
    pid: int
    token: int | None = None


class TornLineDropped(Event):
    """An incomplete last line, left by a killed process, was removed."""

    event: Literal["torn_line_dropped"]


class Rewound(Event):
    """Everything logged and saved after this step belongs to an earlier attempt and no longer counts."""

    event: Literal["rewound"]
    step: int = Field(description="-1 means from the beginning.", ge=-1)


class Evaluated(Event):
    """The weights after a step were evaluated."""

    event: Literal["evaluated"]
    step: int
    metrics: dict[str, Spelled] = Field(description="Values by full metric name, including the split.")


class Episodes(Event):
    """The returns of the individual episodes of an evaluation."""

    event: Literal["episodes"]
    step: int
    split: Split
    of: Literal["last", "best"] = Field(description="The weights that were evaluated.")
    returns: list[float | None] = Field(description="Null if a return was not a finite number.")


class CheckpointSaved(Event):
    """`step-N.pt` was saved."""

    event: Literal["checkpoint_saved"]
    step: int
    sha256: Sha256
    series: SeriesExtent | None = Field(None, description="The lines of metrics up to this checkpoint.")


class CheckpointRefused(Event):
    """A checkpoint was not used for resuming, because it is not the file that was saved."""

    event: Literal["checkpoint_refused"]
    step: int
    reason: str


class BestChanged(Event):
    """`best.pt` was replaced by a better checkpoint."""

    event: Literal["best_changed"]
    step: int
    metric: str
    value: float
    sha256: Sha256


class TopKept(Event):
    """`top-N.pt`, one of the best checkpoints, was saved."""

    event: Literal["top_kept"]
    step: int
    metric: str
    value: float
    sha256: Sha256


class TopDropped(Event):
    """`top-N.pt` is removed, because better checkpoints replaced it."""

    event: Literal["top_dropped"]
    step: int


class ProgramStarted(Event):
    """The program of the recipe `command` started."""

    event: Literal["program_started"]
    argv: list[str]
    pid: int


class SeedRead(Event):
    """The program read the seed of its run from `fairtrial.run()`, for the first time in this attempt."""

    event: Literal["seed_read"]


class ProgramEnded(Event):
    """The program of the recipe `command` ended."""

    event: Literal["program_ended"]
    status: int = Field(description="Its exit status, or the negative number of the signal that ended it.")


class OutcomeReported(Event):
    """The program of the recipe `command` reported how its training ended, with `run.finish(status=…)`."""

    event: Literal["outcome_reported"]
    status: Literal["failed", "diverged", "interrupted"]
    reason: str | None


class Evaluation(Event):
    """A checkpoint was re-evaluated after the run."""

    event: Literal["evaluation"]
    checkpoint: str
    step: int
    metrics: dict[str, float | None]
    intervals: dict[str, list[float | None] | None] = Field(description="Lower and upper limit by metric.")
    episodes: Count | None
    fresh: bool = Field(description="Whether the data or episodes were never used before.")
    selected: float | None = Field(description="The value by which the checkpoint was selected.")
    gap: float | None = Field(description="How much better the selection value was.")


class RunEnded(Event):
    """An attempt ended."""

    event: Literal["run_ended"]
    status: WrittenStatus
    reason: str | None


class Device(BaseModel):
    """The state of one GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    load_percent: float = Field(ge=0, le=100)
    memory_bytes: Count
    memory_total_bytes: Count


class DeviceStats(Event):
    """The state of the GPUs in `devices`, or the reason why it is unknown in `unavailable`."""

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
            raise ValueError("device_stats must have either devices or unavailable")
        return self


class InferenceResponse(Event):
    """A language model answered one request. Null: the engine does not report the value."""

    event: Literal["inference_response"]
    version: Version
    phase: str = Field(description="The kind of decision that was requested, as named by the game.")
    queue_ms: Milliseconds | None
    prefill_ms: Milliseconds | None
    decode_ms: Milliseconds | None
    prompt_tokens: Count
    completion_tokens: Count


class TrainingStep(Event):
    """A policy was updated from a rollout."""

    event: Literal["training_step"]
    step: Step
    version: Version
    lag: Count = Field(description="Updates between the policy that generated the rollout and the updated one.")
    trained_tokens: Count = Field(description="Tokens that the loss is computed over.")
    forwarded_tokens: Count = Field(description="Tokens in the forward pass, including prompts.")
    buffered: Count = Field(description="Other rollouts in the buffer when this one was taken.")
    phases_ms: dict[str, Milliseconds]


class RolloutComplete(Event):
    """All games of a step are finished."""

    event: Literal["rollout_complete"]
    step: Step
    version: Version
    groups: Count
    samples: Count
    generated_tokens: Count
    seconds: float = Field(ge=0, description="From the start of the first game to the end of the last.")
    overlap_s: float = Field(ge=0, description="Seconds of play in which the trainer worked on earlier steps.")
    reward_mean: float | None = Field(description="Null if no reward is a finite number.")


class Trouble(Event):
    """An error occurred, and the run continued."""

    event: Literal["error"]
    where: str
    message: str


Known = Annotated[
    RunStarted | RunResumed | TornLineDropped | Rewound | Evaluated | Episodes | CheckpointSaved | CheckpointRefused
    | BestChanged | TopKept | TopDropped | ProgramStarted | SeedRead | ProgramEnded | OutcomeReported | Evaluation
    | RunEnded | DeviceStats | InferenceResponse | TrainingStep | RolloutComplete | Trouble,
    Field(discriminator="event"),
]  # fmt: skip


class KnownEvent(RootModel[Known]):
    """Every event that Fairtrial itself writes."""


NAMES: tuple[str, ...] = tuple(
    get_args(model.model_fields["event"].annotation)[0] for model in get_args(get_args(Known)[0])
)


class OtherEvent(Event):
    """The open form, for events of a user's script or recipe: any other name, any fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    event: str = Field(min_length=1, json_schema_extra={"not": {"enum": list(NAMES)}})


class EventLine(RootModel[Known | OtherEvent]):
    """One line: an event of Fairtrial, or one of a user's script or recipe in the open form."""


def check_event(line: Mapping[str, Any]) -> None:
    """Raise an error if a line is not a valid event of Fairtrial: an unknown name, a missing or extra field."""
    name = str(line.get("event"))
    if name not in NAMES:
        raise UserError(unknown("event", name, NAMES), hint="Declare it in core/events.py.")
    try:
        KnownEvent.model_validate(dict(line))
    except ValidationError as error:
        messages = [f"{'.'.join(map(str, each['loc'][1:])) or name}: {each['msg']}" for each in error.errors()]
        raise UserError(f"event '{name}' is not valid: {messages[0]}", problems=messages[1:]) from None
