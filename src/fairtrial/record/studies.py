"""`study.json`: what a study was meant to be, kept beside its runs, and what may not change under its name."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.durable import make_folder
from fairtrial.core.errors import CellConflict, StoreError
from fairtrial.core.specs import RunSpec
from fairtrial.record.atomic import replace_bytes, store_errors
from fairtrial.record.index import Row, all_rows
from fairtrial.record.store import Store


def save_plan(store: Store, plan: Mapping[str, Any]) -> None:
    """Write the plan down; seeds and variants of earlier launches under this name are kept in it."""
    path = store.paths.study_plan(plan["study"])
    with store_errors(path):
        make_folder(path.parent)
        lock = path.with_name(".plan.lock").open("w")
    with lock:  # two launchers may extend one study at the same moment
        fcntl.flock(lock, fcntl.LOCK_EX)
        merged = _merged(load_plan(store, plan["study"]) or {}, plan)
        _write(path, merged)
        if store.url:
            from fairtrial.record.sharing import share_plan

            def with_others(newest: dict[str, Any]) -> dict[str, Any]:
                both = _merged(newest, merged)
                _write(path, both)
                return both

            share_plan(store, plan["study"], with_others)


def _merged(earlier: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    seeds = list(dict.fromkeys([*earlier.get("seeds", []), *plan["seeds"]]))
    return {**plan, "seeds": seeds, "variants": {**earlier.get("variants", {}), **plan["variants"]}}


def _write(path: Path, plan: Mapping[str, Any]) -> None:
    replace_bytes(path, orjson.dumps(plan, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def load_plan(store: Store, study: str) -> dict[str, Any] | None:
    """What a study was meant to be, with the seeds of all runs that are there.

    Two stores that were merged by copying have one `study.json`, that of the one side: the run directories are the
    truth, so a seed that any of its variants has counts as planned for all of them.
    """
    plan = _read_plan(store, study)
    if plan is None:
        return None
    variants = plan.get("variants", {})
    made = sorted(row["seed"] for row in all_rows(store, study) if row["attempt"] == 1 and row["variant"] in variants)
    return {**plan, "seeds": list(dict.fromkeys([*plan.get("seeds", []), *made]))}


def _read_plan(store: Store, study: str) -> dict[str, Any] | None:
    path = store.paths.study_plan(study)
    try:
        plan = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except orjson.JSONDecodeError:
        plan = None
    if not isinstance(plan, dict):
        raise StoreError(f"{path} is not a study", hint="The file was changed or damaged; remove it to go on.")
    return plan


def refuse_changed_variants(specs: Iterable[RunSpec], changed: Iterable[Row]) -> None:
    """A variant's name stands for one set of options: the same name with others is a conflict."""
    wanted = {(spec.study, spec.variant): spec for spec in specs}
    problems: dict[tuple[str, str], str] = {}
    for row in changed:
        spec = wanted[row["study"], row["variant"]]
        told = f"variant '{spec.variant}' of study '{spec.study}' exists with other options: {differences(spec, row)}"
        problems.setdefault((spec.study, spec.variant), told)
    if problems:
        first, *rest = (problems[key] for key in wanted if key in problems)
        hint = "Use another variant or study name, or --replace to archive the old runs."
        raise CellConflict(first, problems=rest, hint=hint)


def differences(spec: RunSpec, row: Row) -> str:
    """What changed, key by key; empty when nothing did."""
    before = _content(row["recipe"], row["identity"], row["data"])
    now = _content(spec.recipe, spec.identity, spec.data.get("sha256"))
    keys = sorted({*before, *now})
    return ", ".join(f"{key} {before.get(key)} → {now.get(key)}" for key in keys if before.get(key) != now.get(key))


def _content(recipe: str, identity: Mapping[str, Any], sha256: str | None) -> dict[str, Any]:
    return {**identity, "recipe": recipe, "content of the data": (sha256 or "none")[:12]}
