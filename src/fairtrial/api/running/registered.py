"""What a registration means for those who make runs: its seeds and no others, its options and no others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
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
    from collections.abc import Iterator

    from fairtrial.api.comparing.analysis import Analysis
    from fairtrial.api.comparing.gather import RunSet
    from fairtrial.core.findings import Comparison
    from fairtrial.core.registry import LoadedRecipe

AMEND = "Register the change (research preregister --amends), or use another study name: it is another study."


class Planned(Exception):
    """Raised instead of launching, with the study that would have been launched."""

    def __init__(self, study: Study) -> None:
        super().__init__(study.study)
        self.study = study


_only_planning: ContextVar[bool] = ContextVar("only_planning", default=False)


@contextmanager
def only_planning() -> Iterator[None]:
    """Whatever would launch a study in here raises `Planned` with it instead."""
    token = _only_planning.set(True)
    try:
        yield
    finally:
        _only_planning.reset(token)


def stop_if_planning(study: Study) -> None:
    if _only_planning.get():
        raise Planned(study)


def registration_for(study: str, plan: str | os.PathLike[str] | None) -> Registration | None:
    """The registration that a person names, or the one of this study in the project around."""
    if _only_planning.get():
        return None
    if plan is None:
        return find_registration(study)
    found = read_registration(Path(plan))
    if found.study != study:
        about = f"study '{found.study}'" if found.study else "no study: it is text only"
        raise UserError(f"{found.path.name} is about {about}, not about '{study}'")
    return found


def as_registered(study: Study, plan: str | os.PathLike[str] | None = None) -> Study:
    """The study with the seeds of its registration, if it has one; refuses other seeds."""
    found = registration_for(study.study, plan)
    if found is None:
        return study
    seeds, told = found.seeds, found.plan["seeds"]
    if isinstance(study.seeds, int) and told["derived"]:
        if study.seeds not in (len(seeds), told["given"]):
            raise _other_seeds(found, f"{len(seeds)} seeds that follow from it, not {study.seeds}")
        return study.model_copy(update={"seeds": seeds})
    other = [seed for seed in study.seed_list if seed not in seeds]
    if other:
        raise _other_seeds(found, f"other seeds than {', '.join(map(str, other[:5]))}")
    return study


def not_by_plan(analysis: Analysis, gathered: RunSet) -> Analysis:
    """An ordinary analysis of a registered study says that it is not the one that was registered."""
    known = {study: name for study in gathered.studies if (name := _registered_as(study, gathered.plan))}
    if not known:
        return analysis
    told = [REGISTERED.fill(study=study, registration=name) for study, name in known.items()]
    label = "exploratory: not the analysis that was registered"
    return replace(
        analysis, cautions=[*told, *analysis.cautions],
        comparisons=[with_label(each, label) for each in analysis.comparisons],
        secondary=[with_label(each, label) for each in analysis.secondary],
    )  # fmt: skip


def with_label(found: Comparison, label: str) -> Comparison:
    return replace(found, label=f"{found.label}; {label}" if found.label else label)


def _registered_as(study: str, plan: Mapping[str, Any] | None) -> str | None:
    """How the registration of a study is called, by the project around or by what the study itself remembers."""
    try:
        found = find_registration(study)
    except FairtrialError:
        return "several registrations, or one that is not intact"
    if found is not None:
        return str(found.path)
    own = plan is not None and plan.get("study") == study
    return plan.get("registration") if own and plan else None


def _other_seeds(found: Registration, what: str) -> UserError:
    return UserError(f"study '{found.study}' is registered ({found.name}) with {what}", hint=AMEND)


def refuse_other_options(found: Registration, specs: Iterable[RunSpec]) -> None:
    """A registered arm has the options that it was registered with."""
    arms = found.plan["study"]["arms"]
    problems = {}
    for spec in specs:
        planned = arms.get(spec.variant, {"identity": dict(spec.identity)})["identity"]
        keys = sorted(key for key in {*planned, *spec.identity} if planned.get(key) != spec.identity.get(key))
        for key in keys:
            told = f"{key} {planned.get(key)} → {spec.identity.get(key)}"
            problems[spec.variant, key] = f"variant '{spec.variant}' is registered ({found.name}) otherwise: {told}"
    if problems:
        first, *rest = problems.values()
        raise UserError(first, problems=rest, hint=AMEND)


def refuse_other_recipe(found: Registration, recipe: LoadedRecipe) -> None:
    """A recipe of one's own is the file that was registered."""
    planned = found.plan["study"]["recipe_sha256"]
    if planned != (file_hash(recipe.file) if recipe.file else None):
        raise UserError(
            f"the file of recipe '{recipe.name}' is not the one that study '{found.study}' is registered with "
            f"({found.name})", hint=AMEND,
        )  # fmt: skip


def refuse_other_seed(found: Registration, seed: int) -> None:
    if seed not in found.seeds:
        raise _other_seeds(found, f"other seeds than {seed}")


def arms_of(study: Study, recipe: LoadedRecipe) -> list[RunSpec]:
    """One cell of each arm; the seed of it means nothing."""
    return [replace(spec, seed=0) for spec in plan_study(study.model_copy(update={"seeds": [0]}), recipe)]
