"""Run specifications: a fully resolved cell of a study, with a fingerprint of its content."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fairtrial.core.canonical import content_hash
from fairtrial.core.directions import settle
from fairtrial.core.errors import InvalidOptions
from fairtrial.core.paths import ADHOC_STUDY, run_id

FIXED_SEEDS = (1072, 2043, 3014, 4085, 5156, 6227, 7298, 8369, 9440, 10511, 11582, 12653, 13724, 14795, 15866)


MOST_SEED = 2**63 - 1
MOST_SEEDS = 10_000
"""Maximum number of seeds of one study, so that a typing error does not create a list of a billion numbers."""


def seed_list(count: int) -> list[int]:
    """Return the first `count` seeds. Longer lists start with the shorter ones, so extending a study keeps its runs."""
    if count > MOST_SEEDS:
        raise InvalidOptions(f"{count:,} seeds are more than {MOST_SEEDS:,}", hint="Use fewer seeds.")
    derived = (FIXED_SEEDS[-1] + 1071 * extra for extra in range(1, count - len(FIXED_SEEDS) + 1))
    return [*FIXED_SEEDS[:count], *derived]


CONFIRMING = 1_000_000


def confirmation_seeds(count: int, used: Collection[int] = ()) -> list[int]:
    """Return fresh seeds that were not used for selection, to judge a value that was selected on the usual seeds."""
    if count > MOST_SEEDS:
        raise InvalidOptions(f"{count:,} seeds are more than {MOST_SEEDS:,}", hint="Use fewer seeds.")
    derived = (FIXED_SEEDS[-1] + 1071 * extra for extra in itertools.count(1))
    candidates = (CONFIRMING + seed for seed in itertools.chain(FIXED_SEEDS, derived))
    return list(itertools.islice((seed for seed in candidates if seed not in used), count))


SPLITS = ("train", "eval", "report", "report_best", "test", "val", "validation")


def split_and_quantity(metric: str) -> tuple[str | None, str]:
    """Split `eval_accuracy` into `eval` and `accuracy`. A name without a known prefix (`reward_mean`) has no split."""
    split = max((each for each in SPLITS if metric.startswith(f"{each}_")), key=len, default=None)
    return split, metric if split is None else metric.removeprefix(f"{split}_")


@dataclass(frozen=True)
class Metric:
    """A quantity and its direction, by default inferred from its name. The full name adds a split: `eval_accuracy`."""

    quantity: str
    direction: str = ""

    def __post_init__(self) -> None:
        settled = settle(self.quantity, stated=self.direction or None)
        object.__setattr__(self, "direction", settled.known(f'Pass it: Metric("{self.quantity}", "max") or "min".'))

    def on(self, split: str) -> str:
        return f"{split}_{self.quantity}"


@dataclass(frozen=True)
class Need:
    """Another run that must be complete before this one can start, such as a teacher."""

    recipe: str
    options: Mapping[str, Any]
    seed: int
    label: str


@dataclass(frozen=True)
class RunSpec:
    """One execution of a recipe with fixed options and one seed.

    `options` contains every resolved value. `identity` is the subset that can change results; only this subset
    enters the fingerprint. `recipe_file` is set if the recipe is a user's file.
    """

    recipe: str
    options: Mapping[str, Any]
    identity: Mapping[str, Any]
    seed: int
    study: str = ADHOC_STUDY
    variant: str = "default"
    attempt: int = 1
    recipe_file: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        return run_id(self.variant, self.seed, self.attempt)

    @property
    def name(self) -> str:
        return f"{self.study}/{self.run_id}"

    @property
    def fingerprint(self) -> str:
        """Hash of recipe, resolved options, seed and data. Code and environment are recorded separately."""
        return content_hash(
            {
                "recipe": self.recipe,
                "options": dict(self.identity),
                "seed": self.seed,
                "data": self.data.get("sha256"),
            }
        )

    def with_data(self, data: Mapping[str, str]) -> RunSpec:
        return replace(self, data=data)

    def to_dict(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "options": dict(self.options),
            "identity": dict(self.identity),
            "seed": self.seed,
            "study": self.study,
            "variant": self.variant,
            "attempt": self.attempt,
            "recipe_file": self.recipe_file,
            "data": dict(self.data),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSpec:
        return cls(**values)


@dataclass(frozen=True)
class Job:
    """A run to execute: its spec, the path or URL of the store, and its needs, by name as (study, run id).

    `takeover_token` is the token of a claim on the run whose holder is known to be lost, so that the claim may be
    taken over. Runs with the same `stack_key` may share a process; only the scheduler uses it; it is not serialized.
    """

    spec: RunSpec
    store: str | os.PathLike[str]
    environment: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    takeover_token: int | None = None
    stack_key: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "spec": self.spec.to_dict(),
            "store": str(self.store),
            "environment": dict(self.environment),
            "needs": {name: list(need) for name, need in self.needs.items()},
            "over": self.takeover_token,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Job:
        needs = {name: (study, run) for name, (study, run) in values["needs"].items()}
        return cls(RunSpec.from_dict(values["spec"]), values["store"], values["environment"], needs, values["over"])


BASELINE = "variant:"
"""Prefix of a covariate that is a variant, not a metric."""


def baseline_variant(adjust: str | None) -> str | None:
    """Return the variant that differences are adjusted for; None if `adjust` is a metric or None."""
    return adjust.removeprefix(BASELINE) if adjust is not None and adjust.startswith(BASELINE) else None


def covariate_metric(adjust: str | None) -> str | None:
    """Return the metric that differences are adjusted for; None if `adjust` is a variant or None."""
    return None if adjust is None or adjust.startswith(BASELINE) else adjust
