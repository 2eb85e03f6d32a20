"""`study.json`: what a study was meant to be, kept beside its runs, and what may not change under its name."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import orjson

from fairtrial.core.durable import make_folder
from fairtrial.core.errors import CellConflict, StoreError, UserError
from fairtrial.core.private_files import open_lock
from fairtrial.core.specs import RunSpec
from fairtrial.core.untrusted import parse_json_fast, read_file
from fairtrial.record.atomic import replace_bytes, store_errors
from fairtrial.record.index import Row, all_rows
from fairtrial.record.metadata import CHECKSUM, checksum_of
from fairtrial.record.store import Store


def save_plan(store: Store, plan: Mapping[str, Any]) -> None:
    """Write the plan down; seeds and variants of earlier launches under this name are kept in it."""
    path = store.paths.study_plan(plan["study"])
    with store_errors(path):
        make_folder(path.parent)
        lock = os.fdopen(open_lock(path.with_name(".plan.lock")), "rb")
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
    replace_bytes(path, orjson.dumps({**plan, CHECKSUM: checksum_of(plan)}, option=_AS_FILE))


_AS_FILE = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
HINT = "The file was changed or damaged; move it away to go on: the next launch writes it anew."


def load_plan(store: Store, study: str) -> dict[str, Any] | None:
    """What a study was meant to be, with the seeds of all runs that are there; None where nobody planned it.

    Raises a StoreError where the file is damaged.

    Two stores that were merged by copying have one `study.json`, that of the one side: the run directories are the
    truth, so a seed that any of its variants has counts as planned for all of them.
    """
    plan = _read_plan(store, study)
    if plan is None:
        return None
    rows = [row for row in all_rows(store, study) if row["attempt"] == 1 and row["variant"] in plan["variants"]]
    made = sorted(row["seed"] for row in rows if row["seed"] is not None)
    return {**plan, "seeds": list(dict.fromkeys([*plan["seeds"], *made]))}


def _read_plan(store: Store, study: str) -> dict[str, Any] | None:
    path = store.paths.study_plan(study)
    try:
        content = read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        plan = parse_json_fast(content, where=str(path))
    except UserError:
        plan = None
    checksum = plan.pop(CHECKSUM, None) if isinstance(plan, dict) else None
    if why := why_not_plan(plan, study, checksum):
        raise StoreError(f"{path} is not a study: {why}", hint=HINT)
    document: dict[str, Any] = plan
    return document


_REQUIRED: Mapping[str, tuple[type, ...]] = {"study": (str,), "seeds": (list,), "variants": (dict,)}
_USUAL: Mapping[str, tuple[type, ...]] = {
    "recipe": (str,), "options": (dict,), "metric": (str, NoneType), "direction": (str, NoneType),
    "summary": (dict, NoneType), "sesoi": (int, float, NoneType), "alpha": (int, float, NoneType),
    "adjust": (str, NoneType), "benchmark": (dict, NoneType), "registration": (str, NoneType),
}  # fmt: skip


def why_not_plan(plan: Any, study: str, checksum: Any) -> str | None:
    """Why a document is not the plan of this study. Unknown keys are fine: a newer version may have written them."""
    if type(plan) is not dict:
        return "it is not a JSON object"
    for name, kinds in _REQUIRED.items():
        if type(plan.get(name)) not in kinds:
            return f"'{name}' is missing or of the wrong type"
    for name, kinds in _USUAL.items():
        if name in plan and type(plan[name]) not in kinds:
            return f"'{name}' is of the wrong type"
    if plan["study"] != study:
        return f"it is that of the study '{plan['study']}'"
    if not all(type(seed) is int and 0 <= seed < 1 << 63 for seed in plan["seeds"]):
        return "a seed is not a whole number from 0 up"
    if not all(type(values) is dict for values in plan["variants"].values()):
        return "a variant is not a set of options"
    if plan.get("direction") not in (None, "max", "min"):
        return "'direction' is neither max nor min"
    return "it does not have its recorded checksum" if checksum not in (None, checksum_of(plan)) else None


def without_checksum(content: bytes) -> bytes:
    """A plan as others may change it, such as without local paths; one that has no checksum is taken as it is."""
    plan = orjson.loads(content)
    if CHECKSUM not in plan:
        return content
    del plan[CHECKSUM]
    return orjson.dumps(plan, option=_AS_FILE)


def refuse_changed_variants(specs: Iterable[RunSpec], changed: Iterable[Row]) -> None:
    """A variant's name stands for one set of options: the same name with others is a conflict."""
    wanted = {(spec.study, spec.variant): spec for spec in specs}
    problems: dict[tuple[str, str], str] = {}
    for row in changed:
        spec = wanted[row["study"], row["variant"]]
        message = (
            f"variant '{spec.variant}' of study '{spec.study}' exists with other options: {differences(spec, row)}"
        )
        problems.setdefault((spec.study, spec.variant), message)
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
