"""Cells: every variant with every seed. All options are resolved and checked before the first run starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from fairtrial.core.canonical import content_hash
from fairtrial.core.errors import InvalidOptions
from fairtrial.core.options import Options, parse_options, result_options
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.secrets import conceal
from fairtrial.core.specs import RunSpec
from fairtrial.plan.study import Study

LONGEST_LABEL = 72
MOST_RUNS = 100_000
"""Maximum number of runs of one study, so that planning takes seconds, not hours."""


def plan_study(study: Study, recipe: LoadedRecipe) -> list[RunSpec]:
    """Return all cells of a study, ordered by seed, so that an interrupted launch leaves complete pairs."""
    arms, problems = {}, []
    for variant, values in study.variants.items():
        try:
            options = resolve(recipe, {**study.shared_options, **values}, where=f"variant '{variant}'")
            arms[variant] = spec_of(recipe, options, study=study.study, variant=variant)
        except InvalidOptions as error:
            problems += [error.message, *error.problems]
    if problems:
        first, *rest = dict.fromkeys(problems)
        raise InvalidOptions(first, problems=rest)
    seeds = study.seed_list
    if len(arms) * len(seeds) > MOST_RUNS:
        raise InvalidOptions(
            f"{len(arms):,} variants with {len(seeds):,} seeds are more than {MOST_RUNS:,} runs",
            hint="Split the study, or use fewer seeds.",
        )
    return [replace(arm, seed=seed) for seed in seeds for arm in arms.values()]


def resolve(recipe: LoadedRecipe, values: Mapping[str, Any], *, where: str) -> Options:
    """Return validated options. If the recipe accepts free values, keys that are not options are stored there.

    Credentials among the values become references to environment variables, so that no name or file contains them.
    """
    values = conceal(values)
    free = recipe.options.free_values
    if free is None:
        return parse_options(recipe.options, values, where=where)
    known = {name: value for name, value in values.items() if name in recipe.options.model_fields}
    others = {name: value for name, value in values.items() if name not in known}
    return parse_options(recipe.options, {**known, free: {**known.get(free, {}), **others}}, where=where)


def spec_of(
    recipe: LoadedRecipe, options: Options, *, study: str, variant: str, seed: int = 0, attempt: int = 1
) -> RunSpec:
    return RunSpec(
        recipe=recipe.name,
        options=options.to_dict(),
        identity=result_options(recipe.options, options),
        seed=seed,
        study=study,
        variant=variant,
        attempt=attempt,
        recipe_file=str(recipe.file) if recipe.file else None,
    )


def label(recipe: LoadedRecipe, options: Options) -> str:
    """Return a variant's name from its non-default options: `model=cnn,steps=3000`, or `default`.

    Of a mapping such as `benchmark`, the name has the settings that were given: `random_score=0.1,human_score=0.9`.
    """
    chosen: dict[str, Any] = {}
    for name, value in _naming_options(recipe, options).items():
        for key, part in _given_parts(name, getattr(options, name, None), value).items():
            chosen[f"{name}.{key}" if key in chosen else key] = part
    return name_of(chosen) or "default"


def earlier_label(recipe: LoadedRecipe, options: Options) -> str:
    """Return the name that earlier versions gave the variant, to find runs that one of them began."""
    return name_of(_naming_options(recipe, options)) or "default"


def _naming_options(recipe: LoadedRecipe, options: Options) -> dict[str, Any]:
    identity = result_options(recipe.options, options)
    return {name: value for name, value in options.differing().items() if name in identity}


def _given_parts(name: str, parsed: Any, value: Any) -> dict[str, Any]:
    """Return an option by its name, or the given settings of one that is a mapping."""
    if isinstance(parsed, BaseModel):
        value = parsed.model_dump(mode="json", exclude_defaults=True)
    return {key: part for key, part in value.items() if part is not None} if isinstance(value, dict) else {name: value}


def name_of(chosen: Mapping[str, Any]) -> str:
    """Return option values as a valid directory name; a hash keeps long or sanitized names distinct."""
    text = ",".join(f"{name}={_short(value)}" for name, value in chosen.items())
    name = re.sub(r"[^A-Za-z0-9._+=,@-]+", "-", text).strip("-")
    if name == text and len(name) <= LONGEST_LABEL:
        return name
    return f"{name[: LONGEST_LABEL - 9]}-{content_hash(chosen)[:8]}"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "+".join(f"{key}={part}" for key, part in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
