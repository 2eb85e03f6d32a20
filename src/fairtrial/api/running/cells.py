"""From planned cells to finished ones: what `train`, `launch` and everything after them share.

resolve data and needs → sort out what is done → run the needs → run the rest → see how it stands
"""

from __future__ import annotations

import contextlib
import functools
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairtrial.core.canonical import canonical_json, content_hash, file_hash
from fairtrial.core.errors import FairtrialError, InvalidOptions, RunsFailed, StoreError, UserError
from fairtrial.core.formatting import counted
from fairtrial.core.options import Options, parse_options
from fairtrial.core.paths import DEPENDENCIES_STUDY
from fairtrial.core.registry import LoadedRecipe, load_recipe, require_installed, require_packages
from fairtrial.core.runs import Outcome, Run, Status
from fairtrial.core.secrets import PREFIX, redacted_names, references, require_variables, reveal
from fairtrial.core.specs import Job, Need, RunSpec
from fairtrial.jobs.run_session import revealed
from fairtrial.launch.contract import Launcher
from fairtrial.launch.schedule import LOST_AFTER_S, Heartbeat, Schedule, ScheduledRun
from fairtrial.launch.stacks import divide
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.record.cache import StoreCache
from fairtrial.record.claims import Claim, ClaimedElsewhere, is_claimed, launching, token_of
from fairtrial.record.heartbeat import read_heartbeat
from fairtrial.record.index import list_rows
from fairtrial.record.metadata import HINT, DamagedRun, load_metadata, write_metadata
from fairtrial.record.recorder import saved_checkpoints
from fairtrial.record.remote_state import read_tracking
from fairtrial.record.series import last_step
from fairtrial.record.store import Store
from fairtrial.record.studies import differences, refuse_changed_variants
from fairtrial.train.selection import judgement, refuse_best_metric

Watcher = Callable[[Sequence[ScheduledRun]], None]


@dataclass(frozen=True)
class Cell:
    """A planned run with all it needs, and the run that is there already, if any."""

    spec: RunSpec
    request: Job
    existing: Run | None
    needs: tuple[Cell, ...] = ()
    stack_key: str | None = None

    @property
    def key(self) -> str:
        return self.spec.name

    def is_done(self, *, retry_failed: bool) -> bool:
        if self.existing is None:
            return False
        status = self.existing.status
        if status is Status.DAMAGED:  # never run over what may be repaired; --replace archives it first
            return True
        return status.is_result or (status is Status.FAILED and not retry_failed)


@dataclass
class ExecutionPolicy:
    """How cells are to be run: the same for all cells of one command."""

    timeout: float | None = None
    retries: int = 0
    retry_failed: bool = False
    lost_after: float | None = None
    hung_after: float | None = None
    watch: Watcher = lambda _: None
    tell: Callable[[str], None] = lambda _: None
    stack: bool = False


def load_checked_recipe(word: str) -> LoadedRecipe:
    recipe = load_recipe(word)
    require_installed(recipe)
    return recipe


def prepare(
    specs: Iterable[RunSpec],
    store: Store,
    environment: Mapping[str, Any],
    tell: Callable[[str], None] = lambda _: None,
) -> list[Cell]:
    """Attach to every cell its data, its needs, and what the store already has of it.

    Data that the store does not have are made now; `tell` is given a line for people before that.
    """
    specs = list(specs)
    check_variants(specs)
    return _Preparation(store, StoreCache(store.paths.cache, tell), environment).cells(specs)


def check_variants(specs: Iterable[RunSpec]) -> None:
    """Refuse what would fail in every run of a variant, all of it at once: nothing is made or started before."""
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
class _Preparation:
    store: Store
    cache: StoreCache
    environment: Mapping[str, Any]
    known: dict[str, Cell] = field(default_factory=dict)
    variants: dict[tuple[str, str], tuple[RunSpec, _Variant]] = field(default_factory=dict)
    needed: dict[bytes, RunSpec] = field(default_factory=dict)

    def cells(self, specs: Iterable[RunSpec]) -> list[Cell]:
        return [self._cell(spec) for spec in specs]

    def _cell(self, spec: RunSpec) -> Cell:
        variant = self._variant(spec)
        recipe, options = variant.recipe, variant.options
        spec = spec.with_data(variant.data)
        if spec.name not in self.known:
            needs = {name: self._cell(self._need_spec(need)) for name, need in variant.needs.items()}
            existing = self.store.look_at(spec.study, spec.run_id)
            judgement(recipe, options, existing.metadata if existing else None)  # refused now, not by every single job
            spec = _as_recorded(spec, existing)
            job = self._request(spec, recipe, needs)
            key = recipe.stack_key(options)
            self.known[spec.name] = Cell(spec, job, existing, tuple(needs.values()), key and f"{recipe.name} {key}")
        return self.known[spec.name]

    def _variant(self, spec: RunSpec) -> _Variant:
        """What all seeds of a variant share, found out once: a sweep has thousands of cells."""
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
        if key not in self.needed:
            self.needed[key] = _need_spec(need)
        return self.needed[key]

    def _request(self, spec: RunSpec, recipe: LoadedRecipe, needs: Mapping[str, Cell]) -> Job:
        source = {"recipe_file_sha256": file_hash(recipe.file)} if recipe.file else {}
        where = {name: (need.spec.study, need.spec.run_id) for name, need in needs.items()}
        return Job(spec, self.store.address, {**self.environment, **source}, where)


def _as_recorded(spec: RunSpec, existing: Run | None) -> RunSpec:
    """A run that was begun when secrets were still recorded goes on as it is: its options differ in nothing else."""
    if existing is None or existing.metadata["fingerprint"] == spec.fingerprint or not redacted_names(spec.options):
        return spec
    known, own = existing.metadata["options"], reveal(spec.options)
    return replace(spec, options=known, identity=existing.metadata["identity"]) if known == own else spec


def _need_spec(need: Need) -> RunSpec:
    """A need is a run like any other, in a study of its own, named by its content."""
    recipe = load_checked_recipe(need.recipe)
    options = resolve(recipe, need.options, where=need.label)
    spec = spec_of(recipe, options, study=DEPENDENCIES_STUDY, variant="", seed=need.seed)
    variant = f"{need.label}-{content_hash(dict(spec.identity))[:8]}"
    return replace(spec, variant=variant)


def require_secrets(cells: Iterable[Cell], tell: Callable[[str], None] = lambda _: None) -> None:
    """Refuse, before anything starts, runs whose secrets are not at hand; say which values are not recorded."""
    options = [cell.spec.options for cell in cells]
    require_variables(options)
    names = redacted_names(options)
    if names:
        variables = ", ".join(name for name in references(options) if name.startswith(PREFIX))
        tell(f"Redacted, because they are secrets: {', '.join(names)}. Recorded as references to {variables}.")


def clear_conflicts(cells: Sequence[Cell], store: Store, *, replace_old: bool) -> list[Cell]:
    """Refuse a variant whose options changed; with `replace_old`, archive its old runs instead."""
    specs = {(cell.spec.study, cell.spec.variant): cell.spec for cell in cells}
    rows = [row for study in {study for study, _ in specs} for row in list_rows(store, study)]
    changed = {(row["study"], row["run"]) for row in rows if row["status"] != Status.DAMAGED
               and (spec := specs.get((row["study"], row["variant"]))) and differences(spec, row)}  # fmt: skip
    if not replace_old:
        refuse_changed_variants(specs.values(), [row for row in rows if (row["study"], row["run"]) in changed])
        return list(cells)
    keys = {(cell.spec.study, cell.spec.run_id) for cell in cells}
    for study, run in sorted(changed | (keys & {(row["study"], row["run"]) for row in rows})):
        store.archive(store.paths.run(study, run))
    return [replace(cell, existing=None) for cell in cells]


def complete(cells: Sequence[Cell], store: Store, launcher: Launcher, policy: ExecutionPolicy) -> list[ScheduledRun]:
    """Run what is missing, needs first; returns a ticket per cell that was missing."""
    missing = [cell for cell in cells if not cell.is_done(retry_failed=policy.retry_failed)]
    needs = {need.key: need for cell in missing for need in cell.needs if not need.is_done(retry_failed=True)}
    with contextlib.ExitStack() as leaving:
        for study in {cell.spec.study for cell in missing}:
            leaving.enter_context(launching(store.paths, study))
        if needs:
            _run(list(needs.values()), store, launcher, policy)
        for cell in missing:
            require_needs(cell, store)
        runs = _run(missing, store, launcher, policy)
    _push_rest(store, sorted({cell.spec.study for cell in (*missing, *needs.values())}), policy)
    return runs


def _push_rest(store: Store, studies: Sequence[str], policy: ExecutionPolicy) -> None:
    """What killed jobs, or jobs that could not reach a shared store, have left on this machine."""
    left = store.push(studies)
    if left:
        policy.tell(
            f"{counted(len(left), 'run')} of this machine did not reach {store.url} completely; nothing is lost. "
            f"Push them with: fairtrial runs sync --store {shlex.quote(store.address)}"
        )


def _run(cells: Sequence[Cell], store: Store, launcher: Launcher, policy: ExecutionPolicy) -> list[ScheduledRun]:
    by_key = {cell.key: cell for cell in cells}

    def look(key: str) -> Outcome | None:
        spec = by_key[key].spec
        with contextlib.suppress(StoreError):  # a shared store that is out of reach is asked again
            store.pull(spec.study)
        run = store.look_at(spec.study, spec.run_id)
        if run and run.status is Status.DAMAGED:
            return Outcome(Status.FAILED, f"damaged: {run.reason}", already_done=True)
        if run and run.metadata["fingerprint"] != spec.fingerprint:
            return Outcome(Status.FAILED, "another launcher made this cell with other options")
        return Outcome(run.status, run.reason, already_done=True) if run else None

    def settle(key: str, status: Status, reason: str) -> None:
        settle_run(store, by_key[key].spec, status, reason)

    def listen(key: str) -> Heartbeat | None:
        return _sign_of_life(store, by_key[key].spec)

    def holder(key: str) -> int | None:
        return token_of(store.paths.run(by_key[key].spec.study, by_key[key].spec.run_id))

    runs = [ScheduledRun(cell.key, cell.request.to_dict()) for cell in cells]
    stacked = policy.stack and policy.timeout is None  # a time limit is about one run
    tasks = divide(runs, lambda ticket: by_key[ticket.key].stack_key if stacked else None, launcher.slots)
    schedule = Schedule(
        tasks, launcher, look, settle, policy.timeout, policy.retries, listen, holder,
        lost_after=policy.lost_after or LOST_AFTER_S, hung_after=policy.hung_after, changed=policy.watch,
        tell=policy.tell, runs=runs,
    )  # fmt: skip
    schedule.run()
    _bring_results(store, sorted({cell.spec.study for cell in cells}), policy)
    policy.watch(runs)
    if schedule.interrupted:
        raise KeyboardInterrupt
    return runs


def _bring_results(store: Store, studies: Sequence[str], policy: ExecutionPolicy) -> None:
    """How runs that other machines made have ended; what was brought a moment ago may be older than that."""
    if not store.url:
        return
    from fairtrial.record.sharing import pull

    try:
        pull(store, studies)
    except StoreError as error:
        policy.tell(
            f"{error.message}. What other machines have recorded is there; bring it with: "
            f"fairtrial runs sync --store {shlex.quote(store.address)}"
        )


def _sign_of_life(store: Store, spec: RunSpec) -> Heartbeat | None:
    """The last that was heard of a run: from its process on this machine, or through the shared store."""
    paths = store.paths.run(spec.study, spec.run_id)
    beat = read_heartbeat(paths)
    if not store.url or is_claimed(paths):
        return Heartbeat(f"{beat.at}", beat.step, beat.saved, beat.token) if beat else None
    try:
        store.pull(spec.study)
    except StoreError:
        return Heartbeat(f"out of reach at {time.monotonic()}", 0, 0)  # nobody is lost because nothing can be heard
    known = read_tracking(paths)
    saved = max(saved_checkpoints(paths), default=0)
    return Heartbeat(known.pulse, last_step(paths.metrics) or 0, saved) if known and known.pulse else None


def settle_run(store: Store, spec: RunSpec, status: Status, reason: str) -> None:
    """Write down how a run ended whose own process could not: killed, or too slow to leave."""
    paths = store.paths.run(spec.study, spec.run_id)
    try:
        claim = Claim(paths)
    except (ClaimedElsewhere, FairtrialError):
        return
    try:
        metadata = load_metadata(paths)
        if metadata is not None and not Status(metadata["status"]).is_result:
            write_metadata(paths, {**metadata, "status": status.value, "reason": reason})
    except DamagedRun:  # what is there may still be repaired; the other runs go on
        return
    finally:
        claim.release()


def require_needs(cell: Cell, store: Store) -> None:
    """What a run needs must be complete: a diverged teacher is a result, but it teaches nothing."""
    for need in cell.needs:
        run = store.look_at(need.spec.study, need.spec.run_id)
        if run is None or run.status is not Status.COMPLETED:
            how = f"{run.status}: {run.reason}" if run else "never begun"
            raise RunsFailed(
                f"{need.key}, which {cell.key} needs, is not complete ({how})",
                hint=f"See: fairtrial runs show '{need.key}'",
            )


def require_existing(store: Store, reference: str) -> Run:
    return _not_of_a_script(not_damaged(store.find(reference)))


def require_all_existing(store: Store, reference: str) -> list[Run]:
    """Every run that an id, a path or a glob names, damaged ones too."""
    return [run if run.status is Status.DAMAGED else _not_of_a_script(run) for run in store.match([reference])]


def not_damaged(run: Run) -> Run:
    """The run, for those who go on with it."""
    if run.status is Status.DAMAGED:
        raise DamagedRun(f"run {run.name} is damaged: {run.reason}", hint=run.metadata["hint"] or HINT)
    return run


def _not_of_a_script(run: Run) -> Run:
    if run.metadata["recipe"] == "script":
        raise UserError(f"run {run.name} was made by a script", hint="Start that script again: it resumes by itself.")
    return run
