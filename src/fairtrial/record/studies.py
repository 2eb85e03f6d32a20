"""`study.json`: what a study was meant to be, kept beside its runs, and what may not change under its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from fairtrial.core.errors import CellConflict
from fairtrial.core.runs import Run
from fairtrial.core.specs import RunSpec
from fairtrial.record.atomic import replace_bytes, store_errors
from fairtrial.record.store import Store


def save_plan(store: Store, plan: Mapping[str, Any]) -> None:
    """Write the plan down; seeds and variants of earlier launches under this name are kept in it."""
    earlier = load_plan(store, plan["study"]) or {}
    seeds = list(dict.fromkeys([*earlier.get("seeds", []), *plan["seeds"]]))
    merged = {**plan, "seeds": seeds, "variants": {**earlier.get("variants", {}), **plan["variants"]}}
    path = store.paths.study_plan(plan["study"])
    with store_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, orjson.dumps(merged, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def load_plan(store: Store, study: str) -> dict[str, Any] | None:
    try:
        plan: dict[str, Any] = orjson.loads(store.paths.study_plan(study).read_bytes())
    except FileNotFoundError:
        return None
    return plan


def refuse_changed_variants(specs: Iterable[RunSpec], existing: Iterable[Run]) -> None:
    """A variant's name stands for one set of options: the same name with others is a conflict."""
    runs = {run.variant: run for run in existing}
    problems = []
    for spec in {spec.variant: spec for spec in specs}.values():
        run = runs.get(spec.variant)
        if run is not None and (changes := differences(spec, run)):
            problems.append(f"variant '{spec.variant}' of study '{spec.study}' exists with other options: {changes}")
    if problems:
        first, *rest = problems
        hint = "Use another variant or study name, or --replace to archive the old runs."
        raise CellConflict(first, problems=rest, hint=hint)


def differences(spec: RunSpec, run: Run) -> str:
    """What changed, key by key; empty when nothing did."""
    before = _content(run.metadata["recipe"], run.metadata["identity"], run.metadata["data"])
    now = _content(spec.recipe, spec.identity, spec.data)
    keys = sorted({*before, *now})
    return ", ".join(f"{key} {before.get(key)} → {now.get(key)}" for key in keys if before.get(key) != now.get(key))


def _content(recipe: str, identity: Mapping[str, Any], data: Mapping[str, str] | None) -> dict[str, Any]:
    return {**identity, "recipe": recipe, "content of the data": (data or {}).get("sha256", "none")[:12]}
