"""What a run is judged by, and what selects its best checkpoint: settled before the first step."""

from __future__ import annotations

from typing import Any

from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.core.options import LoopOptions, Options
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.scores import NORMALIZED, Scoring, bound_name
from fairtrial.core.specs import Metric
from fairtrial.core.training import Trainable


def judgement(recipe: LoadedRecipe, options: Options) -> dict[str, Any]:
    """What the run is judged by, and what selects its best checkpoint."""
    metric = recipe.metric
    selecting = getattr(options, "best_metric", None) or (metric.on("eval") if metric else None)
    if bounded(recipe, options):
        selecting = bound_name(str(selecting))
    mode = getattr(options, "best_mode", None) or (metric.direction if metric else "max")
    return {
        "metric": metric.on("report") if metric else None,
        "direction": metric.direction if metric else None,
        "best_metric_name": selecting,
        "best_metric_mode": mode if selecting else None,
    }


def bounded(recipe: LoadedRecipe, options: Options) -> Metric | None:
    """The metric that is judged by its confidence bound, where that was asked for."""
    if getattr(options, "best_rule", "value") == "value":
        return None
    chosen = getattr(options, "best_metric", None)
    if recipe.metric is None or chosen not in (None, recipe.metric.on("eval")):
        raise InvalidOptions(
            "best_rule: a bound is known for the recipe's own metric alone", hint="Leave out --best-metric."
        )
    return recipe.metric


def check_best_metric(trainable: Trainable, options: LoopOptions, scoring: Scoring | None) -> None:
    """A misspelt metric would select nothing, and say so only after hours: ask before the first step."""
    if options.best_metric is None:
        return
    normalized = f"eval_{NORMALIZED}"
    if options.best_metric == normalized and scoring is None:
        raise InvalidOptions(
            f"best_metric: {normalized} needs references to normalize by",
            hint="Give both: --benchmark random_score=… --benchmark human_score=…",
        )
    names = [f"eval_{quantity}" for quantity in trainable.evaluate("eval")] + ([normalized] if scoring else [])
    if options.best_metric not in names:
        raise InvalidOptions("best_metric: " + unknown("evaluation metric", options.best_metric, names))
