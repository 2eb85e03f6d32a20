"""Launch the variants of a study and return one number per run; shared by sweeps, comparisons and ablations."""

from __future__ import annotations

import importlib
import os
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fairtrial.api.comparing.gather import MetricQuery, RunSet, from_study
from fairtrial.api.comparing.numbers import RunScores, SeedLayout, align, lay_out_seeds, number_runs
from fairtrial.api.comparing.shown_comparisons import with_look_labels
from fairtrial.api.running.launch import Launched, named_recipe, run_study
from fairtrial.api.running.registered import as_registered
from fairtrial.core.canonical import content_hash
from fairtrial.core.cautions import MISSING_RUNS
from fairtrial.core.deprecation import warn_renamed
from fairtrial.core.directions import settle
from fairtrial.core.errors import InvalidOptions, RunsFailed
from fairtrial.core.findings import Comparison
from fairtrial.core.options import parse_options, result_options
from fairtrial.core.registry import LoadedRecipe, load_recipe
from fairtrial.core.runs import Run, Status
from fairtrial.core.specs import split_and_quantity
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.plan.cells import name_of, resolve
from fairtrial.plan.study import Study
from fairtrial.record.interim_looks import Asked
from fairtrial.record.store import Store
from fairtrial.record.store_location import store_words
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.families import check_adjustment, default_adjustment
from fairtrial.stats.samples import Array
from fairtrial.stats.summaries import SummaryRule

LONGEST_STUDY = 90
"""Longest study name, in characters; leaves space for the suffix that a confirmation adds."""


@dataclass(frozen=True)
class LabConfig(ExecutionPolicy):
    """How a lab command runs and judges, apart from the question that it asks.

    It is also the execution policy of its runs, with stacking enabled by default.

    >>> fairtrial.LabConfig(runs=3, level=0.9, study="grid").level
    0.9
    """

    stack: bool = field(default=True, kw_only=True)
    runs: int | Sequence[int] = 3
    level: float = 0.95
    metric: str | None = None
    direction: str | None = None
    study: str | None = None
    store: str | os.PathLike[str] | None = None

    @property
    def alpha(self) -> float:
        return round(1 - self.level, 12)

    @property
    def seeds(self) -> int | list[int]:
        return self.runs if isinstance(self.runs, int) else list(self.runs)

    def plan_of(self, name: str, recipe: LoadedRecipe, metric: str | None, **values: Any) -> Study:
        """Return a study with these settings that is judged by `metric`, validated like one from a file.

        The study's own metric is still the recipe's, on report data: a sweep selects by a metric that `analyze` does
        not judge by.
        """
        word = str(recipe.file or recipe.name)
        given: dict[str, Any] = {"study": name, "recipe": word, "seeds": self.seeds, "alpha": self.alpha}
        if recipe.metric is None:
            given |= {"metric": self.metric, "direction": self.direction}
        study = parse_options(Study, {**given, **values}, where=name, noun="key")
        check_metric(study, self, metric)
        return study

    def study_of(self, name: str, recipe: LoadedRecipe, metric: str | None, **values: Any) -> Study:
        """Return the same study with its registered seeds, if it has any."""
        return as_registered(self.plan_of(name, recipe, metric, **values), self.plan)

    def judged_by(self, family: str | None) -> tuple[ComparisonConfig, str]:
        """Return how differences between arms are judged: paired by seed, as one family."""
        judged = ComparisonConfig(paired=True, alpha=self.alpha, direction=self.direction or "max").check()
        adjustment = family or default_adjustment(judged)
        check_adjustment(adjustment, judged)
        return judged, adjustment

    def metric_of(self, recipe: LoadedRecipe, split: str) -> str | None:
        """Return the requested metric, or the recipe's own on this split."""
        return self.metric or (recipe.metric.on(split) if recipe.metric else None)

    def launching(self) -> ExecutionPolicy:
        """Deprecated: a LabConfig is an execution policy itself."""
        warn_renamed("fairtrial.LabTerms.launching()", "fairtrial.LabConfig itself", stacklevel=2)
        return self


@dataclass(frozen=True)
class Ran:
    """The arms of a study after their runs: numbers by arm, aligned by seed, and cautions.

    `arms` holds only the seeds that all arms have, to choose a winner. `layout` holds every seed of each arm, to
    compare pairs.
    """

    launched: Launched
    run_set: RunSet
    scores: RunScores
    arms: Mapping[str, Array]
    cautions: Sequence[Mapping[str, str]] = field(default_factory=list)

    @property
    def layout(self) -> SeedLayout:
        return lay_out_seeds({name: self.scores[name] for name in self.arms})

    @property
    def metric(self) -> str:
        return self.run_set.metric

    @property
    def direction(self) -> str:
        return self.run_set.direction

    @property
    def direction_source(self) -> str | None:
        return self.run_set.direction_source

    def runs_of(self, variant: str) -> list[Run]:
        return [run for run in self.launched.runs if run.variant == variant]

    def sample(self, variant: str) -> Array:
        """Return the numbers of an arm's runs; NaN for a run that was lost."""
        return np.array([number.number for number in self.scores[variant].values()], dtype=float)

    def lost(self, variant: str) -> dict[str, str]:
        """Return the seeds of an arm whose runs ended without a valid number, with the reason."""
        return {seed: number.reason or "" for seed, number in self.scores[variant].items() if number.value is None}


def run_arms(study: Study, terms: LabConfig, metric: str | None) -> Ran:
    """Run the missing cells of a study, then read back all of its cells, including those that ran earlier."""
    threading.Thread(target=importlib.import_module, args=("scipy.stats",), daemon=True).start()  # while runs train
    launched = run_study(study, store=terms.store, terms=terms)
    if all(arm.n == 0 for arm in launched.arms):
        first = next(iter(launched.bad), None)
        raise RunsFailed(
            f"no run of study '{study.study}' completed" + (f": {first.name}: {first.reason}" if first else ""),
            hint=f"See: fairtrial runs list --study {shlex.quote(study.study)}{store_words(terms.store)}",
        )
    place = Store.at(terms.store)
    query = MetricQuery([metric] if metric else (), terms.direction)
    run_set = from_study(place, study.study, query)
    seeds = {str(seed) for seed in study.seed_list}
    chosen = {name: [trace for trace in run_set.arms.get(name, ()) if trace.seed in seeds] for name in study.variants}
    own = _own_direction(study, run_set.metric)
    directions = {name: named_recipe(each, own) for name, each in run_set.directions.items()}
    run_set = replace(run_set, arms=chosen, directions=directions)
    scores, _ = number_runs(run_set, run_set.metric, run_set.direction, SummaryRule())
    missing = [arm for arm in chosen if not scores[arm]]
    kept = {name: arm for name, arm in scores.items() if name not in missing}
    planned = len(seeds) * len(chosen)
    scored = sum(len(arm) for arm in scores.values())
    cautions = [*run_set.direction_cautions, *launched.cautions]
    cautions += [MISSING_RUNS.fill(count=planned - scored)] if scored < planned else []
    return Ran(launched, run_set, scores, align(kept), cautions)


def on_view(comparisons: Sequence[Comparison], ran: Ran, terms: LabConfig) -> list[Comparison]:
    """Record that these comparisons are shown to the user, as `analyze` does, and label them."""
    asked = Asked(ran.metric, "t", "two-sided", str(SummaryRule()))
    return with_look_labels(comparisons, ran.run_set, asked, Store.at(terms.store))


def check_metric(study: Study, terms: LabConfig, metric: str | None) -> None:
    """Raise UserError before anything is trained if the direction of the metric is unknown."""
    if metric is not None:
        settle(metric, stated=terms.direction, recipe=_own_direction(study, metric)).known()


def _own_direction(study: Study, metric: str) -> str | None:
    """Return the recipe's direction for this quantity, if it has one."""
    own = load_recipe(study.recipe).metric
    return own.direction if own and own.quantity == split_and_quantity(metric)[1] else None


def mean_loss(runs: Sequence[Run], metric: str) -> float | None:
    """Return the mean loss of completed runs on the split of `metric`; None if it was not logged."""
    split, _ = split_and_quantity(metric)
    finals = [run.final.get(f"{split}_loss") for run in runs if run.status is Status.COMPLETED]
    values = [value for value in finals if isinstance(value, int | float)]
    return sum(values) / len(values) if values else None


def lab_name(
    verb: str, recipe: LoadedRecipe, fixed: Mapping[str, Any], given: str | None, *, variant_values: Mapping[str, Any],
    usual: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """Return the study name of a command. The same settings give the same name, so that their runs are found again.

    `variant_values` are the values of one variant, because some settings are only valid with them; `usual` are default
    settings that the name omits.
    """
    if given is not None:
        return given
    options = resolve(recipe, {**fixed, **variant_values}, where=verb)
    defaults = {**recipe.options.model_construct().model_dump(mode="json"), **(usual or {})}
    identity = result_options(recipe.options, options)
    free = recipe.options.free_values
    if free is not None:  # values of the variants are not settings of the study
        identity[free] = {name: value for name, value in identity[free].items() if name not in variant_values}
    chosen = {n: v for n, v in identity.items() if n not in variant_values and v != defaults.get(n)}
    shown = {name: value for name, value in chosen.items() if not isinstance(value, list | dict)}
    name = "-".join(part for part in (verb, name_of(shown)) if part)
    if len(name) <= LONGEST_STUDY and shown == chosen:
        return name
    return f"{name[: LONGEST_STUDY - 9]}-{content_hash(chosen)[:8]}"


def check_terms(terms: LabConfig, confirm: int = 0) -> None:
    """Raise InvalidOptions, with all problems of the settings, before anything is started."""
    problems = []
    if isinstance(terms.runs, int) and terms.runs < 1:
        problems.append(f"runs must be at least 1, not {terms.runs}")
    if not 0.5 < terms.level < 1:
        problems.append(f"level must lie between 0.5 and 1, not {terms.level:g}")
    if terms.direction not in (None, "max", "min"):
        problems.append(f"direction must be max or min, not {terms.direction!r}")
    if confirm < 0:
        problems.append(f"confirm must be at least 1, not {confirm}")
    if terms.study is not None and len(terms.study) > LONGEST_STUDY:
        problems.append(f"the name of the study must have at most {LONGEST_STUDY} characters")
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:])
