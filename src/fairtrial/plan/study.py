"""A study: variants × seeds, and the analysis that is chosen before the first run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fairtrial.core.errors import UserError
from fairtrial.core.options import parse_options
from fairtrial.core.paths import check_name
from fairtrial.core.plugin_registry import SUMMARIES, plugin_names
from fairtrial.core.schema import STUDY_SCHEMA
from fairtrial.core.scores import BenchmarkSettings
from fairtrial.core.secrets import conceal_study
from fairtrial.core.specs import MOST_SEED, MOST_SEEDS, baseline_variant, seed_list
from fairtrial.core.untrusted import parse_json, read_file

DEFAULT_SEEDS = 15
LARGEST_YAML_BYTES = 1 << 20
"""Size limit of YAML files in bytes. PyYAML reads about 200 kB per second; real files are far below this limit."""


def _one_variant() -> dict[str, dict[str, Any]]:
    return {"default": {}}


if TYPE_CHECKING:
    SummaryName = str
else:
    SummaryName = Literal[tuple(plugin_names(SUMMARIES))]


class Summary(BaseModel):
    """The rule that turns a series into one number per run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    type: SummaryName = Field(default="last", description="Rule that turns a run's series into one number.")
    window: str | None = Field(default=None, description="Range of steps that it uses, as FIRST:LAST; default: all.")
    percent: float | None = Field(default=None, description="Fraction of the steps that it uses instead.", gt=0, le=1)
    percent_window: Literal["first", "last"] = Field(default="last", description="End that the fraction is taken from.")
    points: int = Field(default=1, description="For last: number of points that are averaged.", ge=1)
    threshold: float | None = Field(default=None, description="For time_to: the value to reach.")

    @field_validator("window", mode="before")
    @classmethod
    def _is_a_range(cls, window: str | None) -> str | None:
        if window is None:
            return None
        first, colon, last = str(window).partition(":")
        if not (colon and first.isdigit() and last.isdigit() and int(first) < int(last)):
            raise ValueError(f"must be FIRST:LAST in steps, such as 1000:5000, not {window!r}")
        return window

    @model_validator(mode="after")
    def _fits_together(self) -> Summary:
        if self.window is not None and self.percent is not None:
            raise ValueError("summary: set either window or percent, not both")
        if (self.type == "time_to") != (self.threshold is not None):
            raise ValueError("summary: time_to needs a threshold, and no other type takes one")
        return self


class Study(BaseModel):
    """A study file. Unknown keys are errors; all keys except the name and the recipe have defaults.

    >>> study = fairtrial.Study(
    ...     study="demo", recipe="fake", variants={"base": {}, "new": {"effect": 0.1}}, options={"steps": 20}, seeds=4)
    >>> study.seed_list
    [1072, 2043, 3014, 4085]
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    study: str = Field(description="Name of the study; its folder in the store.")
    recipe: str = Field(description="What is trained: a recipe's name, or a file such as ./my_recipe.py.")
    options: dict[str, Any] = Field(default_factory=dict, description="Option values that all variants share.")
    variants: dict[str, dict[str, Any]] = Field(
        default_factory=_one_variant,
        description="Named sets of option values; the first is the control.",
    )
    seeds: int | list[int] = Field(
        default=DEFAULT_SEEDS, description="Number of seeds from the fixed list, or a list of your own."
    )
    metric: str | None = Field(default=None, description="Metric that the verdict is about; default: the recipe's.")
    direction: Literal["max", "min"] | None = Field(default=None, description="Whether high or low values are better.")
    summary: Summary = Field(default_factory=lambda: Summary.model_validate({}), description="One number per run.")
    sesoi: float | None = Field(default=None, description="Smallest difference that would matter to you.", gt=0)
    alpha: float = Field(default=0.05, description="Maximum error rate of the verdict.", gt=0, lt=0.5)
    adjust: str | None = Field(
        default=None,
        description="Covariate to adjust for, measured before the change: a metric, or variant:NAME.",
        min_length=1,
    )
    benchmark: BenchmarkSettings | None = Field(
        default=None, description="Reference scores for normalization, and the rule that selects the best checkpoint."
    )

    secrets: list[str] = Field(
        default_factory=list,
        description="Names of options, placeholders, flags or environment variables whose values are never recorded.",
    )

    @model_validator(mode="before")
    @classmethod
    def _holds_no_secret(cls, values: Any) -> Any:
        """Replace values that look like credentials by references to environment variables, so no file stores them."""
        return conceal_study(values) if isinstance(values, Mapping) else values

    @field_validator("options", mode="before")
    @classmethod
    def _empty_options_are_fine(cls, options: Any) -> Any:
        return {} if options is None else options

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds_are_numbers(cls, seeds: Any) -> Any:
        listed = seeds if isinstance(seeds, list) else [seeds]
        if any(type(seed) is not int for seed in listed):
            raise ValueError(f"must be an integer or a list of integers, not {seeds!r}")
        return seeds

    @field_validator("variants", mode="before")
    @classmethod
    def _empty_variants_are_fine(cls, variants: Any) -> Any:
        return {name: values or {} for name, values in variants.items()} if isinstance(variants, dict) else variants

    @field_validator("seeds")
    @classmethod
    def _seeds_are_distinct(cls, seeds: int | list[int]) -> int | list[int]:
        listed = [seeds] if isinstance(seeds, int) else seeds
        if isinstance(seeds, int) and seeds < 1:
            raise ValueError(f"must be at least 1, not {seeds}")
        how_many = seeds if isinstance(seeds, int) else len(seeds)
        if how_many > MOST_SEEDS:
            raise ValueError(f"{how_many:,} seeds are more than {MOST_SEEDS:,}")
        if not listed or min(listed) < 0 or max(listed) > MOST_SEED:
            raise ValueError("must be integers from 0 to 2^63 - 1")
        if len(set(listed)) < len(listed):
            twice = sorted(seed for seed, count in Counter(listed).items() if count > 1)
            raise ValueError(f"each seed may occur only once; repeated: {', '.join(map(str, twice[:5]))}")
        return seeds

    @model_validator(mode="after")
    def _names_can_be_folders(self) -> Study:
        if not self.variants:
            raise ValueError("variants: a study needs at least one")
        for kind, name in [("study", self.study), *(("variant", name) for name in self.variants)]:
            try:
                check_name(kind, name)
            except UserError as error:
                raise ValueError(f"{error.message}. {error.hint}") from None
        return self

    @model_validator(mode="after")
    def _adjusts_for_another_variant(self) -> Study:
        """Check `variant:NAME` only; the metrics of the study are not known yet."""
        baseline = baseline_variant(self.adjust)
        if baseline is not None and baseline not in self.variants:
            raise ValueError(f"adjust: no variant '{baseline}' in this study")
        return self

    @property
    def shared_options(self) -> dict[str, Any]:
        """The options that all variants share, including the benchmark settings."""
        if self.benchmark is None:
            return self.options
        return {"benchmark": self.benchmark.model_dump(mode="json", exclude_none=True), **self.options}

    @property
    def seed_list(self) -> list[int]:
        return seed_list(self.seeds) if isinstance(self.seeds, int) else list(self.seeds)

    def to_dict(self) -> dict[str, Any]:
        values = {"schema": STUDY_SCHEMA, **self.model_dump(mode="json"), "seeds": self.seed_list}
        return values if self.secrets else {name: value for name, value in values.items() if name != "secrets"}


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read a study from a YAML file. Raises one error that lists all problems of the file.

    >>> path = fairtrial.write_study("first.yaml", recipe="fake")
    >>> fairtrial.read_study("first.yaml").recipe
    'fake'
    """
    path = Path(path)
    study = parse_options(Study, read_mapping(path), where=path.name, noun="key")
    recipe_file = path.parent / study.recipe
    if study.recipe.endswith(".py") and recipe_file.is_file():  # a path relative to the study file takes precedence
        return study.model_copy(update={"recipe": str(recipe_file)})
    return study


def read_mapping(path: Path, hint: str = "Write one with: fairtrial init") -> dict[str, Any]:
    """Return the mapping in a YAML file; raise a `UserError` if the file does not contain one."""
    content = read_data(path, hint=hint)
    if not isinstance(content, dict):
        raise UserError(f"{path} does not contain a mapping of keys to values", hint=hint)
    return content


def parse_mapping(text: str, path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML text that was already read; `path` names it in messages."""
    content = parse_data(text, path)
    if not isinstance(content, dict):
        raise UserError(f"{path} does not contain a mapping of keys to values")
    return content


def read_data(path: Path, hint: str) -> Any:
    """Return the content of a YAML or JSON file; raise a `UserError` if it cannot be read."""
    try:
        text = read_file(path, most=LARGEST_YAML_BYTES, hint=hint).decode()
    except FileNotFoundError:
        raise UserError(f"no file {path}", hint=hint) from None
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: {error}") from None
    return parse_data(text, path)


def parse_data(text: str, path: Path) -> Any:
    """Parse a text as JSON if the suffix of `path` is `.json`, else as YAML."""
    import yaml

    from fairtrial.core.yaml_values import load_yaml

    if path.suffix.lower() == ".json":
        return parse_json(text.encode(), where=str(path), hint=None, error=UserError)
    try:
        return load_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error) or "not readable"
        raise UserError(f"{path} is not valid YAML{place}: {problem}") from None
