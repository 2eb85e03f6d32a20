"""Enforce a registration when runs are started: only its seeds, only its options."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairtrial.core.canonical import file_hash
from fairtrial.core.cautions import REGISTERED
from fairtrial.core.errors import FairtrialError, UserError
from fairtrial.core.specs import RunSpec
from fairtrial.plan.cells import plan_study
from fairtrial.plan.study import Study
from fairtrial.research.project import find_registration
from fairtrial.research.registration import Registration, read_registration

if TYPE_CHECKING:
    from fairtrial.api.comparing.analysis import Analysis
    from fairtrial.api.comparing.gather import RunSet
    from fairtrial.core.findings import Comparison
    from fairtrial.core.registry import LoadedRecipe

AMEND = "Register the change with research preregister --amends, or use another study name."


def registration_for(study: str, plan: str | os.PathLike[str] | None) -> Registration | None:
    """Return the registration in file `plan`, or the one of this study in the enclosing project."""
    if plan is None:
        return find_registration(study)
    registration = read_registration(Path(plan))
    if registration.study != study:
        about = f"study '{registration.study}'" if registration.study else "no study (it is text only)"
        raise UserError(f"{registration.path.name} registers {about}, not '{study}'")
    return registration


def as_registered(study: Study, plan: str | os.PathLike[str] | None = None) -> Study:
    """Return the study with the seeds of its registration, if it has one. Raises if the study has other seeds."""
    registration = registration_for(study.study, plan)
    if registration is None:
        return study
    seeds, planned_seeds = registration.seeds, registration.plan["seeds"]
    if isinstance(study.seeds, int) and planned_seeds["derived"]:
        if study.seeds not in (len(seeds), planned_seeds["given"]):
            raise _other_seeds(registration, f"{len(seeds)} seeds derived from it, not {study.seeds}")
        return study.model_copy(update={"seeds": seeds})
    other = [seed for seed in study.seed_list if seed not in seeds]
    if other:
        raise _other_seeds(registration, f"other seeds than {', '.join(map(str, other[:5]))}")
    return study


def label_unregistered(analysis: Analysis, run_set: RunSet, project: Path | None = None) -> Analysis:
    """Label an ordinary analysis of a registered study as not the registered analysis.

    `project` is the directory whose registrations count; None means the project that encloses the current directory.
    """
    known = {study: name for study in run_set.studies if (name := _registered_as(study, run_set.plan, project))}
    if not known:
        return analysis
    messages = [REGISTERED.fill(study=study, registration=name) for study, name in known.items()]
    label = "exploratory: not the analysis that was registered"
    return replace(
        analysis,
        cautions=[*messages, *analysis.cautions],
        comparisons=[with_label(each, label) for each in analysis.comparisons],
        secondary=[with_label(each, label) for each in analysis.secondary],
    )


def with_label(comparison: Comparison, label: str) -> Comparison:
    return replace(comparison, label=f"{comparison.label}; {label}" if comparison.label else label)


def _registered_as(study: str, plan: Mapping[str, Any] | None, project: Path | None) -> str | None:
    """Return the name of the registration of a study, from the project or from the stored study; None without one."""
    try:
        registration = find_registration(study, project)
    except FairtrialError:
        return "several registrations, or one that is not intact"
    if registration is not None:
        return str(registration.path)
    own = plan is not None and plan.get("study") == study
    return plan.get("registration") if own and plan else None


def _other_seeds(registration: Registration, what: str) -> UserError:
    return UserError(f"study '{registration.study}' is registered ({registration.name}) with {what}", hint=AMEND)


def refuse_other_options(registration: Registration, specs: Iterable[RunSpec]) -> None:
    """Raise if a variant has other options than it was registered with."""
    arms = registration.plan["study"]["arms"]
    problems = {}
    for spec in specs:
        planned = arms.get(spec.variant, {"identity": dict(spec.identity)})["identity"]
        keys = sorted(key for key in {*planned, *spec.identity} if planned.get(key) != spec.identity.get(key))
        for key in keys:
            message = f"{key} {planned.get(key)} → {spec.identity.get(key)}"
            problems[spec.variant, key] = (
                f"variant '{spec.variant}' is registered ({registration.name}) with other options: {message}"
            )
    if problems:
        first, *rest = problems.values()
        raise UserError(first, problems=rest, hint=AMEND)


def refuse_other_recipe(registration: Registration, recipe: LoadedRecipe) -> None:
    """Raise if the recipe is not the registered one: a user's recipe file must have the registered content."""
    planned = registration.plan["study"]["recipe_sha256"]
    if planned != (file_hash(recipe.file) if recipe.file else None):
        raise UserError(
            f"the file of recipe '{recipe.name}' differs from the one in the registration of study "
            f"'{registration.study}' ({registration.name})",
            hint=AMEND,
        )


def refuse_other_seed(registration: Registration, seed: int) -> None:
    if seed not in registration.seeds:
        raise _other_seeds(registration, f"other seeds than {seed}")


def arms_of(study: Study, recipe: LoadedRecipe) -> list[RunSpec]:
    """Return one cell per variant, to compare options; its seed is a placeholder."""
    return [replace(spec, seed=0) for spec in plan_study(study.model_copy(update={"seeds": [0]}), recipe)]
