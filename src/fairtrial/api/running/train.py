"""train: make one recorded run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from fairtrial.api.running.existing_runs import require_existing
from fairtrial.api.running.planning import (
    clear_conflicts,
    load_checked_recipe,
    plan_jobs,
    require_devices_here,
    require_needs,
    require_secrets,
)
from fairtrial.api.running.recording import recorded
from fairtrial.api.running.registered import (
    refuse_other_options,
    refuse_other_recipe,
    refuse_other_seed,
    registration_for,
)
from fairtrial.core.errors import RunsFailed, UserError
from fairtrial.core.options import Options
from fairtrial.core.paths import ADHOC_STUDY, DEPENDENCIES_STUDY, RunPaths, check_name
from fairtrial.core.private_files import open_to_append
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.results import Result
from fairtrial.core.runs import Run, Status
from fairtrial.core.secrets import conceal
from fairtrial.core.specs import FIXED_SEEDS, Job, RunSpec
from fairtrial.core.training import Observer
from fairtrial.jobs.run_session import run_cell
from fairtrial.launch.job_plan import JobPlan
from fairtrial.plan.cells import earlier_label, label, resolve, spec_of
from fairtrial.record.atomic import store_errors
from fairtrial.record.claims import ClaimedElsewhere
from fairtrial.record.environment import surroundings
from fairtrial.record.index import list_rows
from fairtrial.record.store import Store, open_store

Observing = Callable[[RunSpec], Sequence[Observer]]


@dataclass(frozen=True, repr=False)
class Trained(Result):
    """A run, and whether it was already complete.

    >>> fairtrial.train("fake", {"steps": 20}, study="demo", variant="base", seed=1072).already_done
    True
    """

    run: Run
    already_done: bool

    def to_dict(self) -> dict[str, Any]:
        run, metadata = self.run, self.run.metadata
        best = ("best_metric_name", "best_metric_value", "best_checkpoint_step", "best_checkpoint_path")
        return {
            "run": run.name, "status": run.status.value, "already_done": self.already_done,
            "synthetic": metadata.synthetic, "path": str(run.path), "wall_s": metadata.timings.wall_s,
            **{key: metadata[key] for key in best},
            "final": dict(run.final), "cautions": metadata.cautions, "telemetry": metadata.telemetry,
        }  # fmt: skip


@recorded("train")
def train(
    recipe: str,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    study: str = ADHOC_STUDY,
    variant: str | None = None,
    store: str | os.PathLike[str] | None = None,
    again: bool = False,
    replace_old: bool = False,
    secrets: Sequence[str] = (),
    observe: Observing = lambda _: (),
    should_stop: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _: None,
) -> Trained:
    """Train a recipe once and record the run. Calling it again returns the finished run, or resumes it.

    In a registered study, `seed` must be a registered one; the default is the first of them. `secrets` are names of
    options, placeholders, flags or environment variables whose values are never recorded.

    >>> print(fairtrial.train("fake", {"steps": 5}).run.status)
    completed
    """
    place = Store.at(store)
    place.check_writable()
    place.pull(study, DEPENDENCIES_STUDY)
    loaded = load_checked_recipe(recipe)
    resolved = resolve(loaded, conceal(options or {}, secrets), where=f"recipe '{loaded.name}'")
    name = check_name("variant", variant or _variant_name(place, study, loaded, resolved))
    spec = spec_of(loaded, resolved, study=check_name("study", study), variant=name)
    spec = replace(spec, seed=_seed(spec, loaded, seed))
    if again:
        spec = replace(spec, attempt=_next_attempt(place, spec))
    plan = plan_jobs([spec], place, surroundings(Path.cwd()), tell)
    plan = clear_conflicts(plan, place, replace_old=replace_old)
    return _train(plan, observe, should_stop, tell)


def _variant_name(store: Store, study: str, recipe: LoadedRecipe, options: Options) -> str:
    """Return the variant's default name, or the one that an earlier version gave it if that version began the run."""
    name, earlier = label(recipe, options), earlier_label(recipe, options)
    if name == earlier:
        return name
    begun = store.variants(check_name("study", study))
    return earlier if earlier in begun and name not in begun else name


def _seed(spec: RunSpec, recipe: LoadedRecipe, given: int | None) -> int:
    registration = registration_for(spec.study, None)
    if registration is None:
        return FIXED_SEEDS[0] if given is None else given
    refuse_other_recipe(registration, recipe)
    refuse_other_options(registration, [spec])
    seed = registration.seeds[0] if given is None else given
    refuse_other_seed(registration, seed)
    return seed


@recorded("train")
def resume(
    reference: str,
    *,
    recipe: str | None = None,
    store: str | os.PathLike[str] | None = None,
    observe: Observing = lambda _: (),
    should_stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Resume an interrupted run from its last checkpoint, with its original options.

    If `recipe` is given, a run of another recipe is an error.

    >>> fairtrial.resume("demo/base.seed1072").already_done
    True
    """
    run = require_existing(open_store(store), reference)
    if recipe is not None and recipe not in (run.metadata.recipe, run.metadata.recipe_file):
        made_of = run.metadata.recipe_file or run.metadata.recipe
        raise UserError(
            f"{run.name} is a run of {made_of}, not of {recipe}", hint=f"Use: fairtrial train {made_of} --resume …"
        )
    return _train(plan_of_recorded(run), observe, should_stop)


def plan_of_recorded(run: Run) -> JobPlan:
    """Return a plan to run a recorded run again: its only job has the recorded spec."""
    place = Store.at(run.path.parent.parent)  # a run given by its path may be in another store
    spec = RunSpec(
        recipe=run.metadata.recipe, options=run.metadata.options, identity=run.metadata.identity, seed=run.seed,
        study=run.study, variant=run.variant, attempt=run.attempt, recipe_file=run.metadata.recipe_file,
    )  # fmt: skip
    return plan_jobs([spec], place, surroundings(Path.cwd()))


def _next_attempt(store: Store, spec: RunSpec) -> int:
    """Return the next free attempt number, or the last one if that attempt was interrupted, to resume it."""
    rows = [row for row in list_rows(store, spec.study) if (row["variant"], row["seed"]) == (spec.variant, spec.seed)]
    last = max(rows, key=lambda row: row["attempt"], default=None)
    if last is None:
        return 1
    return int(last["attempt"]) + (last["status"] not in (Status.INTERRUPTED, Status.RUNNING))


def _train(
    plan: JobPlan, observe: Observing, should_stop: Callable[[], bool], tell: Callable[[str], None] = lambda _: None
) -> Trained:
    require_secrets(plan.missing(retry_failed=True), tell)
    require_devices_here(plan.missing(retry_failed=True))
    complete_needs(plan, observe, should_stop)
    [job] = plan.jobs
    return _run(job, observe, should_stop)


def complete_needs(
    plan: JobPlan, observe: Observing = lambda _: (), should_stop: Callable[[], bool] = lambda: False
) -> None:
    """Run the missing dependencies of a plan, such as a teacher, in this process."""
    for need in plan.missing_needs(plan.jobs):
        _run(need, observe, should_stop)
    require_needs(plan, plan.jobs, Store.at(plan.jobs[0].store))


def _run(job: Job, observe: Observing, should_stop: Callable[[], bool]) -> Trained:
    spec = job.spec
    try:
        outcome = run_cell(job, observers=observe(spec), should_stop=should_stop, redirect_output=printed_to_log_too)
    except ClaimedElsewhere:
        raise UserError(
            f"another process is running {spec.name}", hint="Wait until it ends, or train another seed."
        ) from None
    run = Store.at(job.store).run(spec.study, spec.run_id)
    assert run is not None
    if outcome.already_done and outcome.status.is_result:
        return Trained(run, already_done=True)
    if outcome.status is Status.INTERRUPTED and should_stop():
        raise KeyboardInterrupt
    if outcome.status is not Status.COMPLETED:
        verb = "was interrupted" if outcome.status is Status.INTERRUPTED else str(outcome.status)
        raise RunsFailed(
            f"run {run.name} {verb}: {outcome.reason}",
            hint=outcome.hint or f"See: fairtrial runs show '{run.name}'",
        )
    return Trained(run, already_done=False)


class _Tee:
    """A text stream that also writes to the run's log."""

    def __init__(self, stream: IO[str], log: IO[str]) -> None:
        self._stream = stream
        self._log = log

    def write(self, text: str) -> int:
        if not self._log.closed:  # a library may still hold the stream of an earlier run
            self._log.write(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def printed_to_log_too(paths: RunPaths) -> Iterator[None]:
    """Show the output of a recipe on stderr and also write it to the run's log."""
    kept = sys.stdout, sys.stderr
    with store_errors(paths.root):
        descriptor = open_to_append(paths.log)
    with os.fdopen(descriptor, "a", buffering=1) as log:
        # Both streams go to stderr: stdout is reserved for the JSON document of --format json.
        sys.stdout, sys.stderr = _Tee(kept[1], log), _Tee(kept[1], log)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = kept
