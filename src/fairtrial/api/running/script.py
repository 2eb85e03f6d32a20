"""run: record the user's own training script.

    with fairtrial.run(seed=1, best_metric="eval_accuracy") as run:
        saved = run.resume()
        …
        run.log(step, loss=loss)
        run.evaluated(step, {"eval_accuracy": accuracy}, state)
        run.save(step, state)

A script started by `fairtrial launch command` joins the run of that launch; one started by hand creates its own run.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

from fairtrial.api.running.script_names import script_spec
from fairtrial.core.cautions import REDACTED_CONFIG
from fairtrial.core.directions import GIVE_ARGUMENT, settle
from fairtrial.core.directions import checked as checked_direction
from fairtrial.core.errors import CellConflict, StoreError, UserError
from fairtrial.core.paths import JOIN_VARIABLE, TOKEN_VARIABLE, RunPaths
from fairtrial.core.run_metadata import RunMetadata
from fairtrial.core.runs import Run, Status
from fairtrial.core.secrets import redact_config
from fairtrial.core.specs import RunSpec, split_and_quantity
from fairtrial.record.claims import Claim, ClaimedElsewhere
from fairtrial.record.environment import surroundings
from fairtrial.record.metadata import BEST_KEYS, load_run, new_metadata
from fairtrial.record.recorder import Recorder
from fairtrial.record.remote_run_session import RemoteRunSession
from fairtrial.record.store import Store
from fairtrial.record.studies import load_plan


def run(
    *,
    seed: int | None = None,
    config: Any = None,
    study: str | None = None,
    variant: str | None = None,
    best_metric: str | None = None,
    best_mode: Literal["max", "min"] | None = None,
    metric: str | None = None,
    direction: Literal["max", "min"] | None = None,
    store: str | os.PathLike[str] | None = None,
    replace: bool = False,
    secrets: Sequence[str] = (),
) -> ScriptRun:
    """Record this script's training. Returns a run with `log`, `evaluated`, `save`, `resume` and `finish`.

    `config` is a mapping, an `argparse.Namespace` or a dataclass and identifies the variant; using the same study and
    variant with another config is an error. A `seed` in it is the seed of the run, so that `config=args` gives one
    variant with many seeds.
    `best_metric` selects `best.pt`; `metric` is the metric that the run is judged by. `best_mode` and `direction` are
    their directions, `max` or `min`. Without them, the metric's name decides (a loss should be low), and a name that
    does not imply a direction is an error.
    Values in `config` that look like credentials, and those that `secrets` names, are not recorded.

    >>> with fairtrial.run(study="mine", variant="base", seed=1) as run:
    ...     run.log(1, loss=0.5)
    ...     run.log({"loss": 0.4}, step=2)
    >>> run.metadata.status
    'completed'
    """
    for name, given in (("best_mode", best_mode), ("direction", direction)):
        if given is not None:
            checked_direction(given, name)
    joined = os.environ.get(JOIN_VARIABLE)
    judged = _Judged(metric, direction, best_metric, best_mode)
    recorder = _join(Path(joined), judged) if joined else _begin(
        seed, *redact_config(_as_json(config), secrets), study, variant, judged, Store.at(store), replace=replace
    )  # fmt: skip
    _note_exit_codes()
    atexit.register(_finish_at_exit, recorder)
    return recorder


class ScriptRun(Recorder):
    """The run of a user's script, as `fairtrial.run` returns it."""

    _refused = False

    def finish(
        self, status: Status | str = Status.COMPLETED, reason: str | None = None, *, hint: str | None = None,
        cpu_s: float | None = None, hold: bool = False,
    ) -> Run:  # fmt: skip
        try:
            return super().finish(status, reason, hint=hint, cpu_s=cpu_s, hold=hold)
        except StoreError:  # its files were damaged; `close` must leave it resumable, not end it again
            self._refused = True
            raise

    def close(self) -> None:
        """End the run as completed, or as failed while an exception is being handled. `finish` sets other statuses."""
        if self._refused:
            self.release()
        else:
            error = sys.exception()
            self.__exit__(type(error) if error else None, error, None)


@dataclass(frozen=True)
class _Judged:
    """The metrics and directions that a script stated."""

    metric: str | None
    direction: str | None
    best_metric: str | None
    best_mode: str | None

    def settled(self, before: RunMetadata | None, plan: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the metadata fields to record: directions by the rule of `core/directions.py`, and cautions.

        `before` is the existing metadata of the run, `plan` the study that a launch stored. A direction that was stated
        for one of the two metrics also applies to the other one if both are the same quantity.
        """
        if self.metric and self.metric == self.best_metric and {self.direction, self.best_mode} == {"max", "min"}:
            both = f"direction='{self.direction}' and best_mode='{self.best_mode}'"
            raise UserError(f"{both} contradict each other for {self.metric}")
        alike = None not in (self.metric, self.best_metric) and _quantity(self.metric) == _quantity(self.best_metric)
        own = best = None
        if self.metric is not None:
            stated = self.direction or (self.best_mode if alike else None)
            recorded = _planned(self.metric, plan)
            if before and before.direction and before.metric == self.metric:  # from an earlier attempt or the launch
                recorded.append(before.direction)
            own = settle(self.metric, stated=stated, recorded=recorded[:1])
            own.known(GIVE_ARGUMENT)
        if self.best_metric is not None:
            stated = self.best_mode or (self.direction if alike else None)
            recorded = []
            if before and before.best_metric_mode and before.best_metric_name == self.best_metric:
                recorded.append(before.best_metric_mode)
            planned = own.better if own and alike else next(iter(_planned(self.best_metric, plan)), None)
            best = settle(self.best_metric, stated=stated, recorded=recorded, recipe=planned)
            best.known("Pass best_mode='max' or best_mode='min'.")
        cautions = [*(own.cautions("direction =") if own else ()), *(best.cautions("best_mode =") if best else ())]
        return {
            "metric": self.metric,
            "direction": own.better if own else None,
            "best_metric_name": self.best_metric,
            "best_metric_mode": best.better if best else None,
            "cautions": cautions,
        }


def _quantity(metric: str | None) -> str | None:
    return None if metric is None else split_and_quantity(metric)[1]


def _planned(metric: str, plan: Mapping[str, Any] | None) -> list[str]:
    """Return the direction that the user gave to the launch for this quantity, if any."""
    if not plan or not plan.get("direction") or _quantity(plan.get("metric")) not in (None, _quantity(metric)):
        return []
    return [str(plan["direction"])]


def _join(folder: Path, given: _Judged) -> ScriptRun:
    token = os.environ.get(TOKEN_VARIABLE)
    recorder = ScriptRun.attach(RunPaths(folder), int(token) if token else None)
    plan = None
    with contextlib.suppress(StoreError):  # a damaged study file must not stop a training
        plan = load_plan(Store.at(folder.parent.parent), recorder.metadata.study)
    judged = given.settled(recorder.metadata, plan)
    cautions = recorder.metadata.cautions
    new_cautions = [each for each in judged.pop("cautions") if each not in cautions]
    chosen = {key: value for key, value in judged.items() if value is not None}
    chosen |= {"cautions": [*cautions, *new_cautions]} if new_cautions else {}
    if any(recorder.metadata[key] not in (None, value) for key, value in chosen.items() if key.startswith("best_")):
        chosen |= dict.fromkeys(BEST_KEYS)  # the recorded best was selected by another metric or direction
    if chosen:
        recorder.update(**chosen)
    return recorder


def _begin(
    seed: int | None,
    config: dict[str, Any],
    redacted: Sequence[str],
    study: str | None,
    variant: str | None,
    given: _Judged,
    store: Store,
    *,
    replace: bool,
) -> ScriptRun:
    spec = script_spec(seed, config, study, variant, store)
    given.settled(None if replace else _metadata_of(store, spec))  # raise before anything is claimed or archived
    store.check_writable()
    paths = store.paths.run(spec.study, spec.run_id)
    claim = _claim_open_cell(paths, spec, store, replace=replace)
    metadata = new_metadata(spec, surroundings(Path.cwd()), synthetic=False)
    metadata = metadata.replace(**given.settled(_metadata_of(store, spec)))
    if redacted:
        sys.stderr.write(f"fairtrial: config values redacted because they are secrets: {', '.join(redacted)}\n")
        caution = REDACTED_CONFIG.fill(names=", ".join(redacted))
        metadata = metadata.replace(cautions=[caution, *metadata.cautions])
    return ScriptRun.create(paths, metadata, claim)


def _metadata_of(store: Store, spec: RunSpec) -> RunMetadata | None:
    existing = load_run(store.paths.run(spec.study, spec.run_id))
    return existing.metadata if existing else None


def _as_json(config: Any) -> dict[str, Any]:
    """Convert a config to JSON types; other values, such as paths, become their text."""
    plain: dict[str, Any] = json.loads(json.dumps(_settings_of(config), default=str))
    return plain


def _settings_of(config: Any) -> dict[str, Any]:
    """Return the settings in a mapping, a dataclass, an `argparse.Namespace` or another plain object with attributes.

    Configurations of OmegaConf, ml_collections and the like are mappings.
    """
    if config is None:
        return {}
    if is_dataclass(config) and not isinstance(config, type):
        return asdict(config)
    if isinstance(config, Namespace | SimpleNamespace):
        return dict(vars(config))
    if callable(getattr(config, "model_dump", None)) and not isinstance(config, type):  # a pydantic model
        return dict(config.model_dump())
    if isinstance(config, Mapping) or (hasattr(config, "keys") and hasattr(config, "__getitem__")):
        return {str(key): config[key] for key in config.keys()}  # noqa: SIM118 — it may not be a dict
    raise UserError(
        f"config must be a mapping, an argparse.Namespace or a dataclass, not {type(config).__name__}",
        hint="For other objects, pass config=vars(settings).",
    )


def _claim_open_cell(paths: RunPaths, spec: RunSpec, store: Store, *, replace: bool) -> Claim:
    if replace:
        store.pull(spec.study)
    if replace and paths.metadata.exists():
        store.archive(paths)
    try:
        claim = Claim(paths)
    except ClaimedElsewhere:
        raise UserError(f"another process is writing run {spec.name}") from None
    try:
        # In a shared store this also takes a lease, and raises if another machine holds the run.
        claim.afterwards = RemoteRunSession(store, claim).leave
        _refuse_finished(load_run(paths), spec)
    except ClaimedElsewhere:
        claim.release()
        raise UserError(f"another machine is running {spec.name}") from None
    except BaseException:
        claim.release()
        raise
    return claim


def _refuse_finished(existing: Run | None, spec: RunSpec) -> None:
    if existing and existing.metadata.fingerprint != spec.fingerprint:
        raise CellConflict(
            f"run {spec.name} already exists with another config",
            hint="Use another variant, or replace=True to archive it.",
        )
    if existing and existing.status.is_result:
        raise UserError(f"run {spec.name} is already complete", hint="Use another seed, or replace=True to archive it.")


_exit_codes: list[Any] = []


def _note_exit_codes() -> None:
    """Wrap `sys.exit` to remember its argument: an atexit handler cannot learn the exit status otherwise."""
    leave = sys.exit
    if not hasattr(leave, "noted_by_fairtrial"):

        def exit_noted(status: Any = None, /) -> NoReturn:
            _exit_codes.append(status)
            leave(status)

        exit_noted.noted_by_fairtrial = True  # type: ignore[attr-defined]
        sys.exit = exit_noted


def _finish_at_exit(recorder: Recorder) -> None:
    """Close the run of a script that does not use `with`: completed at a normal exit, failed after an error."""
    error = getattr(sys, "last_value", None)
    if error is None and _exit_codes:
        error = SystemExit(_exit_codes[-1])
    recorder.__exit__(type(error) if error else None, error, None)
