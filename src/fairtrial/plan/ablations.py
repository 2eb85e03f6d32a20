"""Ablations: the sets of components to remove, each alone, in named combinations, in all pairs, or as every subset."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.core.registry import LoadedRecipe

FULL = "full"
MOST_FACTORIAL = 6

Removed = tuple[str, ...]


def check_components(recipe: LoadedRecipe, names: Sequence[str]) -> None:
    valid = recipe.components
    if not valid:
        raise InvalidOptions(f"recipe '{recipe.name}' has no components that can be removed")
    problems = [unknown("component", name, valid) for name in names if name not in valid]
    problems += [f"component {name} is named twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    if not names:
        problems.append("no component is named")
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:], hint=f"Components: {', '.join(valid)}.")


def removals(
    components: Sequence[str], *, also: Sequence[str] = (), all_pairs: bool = False, factorial: bool = False
) -> list[Removed]:
    """Return the sets of components to remove; the empty set (the full model) comes first."""
    if factorial and len(components) > MOST_FACTORIAL:
        raise InvalidOptions(
            f"a factorial of {len(components)} components has {2 ** len(components)} settings",
            hint=f"Name at most {MOST_FACTORIAL} components, or use --all-pairs.",
        )
    most = len(components) if factorial else 2 if all_pairs else 1
    sets = [chosen for size in range(most + 1) for chosen in itertools.combinations(components, size)]
    for text in also:
        named = tuple(part.strip() for part in text.split("+"))
        problems = [unknown("component", name, components) for name in named if name not in components]
        if problems:
            raise InvalidOptions(
                f"--also {text}: {problems[0]}", problems=problems[1:], hint=f"Components: {', '.join(components)}."
            )
        sets.append(tuple(name for name in components if name in named))
    return list(dict.fromkeys(sets))


def changes_without(recipe: LoadedRecipe, sets: Sequence[Removed]) -> dict[Removed, dict[str, Any]]:
    """Return the option values that remove each set of components."""
    return {removed: _changes(recipe.components, removed) for removed in sets}


def variant_of(removed: Removed) -> str:
    """`full`, `without-attention_loss`, `without-temperature+attention_loss`"""
    return f"without-{'+'.join(removed)}" if removed else FULL


def earlier_variant_of(removed: Removed) -> str:
    """Return the name that earlier versions gave the variant. Its space made the ids of its runs hard to copy."""
    return f"without {'+'.join(removed)}" if removed else FULL


def _changes(components: Mapping[str, Mapping[str, Any]], removed: Removed) -> dict[str, Any]:
    return {key: value for name in removed for key, value in components[name].items()}
