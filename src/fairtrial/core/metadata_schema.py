"""Model of `metadata.json`; it defines the published JSON schema and determines whether a file is damaged.

Jobs write the file from plain dictionaries. Readers check the usual structure with cheap hand-written code and validate
all other files with this model (`record/metadata.py`). `tools/make_docs.py` generates `docs/schemas/metadata-1.json`
from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Direction = Literal["max", "min"]
MOST = (1 << 63) - 1
"""Largest integer; tables of runs have 64-bit columns."""
WrittenStatus = Literal["running", "completed", "diverged", "failed", "interrupted"]
Spelled = float | Literal["NaN", "Infinity", "-Infinity"]
"""A metric's value. JSON has no NaN and no infinity, so they are written as strings."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataIdentity(_Part):
    """The data set that the run was trained on, identified by a hash of its content."""

    name: str
    sha256: Sha256


class Best(_Part):
    """A best checkpoint that was recorded before its file was moved into place."""

    best_metric_value: float
    best_checkpoint_step: int = Field(ge=-MOST, le=MOST)
    best_checkpoint_path: str
    best_checkpoint_sha256: Sha256


class Resumption(_Part):
    """One continuation of the run after an interruption."""

    step: int = Field(description="Step of the checkpoint that it resumed from.", ge=0)
    at: float = Field(description="Time of the resumption, as a Unix timestamp in seconds.")
    best_step: int | None = Field(None, description="The best checkpoint that it inherited.")
    best_value: float | None = None


class Lineage(BaseModel):
    """Origin of the run. Recipes add what they depend on, such as a teacher."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    resumed: list[Resumption]
    streams: list[str] = Field(default=[], description="Random streams that the run used; known after it has ended.")


class Environment(_Part):
    """The commit, the versions and the machine. Null if unknown."""

    git_commit: str | None = None
    git_dirty: bool | None = None
    git_dirty_hash: Sha256 | None = Field(None, description="SHA-256 of the uncommitted changes.")
    python: str | None = None
    platform: str | None = None
    hostname: str | None = None
    cpu: str | None = None
    cpu_model: str | None = Field(None, description="Vendor, family, model and stepping.")
    cpu_features: list[str] | None = Field(None, description="Instruction sets that determine the numerical kernels.")
    torch_instruction_set: str | None = Field(
        None, description="Instruction set of torch's kernels, such as AVX512. Null if the run did not load torch."
    )
    cpu_count: int | None = None
    memory_bytes: int | None = None
    gpu: str | None = None
    versions: dict[str, str | None] | None = Field(None, description="Installed packages that can change results.")
    executable: str | None = None
    recipe_file_sha256: Sha256 | None = Field(None, description="SHA-256 of the recipe if it is a user's file.")
    command_line: list[str] | None = Field(
        None, description="Arguments of the command that started the run; secrets are replaced by references."
    )


class Timings(_Part):
    """Times in seconds; null until they are known. Training times accumulate over resumed attempts."""

    created: float = Field(description="When the run started, as a Unix timestamp in seconds.")
    ended: float | None = Field(description="When it ended, as a Unix timestamp in seconds.")
    setup_s: float | None = Field(description="From the start of the job to the first step.")
    wall_s: float | None = Field(description="Wall-clock time of training, evaluation and checkpoints.")
    cpu_s: float | None = Field(description="CPU time of the same, or of the program for `command`.")
    stacked: int = Field(1, description="Runs that shared the process; above 1, times are not separate per run.", ge=1)


class Resources(_Part):
    """Resources that the run used. Null or missing if they could not be measured."""

    parameters: int | None = Field(None, description="All parameters of the model, including frozen ones.")
    trainable_parameters: int | None = None
    flops_per_step: int | None = None
    examples_per_step: int | None = None
    steps_per_epoch: int | None = Field(None, description="Steps that process every example once.")
    tensor_bytes: dict[str, int] | None = Field(None, description="By kind: parameters, gradients, optimizer, …")
    peak_tensor_bytes: int | None = None
    basis: str | None = Field(None, description="How the tensor figures were determined.")
    peak_process_bytes: int | None = None


class FilledCaution(_Part):
    """A caution of the run; the codes are defined in `core/cautions.py`."""

    code: str
    text: str
    remedy: str


class Telemetry(_Part):
    """Result of sending the run's events to a receiver, over all attempts; `events.jsonl` has all of them."""

    endpoint: str
    sent: int = Field(description="Lines of events.jsonl that the receiver accepted.", ge=0)
    dropped: int = Field(description="Lines not delivered: timeout at the end, or rejected.", ge=0)
    retries: int = Field(description="Requests of the last attempt that were retried.", ge=0)
    last_error: str | None = Field(description="Error of the most recent failed request of the last attempt.")


class Seal(_Part):
    """Size and checksum of a file when the run ended."""

    bytes: int = Field(ge=0)
    crc32: str = Field(pattern="^[0-9a-f]{8}$")


class SeriesExtent(_Part):
    """Extent of the complete lines of `metrics.jsonl` at one point in time."""

    lines: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: Sha256 = Field(description="SHA-256 of these bytes.")


class Metadata(_Part):
    """One run: its specification, status, environment and resources."""

    schema_: Literal[1] = Field(alias="schema")
    run_id: str = Field(description="Name of the directory: <variant>.seed<seed>, with .again<n> for repetitions.")
    study: str
    variant: str
    seed: int = Field(ge=0, le=MOST)
    attempt: int = Field(description="1, or more for repetitions, which do not count as new seeds.", ge=1, le=MOST)
    recipe: str
    recipe_file: str | None = Field(description="Path of the recipe if it is a user's file.")
    synthetic: bool = Field(description="Whether the numbers are synthetic instead of trained.")
    options: dict[str, Any] = Field(description="All resolved options.")
    identity: dict[str, Any] = Field(description="The options that can change results.")
    data: DataIdentity | None
    fingerprint: Sha256 = Field(description="SHA-256 of recipe, identity, seed and data.")
    status: WrittenStatus = Field(description="As last written: `running` without a live process means interrupted.")
    reason: str | None = Field(description="Why it did not complete.")
    hint: str | None = Field(description="What to do about it.")
    metric: str | None = Field(description="Metric that the run is judged by.")
    direction: Direction | None
    best_metric_name: str | None = Field(description="Metric that selects the best checkpoint.")
    best_metric_mode: Direction | None
    best_metric_value: float | None
    best_checkpoint_step: int | None = Field(ge=-MOST, le=MOST)
    best_checkpoint_path: str | None = Field(description="Relative to the run directory.")
    best_checkpoint_sha256: Sha256 | None
    best_pending: Best | None = Field(description="Set while a new best checkpoint is moved into place.")
    final: dict[str, Spelled] = Field(description="The last value of every metric; empty until the run ends.")
    lineage: Lineage
    environment: Environment
    timings: Timings
    resources: Resources
    cautions: list[FilledCaution]
    telemetry: Telemetry | None = Field(None, description="Missing if events were not sent (--otlp).")
    sealed: dict[str, Seal] | None = Field(
        None, description="By name: size and checksum of files when the run ended. Missing before and in older runs."
    )
    checksum: str | None = Field(
        None,
        description="CRC-32 of all other keys; missing in files of earlier versions.",
        pattern="^[0-9a-f]{8}$",
    )
    series: SeriesExtent | None = Field(
        None, description="Extent of `metrics.jsonl` when the run ended. Missing before that and in older runs."
    )
    series_sha256: dict[str, Sha256] | None = Field(
        None,
        description="Per metric, when the run ended: SHA-256 of its points ordered by step, each as the step "
        "(64-bit signed integer) and the value (64-bit float), both little-endian.",
    )
