"""Typed model of the fields of a profile snapshot that are used in computations. Other fields are not checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Amount = Annotated[float, Field(ge=0, le=1e15)]
"""Milliseconds, bytes or tokens. Larger values cannot be real measurements."""
Time = Annotated[float, Field(gt=0, le=1e15)]
Count = Annotated[int, Field(ge=0, le=10**15)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class ProfiledStepTimes(_Part):
    mean: Amount
    low: Amount | None
    high: Amount | None


class ProfiledLane(_Part):
    phases_ms: dict[str, Amount]
    idle_ms: Amount


class Bubbles(_Part):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")
    __pydantic_extra__: dict[str, Amount]

    window_ms: Time
    training_waited_ms: Amount


class Latency(_Part):
    p95: Amount | None


class Answers(_Part):
    requests: Count
    prompt_tokens: Count
    completion_tokens: Count
    queue_ms: Amount
    prefill_ms: Amount
    decode_ms: Amount
    latency_ms: Latency


class Memory(_Part):
    peak_process_bytes: Amount
    peak_player_bytes: Amount | None


class Unavailable(_Part):
    unavailable: str


class ProfiledCard(_Part):
    name: str
    load_percent: Amount


class Hardware(_Part):
    gpu: Unavailable | list[ProfiledCard]


class BufferLimit(_Part):
    by: str
    reason: str


class Quality(_Part):
    """Results per position: whether the order written without constraints was legal, and its reward."""

    positions: str
    decisions: Count
    legal: list[Annotated[int, Field(ge=0, le=1)]] = Field(min_length=1)
    legal_share: Annotated[float, Field(ge=0, le=1)]
    reward: list[Annotated[float, Field(ge=-1e15, le=1e15)]] = Field(min_length=1)
    reward_mean: Annotated[float, Field(ge=-1e15, le=1e15)]

    @model_validator(mode="after")
    def _one_of_each_per_position(self) -> Quality:
        if len(self.legal) != len(self.reward):
            raise ValueError("legal and reward must have one value for each position")
        return self


class WorkedStep(_Part):
    ms: Time
    positions: str
    prompt_tokens: Count
    completion_tokens: Count
    decisions: Count


class Snapshot(_Part):
    """A complete snapshot."""

    name: str
    mode: Literal["rollout", "trainer", "e2e"]
    configuration: dict[str, Any]
    hardware: Hardware
    code: dict[str, Any]
    steps: Count
    step_ms: ProfiledStepTimes
    lanes: dict[str, ProfiledLane]
    bubbles: Bubbles
    tokens_per_second: dict[str, Amount | None]
    tokens_per_busy_second: dict[str, Amount | None]
    inference: dict[str, Answers] | None
    policy_lag_steps: dict[str, Amount | None]
    max_policy_lag_steps: Amount
    buffer_depth: dict[str, Amount | None]
    buffer_limit: BufferLimit | None = None
    quality: Quality | None = None
    cache: dict[str, Amount] | None
    memory: Memory
    work: list[WorkedStep]
    cautions: list[dict[str, str]]
