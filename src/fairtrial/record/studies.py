"""`study.json`, the plan of a study, stored next to its runs, and the check that variants keep their options."""

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
    """Write the plan of a study, merged with the seeds and variants of earlier launches under the same name."""
    path = store.paths.study_plan(plan["study"])
    with store_errors(path):
        make_folder(path.parent)
        lock = os.fdopen(open_lock(path.with_name(".plan.lock")), "rb")
    with lock:  # two launchers may extend the same study concurrently
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
HINT = "The file was changed or damaged. Move it away to continue; the next launch writes it again."


def load_plan(store: Store, study: str) -> dict[str, Any] | None:
    """Return the plan of a study, extended by the seeds of all existing runs, or None if there is no plan.

    Raises a StoreError if the file is damaged.

    If two stores were merged by copying, `study.json` is that of one of them. The run directories are authoritative, so
    a seed of any planned variant counts as planned for all variants.
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
        raise StoreError(f"{path} is not the plan of a study: {why}", hint=HINT)
    document: dict[str, Any] = plan
    return document


_REQUIRED: Mapping[str, tuple[type, ...]] = {"study": (str,), "seeds": (list,), "variants": (dict,)}
_USUAL: Mapping[str, tuple[type, ...]] = {
    "recipe": (str,), "options": (dict,), "metric": (str, NoneType), "direction": (str, NoneType),
    "summary": (dict, NoneType), "sesoi": (int, float, NoneType), "alpha": (int, float, NoneType),
    "adjust": (str, NoneType), "benchmark": (dict, NoneType), "registration": (str, NoneType),
}  # fmt: skip


def why_not_plan(plan: Any, study: str, checksum: Any) -> str | None:
    """Return why a document is not the plan of this study, or None. Unknown keys of newer versions are accepted."""
    if type(plan) is not dict:
        return "it is not a JSON object"
    for name, kinds in _REQUIRED.items():
        if type(plan.get(name)) not in kinds:
            return f"'{name}' is missing or has the wrong type"
    for name, kinds in _USUAL.items():
        if name in plan and type(plan[name]) not in kinds:
            return f"'{name}' has the wrong type"
    if plan["study"] != study:
        return f"it belongs to the study '{plan['study']}'"
    if not all(type(seed) is int and 0 <= seed < 1 << 63 for seed in plan["seeds"]):
        return "a seed is not an integer from 0 to 2^63 - 1"
    if not all(type(values) is dict for values in plan["variants"].values()):
        return "a variant is not a JSON object of options"
    if plan.get("direction") not in (None, "max", "min"):
        return "'direction' is neither max nor min"
    return "it does not match its recorded checksum" if checksum not in (None, checksum_of(plan)) else None


def without_checksum(content: bytes) -> bytes:
    """Return a plan without its checksum, so that it may be edited, for example to remove local paths.

    A plan without a checksum is returned unchanged.
    """
    plan = orjson.loads(content)
    if CHECKSUM not in plan:
        return content
    del plan[CHECKSUM]
    return orjson.dumps(plan, option=_AS_FILE)


def refuse_changed_variants(specs: Iterable[RunSpec], changed: Iterable[Row]) -> None:
    """Raise CellConflict if a variant already has runs with different options under the same name."""
    wanted = {(spec.study, spec.variant): spec for spec in specs}
    problems: dict[tuple[str, str], str] = {}
    for row in changed:
        spec = wanted[row["study"], row["variant"]]
        message = (
            f"variant '{spec.variant}' of study '{spec.study}' exists with different options: {differences(spec, row)}"
        )
        problems.setdefault((spec.study, spec.variant), message)
    if problems:
        first, *rest = (problems[key] for key in wanted if key in problems)
        hint = "Use another variant or study name, or --replace to archive the old runs."
        raise CellConflict(first, problems=rest, hint=hint)


def differences(spec: RunSpec, row: Row) -> str:
    """Describe what changed, key by key; empty if nothing did."""
    before = _content(row["recipe"], row["identity"], row["data"])
    now = _content(spec.recipe, spec.identity, spec.data.get("sha256"))
    keys = sorted({*before, *now})
    return ", ".join(f"{key} {before.get(key)} → {now.get(key)}" for key in keys if before.get(key) != now.get(key))


def _content(recipe: str, identity: Mapping[str, Any], sha256: str | None) -> dict[str, Any]:
    return {**identity, "recipe": recipe, "content of the data": (sha256 or "none")[:12]}
