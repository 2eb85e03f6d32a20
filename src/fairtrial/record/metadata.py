"""`metadata.json`: reading, validation, atomic replacement, and reconciliation after a kill."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

import orjson

from fairtrial.core.errors import FairtrialError, StoreError, UserError
from fairtrial.core.paths import ARCHIVE, RunPaths, parts_of_run_id, run_id
from fairtrial.core.run_metadata import (
    RunData,
    RunEnvironment,
    RunLineage,
    RunMetadata,
    RunResources,
    RunTimings,
)
from fairtrial.core.runs import Run, Status
from fairtrial.core.schema import METADATA_SCHEMA, upgrade
from fairtrial.core.untrusted import parse_json_fast, read_file, shape_problems
from fairtrial.record.atomic import SyncLevel, replace_bytes
from fairtrial.record.claims import is_claimed
from fairtrial.record.remote_state import is_made_elsewhere, read_remote_state
from fairtrial.record.seals import seals_of

if TYPE_CHECKING:
    from fairtrial.core.specs import RunSpec

BEST_KEYS = (
    "best_metric_value",
    "best_checkpoint_step",
    "best_checkpoint_path",
    "best_checkpoint_sha256",
)
REQUIRED = RunMetadata.required_keys
STATUSES = frozenset(status.value for status in Status if status is not Status.DAMAGED)
CHECKSUM, SEALED = "checksum", "sealed"
WITHOUT_CHECKSUM = RunMetadata.known_keys - {CHECKSUM}
"""Keys allowed in a file without a checksum. Any other key is a damaged `checksum` key or from a newer version."""
HINT = "See what can be repaired: fairtrial doctor --damage. 'fairtrial runs rm' removes the run from the store."
_AS_FILE = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


class DamagedRun(StoreError):
    """A run whose files differ from what was recorded. Commands that read many runs list it and continue."""


def new_metadata(spec: RunSpec, environment: Mapping[str, Any], *, synthetic: bool) -> RunMetadata:
    """Return the metadata of a run before its first step. Unknown values are null, never 0."""
    return RunMetadata(
        schema=METADATA_SCHEMA,
        run_id=spec.run_id,
        study=spec.study,
        variant=spec.variant,
        seed=spec.seed,
        attempt=spec.attempt,
        recipe=spec.recipe,
        recipe_file=spec.recipe_file,
        synthetic=synthetic,
        options=dict(spec.options),
        identity=dict(spec.identity),
        data=RunData.of(spec.data) if spec.data else None,
        fingerprint=spec.fingerprint,
        status=Status.RUNNING.value,
        reason=None,
        hint=None,
        metric=None,
        direction=None,
        best_metric_name=None,
        best_metric_mode=None,
        best_metric_value=None,
        best_checkpoint_step=None,
        best_checkpoint_path=None,
        best_checkpoint_sha256=None,
        best_pending=None,
        final={},
        lineage=RunLineage(resumed=[]),
        environment=RunEnvironment.of(environment),
        timings=_timings_of_new(time.time()),
        resources=RunResources(),
        cautions=[],
    )


def _timings_of_new(created: float) -> RunTimings:
    return RunTimings(created=created, ended=None, setup_s=None, wall_s=None, cpu_s=None, stacked=1)


def write_metadata(paths: RunPaths, metadata: Mapping[str, Any], *, sync: SyncLevel = SyncLevel.FILE) -> None:
    """Replace the file, adding its checksum and, for an ended run, the seals of its other files."""
    content = {key: value for key, value in metadata.items() if key not in (CHECKSUM, SEALED)}
    if content["status"] != Status.RUNNING:
        content[SEALED] = seals_of(paths)
    content[CHECKSUM] = checksum_of(content)
    replace_bytes(paths.metadata, orjson.dumps(content, option=_AS_FILE), sync=sync)


def checksum_of(document: Mapping[str, Any]) -> str:
    """Return the CRC-32 of all keys except the checksum. It detects flipped bits and ignores the layout of the file.

    It detects accidental damage, not forgery: anyone who can write the file can also write its checksum.
    """
    if CHECKSUM in document:
        document = {key: value for key, value in document.items() if key != CHECKSUM}
    return f"{zlib.crc32(orjson.dumps(document)):08x}"


def load_metadata(paths: RunPaths, *, in_store: bool = True) -> RunMetadata | None:
    """Return the metadata with the best checkpoint reconciled, or None if no run was started. Raises DamagedRun.

    With `in_store=False`, the parent folder need not be named after the study, as for a run copied out of its store.
    """
    try:
        content = read_file(paths.metadata)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UserError as error:
        raise DamagedRun(error.message, hint=HINT) from None
    metadata = parse_metadata(content, str(paths.metadata))
    folder = paths.root.parent
    if folder.name == ARCHIVE:
        folder = folder.parent
    if why := why_misplaced(metadata, folder.name if in_store else metadata.study, paths.root.name):
        raise DamagedRun(f"{paths.metadata} {why}", hint=HINT)
    return settle_best(paths, metadata)


def parse_metadata(content: bytes, where: str) -> RunMetadata:
    """Parse and validate metadata, upgraded to the current schema. Raises DamagedRun with the reason."""
    try:
        document = parse_json_fast(content, where=where)
    except UserError as error:
        raise DamagedRun(error.message, hint=HINT) from None
    if not isinstance(document, dict):
        raise DamagedRun(f"{where} does not describe a run", hint=HINT)
    try:
        document = upgrade(document, where=where)
    except StoreError as error:
        raise DamagedRun(error.message, hint=error.hint) from None
    if not document.keys() >= REQUIRED:
        missing = ", ".join(sorted(REQUIRED - document.keys()))
        raise DamagedRun(f"{where} does not describe a run: missing keys: {missing}", hint=HINT)
    metadata = RunMetadata.of(document)
    checksum = metadata.pop(CHECKSUM, None)
    if not has_usual_shape(document):
        _refuse_other_shapes(metadata, where)
    if checksum is None and (strange := metadata.keys() - WITHOUT_CHECKSUM):
        raise DamagedRun(
            f"{where} has no checksum but has the key {min(strange)!r}, which occurs only in files with one", hint=HINT
        )
    if checksum is not None and checksum != checksum_of(metadata):
        raise DamagedRun(f"{where} does not have its recorded checksum", hint=HINT)
    return metadata


def _kinds(*kinds: type) -> frozenset[type]:
    return frozenset(kinds)


_NUMBER, _MAYBE_NUMBER = _kinds(float, int), _kinds(float, int, NoneType)
_MAYBE_TEXT, _INT, _MAYBE_INT = _kinds(str, NoneType), _kinds(int), _kinds(int, NoneType)
_TEXT, _MAYBE_MAP, _MAYBE_LIST = _kinds(str), _kinds(dict, NoneType), _kinds(list, NoneType)
_USUAL: tuple[tuple[str, frozenset[type]], ...] = tuple(
    {
        **dict.fromkeys(("run_id", "study", "variant", "recipe", "fingerprint", "status"), _TEXT),
        **dict.fromkeys(("schema", "seed", "attempt"), _kinds(int)),
        **dict.fromkeys(("recipe_file", "reason", "hint", "metric", "direction", "best_metric_name"), _MAYBE_TEXT),
        **dict.fromkeys(("best_metric_mode", "best_checkpoint_path", "best_checkpoint_sha256"), _MAYBE_TEXT),
        **dict.fromkeys(("options", "identity", "final", "lineage", "environment", "timings", "resources"),
                        _kinds(dict)),
        "synthetic": _kinds(bool), "data": _MAYBE_MAP, "best_metric_value": _MAYBE_NUMBER,
        "best_checkpoint_step": _MAYBE_INT, "best_pending": _kinds(NoneType), "cautions": _kinds(list),
    }.items()
)  # fmt: skip
_USUAL_TIMINGS: dict[str, frozenset[type]] = {
    "created": _NUMBER,
    **dict.fromkeys(("ended", "setup_s", "wall_s", "cpu_s"), _MAYBE_NUMBER),
    "stacked": _INT,
}
_USUAL_ENVIRONMENT: dict[str, frozenset[type]] = {
    **dict.fromkeys(("git_commit", "python", "platform", "hostname", "cpu", "gpu", "executable"), _MAYBE_TEXT),
    **dict.fromkeys(("cpu_count", "memory_bytes"), _MAYBE_INT),
    "git_dirty": _kinds(bool, NoneType), "git_dirty_hash": _MAYBE_TEXT, "recipe_file_sha256": _MAYBE_TEXT,
    "versions": _MAYBE_MAP, "cpu_model": _MAYBE_TEXT, "torch_instruction_set": _MAYBE_TEXT,
    "cpu_features": _MAYBE_LIST, "command_line": _MAYBE_LIST,
}  # fmt: skip
_USUAL_RESOURCES: dict[str, frozenset[type]] = {
    **dict.fromkeys(("parameters", "trainable_parameters", "flops_per_step", "examples_per_step"), _MAYBE_INT),
    **dict.fromkeys(("steps_per_epoch", "peak_tensor_bytes", "peak_process_bytes"), _MAYBE_INT),
    "tensor_bytes": _MAYBE_MAP,
    "basis": _MAYBE_TEXT,
}
_USUAL_RESUMPTION: dict[str, frozenset[type]] = {
    "step": _kinds(int),
    "at": _NUMBER,
    "best_step": _MAYBE_INT,
    "best_value": _MAYBE_NUMBER,
}
_MOST = (1 << 63) - 1
_SPELLED = ("NaN", "Infinity", "-Infinity")
_DIRECTIONS = frozenset({"max", "min", None})
_is_sha256 = re.compile("[0-9a-f]{64}").fullmatch


def has_usual_shape(document: Mapping[str, Any]) -> bool:
    """Return whether a document certainly satisfies the model in `core/metadata_schema.py`, for the common cases.

    Importing the model takes ten times as long as checking ten thousand runs here. If this returns False, the model
    decides. A test ensures that every document accepted here is also accepted by the model.
    """
    for key, kinds in _USUAL:
        if type(document[key]) not in kinds:
            return False
    timings, lineage, data = document["timings"], document["lineage"], document["data"]
    environment, tensors = document["environment"], document["resources"].get("tensor_bytes")
    versions = environment.get("versions")
    hashes = (
        document["best_checkpoint_sha256"],
        environment.get("git_dirty_hash"),
        environment.get("recipe_file_sha256"),
    )
    return (
        document["schema"] == METADATA_SCHEMA and document["status"] in STATUSES and 0 <= document["seed"] <= _MOST
        and 1 <= document["attempt"] <= _MOST and -_MOST <= (document["best_checkpoint_step"] or 0) <= _MOST
        and document["direction"] in _DIRECTIONS and document["best_metric_mode"] in _DIRECTIONS
        and _is_sha256(document["fingerprint"]) is not None
        and timings.keys() >= RunTimings.required_keys and _all_of(timings, _USUAL_TIMINGS)
        and timings.get("stacked", 1) >= 1
        and all(type(value) in _NUMBER or value in _SPELLED for value in document["final"].values())
        and _all_of(environment, _USUAL_ENVIRONMENT) and all(each is None or _is_sha256(each) for each in hashes)
        and _all_of(document["resources"], _USUAL_RESOURCES)
        and (tensors is None or _INT.issuperset(map(type, tensors.values())))
        and (versions is None or _MAYBE_TEXT.issuperset(map(type, versions.values())))
        and all(_is_list_of_text(environment.get(key) or []) for key in ("cpu_features", "command_line"))
        and type(lineage.get("resumed")) is list and all(_is_resumption(each) for each in lineage["resumed"])
        and _is_list_of_text(lineage.get("streams", []))
        and (data is None or (data.keys() == {"name", "sha256"} and type(data["name"]) is str
                              and type(data["sha256"]) is str and _is_sha256(data["sha256"]) is not None))
        and all(_is_caution(each) for each in document["cautions"]) and "telemetry" not in document
        and (SEALED not in document or _are_seals(document[SEALED]))
        and ("series" not in document or _is_extent(document["series"]))
        and ("series_sha256" not in document or _are_hashes(document["series_sha256"]))
    )  # fmt: skip


def _all_of(values: Mapping[str, Any], usual: Mapping[str, frozenset[type]]) -> bool:
    for key, value in values.items():  # noqa: SIM110 — called for every listed run; all(…) takes 50% longer
        if type(value) not in usual.get(key, ()):
            return False
    return True


def _is_resumption(value: Any) -> bool:
    return (
        type(value) is dict
        and {"step", "at"} <= value.keys() <= _USUAL_RESUMPTION.keys()
        and _all_of(value, _USUAL_RESUMPTION)
        and 0 <= value["step"] <= _MOST
        and -_MOST <= (value.get("best_step") or 0) <= _MOST
    )


def _is_list_of_text(value: Any) -> bool:
    return type(value) is list and _TEXT.issuperset(map(type, value))


_is_crc = re.compile("[0-9a-f]{8}").fullmatch


def _are_seals(value: Any) -> bool:
    return type(value) is dict and all(
        type(each) is dict
        and each.keys() == {"bytes", "crc32"}
        and type(each["bytes"]) is int
        and each["bytes"] >= 0
        and type(each["crc32"]) is str
        and _is_crc(each["crc32"]) is not None
        for each in value.values()
    )


def _are_hashes(value: Any) -> bool:
    return type(value) is dict and all(type(each) is str and _is_sha256(each) for each in value.values())


def _is_extent(value: Any) -> bool:
    return (
        type(value) is dict and value.keys() == {"lines", "bytes", "sha256"}
        and type(value["lines"]) is int and value["lines"] >= 0 and type(value["bytes"]) is int and value["bytes"] >= 0
        and type(value["sha256"]) is str and _is_sha256(value["sha256"]) is not None
    )  # fmt: skip


def _is_caution(value: Any) -> bool:
    return (
        type(value) is dict
        and value.keys() == {"code", "text", "remedy"}
        and all(type(each) is str for each in value.values())
    )


def _refuse_other_shapes(document: Mapping[str, Any], where: str) -> None:
    """Validate an unusual document with the typed model. Raises DamagedRun with its problems."""
    from fairtrial.core.metadata_schema import Metadata

    problems = shape_problems(Metadata, document)
    if type(document["status"]) is str and document["status"] not in STATUSES:
        problems.insert(0, f"its status is {document['status']!r}")
    if problems:
        messages = [f"{where} does not describe a run: {each}" for each in problems[:5]]
        raise DamagedRun(messages[0], problems=messages[1:], hint=HINT)


def why_misplaced(metadata: RunMetadata, study: str, run: str) -> str | None:
    """Return why metadata do not belong to their folder, for example after a swap, copy or rename; None if they do."""
    named = metadata.run_id
    archived = run.startswith(f"{named}.") and parts_of_run_id(run) is None  # an archived run: its id and a timestamp
    if (named != run and not archived) or metadata.study != study:
        return f"does not belong here: {study}/{run} contains the run {metadata.study}/{named}"
    own = run_id(metadata.variant, metadata.seed, metadata.attempt)
    return None if named == own else f"names the run {named}, but its variant, seed and attempt belong to {own}"


def settle_best(paths: RunPaths, metadata: RunMetadata) -> RunMetadata:
    """Determine whether `best.pt` is the old or the new best checkpoint after a kill between two writes.

    The recorder announces a new best under `best_pending` before it replaces the file. The file is therefore always one
    of the two that the metadata name, and its hash identifies it.
    """
    pending = metadata.best_pending
    if pending is None:
        gone = metadata.best_checkpoint_step is not None and not (paths.best.is_file() or _left_there(paths))
        return metadata.replace(**dict.fromkeys(BEST_KEYS)) if gone else metadata
    from fairtrial.core.canonical import file_hash  # needed only after a kill

    arrived = paths.best.is_file() and file_hash(paths.best) == pending["best_checkpoint_sha256"]
    return RunMetadata.of({**metadata, **(pending if arrived else {}), "best_pending": None})


def _left_there(paths: RunPaths) -> bool:
    """Return whether the best checkpoint is in the shared store and has not been downloaded."""
    known = read_remote_state(paths)
    return known is not None and str(paths.best.relative_to(paths.root)) in known.absent


def load_run(paths: RunPaths, *, in_store: bool = True) -> Run | None:
    """Return the run in this directory, or None if none was started. Raises DamagedRun."""
    metadata = load_metadata(paths, in_store=in_store)
    return None if metadata is None else Run(paths.root, metadata, true_status(paths, metadata.status))


def load_run_or_damage(paths: RunPaths, *, in_store: bool = True) -> Run | None:
    """Return the run like `load_run`, but with the status `damaged` and a reason instead of raising DamagedRun."""
    try:
        return load_run(paths, in_store=in_store)
    except DamagedRun as error:
        return damaged_run(paths, error)
    except OSError as error:
        return damaged_run(paths, DamagedRun(f"{paths.metadata} cannot be read: {error.strerror}", hint=HINT))


def damaged_run(paths: RunPaths, error: FairtrialError) -> Run:
    """Return a placeholder for a run that cannot be read. Only the name of its folder is trusted."""
    variant, seed, attempt = parts_of_run_id(paths.root.name) or (paths.root.name, None, 1)
    try:
        created = paths.root.stat().st_mtime
    except OSError:
        created = 0.0
    metadata: dict[str, Any] = {
        **dict.fromkeys(REQUIRED), "schema": METADATA_SCHEMA, "run_id": paths.root.name,
        "study": paths.root.parent.name, "variant": variant, "seed": seed, "attempt": attempt, "recipe": "",
        "synthetic": False, "fingerprint": "", "status": Status.DAMAGED.value, "reason": _sentence(error),
        "hint": error.hint, "options": {}, "identity": {}, "final": {}, "resources": {}, "environment": {},
        "cautions": [], "lineage": {"resumed": []}, "timings": _timings_of_new(created),
    }  # fmt: skip
    return Run(paths.root, RunMetadata.of(metadata), Status.DAMAGED)


def found_damaged(run: Run, error: FairtrialError) -> Run:
    """Return a run with status `damaged`, for a run with valid metadata whose other files are damaged."""
    metadata = run.metadata.replace(status=Status.DAMAGED.value, reason=_sentence(error), hint=error.hint)
    return Run(run.path, metadata, Status.DAMAGED)


def _sentence(error: FairtrialError) -> str:
    return "; ".join((error.message, *error.problems))


def true_status(paths: RunPaths, written: str) -> Status:
    """Return the actual status: a run recorded as running without a live process was interrupted."""
    status = Status(written)
    if status is Status.RUNNING and not is_claimed(paths) and not is_made_elsewhere(paths):
        return Status.INTERRUPTED
    return status
