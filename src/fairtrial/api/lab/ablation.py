"""ablation: measure what each component contributes, by comparing the full model with models that lack it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.api.lab.arms import LabConfig, Ran, check_terms, lab_name, on_view, run_arms
from fairtrial.api.lab.compare import STUDENT, with_student
from fairtrial.api.running.planning import load_checked_recipe
from fairtrial.api.running.recording import recorded
from fairtrial.api.running.registered import as_registered, registration_for
from fairtrial.core.cautions import IDENTICAL_ROWS
from fairtrial.core.errors import InvalidOptions, RunsFailed
from fairtrial.core.findings import Comparison, Estimate, FilledCaution
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.results import Result
from fairtrial.plan.ablations import (
    FULL,
    Removed,
    changes_without,
    check_components,
    earlier_variant_of,
    removals,
    variant_of,
)
from fairtrial.plan.cells import resolve
from fairtrial.plan.study import Study, read_mapping
from fairtrial.record.store import open_store
from fairtrial.research.registration import Registration
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.contrasts import Interaction, interactions
from fairtrial.stats.families import compare_family
from fairtrial.stats.sweeps import mean_of

RECIPE = "distill"
STRATEGY = "combined"
BASE: Mapping[str, Any] = {"strategy": STRATEGY, **STUDENT}
COMPONENTS = ("temperature", "attention_loss", "layer_matching")
RUNS = 3


@dataclass(frozen=True)
class AblationRow:
    """The model without some components. `effect` is the effect of their removal; None for the full model itself."""

    removed: Removed
    accuracy: Estimate
    effect: Comparison | None
    identical: tuple[str, ...]
    lost: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        comparison = self.effect
        return {
            "removed": list(self.removed),
            "accuracy": self.accuracy.value,
            "delta": comparison.effect.value if comparison else None,
            "ci": comparison.effect.limits if comparison else None,
            "p": comparison.p_value if comparison else None,
            "p_adjusted": comparison.adjusted_p if comparison else None,
            "verdict": comparison.verdict.value if comparison else None,
            "runs": self.accuracy.n,
            "identical_to": list(self.identical),
            "lost": len(self.lost),
        }


@dataclass(frozen=True, repr=False)
class Ablation(Result):
    """The full model first, then one row per set of removed components.

    >>> fairtrial.ablation(["temperature"]).baseline  # doctest: +SKIP
    """

    study: str
    metric: str
    direction: str
    level: float
    adjustment: str
    components: Sequence[str]
    base: Mapping[str, Any]
    rows: Sequence[AblationRow]
    interactions: Sequence[Interaction]
    cautions: Sequence[FilledCaution] = ()
    failed: bool = False
    direction_source: str | None = None

    @property
    def full(self) -> AblationRow:
        return self.rows[0]

    def to_dict(self) -> dict[str, Any]:
        full = self.full.accuracy
        return {
            "study": self.study, "metric": self.metric, "direction": self.direction,
            "direction_source": self.direction_source,
            "baseline": {
                "accuracy": full.value, "ci": full.limits, "runs": full.n, "options": dict(self.base),
            },
            "components": list(self.components), "rows": [row.to_dict() for row in self.rows[1:]],
            "interactions": [each.to_dict() for each in self.interactions],
            "family": {"adjustment": self.adjustment, "level": self.level},
            "cautions": list(self.cautions),
        }  # fmt: skip


@recorded("ablation")
def ablation(
    components: Sequence[str] = COMPONENTS,
    *,
    base: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    also: Sequence[str] = (),
    all_pairs: bool = False,
    factorial: bool = False,
    family: str | None = None,
    terms: LabConfig | None = None,
) -> Ablation:
    """Remove components from a base and measure the change, paired by seed.

    The base is the combined strategy on a student that has spatial maps. `base`, a mapping of options or a YAML file
    with one, overrides these defaults, and `options` overrides both. `also` names combinations (`a+b`); `all_pairs` and
    `factorial` remove several components at once, which gives interactions.

    >>> fairtrial.ablation(["temperature"], options={"steps": 50})  # doctest: +SKIP
    """
    terms = terms or LabConfig(runs=RUNS)
    plan = _lay_out_study(
        components, base=base, options=options, also=also, all_pairs=all_pairs, factorial=factorial, family=family,
        terms=terms,
    )  # fmt: skip
    judged, adjustment = terms.judged_by(family)
    ran = run_arms(as_registered(plan.study, terms.plan), terms, plan.metric)
    return _judge(ran, plan.names, components, plan.full, replace(judged, direction=ran.direction), adjustment, terms)


def plan_ablation(
    components: Sequence[str] = COMPONENTS,
    *,
    base: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    also: Sequence[str] = (),
    all_pairs: bool = False,
    factorial: bool = False,
    family: str | None = None,
    terms: LabConfig | None = None,
) -> Study:
    """Return the study that `ablation` would launch, before a registration changes its seeds.

    Starts and writes nothing.
    """
    return _lay_out_study(
        components, base=base, options=options, also=also, all_pairs=all_pairs, factorial=factorial, family=family,
        terms=terms or LabConfig(runs=RUNS),
    ).study  # fmt: skip


@dataclass(frozen=True)
class _AblationPlan:
    """The study of an ablation, and what it was built from."""

    study: Study
    names: Mapping[Removed, str]
    """The variant of each set of removed components."""
    full: Mapping[str, Any]
    metric: str | None


def _lay_out_study(
    components: Sequence[str], *, base: str | os.PathLike[str] | Mapping[str, Any] | None,
    options: Mapping[str, Any] | None, also: Sequence[str], all_pairs: bool, factorial: bool, family: str | None,
    terms: LabConfig,
) -> _AblationPlan:  # fmt: skip
    """Plan the full model and every set of removed components, each as a variant."""
    check_terms(terms)
    recipe = load_checked_recipe(RECIPE)
    check_components(recipe, list(components))
    fixed = with_student({"strategy": STRATEGY, **(_base(base) if base is not None else {}), **(options or {})})
    resolved = resolve(recipe, fixed, where="base")
    _check_base(recipe, resolved, components)
    sets = removals(components, also=also, all_pairs=all_pairs, factorial=factorial)
    terms.judged_by(family)  # raises for an invalid adjustment
    metric = terms.metric_of(recipe, "report")
    study_name = lab_name("ablation", recipe, fixed, terms.study, usual=BASE, variant_values={})
    names = _names(study_name, sets, terms)
    variants = {names[removed]: changes for removed, changes in changes_without(recipe, sets).items()}
    study = terms.plan_of(study_name, recipe, metric, options=fixed, variants=variants)
    return _AblationPlan(study, names, resolved.differing(), metric)


def _names(study: str, sets: Sequence[Removed], terms: LabConfig) -> dict[Removed, str]:
    """Return the name of each variant. A study that an earlier version began or registered keeps its names."""
    registration = registration_for(study, terms.plan)
    known = {*open_store(terms.store, study).variants(study), *_registered_arms(registration)}
    begun = any(earlier_variant_of(removed) in known for removed in sets if removed)
    return {removed: (earlier_variant_of if begun else variant_of)(removed) for removed in sets}


def _registered_arms(registration: Registration | None) -> Sequence[str]:
    study = registration.plan["study"] if registration else None
    return list(study["arms"]) if study else []


def _base(given: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    values = dict(given) if isinstance(given, Mapping) else read_mapping(Path(given))
    return {str(name).replace("-", "_"): value for name, value in values.items()}


def _check_base(recipe: LoadedRecipe, base: Any, components: Sequence[str]) -> None:
    """Raise InvalidOptions before anything is trained if the base does not use a component to be removed."""
    unused = recipe.module.unused_components(base)
    problems = [f"the base does not use {name}: {unused[name]}" for name in components if name in unused]
    if problems:
        used = [name for name in recipe.components if name not in unused]
        hint = f"Change the base, or remove other components. It uses: {', '.join(used) or 'none'}."
        raise InvalidOptions(problems[0], problems=problems[1:], hint=hint)


def _judge(
    ran: Ran, names: Mapping[Removed, str], components: Sequence[str], full: Mapping[str, Any],
    judged: ComparisonConfig, adjustment: str, terms: LabConfig,
) -> Ablation:  # fmt: skip
    if FULL not in ran.arms:
        raise RunsFailed(f"no run of the full model in {ran.launched.study} has a valid {ran.metric}")
    runs = ran.layout
    comparisons = compare_family(runs.arms, FULL, judged, adjustment, ended=runs.ended) if len(runs.arms) > 1 else []
    comparisons = on_view(comparisons, ran, terms) if comparisons else []
    by_name = {each.candidate: replace(each, metric=ran.metric) for each in comparisons}
    same = _identical(ran, list(names.values()))
    rows = [_row(removed, name, ran, by_name, same, terms) for removed, name in names.items()]
    layout = {removed: ran.arms[name] for removed, name in names.items() if name in ran.arms}
    carried = {caution["text"]: caution for each in comparisons for caution in each.cautions}
    flagged = [IDENTICAL_ROWS.fill(removed="+".join(row.removed)) for row in rows if FULL in row.identical]
    return Ablation(
        study=ran.launched.study, metric=ran.metric, direction=ran.direction, direction_source=ran.direction_source,
        level=terms.level, adjustment=(comparisons[0].adjustment if comparisons else None) or adjustment,
        components=list(components), base=full, rows=rows, interactions=interactions(layout, judged),
        cautions=[*flagged, *carried.values(), *ran.cautions],
        failed=bool(ran.launched.bad or ran.launched.missing),
    )  # fmt: skip


def _row(
    removed: Removed,
    name: str,
    ran: Ran,
    comparisons: Mapping[str, Comparison],
    same: Mapping[str, tuple[str, ...]],
    terms: LabConfig,
) -> AblationRow:
    mean = mean_of(ran.sample(name), terms.alpha)
    return AblationRow(removed, mean, comparisons.get(name), same.get(name, ()), ran.lost(name))


def _identical(ran: Ran, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Find arms with identical final numbers on every seed: the options in which they differ have no effect."""
    same: dict[str, list[str]] = {name: [] for name in names}
    for one, other in combinations(names, 2):
        if one in ran.arms and other in ran.arms and np.array_equal(ran.arms[one], ran.arms[other]):
            same[other].append(one)
            same[one].append(other)
    return {name: tuple(others) for name, others in same.items()}
