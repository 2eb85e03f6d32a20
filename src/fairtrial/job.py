"""What runs inside a job: wires core, train, recipes, record and probe, and nothing else.

A job needs no more than this file imports: no command line, no statistics, no tables. `jobserver.py` has
the processes that it runs in.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairtrial.core.cautions import SYNTHETIC
from fairtrial.core.errors import (
    CellConflict,
    Diverged,
    FairtrialError,
    Interrupted,
    InvalidOptions,
    StoreError,
    unknown,
)
from fairtrial.core.options import LoopOptions, Options, TorchOptions, parse_options
from fairtrial.core.paths import RunPaths
from fairtrial.core.registry import LoadedRecipe, load_recipe
from fairtrial.core.runs import Outcome, Status
from fairtrial.core.specs import RunSpec
from fairtrial.core.streams import Streams
from fairtrial.core.training import Observer, Setting, Trainable, Watch
from fairtrial.probe.resources import children_cpu_seconds, peak_process_bytes, step_expense
from fairtrial.record.claims import Claim
from fairtrial.record.metadata import load_run, new_metadata
from fairtrial.record.recorder import Recorder
from fairtrial.record.store import Store
from fairtrial.train.loop import train


@dataclass(frozen=True)
class Request:
    """All that a job is told. `needs` maps a name to the run that it means, as (study, run id)."""

    spec: RunSpec
    store: Path
    environment: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "spec": self.spec.to_dict(),
            "store": str(self.store),
            "environment": dict(self.environment),
            "needs": {name: list(where) for name, where in self.needs.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Request:
        needs = {name: (study, run) for name, (study, run) in values["needs"].items()}
        return cls(RunSpec.from_dict(values["spec"]), Path(values["store"]), values["environment"], needs)


def run_cell(
    request: Request,
    *,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    to_log: Callable[[RunPaths], contextlib.AbstractContextManager[Any]] = lambda _: contextlib.nullcontext(),
) -> Outcome:
    """Make one run, or continue it, or find that it is done. Raises ClaimedElsewhere when another makes it."""
    store = Store(request.store)
    paths = store.paths.run(request.spec.study, request.spec.run_id)
    claim = Claim(paths)
    try:
        done = _already_done(paths, request.spec)
        if done:
            return done
        with to_log(paths):
            return _record(request, store, paths, claim, observers, should_stop)
    finally:
        claim.release()


def _already_done(paths: RunPaths, spec: RunSpec) -> Outcome | None:
    existing = load_run(paths)
    if existing is None:
        return None
    if existing.metadata["fingerprint"] != spec.fingerprint:
        raise CellConflict(f"run {spec.name} exists with other options")
    return Outcome(existing.status, existing.reason, already_done=True) if existing.status.is_result else None


def _record(
    request: Request,
    store: Store,
    paths: RunPaths,
    claim: Claim,
    observers: Sequence[Observer],
    should_stop: Callable[[], bool],
) -> Outcome:
    spec = request.spec
    recipe = load_recipe(spec.recipe, file=spec.recipe_file)
    options = parse_options(recipe.options, spec.options, where=spec.name)
    data = recipe.data(options, store.cache)
    metadata = new_metadata(spec, request.environment, synthetic=recipe.synthetic)
    metadata.update(_judgement(recipe, options))
    recorder = Recorder.create(paths, metadata, claim)
    needs = {name: store.paths.run(study, run) for name, (study, run) in request.needs.items()}
    setting = Setting(
        streams=Streams(spec.seed),
        variant=spec.variant,
        run=paths,
        cache=store.cache,
        data=data,
        needs=needs,
        should_stop=should_stop,
    )
    if recipe.synthetic:
        setting.cautions.append(SYNTHETIC.fill(recipe=recipe.name))
    try:
        return _Work(recipe, options, setting, recorder, Watch(observers)).carry_out()
    finally:  # where even the ending could not be written, the run stays as it is and can be resumed
        recorder.close()


def _judgement(recipe: LoadedRecipe, options: Options) -> dict[str, Any]:
    """What the run is judged by, and what selects its best checkpoint."""
    metric = recipe.metric
    selecting = getattr(options, "best_metric", None) or (metric.on("eval") if metric else None)
    mode = getattr(options, "best_mode", None) or (metric.direction if metric else "max")
    return {
        "metric": metric.on("report") if metric else None,
        "direction": metric.direction if metric else None,
        "best_metric_name": selecting,
        "best_metric_mode": mode if selecting else None,
    }


@dataclass
class _Work:
    """One attempt at a run, with all that it needs at hand."""

    recipe: LoadedRecipe
    options: Options
    setting: Setting
    recorder: Recorder
    watch: Watch
    resources: dict[str, Any] = field(default_factory=dict)

    def carry_out(self) -> Outcome:
        """Do the work and write down how it ended, whatever happens."""
        is_program = self.recipe.execute is not None
        children_before = children_cpu_seconds()
        outcome = self._attempt()
        if is_program:
            self.recorder.refresh()
        self.resources["peak_process_bytes"] = peak_process_bytes(of_children=is_program)
        metadata = self.recorder.metadata
        streams = sorted({*metadata["lineage"].get("streams", []), *self.setting.streams.used})
        metadata["lineage"] = {**metadata["lineage"], **self.setting.lineage, "streams": streams}
        metadata.update(resources=self.resources, cautions=list(self.setting.cautions))
        used = children_cpu_seconds() - children_before if is_program else None
        self.recorder.finish(outcome.status, outcome.reason, hint=outcome.hint, cpu_s=used)
        return outcome

    def _attempt(self) -> Outcome:
        try:
            if self.recipe.execute is None:
                self._train()
            else:
                self.recipe.execute(self.options, self.setting, self.recorder)
        except Diverged as end:
            return Outcome(Status.DIVERGED, str(end))
        except (Interrupted, StoreError) as end:
            return Outcome(Status.INTERRUPTED, end.message, end.hint)
        except KeyboardInterrupt:
            return Outcome(Status.INTERRUPTED, "stopped by Ctrl-C")
        except FairtrialError as error:
            return Outcome(Status.FAILED, error.message, error.hint)
        except Exception as error:  # noqa: BLE001 — anything that a recipe raises is how its run ended
            with contextlib.suppress(OSError), self.setting.run.log.open("a") as log:
                traceback.print_exc(file=log)
            return Outcome(Status.FAILED, f"{type(error).__name__}: {error}")
        return Outcome(Status.COMPLETED)

    def _train(self) -> None:
        options = self.options
        assert isinstance(options, LoopOptions)
        if isinstance(options, TorchOptions):
            _set_threads(options.threads)
        trainable = self.recipe.build(options, self.setting)
        self.resources |= step_expense(trainable, 1)
        _check_best_metric(trainable, options)
        self.recorder.begin_training()
        saved = self.recorder.resume()
        if saved:
            trainable.load_state(saved.state)
        done = saved.step if saved else 0
        train(trainable, options, self.recorder, done=done, watch=self.watch, should_stop=self.setting.should_stop)


def _check_best_metric(trainable: Trainable, options: LoopOptions) -> None:
    """A misspelt metric would select nothing, and say so only after hours: ask before the first step."""
    if options.best_metric is not None:
        names = [f"eval_{quantity}" for quantity in trainable.evaluate("eval")]
        if options.best_metric not in names:
            raise InvalidOptions("best_metric: " + unknown("evaluation metric", options.best_metric, names))


def _set_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
