"""`metadata.json`: read, replaced whole, and reconciled after a kill."""

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
"""Keys of a file whose checksum somebody left out. Any other is the damaged key of a checksum, or a newer version's."""
HINT = "See what can be repaired: fairtrial doctor --damage. 'fairtrial runs rm' takes such a run out of the store."
_AS_FILE = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


class DamagedRun(StoreError):
    """A run whose files are not what was recorded. Those who read many runs list it and go on."""


def new_metadata(spec: RunSpec, environment: Mapping[str, Any], *, synthetic: bool) -> RunMetadata:
    """What is known of a run before its first step. Unknown is null, never 0."""
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
    """Put the file in place: with its checksum, and for a run that has ended with the seals of its other files."""
    content = {key: value for key, value in metadata.items() if key not in (CHECKSUM, SEALED)}
    if content["status"] != Status.RUNNING:
        content[SEALED] = seals_of(paths)
    content[CHECKSUM] = checksum_of(content)
    replace_bytes(paths.metadata, orjson.dumps(content, option=_AS_FILE), sync=sync)


def checksum_of(document: Mapping[str, Any]) -> str:
    """CRC-32 of all keys but the checksum itself: it finds every flipped bit, and survives another layout of the file.

    It tells damage by chance, not forgery: whoever can write the file can write its checksum.
    """
    if CHECKSUM in document:
        document = {key: value for key, value in document.items() if key != CHECKSUM}
    return f"{zlib.crc32(orjson.dumps(document)):08x}"


def load_metadata(paths: RunPaths, *, in_store: bool = True) -> RunMetadata | None:
    """The metadata with the best checkpoint reconciled, or None where no run was begun. Raises DamagedRun.

    Without `in_store` the folder around the run need not be its study: somebody copied a run out of its store.
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
    """Metadata of the current schema, or one sentence on why the file holds none (DamagedRun)."""
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
        raise DamagedRun(f"{where} does not describe a run: it lacks {missing}", hint=HINT)
    metadata = RunMetadata.of(document)
    checksum = metadata.pop(CHECKSUM, None)
    if not has_usual_shape(document):
        _refuse_other_shapes(metadata, where)
    if checksum is None and (strange := metadata.keys() - WITHOUT_CHECKSUM):
        raise DamagedRun(
            f"{where} has no checksum, but the key {min(strange)!r}, which nothing without one has", hint=HINT
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
    """Whether every value is of a type that the model in `core/metadata_schema.py` takes, for the common cases.

    The model takes ten times as long to import as ten thousand runs take here. Whatever is not usual (False) is its to
    judge. A test holds the two together: what passes here always passes there.
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
    for key, value in values.items():  # noqa: SIM110 — asked for every run of a list; all(…) takes half as long again
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
    """The typed model decides about whatever does not look as usual, and says what is wrong with it."""
    from fairtrial.core.metadata_schema import Metadata

    problems = shape_problems(Metadata, document)
    if type(document["status"]) is str and document["status"] not in STATUSES:
        problems.insert(0, f"its status is {document['status']!r}")
    if problems:
        messages = [f"{where} does not describe a run: {each}" for each in problems[:5]]
        raise DamagedRun(messages[0], problems=messages[1:], hint=HINT)


def why_misplaced(metadata: RunMetadata, study: str, run: str) -> str | None:
    """Why metadata cannot be those of the folder that they are in: somebody swapped, copied or renamed something."""
    named = metadata.run_id
    archived = run.startswith(f"{named}.") and parts_of_run_id(run) is None  # its name, and when it was put away
    if (named != run and not archived) or metadata.study != study:
        return f"does not belong here: {study}/{run} holds the run {metadata.study}/{named}"
    own = run_id(metadata.variant, metadata.seed, metadata.attempt)
    return None if named == own else f"names the run {named}, but its variant, seed and attempt are those of {own}"


def settle_best(paths: RunPaths, metadata: RunMetadata) -> RunMetadata:
    """Decide which of two announced best checkpoints `best.pt` is, after a kill between two writes.

    The new one is announced under `best_pending` before the file is replaced; so the file is always one
    of the two that the metadata names, and its hash tells which.
    """
    pending = metadata.best_pending
    if pending is None:
        gone = metadata.best_checkpoint_step is not None and not (paths.best.is_file() or _left_there(paths))
        return metadata.replace(**dict.fromkeys(BEST_KEYS)) if gone else metadata
    from fairtrial.core.canonical import file_hash  # hashing is needed after a kill alone

    arrived = paths.best.is_file() and file_hash(paths.best) == pending["best_checkpoint_sha256"]
    return RunMetadata.of({**metadata, **(pending if arrived else {}), "best_pending": None})


def _left_there(paths: RunPaths) -> bool:
    """Whether the best checkpoint is in the shared store, from where nobody has needed it yet."""
    known = read_remote_state(paths)
    return known is not None and str(paths.best.relative_to(paths.root)) in known.absent


def load_run(paths: RunPaths, *, in_store: bool = True) -> Run | None:
    """The run in this directory, or None where none was begun. Raises DamagedRun."""
    metadata = load_metadata(paths, in_store=in_store)
    return None if metadata is None else Run(paths.root, metadata, true_status(paths, metadata.status))


def load_run_or_damage(paths: RunPaths, *, in_store: bool = True) -> Run | None:
    """The same for those who read many runs: a damaged one has that status, the reason, and what is known of it."""
    try:
        return load_run(paths, in_store=in_store)
    except DamagedRun as error:
        return damaged_run(paths, error)
    except OSError as error:
        return damaged_run(paths, DamagedRun(f"{paths.metadata} cannot be read: {error.strerror}", hint=HINT))


def damaged_run(paths: RunPaths, error: FairtrialError) -> Run:
    """What stands for a run that cannot be read: its folder's name is all that is believed."""
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
    """A run whose metadata can be read and whose other files cannot be believed."""
    metadata = run.metadata.replace(status=Status.DAMAGED.value, reason=_sentence(error), hint=error.hint)
    return Run(run.path, metadata, Status.DAMAGED)


def _sentence(error: FairtrialError) -> str:
    return "; ".join((error.message, *error.problems))


def true_status(paths: RunPaths, written: str) -> Status:
    """A run that says it is running, and whose process is gone, was interrupted."""
    status = Status(written)
    if status is Status.RUNNING and not is_claimed(paths) and not is_made_elsewhere(paths):
        return Status.INTERRUPTED
    return status
