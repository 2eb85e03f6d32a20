"""init: write a complete, commented study file."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.core.options import OptionInfo, describe_options
from fairtrial.core.paths import check_name
from fairtrial.core.plugin_registry import SUMMARIES, plugin_names
from fairtrial.core.registry import LoadedRecipe, load_recipe
from fairtrial.plan.study import DEFAULT_SEEDS, Study


def write_study(
    path: str | os.PathLike[str], *, recipe: str = "distill", study: str | None = None, force: bool = False
) -> Path:
    """Write a study file for a recipe, with every key and every option explained in place.

    >>> fairtrial.write_study("second.yaml", recipe="fake").name
    'second.yaml'
    """
    path = Path(path)
    loaded = load_recipe(recipe)
    if path.exists() and not force:
        raise UserError(f"{path} already exists", hint="Choose another --output, or overwrite it with --force.")
    name = check_name("study", study or path.stem.replace(" ", "-"))
    try:
        path.write_text(study_text(loaded, name, path.name), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    return path


def study_text(recipe: LoadedRecipe, name: str, file: str) -> str:
    described = {key: field.description for key, field in Study.model_fields.items()}
    variants = recipe.example["variants"]
    summaries = plugin_names(SUMMARIES)
    metric = recipe.metric.on("report") if recipe.metric else None
    direction = recipe.metric.direction if recipe.metric else "max"
    mark = "" if recipe.metric else "# "  # only the user knows which metrics an external program logs
    return "\n".join(
        [
            f"# A Fairtrial study. Run it with: fairtrial launch {shlex.quote(file)}",
            f"study: {_yaml(name)}  # {described['study']}",
            f"recipe: {_yaml(str(recipe.file or recipe.name))}  # {recipe.summary}",
            "",
            f"# {described['options']}",
            *_options(recipe),
            "",
            f"# {described['variants']}",
            "variants:",
            *(f"  {variant}: {_yaml(values)}" for variant, values in variants.items()),
            "",
            f"seeds: {DEFAULT_SEEDS}  # {described['seeds']}",
            f"metric: {_yaml(metric)}  # {described['metric']}",
            f"{mark}direction: {direction}  # {described['direction']}",
            "",
            f"# {described['summary']}",
            "summary:",
            f"  type: last  # {' or '.join([', '.join(summaries[:-1]), summaries[-1]])}",
            "  # window: 1000:5000  # Range of steps to use; or, instead, a fraction of them:",
            "  # percent: 0.25",
            "  # percent_window: last",
            "  # points: 5  # For last: number of points to average.",
            "  # threshold: 0.9  # For time_to: the value to reach.",
            "",
            f"# sesoi: 0.01  # {described['sesoi']}",
            f"alpha: 0.05  # {described['alpha']}",
            f"# adjust: initial_loss  # {described['adjust']}",
            "",
            f"# secrets: [hub_token]  # {described['secrets']}",
            "",
            f"# {described['benchmark']}",
            "# benchmark:",
            "#   random_score: 0.0  # The raw score that is normalized to 0 …",
            "#   human_score: 1.0  # … and the raw score that is normalized to `scale`.",
            "#   scale: 100",
            f"#   best_metric: {recipe.metric.on('eval') if recipe.metric else 'eval_accuracy'}",
            f"#   best_metric_mode: {direction}",
            "",
        ]
    )


def _options(recipe: LoadedRecipe) -> list[str]:
    given = recipe.example.get("options", {})
    lines = ["options:", *(f"  {key}: {_yaml(value)}" for key, value in given.items())] if given else ["options: {}"]
    rows = [_option_line(info) for info in describe_options(recipe.options) if info.name not in given]
    return [*lines, "# All other options with their defaults; move those that you change into options:", *rows]


def _option_line(info: OptionInfo) -> str:
    choices = f" One of {', '.join(info.choices)}." if info.choices else ""
    unit = f" [{info.unit}]" if info.unit else ""
    return f"#   {info.name}: {_yaml(info.default)}  # {info.help}{choices}{unit}"


def _yaml(value: Any) -> str:
    """Format a value as YAML: JSON is valid YAML, and plain words need no quotes."""
    plain = isinstance(value, str) and value.replace("-", "").replace("_", "").isalnum() and value[0].isalpha()
    if plain and value.lower() not in ("true", "false", "null"):
        return str(value)
    return json.dumps(list(value) if isinstance(value, tuple) else value)
