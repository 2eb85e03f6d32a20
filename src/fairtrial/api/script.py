"""run: recording for anyone's own training script.

    with fairtrial.run(seed=1, best_metric="eval_accuracy") as run:
        saved = run.resume()
        …
        run.log(step, loss=loss)
        run.evaluated(step, {"eval_accuracy": accuracy}, state)
        run.save(step, state)

Started by `fairtrial launch command`, it joins the run of that launch; started by hand, it makes its own.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

from fairtrial.api.script_names import script_spec
from fairtrial.core.errors import CellConflict, UserError
from fairtrial.core.paths import JOIN_VARIABLE, TOKEN_VARIABLE, RunPaths
from fairtrial.core.runs import Run
from fairtrial.core.specs import RunSpec
from fairtrial.record.claims import Claim, ClaimedElsewhere
from fairtrial.record.environment import git_state, machine
from fairtrial.record.metadata import BEST_KEYS, load_run, new_metadata
from fairtrial.record.part import Part
from fairtrial.record.recorder import Recorder
from fairtrial.record.store import Store


def run(
    *,
    seed: int | None = None,
    config: Mapping[str, Any] | None = None,
    study: str | None = None,
    variant: str | None = None,
    best_metric: str | None = None,
    best_mode: Literal["max", "min"] = "max",
    metric: str | None = None,
    direction: Literal["max", "min"] = "max",
    store: str | os.PathLike[str] | None = None,
    replace: bool = False,
) -> Recorder:
    """Record this script's training: `log`, `evaluated`, `save` and `resume` on what is returned.

    `config` is what tells this variant from others; the same study and variant with another config is refused. A `seed`
    in it is the seed of the run, so that `config=vars(args)` gives one variant with many seeds.
    `best_metric` judges `best.pt`; `metric` is what the run is judged by.
    """
    if best_mode not in ("max", "min") or direction not in ("max", "min"):
        raise UserError("best_mode and direction must be 'max' or 'min'")
    joined = os.environ.get(JOIN_VARIABLE)
    judged = {"metric": metric, "direction": direction if metric else None}
    judged |= {"best_metric_name": best_metric, "best_metric_mode": best_mode if best_metric else None}
    recorder = _join(Path(joined), judged) if joined else _begin(
        seed, _as_json(config or {}), study, variant, judged, Store.at(store), replace=replace
    )  # fmt: skip
    _note_exit_codes()
    atexit.register(_finish_at_exit, recorder)
    return recorder


def _join(folder: Path, judged: Mapping[str, Any]) -> Recorder:
    token = os.environ.get(TOKEN_VARIABLE)
    recorder = Recorder.attach(RunPaths(folder), int(token) if token else None)
    chosen = {key: value for key, value in judged.items() if value is not None}
    if any(recorder.metadata[key] not in (None, value) for key, value in chosen.items() if key.startswith("best_")):
        chosen |= dict.fromkeys(BEST_KEYS)  # a best by another metric is not the best
    if chosen:
        recorder.update(**chosen)
    return recorder


def _begin(
    seed: int | None,
    config: dict[str, Any],
    study: str | None,
    variant: str | None,
    judged: Mapping[str, Any],
    store: Store,
    *,
    replace: bool,
) -> Recorder:
    spec = script_spec(seed, config, study, variant, store)
    store.check_writable()
    paths = store.paths.run(spec.study, spec.run_id)
    claim = _claim_open_cell(paths, spec, store, replace=replace)
    metadata = new_metadata(spec, {**git_state(Path.cwd()), **machine()}, synthetic=False)
    return Recorder.create(paths, {**metadata, **judged}, claim)


def _as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as it can be written down; paths and the like by their text."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(config), default=str))
    return plain


def _claim_open_cell(paths: RunPaths, spec: RunSpec, store: Store, *, replace: bool) -> Claim:
    if replace:
        store.pull(spec.study)
    if replace and paths.metadata.exists():
        store.archive(paths, spec.study)
    try:
        claim = Claim(paths)
    except ClaimedElsewhere:
        raise UserError(f"run {spec.name} is being written by another process") from None
    try:
        claim.afterwards = Part(store, claim).leave
        _refuse_finished(load_run(paths), spec)
    except ClaimedElsewhere:
        claim.release()
        raise UserError(f"run {spec.name} is being made by another machine") from None
    except BaseException:
        claim.release()
        raise
    return claim


def _refuse_finished(existing: Run | None, spec: RunSpec) -> None:
    if existing and existing.metadata["fingerprint"] != spec.fingerprint:
        raise CellConflict(
            f"run {spec.name} exists with another config", hint="Use another variant, or replace=True to archive it."
        )
    if existing and existing.status.is_result:
        raise UserError(f"run {spec.name} is already done", hint="Use another seed, or replace=True to archive it.")


_exit_codes: list[Any] = []


def _note_exit_codes() -> None:
    """Python tells nobody at its end with which status it ends: note what `sys.exit` is given."""
    leave = sys.exit
    if not hasattr(leave, "noted_by_fairtrial"):

        def exit_noted(status: Any = None, /) -> NoReturn:
            _exit_codes.append(status)
            leave(status)

        exit_noted.noted_by_fairtrial = True  # type: ignore[attr-defined]
        sys.exit = exit_noted


def _finish_at_exit(recorder: Recorder) -> None:
    """A script that does not use `with` is done when it ends, and failed when it ended with an error."""
    error = getattr(sys, "last_value", None)
    if error is None and _exit_codes:
        error = SystemExit(_exit_codes[-1])
    recorder.__exit__(type(error) if error else None, error, None)
