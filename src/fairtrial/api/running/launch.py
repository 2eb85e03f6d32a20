"""launch: run the missing cells of variants × seeds, locally or on a cluster."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fairtrial.api.running.execution import complete
from fairtrial.api.running.interim_looks import label_and_record_looks
from fairtrial.api.running.planning import (
    check_variants,
    clear_conflicts,
    load_checked_recipe,
    plan_jobs,
    require_devices_here,
    require_secrets,
)
from fairtrial.api.running.recording import recorded
from fairtrial.api.running.registered import (
    arms_of,
    as_registered,
    refuse_other_options,
    refuse_other_recipe,
    registration_for,
)
from fairtrial.api.running.study_metric import is_outcome, rule_of_study, settle_direction
from fairtrial.api.running.workload import PaceWatcher, Workload, workload_of
from fairtrial.core.cautions import (
    DAMAGED_RUNS,
    DIRECTION_UNKNOWN,
    DIRTY_TREE,
    FEW_SEEDS,
    FINAL_PARTIAL,
    METRIC_NOT_LOGGED,
    NOT_BEFORE_ITS_TIME,
    NOT_FINITE,
    OTHER_COMMIT,
)
from fairtrial.core.directions import Direction
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.formatting import counted
from fairtrial.core.options import CPU, describe_options, parse_options
from fairtrial.core.paths import DEPENDENCIES_STUDY
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.results import Result
from fairtrial.core.runs import Run, Status, headline
from fairtrial.core.secrets import references
from fairtrial.core.specs import RunSpec, split_and_quantity
from fairtrial.jobs.processes import VISIBLE_DEVICES
from fairtrial.launch.contract import Described, LaunchRequest, ResourceRequest
from fairtrial.launch.engines import LauncherModule, load_engine
from fairtrial.launch.job_plan import JobPlan
from fairtrial.launch.local import slots_of
from fairtrial.launch.policy import LOCAL, ExecutionPolicy
from fairtrial.plan.cells import plan_study
from fairtrial.plan.study import Study, read_study
from fairtrial.probe.gpu import Gpus
from fairtrial.record.environment import machine, surroundings
from fairtrial.record.heartbeat import heartbeat_seconds
from fairtrial.record.interim_looks import Asked, InterimLook
from fairtrial.record.leases import RENEWALS_PER_LEASE, lease_seconds
from fairtrial.record.series import unspell
from fairtrial.record.store import Store, open_store
from fairtrial.record.store_location import store_words
from fairtrial.record.studies import load_plan, save_plan
from fairtrial.research.deviations import FIXED
from fairtrial.research.registration import Registration
from fairtrial.stats.describe import PairedDifference, VariantSummary, describe_arms, describe_differences
from fairtrial.stats.seed_effect import seed_effect_cautions

FEW = 3
SHOWN_NAMES = 5
MISSED_HEARTBEATS = 3
"""Smallest --lost-after and --hung-after, in heartbeat intervals: one late heartbeat does not mean a lost run."""
SKYPILOT = "skypilot"
MOST_NAMED = 5


@dataclass(frozen=True, repr=False)
class Launched(Result):
    """The state of a study after a launch.

    >>> study = fairtrial.Study(
    ...     study="demo", recipe="fake", variants={"base": {}, "new": {"effect": 0.1}}, options={"steps": 20}, seeds=4)
    >>> [arm.completed for arm in fairtrial.launch(study).arms]
    [4, 4]
    """

    study: str
    store: str
    metric: str | None
    direction: str | None
    """`max` or `min`; None if it is unknown, in which case no variant is called better."""
    runs: Sequence[Run]
    made: Sequence[str]
    missing: Sequence[str]
    arms: Sequence[VariantSummary]
    differences: Sequence[PairedDifference]
    cautions: Sequence[Mapping[str, str]] = ()
    next_commands: Sequence[str] = ()
    synthetic: bool = False
    direction_source: str | None = None
    workload: Workload | None = None
    """The work that was announced before the first run started."""

    @property
    def bad(self) -> list[Run]:
        return [run for run in self.runs if run.status is not Status.COMPLETED]

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.study, "store": str(self.store), "synthetic": self.synthetic, "metric": self.metric,
            "direction": self.direction, "direction_source": self.direction_source,
            "runs": [
                {
                    "run": run.name, "variant": run.variant, "seed": run.seed, "status": run.status.value,
                    "reason": run.reason, "value": run.final.get(self.metric or ""),
                    "telemetry": run.metadata.telemetry,
                }
                for run in self.runs
            ],
            "made": list(self.made), "missing": list(self.missing),
            "arms": [asdict(arm) for arm in self.arms],
            "differences": [asdict(difference) for difference in self.differences],
            "cautions": list(self.cautions), "next": list(self.next_commands),
            "workload": self.workload.to_dict() if self.workload else None,
        }  # fmt: skip


def plan_launch(
    recipe: str,
    *,
    study: str | None = None,
    options: Mapping[str, Any] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: int | list[int] | None = None,
    metric: str | None = None,
    direction: str | None = None,
    secrets: Sequence[str] = (),
    store: str | os.PathLike[str] | None = None,
) -> Study:
    """Return a validated study of these variants and seeds. Starts nothing and writes nothing.

    If `study` is None, the study gets a name that is not used in the store. Without `variants` it has a single variant,
    `default`.
    """
    values: dict[str, Any] = {
        "study": study or default_name(recipe, store),
        "recipe": recipe,
        "options": options or {},
        "variants": variants or {"default": {}},
        "metric": metric,
        "direction": direction,
        "secrets": list(secrets),
    }
    if seeds is not None:
        values["seeds"] = seeds
    return parse_options(Study, values, where="launch")


def plan_launch_of_file(
    path: str | os.PathLike[str], *, seeds: int | list[int] | None = None, secrets: Sequence[str] = ()
) -> Study:
    """Return the study in a file, with `seeds` replaced and `secrets` added if they are given."""
    study = read_study(Path(path))
    changes: dict[str, Any] = {} if seeds is None else {"seeds": seeds}
    if secrets:
        changes["secrets"] = [*study.secrets, *secrets]
    return parse_options(Study, {**study.model_dump(), **changes}, where=str(path)) if changes else study


@recorded("launch")
def launch(
    study: Study, *, store: str | os.PathLike[str] | None = None, terms: ExecutionPolicy | None = None
) -> Launched:
    """Run every missing cell of a study and return the state of the whole study.

    A registered study runs with its registered seeds and options. The caller sees the returned differences, so the
    study records an interim look, as it does for `analyze`.

    >>> study = fairtrial.Study(
    ...     study="demo", recipe="fake", variants={"base": {}, "new": {"effect": 0.1}}, options={"steps": 20}, seeds=4)
    >>> len(fairtrial.launch(study).runs)
    8
    """
    return _with_look_labels(*_fill(study, store, terms or ExecutionPolicy()))


def run_study(
    study: Study, *, store: str | os.PathLike[str] | None = None, terms: ExecutionPolicy | None = None
) -> Launched:
    """Like `launch`, for callers that do not show the differences or that record their own interim look."""
    return _fill(study, store, terms or ExecutionPolicy())[0]


def _fill(study: Study, store: str | os.PathLike[str] | None, policy: ExecutionPolicy) -> tuple[Launched, Study, Store]:
    """Run the missing cells. Returns the resulting state, the study with its registered seeds, and its store."""
    recipe = load_checked_recipe(study.recipe)
    study, registration = _as_registered(study, recipe, policy.plan)
    if registration:
        policy.tell(f"Registered: {registration.name}, {counted(len(registration.seeds), 'seed')}")
    specs = plan_study(study, recipe)
    environment = surroundings(Path.cwd())
    if policy.strict and environment["git_dirty"] is not False:
        what = (
            "the working tree has uncommitted changes" if environment["git_dirty"] else "this is not a git repository"
        )
        raise UserError(f"--strict: {what}", hint="Commit first, or launch without --strict.")
    place = Store.at(store)
    engine, request = _launch_request(study, place, policy, usable_gpus(recipe, specs))
    engine.check(request)
    place.check_writable()
    place.pull(study.study, DEPENDENCIES_STUDY)
    # All checks come before save_plan, so that a refused launch does not change the stored study.
    plan = plan_jobs(specs, place, environment, policy.tell)
    check_direction(study, recipe, [run for job in plan.jobs if (run := plan.existing.get(job.spec.name))])
    plan = clear_conflicts(plan, place, replace_old=policy.replace_old)
    require_secrets(plan.missing(retry_failed=policy.retry_failed), policy.tell)
    if policy.on == LOCAL:  # the machines of other launchers have other devices
        require_devices_here(plan.missing(retry_failed=policy.retry_failed))
    save_plan(place, {**study.to_dict(), **({"registration": registration.sha256} if registration else {})})
    policy.ready(plan)
    made, workload = _run_missing(plan, place, recipe, policy, engine, request)
    launched = replace(stand(place, study, recipe, plan, made, environment), workload=workload)
    return (launched if registration is None else _as_preregistered(launched, registration)), study, place


def _with_look_labels(launched: Launched, study: Study, store: Store) -> Launched:
    """Record an interim look at the differences in the table, and add the resulting cautions.

    The table shows no test, so the look has no method and no side. Its metric and summary are those of the study, so
    a later default `analyze` counts as the same question.
    """
    if not launched.differences or launched.metric is None:
        return launched
    asked = Asked(launched.metric, summary=str(rule_of_study(study.summary.model_dump())))
    planned = [str(seed) for seed in study.seed_list]
    views = []
    for each in launched.differences:
        pair = (each.control, each.candidate)
        shown = {
            name: [str(run.seed) for run in launched.runs if run.variant == name and is_outcome(run.status)]
            for name in pair
        }
        views.append(InterimLook(asked, shown, dict.fromkeys(pair, planned)))
    messages = [caution for each in label_and_record_looks(store, launched.study, views) for caution in each.cautions]
    new = {caution["text"]: caution for caution in messages}
    return replace(launched, cautions=[*launched.cautions, *new.values()])


def _as_registered(
    study: Study, recipe: LoadedRecipe, plan: str | os.PathLike[str] | None
) -> tuple[Study, Registration | None]:
    """Return the study with its registered seeds, and its registration if it has one."""
    registration = registration_for(study.study, plan)
    if registration is None:
        return study, None
    refuse_other_recipe(registration, recipe)
    refuse_other_options(registration, arms_of(study, recipe))
    return as_registered(study, plan), registration


def _as_preregistered(launched: Launched, registration: Registration) -> Launched:
    """Suggest the registered analysis as the next command, and hide results until the study is complete.

    Under a fixed stopping rule, means and differences stay hidden while runs are missing: showing them would be an
    interim look that the registration does not allow.
    """
    wanted = {(arm, seed) for arm in registration.plan["study"]["arms"] for seed in registration.seeds}
    missing = wanted - {(run.variant, run.seed) for run in launched.runs if run.status.is_result}
    if missing and registration.plan["stopping_rule"] == FIXED:
        unseen = NOT_BEFORE_ITS_TIME.fill(missing=len(missing), planned=len(wanted))
        arms = [replace(arm, mean=None, sd=None) for arm in launched.arms]
        launched = replace(launched, arms=arms, differences=[], cautions=[unseen, *launched.cautions])
    command = f"fairtrial analyze --plan {shlex.quote(str(registration.path))}{store_words(launched.store)}"
    rest = [each for each in launched.next_commands if not each.startswith("fairtrial analyze ")]
    return replace(launched, next_commands=[command, *rest])


def usable_gpus(recipe: LoadedRecipe, specs: Sequence[RunSpec]) -> int | None:
    """Return how many GPUs a run can use: at most one for a recipe, None (unknown) for an external program."""
    if recipe.execute is not None:
        return None
    devices = {str(spec.options.get("device") or CPU) for spec in specs}
    return 0 if devices == {CPU} else 1


def _launch_request(
    study: Study, store: Store, policy: ExecutionPolicy, usable: int | None, *, to_use: bool = True
) -> tuple[LauncherModule, LaunchRequest]:
    """Return the requested launcher and a launch request with the fields that are known before jobs are planned."""
    _check_time_limits(store, policy)
    engine = load_engine(policy.on, to_use=to_use)
    request = LaunchRequest(
        study=study.study,
        store=store.address,
        home=str(store.paths.launcher(study.study)),
        options=engine.settings(policy.settings),
        preload=[study.recipe],
        jobs=policy.jobs,
        resources=ResourceRequest(policy.cpus, policy.gpus, policy.memory_gb),
        usable_gpus=usable,
        devices=_devices(policy),
        environment=references([study.options, study.variants]),
        tell=policy.tell,
    )
    return engine, request


def _check_time_limits(store: Store, policy: ExecutionPolicy) -> None:
    """Refuse time limits shorter than a few heartbeat intervals: healthy runs would count as lost."""
    every = heartbeat_seconds()
    if store.url:
        every = max(every, lease_seconds() / RENEWALS_PER_LEASE)
    for flag, seconds in (("--lost-after", policy.lost_after), ("--hung-after", policy.hung_after)):
        if seconds is not None and seconds < MISSED_HEARTBEATS * every:
            raise UserError(
                f"{flag} {seconds:g} is too short: a run writes a heartbeat every {every:g} s",
                hint=f"Pass {MISSED_HEARTBEATS * every:g} or more.",
            )


def _devices(policy: ExecutionPolicy) -> list[str]:
    """Return the local GPUs to distribute runs over, one per run. Raises if fewer are available than requested."""
    if policy.gpus == 0 and policy.on != SKYPILOT:
        raise UserError(
            f"--gpus 0 has no effect with --on {policy.on}: no GPU is already the default there", hint="Omit --gpus."
        )
    if policy.gpus is None or policy.on != LOCAL:
        return []
    if policy.jobs is not None and policy.jobs > policy.gpus:
        raise UserError(
            f"--jobs {policy.jobs} would put several runs on one of {policy.gpus} GPUs", hint="Omit --jobs."
        )
    named = os.environ.get(VISIBLE_DEVICES)
    cards = Gpus()
    visible = named.split(",") if named else [str(number) for number in range(cards.count)]
    if len(visible) < policy.gpus:
        why = f"${VISIBLE_DEVICES} names {len(visible)}" if named else cards.unavailable or f"{cards.count} found"
        raise UserError(f"--gpus {policy.gpus}: {why}", hint="Request fewer GPUs, or launch without --gpus.")
    return visible[: policy.gpus]


def _run_missing(
    plan: JobPlan,
    store: Store,
    recipe: LoadedRecipe,
    policy: ExecutionPolicy,
    engine: LauncherModule,
    request: LaunchRequest,
) -> tuple[list[str], Workload]:
    missing = plan.missing(retry_failed=policy.retry_failed)
    if not missing:
        return [], Workload(0, None)
    needs = plan.missing_needs(missing)
    # The job server imports these once; the jobs are forked from it.
    recipes = {str(recipe.file) if recipe.file else recipe.name, *(need.spec.recipe for need in needs)}
    request = replace(
        request,
        cells=len(missing),
        preload=[*sorted(recipes), "pyarrow.parquet", *store.modules],
        fresh=any(job.spec.options.get("threads", 1) > 1 for job in missing),
    )
    with closing(engine.open(request)) as launcher:
        work = workload_of(  # computed while the job server imports its modules
            [job.spec for job in missing],
            recipe,
            store,
            missing[0].environment,
            at_once=launcher.slots if policy.on == LOCAL else None,
            measured_here=not (needs or policy.stack),
        )
        for line in work.lines():
            policy.tell(line)
        if not work.seconds:
            policy = replace(policy, watch=PaceWatcher(policy.watch, policy.tell, store, work.shorter))
        runs = complete(plan, store, launcher, policy)
    return [run.key for run in runs if not (run.outcome and run.outcome.already_done)], work


def stand(
    store: Store,
    study: Study,
    recipe: LoadedRecipe,
    plan: JobPlan,
    made: Sequence[str],
    git: Mapping[str, Any],
) -> Launched:
    """Read the study's runs back from the store and build its result table."""
    by_name: dict[str, Run | None] = {}
    for job in plan.jobs:
        run = store.look_at(job.spec.study, job.spec.run_id)
        by_name[job.spec.name] = run if run and _is_of(run, job.spec.fingerprint) else None
    runs = [run for run in by_name.values() if run]
    completed = [run for run in runs if run.status is Status.COMPLETED]
    metric = _metric_of(study, recipe, completed)
    way = _direction_of(metric, study, recipe, runs) if metric else None
    values = {
        variant: {
            run.seed: float(unspell(run.final[metric or ""]))
            for run in runs
            if run.variant == variant and run.status is Status.COMPLETED and metric in run.final
        }
        for variant in study.variants
    }
    arms = describe_arms(values, {v: [r for r in runs if r.variant == v] for v in study.variants})
    kept = [run for name in by_name if name not in made and (run := plan.existing.get(name))]
    return Launched(
        study=study.study,
        store=store.address,
        metric=metric,
        direction=way.better if way else None,
        direction_source=way.source if way else None,
        runs=runs,
        made=list(made),
        missing=[name for name, run in by_name.items() if run is None],
        arms=arms,
        differences=describe_differences(values),
        cautions=[
            *_about_metric(way, completed, len(arms)),
            *_cautions(runs, kept, arms, git, metric),
            *(_constant_metrics(values, completed, metric) if metric else ()),
        ],
        next_commands=_next_commands(study.study, store, runs),
        synthetic=recipe.synthetic,
    )


def _is_of(run: Run, fingerprint: str) -> bool:
    """Return whether a run is the planned one. A damaged run is identified by its path only."""
    return run.status is Status.DAMAGED or run.metadata.fingerprint == fingerprint


def _metric_of(study: Study, recipe: LoadedRecipe, completed: Sequence[Run]) -> str | None:
    """Return the metric of the table: the study's, the recipe's, the one the program named, or the likeliest one.

    Raises if the study names a metric that no completed run logged; no other metric takes its place.
    """
    if study.metric:
        logged = sorted({name for run in completed for name in run.final})
        if logged and study.metric not in logged:
            raise UserError(
                unknown("metric", study.metric, logged),
                hint=f"Logged: {', '.join(logged)}. All runs are kept. Launch again with the correct name.",
            )
        return study.metric
    own = recipe.metric.on("report") if recipe.metric else None
    final = next((run for run in completed if run.final), None)
    return headline(own or (final.metadata.metric if final else None), final.final if final else {})


def _direction_of(metric: str, study: Study, recipe: LoadedRecipe, runs: Sequence[Run]) -> Direction:
    """Determine the direction by the same rule as `analyze`, so that both call the same variant better."""
    own = recipe.metric
    known = own.direction if own and split_and_quantity(metric)[1] == own.quantity else None
    direction = settle_direction(metric, runs, study.to_dict(), recipe=known)
    if direction.source != "recorded":
        return direction
    return replace(direction, source="stated") if study.direction else named_recipe(direction, known)


def named_recipe(direction: Direction, own: str | None) -> Direction:
    """Set the source to `recipe` if the runs recorded the recipe's own direction."""
    return (
        replace(direction, source="recipe") if direction.source == "recorded" and direction.better == own else direction
    )


def check_direction(study: Study, recipe: LoadedRecipe, runs: Sequence[Run]) -> None:
    """Raise if the study names a metric whose direction is unknown, before any run starts."""
    if study.metric:
        _direction_of(study.metric, study, recipe, runs).known()


def _about_metric(way: Direction | None, completed: Sequence[Run], arms: int) -> list[Mapping[str, str]]:
    if way is None:
        return []
    about_metric: list[Mapping[str, str]] = [*way.cautions()]
    if way.better is None and arms > 1:
        about_metric.append(DIRECTION_UNKNOWN.fill(metric=way.metric))
    without = [run.name for run in completed if way.metric not in run.final]
    if without:
        named = ", ".join(without[:SHOWN_NAMES]) + (" …" if len(without) > SHOWN_NAMES else "")
        about_metric.append(METRIC_NOT_LOGGED.fill(count=len(without), metric=way.metric, which=named))
    return about_metric


def _cautions(
    runs: Sequence[Run], kept: Iterable[Run], arms: Sequence[VariantSummary], git: Mapping[str, Any], metric: str | None
) -> list[Mapping[str, str]]:
    cautions = {caution["text"]: caution for run in runs for caution in run.metadata.cautions}
    then_at = [run.metadata.environment.git_commit for run in kept]
    commits = {commit for commit in then_at if commit is not None and commit != git["git_commit"]}
    if commits and git["git_commit"]:
        count = sum(commit in commits for commit in then_at)
        then = ", ".join(sorted(commit[:8] for commit in commits))
        cautions["commit"] = OTHER_COMMIT.fill(count=count, then=then, now=git["git_commit"][:8])
    damaged = {run.name: run.reason or "" for run in runs if run.status is Status.DAMAGED}
    if damaged:
        message = "; ".join(f"{name} ({reason})" for name, reason in list(damaged.items())[:MOST_NAMED])
        cautions["damaged"] = DAMAGED_RUNS.fill(count=len(damaged), runs=message + " …" * (len(damaged) > MOST_NAMED))
    if git["git_dirty"]:
        cautions["dirty"] = DIRTY_TREE.fill()
    counts = {arm.n for arm in arms}
    strange = sum(arm.not_finite for arm in arms)
    if strange:
        cautions["not finite"] = NOT_FINITE.fill(count=strange, metric=metric)
    if len({arm.seeds for arm in arms}) > 1:
        cautions["partial"] = FINAL_PARTIAL.fill(n=len(set.intersection(*(set(arm.seeds) for arm in arms))))
    elif counts and 0 < max(counts) < FEW:
        cautions["few"] = FEW_SEEDS.fill(n=max(counts))
    return list(cautions.values())


def _constant_metrics(
    values: Mapping[str, Mapping[int, float]], completed: Sequence[Run], metric: str
) -> list[Mapping[str, str]]:
    """Return cautions about variants whose runs all ended with the same value although their seeds differ."""
    return [
        caution
        for variant, own in values.items()
        for caution in seed_effect_cautions(
            variant, metric, own.values(), finals=[run.final for run in completed if run.variant == variant]
        )
    ]


def _next_commands(study: str, store: Store, runs: Sequence[Run]) -> list[str]:
    place = store_words(store.address)
    name = shlex.quote(study)
    failed = [run for run in runs if run.status is Status.FAILED]
    shown = (failed or [run for run in runs if run.status is not Status.COMPLETED] or list(runs))[:1]
    compared = len({run.variant for run in runs if run.status is Status.COMPLETED}) > 1
    commands = [f"fairtrial analyze {name}{place}"] if compared else []
    commands += [f"fairtrial runs show {shlex.quote(run.name)}{place}" for run in shown]
    commands.append(f"fairtrial runs list --study {name}{place}")
    commands.append(f"fairtrial runs export {shlex.quote(study + '/*')} --output {shlex.quote(study + '.csv')}{place}")
    return commands


@dataclass(frozen=True)
class PlannedRun:
    """A cell, the command that runs only this cell, and its status in the store (None if it has no run)."""

    spec: RunSpec
    command: str
    status: Status | None


def dry_run(
    study: Study, *, store: str | os.PathLike[str] | None = None, plan: str | os.PathLike[str] | None = None
) -> list[PlannedRun]:
    """Return every cell of a study as a planned run. Starts nothing and writes nothing."""
    recipe = load_checked_recipe(study.recipe)
    study, _ = _as_registered(study, recipe, plan)
    place = open_store(store, study.study)
    planned: list[PlannedRun] = []
    known: list[Run] = []
    specs = plan_study(study, recipe)
    check_variants(specs)
    for spec in specs:
        there = place.look_at(spec.study, spec.run_id)
        known += [there] if there else []
        planned.append(PlannedRun(spec, command_line(spec, recipe, store), there.status if there else None))
    check_direction(study, recipe, known)
    return planned


def describe(
    study: Study, planned: Sequence[PlannedRun], *, store: str | os.PathLike[str] | None, terms: ExecutionPolicy
) -> Described | None:
    """Return what the launcher would submit for the missing runs; None if there are none or it cannot describe it."""
    recipe = load_checked_recipe(study.recipe)
    usable = usable_gpus(recipe, [run.spec for run in planned])
    engine, request = _launch_request(study, Store.at(store), terms, usable, to_use=False)
    missing = [
        run.spec for run in planned if run.status is None or not (run.status.is_result or run.status is Status.DAMAGED)
    ]
    if not missing:
        return None
    options = [parse_options(recipe.options, spec.options, where=spec.name) for spec in missing]
    needs = {need.recipe for each in options for need in recipe.needs(each).values()}
    request = replace(request, cells=len(missing), preload=sorted({study.recipe, *needs}))
    return engine.describe(request, [[spec.name] for spec in missing])


def planned_workload(
    study: Study, planned: Sequence[PlannedRun], *, store: str | os.PathLike[str] | None, terms: ExecutionPolicy
) -> Workload:
    """Estimate the work of launching these runs. Writes nothing except the index of the store."""
    missing = [run.spec for run in planned if run.status is None or not run.status.is_result]
    recipe, place = load_checked_recipe(study.recipe), Store.at(store)
    slots = None
    if terms.on == LOCAL and missing:
        _, request = _launch_request(study, place, terms, 0, to_use=False)
        slots = slots_of(replace(request, cells=len(missing)))
    return workload_of(missing, recipe, place, machine(), at_once=slots, measured_here=not terms.stack)


def command_line(spec: RunSpec, recipe: LoadedRecipe, store: str | os.PathLike[str] | None = None) -> str:
    """Return the `train` command that runs exactly this cell."""
    given, trailing = option_words(spec.options, recipe)
    words = ["fairtrial", "train", str(recipe.file or recipe.name), *given]
    words += ["--seed", str(spec.seed), "--study", spec.study, "--variant", spec.variant]
    words += ["--store", str(store)] if store else []
    return shlex.join(words + trailing)


def option_words(options: Mapping[str, Any], recipe: LoadedRecipe) -> tuple[list[str], list[str]]:
    """Return non-default options as command-line words: the flags, and the words that must come last."""
    words: list[str] = []
    trailing: list[str] = []
    defaults = recipe.options.model_construct().model_dump(mode="json")
    for info in describe_options(recipe.options):
        value = options.get(info.name, defaults.get(info.name))
        if value == defaults.get(info.name):
            continue
        if info.type_name == "list":
            trailing = ["--", *value]
        elif info.is_switch:
            words.append(info.flag if value else info.flag.replace("--", "--no-", 1))
        elif info.type_name == "mapping":
            given = {key: item for key, item in value.items() if item is not None}
            words += [part for key, item in given.items() for part in (info.flag, f"{key}={item}")]
        else:
            words += [info.flag, str(value)]
    return words, trailing


def default_name(recipe: str, store: str | os.PathLike[str] | None = None) -> str:
    """Return `<recipe>-<date>-<n>` with the smallest unused n."""
    place = open_store(store)
    stem = f"{Path(recipe).stem}-{time.strftime('%Y%m%d')}"
    return next(f"{stem}-{n}" for n in range(1, 10_000) if load_plan(place, f"{stem}-{n}") is None)
