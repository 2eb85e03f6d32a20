"""Turn run specs into jobs, for `train`, `launch` and the verbs built on them, before anything runs.

resolve data and dependencies → look up existing runs in the store → refuse what cannot or must not run
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fairtrial.core.canonical import canonical_json, content_hash, file_hash
from fairtrial.core.errors import InvalidOptions, RunsFailed
from fairtrial.core.options import CPU, Options, TorchOptions, parse_options
from fairtrial.core.paths import DEPENDENCIES_STUDY
from fairtrial.core.registry import LoadedRecipe, load_recipe, require_installed, require_packages
from fairtrial.core.runs import Run, Status
from fairtrial.core.secrets import PREFIX, redacted_names, references, require_variables, reveal
from fairtrial.core.specs import Job, Need, RunSpec
from fairtrial.jobs.run_session import revealed
from fairtrial.launch.job_plan import JobPlan
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.probe.torch_devices import require_devices
from fairtrial.record.cache import StoreCache
from fairtrial.record.index import list_rows
from fairtrial.record.store import Store
from fairtrial.record.studies import differences, refuse_changed_variants
from fairtrial.train.selection import judgement, refuse_best_metric


def load_checked_recipe(word: str) -> LoadedRecipe:
    recipe = load_recipe(word)
    require_installed(recipe)
    return recipe


def plan_jobs(
    specs: Iterable[RunSpec],
    store: Store,
    environment: Mapping[str, Any],
    tell: Callable[[str], None] = lambda _: None,
) -> JobPlan:
    """Return a job for every spec, with its data, its dependencies, and its existing run in the store.

    Data that the store lacks is created now; `tell` is called with a progress line before that.
    """
    specs = list(specs)
    check_variants(specs)
    planner = _Planner(store, StoreCache(store.paths.cache, tell), environment)
    jobs = [planner.job(spec) for spec in specs]
    needed = {f"{study}/{run}" for job in planner.jobs.values() for study, run in job.needs.values()}
    return JobPlan(jobs, {name: planner.jobs[name] for name in needed}, planner.existing)


def check_variants(specs: Iterable[RunSpec]) -> None:
    """Raise one error with every problem that would make all runs of a variant fail, before anything starts."""
    variants = {(spec.study, spec.variant): spec for spec in specs}
    problems: list[str] = []
    hints: dict[str | None, None] = {}
    for spec in variants.values():
        where = f"variant '{spec.variant}': " if len(variants) > 1 else ""
        recipe = load_recipe(spec.recipe, file=spec.recipe_file)
        if not recipe.options.fills_environment:
            require_variables([spec.options])
        options = parse_options(recipe.options, revealed(recipe, spec), where=spec.name)
        for check in (recipe.check, functools.partial(refuse_best_metric, recipe)):
            try:
                check(options)
            except InvalidOptions as error:
                problems += [where + text for text in (error.message, *error.problems)]
                hints[error.hint] = None
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:], hint=" ".join(filter(None, hints)) or None)


@dataclass(frozen=True)
class _Variant:
    """What all seeds of a variant share."""

    recipe: LoadedRecipe
    options: Options
    data: Mapping[str, Any]
    needs: Mapping[str, Need]


@dataclass
class _Planner:
    """Creates the jobs of a plan and of its dependencies, each once."""

    store: Store
    cache: StoreCache
    environment: Mapping[str, Any]
    jobs: dict[str, Job] = field(default_factory=dict)
    existing: dict[str, Run] = field(default_factory=dict)
    variants: dict[tuple[str, str], tuple[RunSpec, _Variant]] = field(default_factory=dict)
    need_specs: dict[bytes, RunSpec] = field(default_factory=dict)

    def job(self, spec: RunSpec) -> Job:
        if spec.name not in self.jobs:
            variant = self._variant(spec)
            recipe, options = variant.recipe, variant.options
            spec = spec.with_data(variant.data)
            needs = {name: self.job(self._need_spec(need)).spec for name, need in variant.needs.items()}
            existing = self.store.look_at(spec.study, spec.run_id)
            if existing is not None:
                self.existing[spec.name] = existing
            judgement(recipe, options, existing.metadata if existing else None)  # raise now, not in every single job
            spec = _as_recorded(spec, existing)
            source = {"recipe_file_sha256": file_hash(recipe.file)} if recipe.file else {}
            stack_key = recipe.stack_key(options)
            self.jobs[spec.name] = Job(
                spec,
                self.store.address,
                {**self.environment, **source},
                {name: (need.study, need.run_id) for name, need in needs.items()},
                stack_key=stack_key and f"{recipe.name} {stack_key}",
            )
        return self.jobs[spec.name]

    def _variant(self, spec: RunSpec) -> _Variant:
        """Return what all seeds of a variant share. Computed once, because a sweep has thousands of runs."""
        first, variant = self.variants.get((spec.study, spec.variant), (None, None))
        if first is None or variant is None or replace(first, seed=spec.seed, attempt=spec.attempt) != spec:
            variant = self._new_variant(spec)
            self.variants[spec.study, spec.variant] = spec, variant
        return variant

    def _new_variant(self, spec: RunSpec) -> _Variant:
        recipe = load_recipe(spec.recipe, file=spec.recipe_file)
        if not recipe.options.fills_environment:
            require_variables([spec.options])
        options = parse_options(recipe.options, revealed(recipe, spec), where=spec.name)
        if getattr(options, "otlp", None) is not None:
            require_packages("--otlp", ["opentelemetry.proto"], "otlp")
        data = recipe.data(options, self.cache)
        return _Variant(recipe, options, data.identity() if data else {}, recipe.needs(options))

    def _need_spec(self, need: Need) -> RunSpec:
        key = canonical_json([need.recipe, need.label, need.seed, dict(need.options)])
        if key not in self.need_specs:
            self.need_specs[key] = _need_spec(need)
        return self.need_specs[key]


def _as_recorded(spec: RunSpec, existing: Run | None) -> RunSpec:
    """Return the recorded spec of a run from a version that recorded secrets, if nothing else differs."""
    if existing is None or existing.metadata.fingerprint == spec.fingerprint or not redacted_names(spec.options):
        return spec
    known, own = existing.metadata.options, reveal(spec.options)
    return replace(spec, options=known, identity=existing.metadata.identity) if known == own else spec


def _need_spec(need: Need) -> RunSpec:
    """Return the spec of a dependency: an ordinary run in the dependencies study, named by its content hash."""
    recipe = load_checked_recipe(need.recipe)
    options = resolve(recipe, need.options, where=need.label)
    spec = spec_of(recipe, options, study=DEPENDENCIES_STUDY, variant="", seed=need.seed)
    variant = f"{need.label}-{content_hash(dict(spec.identity))[:8]}"
    return replace(spec, variant=variant)


def require_secrets(jobs: Iterable[Job], tell: Callable[[str], None] = lambda _: None) -> None:
    """Raise before anything starts if a secret is not set in the environment; announce which values are redacted."""
    options = [job.spec.options for job in jobs]
    require_variables(options)
    names = redacted_names(options)
    if names:
        variables = ", ".join(name for name in references(options) if name.startswith(PREFIX))
        tell(f"Redacted because they are secrets: {', '.join(names)}. Recorded as references to {variables}.")


def require_devices_here(jobs: Iterable[Job]) -> None:
    """Raise before anything starts if a job asks for a device that torch cannot use on this machine."""
    require_devices(str(job.spec.options.get("device") or CPU) for job in jobs if _uses_torch(job.spec))


def _uses_torch(spec: RunSpec) -> bool:
    return issubclass(load_recipe(spec.recipe, file=spec.recipe_file).options, TorchOptions)


def clear_conflicts(plan: JobPlan, store: Store, *, replace_old: bool) -> JobPlan:
    """Raise if the options of a variant changed; with `replace_old`, archive its old runs instead."""
    specs = {(job.spec.study, job.spec.variant): job.spec for job in plan.jobs}
    rows = [row for study in {study for study, _ in specs} for row in list_rows(store, study)]
    changed = set()
    for row in rows:
        spec = specs.get((row["study"], row["variant"]))
        if spec and row["status"] != Status.DAMAGED and differences(spec, row):
            changed.add((row["study"], row["run"]))
    if not replace_old:
        refuse_changed_variants(specs.values(), [row for row in rows if (row["study"], row["run"]) in changed])
        return plan
    names = {job.spec.name for job in plan.jobs}
    planned = {(job.spec.study, job.spec.run_id) for job in plan.jobs}
    for study, run in sorted(changed | (planned & {(row["study"], row["run"]) for row in rows})):
        store.archive(store.paths.run(study, run))
    return replace(plan, existing={name: run for name, run in plan.existing.items() if name not in names})


def require_needs(plan: JobPlan, jobs: Iterable[Job], store: Store) -> None:
    """Raise unless every dependency is complete: a diverged teacher is a result, but cannot teach."""
    for job in jobs:
        for need in plan.needs_of(job):
            run = store.look_at(need.spec.study, need.spec.run_id)
            if run is None or run.status is not Status.COMPLETED:
                status = f"{run.status}: {run.reason}" if run else "never started"
                raise RunsFailed(
                    f"{need.spec.name}, which {job.spec.name} needs, is not complete ({status})",
                    hint=f"See: fairtrial runs show '{need.spec.name}'",
                )
