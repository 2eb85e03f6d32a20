"""`metadata.json` as a model: what its published JSON schema is made from, and what decides whether a file is damaged.

Jobs write the file from plain dictionaries. Readers check the usual shape by hand, which is cheap, and ask this model
about every other file (`record/metadata.py`). `tools/make_docs.py` makes `docs/schemas/metadata-1.json` of it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Direction = Literal["max", "min"]
MOST = (1 << 63) - 1
"""Tables of runs have columns of 64 bits."""
WrittenStatus = Literal["running", "completed", "diverged", "failed", "interrupted"]
Spelled = float | Literal["NaN", "Infinity", "-Infinity"]
"""A metric's value. JSON has no NaN and no infinity: they are written as words."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataIdentity(_Part):
    """The data set that the run learned from, known by its content."""

    name: str
    sha256: Sha256


class Best(_Part):
    """A best checkpoint that was announced before its file was put in place."""

    best_metric_value: float
    best_checkpoint_step: int = Field(ge=-MOST, le=MOST)
    best_checkpoint_path: str
    best_checkpoint_sha256: Sha256


class Resumption(_Part):
    """One continuation of the run after an interruption."""

    step: int = Field(description="The checkpoint that it went on from.", ge=0)
    at: float = Field(description="When, in seconds since 1970.")
    best_step: int | None = Field(None, description="The best checkpoint that it inherited.")
    best_value: float | None = None


class Lineage(BaseModel):
    """Where the run comes from. Recipes add what they build on, such as a teacher."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    resumed: list[Resumption]
    streams: list[str] = Field(
        default=[], description="Random streams that the run asked for; known once it has ended."
    )


class Environment(_Part):
    """The commit, the versions and the machine. Null where it could not be found out."""

    git_commit: str | None = None
    git_dirty: bool | None = None
    git_dirty_hash: Sha256 | None = Field(None, description="Of the uncommitted changes.")
    python: str | None = None
    platform: str | None = None
    hostname: str | None = None
    cpu: str | None = None
    cpu_model: str | None = Field(None, description="Vendor, family, model and stepping.")
    cpu_features: list[str] | None = Field(None, description="Instruction sets that numerical kernels are chosen by.")
    torch_instruction_set: str | None = Field(
        None, description="What torch's kernels were chosen for, such as AVX512. Null where the run did not load torch."
    )
    cpu_count: int | None = None
    memory_bytes: int | None = None
    gpu: str | None = None
    versions: dict[str, str | None] | None = Field(None, description="Installed packages that can change a number.")
    executable: str | None = None
    recipe_file_sha256: Sha256 | None = Field(None, description="Of the recipe, where it is a file of the user's.")
    command_line: list[str] | None = Field(
        None, description="The words of the command that began the run; secrets are replaced by references."
    )


class Timings(_Part):
    """Times in seconds. Those of training go on after a resume; null until they are known."""

    created: float = Field(description="When the run was begun, in seconds since 1970.")
    ended: float | None = Field(description="When it ended, in seconds since 1970.")
    setup_s: float | None = Field(description="From the start of the job to the first step.")
    wall_s: float | None = Field(description="Training, evaluation and checkpoints.")
    cpu_s: float | None = Field(description="CPU time of the same, or of the program for `command`.")
    stacked: int = Field(1, description="Runs that shared its process: with company no time is its own.", ge=1)


class Resources(_Part):
    """What the run used. Null, or not there, where it could not be measured."""

    parameters: int | None = Field(None, description="All of the model's, frozen ones included.")
    trainable_parameters: int | None = None
    flops_per_step: int | None = None
    examples_per_step: int | None = None
    steps_per_epoch: int | None = Field(None, description="Steps that see every example once.")
    tensor_bytes: dict[str, int] | None = Field(None, description="By kind: parameters, gradients, optimizer, …")
    peak_tensor_bytes: int | None = None
    basis: str | None = Field(None, description="How the tensor figures were come by.")
    peak_process_bytes: int | None = None


class FilledCaution(_Part):
    """A caution that the run carries; the codes are those of `core/cautions.py`."""

    code: str
    text: str
    remedy: str


class Telemetry(_Part):
    """What came of sending the run's events to a receiver, over all attempts; what was dropped is in `events.jsonl`."""

    endpoint: str
    sent: int = Field(description="Lines of events.jsonl that the receiver has taken.", ge=0)
    dropped: int = Field(description="Lines that it has not: out of time at the end, or not wanted.", ge=0)
    retries: int = Field(description="Requests of the last attempt that were sent again.", ge=0)
    last_error: str | None = Field(description="Why a request of the last attempt failed, the last time one did.")


class Seal(_Part):
    """A file as it was when the run ended."""

    bytes: int = Field(ge=0)
    crc32: str = Field(pattern="^[0-9a-f]{8}$")


class SeriesExtent(_Part):
    """The whole lines of `metrics.jsonl` at one moment."""

    lines: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: Sha256 = Field(description="Of these bytes.")


class Metadata(_Part):
    """One run: what it was meant to be, how it stands, where it happened and what it used."""

    schema_: Literal[1] = Field(alias="schema")
    run_id: str = Field(description="The name of the directory: <variant>.seed<seed>, or .again<n> behind it.")
    study: str
    variant: str
    seed: int = Field(ge=0, le=MOST)
    attempt: int = Field(description="1, or more for repetitions, which never count as another seed.", ge=1, le=MOST)
    recipe: str
    recipe_file: str | None = Field(description="Where the recipe is a file of the user's.")
    synthetic: bool = Field(description="Whether the numbers are made up.")
    options: dict[str, Any] = Field(description="Every option, resolved.")
    identity: dict[str, Any] = Field(description="The options that can change a number.")
    data: DataIdentity | None
    fingerprint: Sha256 = Field(description="Of recipe, identity, seed and data.")
    status: WrittenStatus = Field(description="As last written: `running` without a living process means interrupted.")
    reason: str | None = Field(description="Why it did not complete.")
    hint: str | None = Field(description="What to do about it.")
    metric: str | None = Field(description="What the run is judged by.")
    direction: Direction | None
    best_metric_name: str | None = Field(description="What selects the best checkpoint.")
    best_metric_mode: Direction | None
    best_metric_value: float | None
    best_checkpoint_step: int | None = Field(ge=-MOST, le=MOST)
    best_checkpoint_path: str | None = Field(description="Relative to the run directory.")
    best_checkpoint_sha256: Sha256 | None
    best_pending: Best | None = Field(description="Set while a new best checkpoint is being put in place.")
    final: dict[str, Spelled] = Field(description="The last value of every metric; empty until the run ends.")
    lineage: Lineage
    environment: Environment
    timings: Timings
    resources: Resources
    cautions: list[FilledCaution]
    telemetry: Telemetry | None = Field(None, description="Not there where events were not sent (--otlp).")
    sealed: dict[str, Seal] | None = Field(
        None, description="By name: files as they were when the run ended. Not there before that, and in older runs."
    )
    checksum: str | None = Field(
        None,
        description="CRC-32 of all other keys; a file that does not have it was written before there was one.",
        pattern="^[0-9a-f]{8}$",
    )
    series: SeriesExtent | None = Field(
        None, description="`metrics.jsonl` when the run ended. Not there before, and in runs of earlier versions."
    )
    series_sha256: dict[str, Sha256] | None = Field(
        None,
        description="Per metric, when the run ended: SHA-256 of its points in the order of steps, each as the step "
        "(64-bit signed integer) and the value (64-bit float), both little-endian.",
    )
