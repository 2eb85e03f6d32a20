"""`metadata.json`: read, replaced whole, and reconciled after a kill."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Run, Status
from fairtrial.core.schema import METADATA_SCHEMA, upgrade
from fairtrial.record.atomic import Sync, replace_bytes
from fairtrial.record.claims import is_claimed
from fairtrial.record.tracking import is_made_elsewhere, read_tracking

if TYPE_CHECKING:
    from fairtrial.core.specs import RunSpec

BEST_KEYS = (
    "best_metric_value",
    "best_checkpoint_step",
    "best_checkpoint_path",
    "best_checkpoint_sha256",
)


REQUIRED = frozenset(
    {
        "run_id", "study", "variant", "seed", "attempt", "recipe", "recipe_file", "synthetic", "options", "identity",
        "data", "fingerprint", "status", "reason", "hint", "metric", "direction", "best_metric_name",
        "best_metric_mode", *BEST_KEYS, "best_pending", "final", "lineage", "environment", "timings", "resources",
        "cautions", "schema",
    }
)  # fmt: skip

STATUSES = tuple(Status)


def new_metadata(spec: RunSpec, environment: Mapping[str, Any], *, synthetic: bool) -> dict[str, Any]:
    """What is known of a run before its first step. Unknown is null, never 0."""
    return {
        "schema": METADATA_SCHEMA,
        "run_id": spec.run_id,
        "study": spec.study,
        "variant": spec.variant,
        "seed": spec.seed,
        "attempt": spec.attempt,
        "recipe": spec.recipe,
        "recipe_file": spec.recipe_file,
        "synthetic": synthetic,
        "options": dict(spec.options),
        "identity": dict(spec.identity),
        "data": dict(spec.data) or None,
        "fingerprint": spec.fingerprint,
        "status": Status.RUNNING.value,
        "reason": None,
        "hint": None,
        "metric": None,
        "direction": None,
        "best_metric_name": None,
        "best_metric_mode": None,
        **dict.fromkeys(BEST_KEYS),
        "best_pending": None,
        "final": {},
        "lineage": {"resumed": []},
        "environment": dict(environment),
        "timings": {
            "created": time.time(), "ended": None, "setup_s": None, "wall_s": None, "cpu_s": None, "stacked": 1,
        },
        "resources": {},
        "cautions": [],
    }  # fmt: skip


def write_metadata(paths: RunPaths, metadata: Mapping[str, Any], *, sync: Sync = Sync.FILE) -> None:
    content = orjson.dumps(metadata, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    replace_bytes(paths.metadata, content, sync=sync)


def load_metadata(paths: RunPaths) -> dict[str, Any] | None:
    """The metadata with the best checkpoint reconciled, or None where no run was begun."""
    try:
        content = paths.metadata.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return settle_best(paths, parse_metadata(content, str(paths.metadata)))


def parse_metadata(content: bytes, where: str) -> dict[str, Any]:
    """Metadata of the current schema, or one sentence on why the file holds none."""
    hint = "The file was changed or damaged; 'fairtrial runs rm' removes such a run."
    try:
        metadata = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise StoreError(f"{where} is not JSON", hint=hint) from None
    if not isinstance(metadata, dict):
        raise StoreError(f"{where} does not describe a run", hint=hint)
    metadata = upgrade(metadata, where=where)
    if REQUIRED - metadata.keys():
        missing = ", ".join(sorted(REQUIRED - metadata.keys()))
        raise StoreError(f"{where} does not describe a run: it lacks {missing}", hint=hint)
    if metadata["status"] not in STATUSES:
        raise StoreError(f"{where} does not describe a run: its status is {metadata['status']!r}", hint=hint)
    return metadata


def settle_best(paths: RunPaths, metadata: dict[str, Any]) -> dict[str, Any]:
    """Decide which of two announced best checkpoints `best.pt` is, after a kill between two writes.

    The new one is announced under `best_pending` before the file is replaced; so the file is always one
    of the two that the metadata names, and its hash tells which.
    """
    pending = metadata["best_pending"]
    if pending is None:
        gone = metadata["best_checkpoint_step"] is not None and not (paths.best.is_file() or _left_there(paths))
        return {**metadata, **dict.fromkeys(BEST_KEYS)} if gone else metadata
    from fairtrial.core.canonical import file_hash  # hashing is needed after a kill alone

    arrived = paths.best.is_file() and file_hash(paths.best) == pending["best_checkpoint_sha256"]
    return {**metadata, **(pending if arrived else {}), "best_pending": None}


def _left_there(paths: RunPaths) -> bool:
    """Whether the best checkpoint is in the shared store, from where nobody has needed it yet."""
    known = read_tracking(paths)
    return known is not None and str(paths.best.relative_to(paths.root)) in known.absent


def load_run(paths: RunPaths) -> Run | None:
    metadata = load_metadata(paths)
    return None if metadata is None else Run(paths.root, metadata, true_status(paths, metadata["status"]))


def true_status(paths: RunPaths, written: str) -> Status:
    """A run that says it is running, and whose process is gone, was interrupted."""
    status = Status(written)
    if status is Status.RUNNING and not is_claimed(paths) and not is_made_elsewhere(paths):
        return Status.INTERRUPTED
    return status
