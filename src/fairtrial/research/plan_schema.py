"""Model of the plan in a registration, from which the published JSON schema is generated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fairtrial.core.errors import UserError
from fairtrial.core.paths import check_name

TEXT_ONLY = "text only"
LAST_MOMENT = 253402300800.0
"""The year 10000, which Python's datetime does not support."""

MOST_SEEDS = 1_000_000

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Moment = Annotated[float, Field(description="In seconds since 1970.", ge=0, lt=LAST_MOMENT)]


def _folder_name(name: str) -> str:
    try:
        return check_name("registered", name)
    except UserError as error:
        raise ValueError(error.message) from None


Name = Annotated[str, AfterValidator(_folder_name)]
Direction = Literal["max", "min"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Artifact(_Part):
    """The project that the registration belongs to."""

    id: str
    sha256: Sha256 = Field(description="SHA-256 of artifact.yaml.")


class Code(_Part):
    """The code at registration. A run with other code is a deviation."""

    git_commit: str | None
    git_dirty: bool | None
    git_dirty_hash: str | None = Field(description="Hash of the uncommitted changes.")
    versions: dict[str, str | None] = Field(description="Installed packages that can change a result.")


class Data(_Part):
    """A data set, identified by its content."""

    name: str
    sha256: Sha256


class Arm(_Part):
    """A variant of the study."""

    declared: dict[str, Any] = Field(description="Options as declared in the study.")
    options: dict[str, Any] = Field(description="All options, with defaults filled in.")
    identity: dict[str, Any] = Field(description="The options that can change a result.")
    data: Data | None


class RegisteredStudy(_Part):
    """The study, with its arms in order."""

    name: Name
    recipe: str
    recipe_sha256: Sha256 | None = Field(description="SHA-256 of the recipe's file, if it is the user's own.")
    arms: dict[Name, Arm]


class Seeds(_Part):
    """The seeds, or the number of seeds to derive from the hash of this plan."""

    count: int = Field(ge=1, le=MOST_SEEDS)
    derived: bool
    given: int | list[int] = Field(description="Seeds as given in the study or the command.")
    listed: list[int] | None = Field(description="The seeds; null if they are derived.")

    @model_validator(mode="after")
    def _fit_together(self) -> Seeds:
        if self.derived != (self.listed is None) or len(self.listed or ()) not in (0, self.count):
            raise ValueError("seeds must be either listed or derived")
        return self


class RegisteredSummary(_Part):
    """How a series is summarized as one number per run."""

    type: str
    window: tuple[float, float] | None = Field(strict=False)
    percent: float | None
    percent_window: str
    points: int
    threshold: float | None


class RegisteredAnalysis(_Part):
    """All choices of the analysis."""

    control: str
    candidates: list[str]
    metrics: list[str] = Field(description="Metrics; the verdict is about the first.", min_length=1)
    direction: Direction
    summary: RegisteredSummary
    method: str
    resamples: int
    side: str
    alpha: float
    sesoi: float | None
    unpaired: bool
    family: str | None
    seed: int = Field(description="Random seed for resampling.", ge=0)
    adjust: str | None = Field(
        default=None,
        min_length=1,
        description="Covariate that the difference is adjusted for; absent if there is none.",
    )


class LateRun(_Part):
    """A run that existed before the registration."""

    run: str
    began: Moment


class PlanModel(_Part):
    """What was registered, by whom and when. The hash is computed from its canonical JSON."""

    basis: Literal["study", "command", "text only"]
    command: str | None
    hypothesis: str
    methods: str
    artifact: Artifact
    study: RegisteredStudy | None
    seeds: Seeds | None
    analysis: RegisteredAnalysis | None
    stopping_rule: str = Field(
        description="fixed: no comparison before all registered runs are done; else a rule as text."
    )
    exclusions: list[str] = Field(description="Conditions under which a run is left out.")
    code: Code
    late: list[LateRun] = Field(description="Runs that had already begun; empty if it was registered in time.")
    amends: Sha256 | None = Field(description="Hash of the registration that this one replaces.")
    signer: Sha256 = Field(description="Public key of the signer (Ed25519).")
    time: Moment

    @model_validator(mode="after")
    def _is_whole(self) -> PlanModel:
        absent = {part is None for part in (self.study, self.seeds, self.analysis)}
        if absent != {self.basis == TEXT_ONLY}:
            raise ValueError("a plan must have a study, seeds and an analysis, or be text only")
        return self


class RegistrationModel(_Part):
    """The content of a registration file."""

    fairtrial: Literal["registration"]
    schema_: Literal[1] = Field(alias="schema")
    plan: PlanModel
    sha256: Sha256 = Field(description="SHA-256 of the canonical JSON of the plan: sorted keys, no spaces, UTF-8.")
    signature: str = Field(
        pattern="^[0-9a-f]{128}$",
        description="Ed25519 signature of the lines 'fairtrial registration 1' and the hash, each with its newline.",
    )
