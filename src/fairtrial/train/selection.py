"""Determine, before the first step, the metric that judges a run and the one that selects its best checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fairtrial.core.directions import Direction, settle
from fairtrial.core.errors import InvalidOptions
from fairtrial.core.options import LoopOptions, Options
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.run_metadata import RunMetadata
from fairtrial.core.scores import NORMALIZED, Scoring, bound_name
from fairtrial.core.specs import Metric, split_and_quantity
from fairtrial.core.training import Trainable


def judgement(recipe: LoadedRecipe, options: Options, before: RunMetadata | None = None) -> dict[str, Any]:
    """Return the metric that the run is judged by and the metric that selects its best checkpoint, with directions.

    `before` is the metadata of an earlier attempt; its direction is kept if none is stated now.
    """
    metric = recipe.metric
    best = selection(recipe, options, before)
    return {
        "metric": metric.on("report") if metric else None,
        "direction": metric.direction if metric else None,
        "best_metric_name": best.metric if best else None,
        "best_metric_mode": best.known(GIVE_MODE) if best else None,
    }


GIVE_MODE = "Pass --best-mode max or --best-mode min."


def selection(recipe: LoadedRecipe, options: Options, before: RunMetadata | None = None) -> Direction | None:
    """Return the metric that selects the best checkpoint, with its direction; None if no metric is known."""
    own = recipe.metric
    chosen = getattr(options, "best_metric", None) or (own.on("eval") if own else None)
    if chosen is None:
        return None
    name = bound_name(chosen) if bounded(recipe, options) else chosen
    recorded = before.best_metric_mode if before and before.best_metric_name == name else None
    same = own is not None and split_and_quantity(chosen)[1] == own.quantity
    return settle(
        name,
        stated=getattr(options, "best_mode", None),
        recorded=[recorded] if recorded else [],
        recipe=own.direction if own and same else None,
    )


def bounded(recipe: LoadedRecipe, options: Options) -> Metric | None:
    """Return the metric whose confidence bound selects the best checkpoint; None if `best_rule` is `value`."""
    if getattr(options, "best_rule", "value") == "value":
        return None
    chosen = getattr(options, "best_metric", None)
    if recipe.metric is None or chosen not in (None, recipe.metric.on("eval")):
        raise InvalidOptions(
            "best_rule: a bound is available only for the recipe's own metric", hint="Leave out --best-metric."
        )
    return recipe.metric


def scoring_of(recipe: LoadedRecipe, options: Options) -> Scoring | None:
    """Return how scores are normalized: by the given references, else by those of the recipe; None without either."""
    given = getattr(options, "benchmark", None)
    references = (given.references if given else None) or recipe.references(options)
    if recipe.metric is None or references is None:
        return None
    return Scoring(recipe.metric.quantity, replace(references, scale=given.scale) if given else references)


def refuse_best_metric(recipe: LoadedRecipe, options: Options) -> None:
    """Raise an error before the launch if the recipe does not evaluate the chosen best metric.

    A recipe that does not declare its metrics is checked only after it is built; see `check_best_metric`.
    """
    declared = recipe.evaluates(options)
    if declared is not None:
        _refuse_other_than(declared, recipe, options)


def check_best_metric(recipe: LoadedRecipe, trainable: Trainable, options: LoopOptions) -> None:
    """Check the best metric of a recipe that does not declare its metrics, by one evaluation before the first step."""
    if options.best_metric is not None and recipe.evaluates(options) is None:
        _refuse_other_than(list(trainable.evaluate("eval")), recipe, options)


def _refuse_other_than(quantities: Sequence[str], recipe: LoadedRecipe, options: Options) -> None:
    chosen = getattr(options, "best_metric", None)
    normalized, scoring = f"eval_{NORMALIZED}", scoring_of(recipe, options)
    if chosen == normalized and scoring is None:
        raise InvalidOptions(
            f"best_metric: {normalized} needs reference scores for normalization",
            hint="Pass both: --benchmark random_score=… --benchmark human_score=…",
        )
    names = [f"eval_{quantity}" for quantity in quantities] + ([normalized] if scoring else [])
    if chosen is not None and chosen not in names:
        raise InvalidOptions(
            f"best_metric: {recipe.name} does not evaluate '{chosen}'",
            hint=f"{recipe.name} evaluates {', '.join(names)}.",
        )
