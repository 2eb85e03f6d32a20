"""The contract of recipes, checked by training them."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fairtrial.core.options import LoopOptions, describe_options, parse_options, result_options
from fairtrial.core.paths import ADHOC_STUDY, DEPENDENCIES_STUDY
from fairtrial.core.registry import LoadedRecipe, load_recipe, require_installed
from fairtrial.core.runs import Run, Status
from fairtrial.core.scores import NORMALIZED
from fairtrial.core.specs import Job, RunSpec
from fairtrial.core.training import Observer
from fairtrial.jobs.run_session import run_cell
from fairtrial.record.series import read_series
from fairtrial.record.store import Store

Series = Mapping[str, Sequence[tuple[int, str]]]


class Watcher(Observer):
    """An observer that receives all events, to check that observers change nothing."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def training_started(self, first_step: int, steps: int, now: float) -> None:
        self.seen.append(f"start {first_step} {steps} {now}")

    def phase_started(self, name: str, now: float) -> None:
        self.seen.append(f"{name} {now}")

    def phase_ended(self, name: str, now: float) -> None:
        self.seen.append(f"{name} {now}")

    def step_ended(self, step: int, now: float) -> None:
        self.seen.append(f"{step} {now}")

    def evaluated(self, step: int, metrics: Mapping[str, float], now: float) -> None:
        self.seen.append(f"{step} {sorted(metrics)} {now}")

    def training_ended(self, now: float) -> None:
        self.seen.append(f"end {now}")


@dataclass
class RecipeCase:
    """A recipe to check, with options for a short run, and a cache so that data are generated once."""

    word: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cache: Path | None = None
    study: str = ADHOC_STUDY

    @property
    def recipe(self) -> LoadedRecipe:
        return load_recipe(self.word)

    @cached_property
    def undisturbed(self) -> tuple[Series, Run | None]:
        """The series and the record of an undisturbed run, which is trained once for all checks of this case."""
        with self.store() as store:
            return self.train(store), store.run(self.study, "default.seed1")

    @property
    def numbers(self) -> Series:
        return self.undisturbed[0]

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Yield a new store that holds nothing but the cache and the trained dependencies of this case."""
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder))
            self._link_cache(store)
            if self._dependencies:
                kept = Store(Path(self._dependencies.name)).paths.study(DEPENDENCIES_STUDY)
                shutil.copytree(kept, store.paths.study(DEPENDENCIES_STUDY))
            yield store

    @cached_property
    def _dependencies(self) -> tempfile.TemporaryDirectory[str] | None:
        """The folder of a store in which the runs that this case needs are trained, once for all checks."""
        options = parse_options(self.recipe.options, self.options, where=self.word)
        if not self.recipe.needs(options):
            return None
        folder = tempfile.TemporaryDirectory()
        store = Store(Path(folder.name))
        self._link_cache(store)
        dict(self._needs(self.recipe, options, store))
        return folder

    def _link_cache(self, store: Store) -> None:
        if self.cache:
            self.cache.mkdir(parents=True, exist_ok=True)
            store.paths.cache.symlink_to(self.cache)

    def request(self, store: Store, *, seed: int = 1, **changes: Any) -> Job:
        recipe = self.recipe
        require_installed(recipe)
        options = parse_options(recipe.options, {**self.options, **changes}, where=self.word)
        spec = RunSpec(
            recipe=recipe.name,
            options=options.to_dict(),
            identity=result_options(recipe.options, options),
            seed=seed,
            study=self.study,
            recipe_file=str(recipe.file) if recipe.file else None,
        )
        return Job(spec, store.root, needs=dict(self._needs(recipe, options, store)))

    def _needs(self, recipe: LoadedRecipe, options: Any, store: Store) -> Iterator[tuple[str, tuple[str, str]]]:
        for name, need in recipe.needs(options).items():
            case = RecipeCase(need.recipe, need.options, self.cache, DEPENDENCIES_STUDY)
            job = case.request(store, seed=need.seed)
            run_cell(job)
            yield name, (job.spec.study, job.spec.run_id)

    def train(
        self, store: Store, *, observers: Sequence[Observer] = (), stop_at: int | None = None, **changes: Any
    ) -> Series:
        """Train one run and return its series; raise an AssertionError that says why if the run failed."""
        steps_left = iter(range(1, 10**9))
        run_cell(
            self.request(store, **changes),
            observers=observers,
            should_stop=lambda: stop_at is not None and next(steps_left) >= stop_at,
        )
        seed = changes.get("seed", 1)
        run = store.run(self.study, f"default.seed{seed}")
        assert run is not None, "the run was not recorded"
        assert run.status is not Status.FAILED, f"the run failed: {run.reason}"
        return self.series(store, seed=seed)

    def series(self, store: Store, *, seed: int = 1) -> Series:
        series = read_series(store.paths.run(self.study, f"default.seed{seed}"))
        return {k: [(int(s), float(v).hex()) for s, v in zip(*points, strict=True)] for k, points in series.items()}


def check_options_are_declared(case: RecipeCase) -> None:
    """Check that every option has a help text and a role, and that falsy values survive a round trip to a file."""
    for info in describe_options(case.recipe.options):
        assert info.help.endswith("."), f"the help of {info.name} does not end with a period"
    options = parse_options(case.recipe.options, case.options, where=case.word)
    assert parse_options(case.recipe.options, options.to_dict(), where=case.word) == options
    unknown_names = set(case.recipe.main_options) - set(case.recipe.options.model_fields)
    assert not unknown_names, f"MAIN_OPTIONS names what is not an option: {sorted(unknown_names)}"


def check_a_run_completes(case: RecipeCase) -> None:
    """Check that a run with these options trains, evaluates, reports and is recorded as complete."""
    series, run = case.undisturbed
    assert run is not None and run.status is Status.COMPLETED, run and run.reason
    _refuse_splits_in_names(series)
    metric = case.recipe.metric
    if metric:
        assert metric.on("report") in series, f"{metric.on('report')} was not logged"


def _refuse_splits_in_names(series: Series) -> None:
    doubled = sorted({name.removeprefix("eval_") for name in series if name.startswith(("eval_eval_", "eval_report_"))})
    plain = [name.removeprefix("eval_").removeprefix("report_") for name in doubled]
    returned, wanted = ", ".join(doubled), ", ".join(dict.fromkeys(plain))
    assert not doubled, f"evaluate returned {returned}; return {wanted}: the loop adds eval_ and report_"


def check_evaluations_are_as_declared(case: RecipeCase) -> None:
    """Check that a recipe evaluates what `evaluates` declares, by which `--best-metric` is validated."""
    options = parse_options(case.recipe.options, case.options, where=case.word)
    declared = case.recipe.evaluates(options)
    if declared is not None:
        logged = {name.removeprefix("eval_") for name in case.numbers if name.startswith("eval_")} - {NORMALIZED}
        assert logged == {*declared}, f"the recipe evaluates {sorted(logged)} but declares {sorted(declared)}"


def check_the_seed_decides(case: RecipeCase) -> None:
    """Check that the same seed gives bit-identical results, and that another seed gives others."""
    with case.store() as store:
        same, other = case.train(store), case.train(store, seed=2)
    assert same == case.numbers, "two runs with the same seed differ"
    assert other != case.numbers, "the seed has no effect"


def check_observers_change_nothing(case: RecipeCase) -> None:
    """Check that results are bit-identical with observers attached."""
    watcher = Watcher()
    with case.store() as store:
        watched = case.train(store, observers=[watcher, Watcher()])
    assert watched == case.numbers, "an observer changed a number"
    assert any(text.startswith("start") for text in watcher.seen), "observers were not called"


def check_resuming_is_exact(case: RecipeCase) -> None:
    """Check that a run that was stopped and resumed gives bit-identical results."""
    options = case.recipe.options
    assert issubclass(options, LoopOptions)
    steps = parse_options(options, case.options, where=case.word).steps
    for stop_at in {1, steps // 2, steps - 1} - {0}:
        with case.store() as store:
            case.train(store, stop_at=stop_at)
            assert case.train(store) == case.numbers, f"the results differ after a stop at step {stop_at} and a resume"


def check_global_generators_are_left_alone(case: RecipeCase) -> None:
    """Check that training neither uses nor changes the global random generators."""
    import numpy

    expected = case.numbers
    with case.store() as store:
        random.seed(5)
        numpy.random.seed(5)
        before = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
        assert case.train(store) == expected, "the training depends on a global random generator"
        after = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
        assert before == after, "the training changed a global random generator"


RECIPE_CHECKS: tuple[Callable[[RecipeCase], None], ...] = (
    check_options_are_declared,
    check_a_run_completes,
    check_evaluations_are_as_declared,
    check_the_seed_decides,
    check_observers_change_nothing,
    check_resuming_is_exact,
    check_global_generators_are_left_alone,
)
