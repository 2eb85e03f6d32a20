"""The metadata of a run as typed attributes: `metadata.timings.wall_s`.

The metadata are also a dictionary, with the keys of `metadata.json` in the order of the file. Writing them back
therefore keeps everything that was read, including keys of other versions; `run.metadata["seed"]` and
`json.dumps(run.metadata)` work. Fairtrial's own code uses only attributes, so that a type checker can verify it
(`tests/test_architecture.py`).

This module does not validate: `record/metadata.py` decides whether a file describes a run. `core/metadata_schema.py` is
the complete schema, which is too slow to import for listing runs. A test checks that both have the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, ClassVar, Self, dataclass_transform

Json = dict[str, Any]


@dataclass_transform(kw_only_default=True, frozen_default=True)
class JsonRecord(dict[str, Any]):
    """A JSON object whose annotated keys are attributes. A key with a default may be missing in the object.

    To a type checker, subclasses are frozen dataclasses: `RunTimings(created=…, ended=None, …)` creates an object with
    these keys, in this order. `of` wraps an object as it was read, `replace` returns a changed copy.
    """

    __slots__ = ()

    known_keys: ClassVar[frozenset[str]] = frozenset()
    required_keys: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        annotations = cls.__annotations__
        cls.known_keys = frozenset(annotations)
        cls.required_keys = frozenset(name for name in annotations if name not in cls.__dict__)
        for name, annotation in annotations.items():
            record = _RECORDS.get(annotation.removesuffix(" | None"))
            setattr(cls, name, property(_reader(name, record, cls.__dict__.get(name, _REQUIRED))))
        _RECORDS[cls.__name__] = cls

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        return cls(document)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changed values. Existing keys keep their order; new keys are added at the end."""
        if unknown := changes.keys() - self.known_keys:
            raise TypeError(f"{type(self).__name__} has no key {min(unknown)!r}")
        return self.of({**self, **changes})


_RECORDS: dict[str, type[JsonRecord]] = {}
"""Record classes by the name used in annotations; evaluating the annotations would slow down the import."""
_REQUIRED = object()


def _reader(name: str, record: type[JsonRecord] | None, default: Any) -> Callable[[Json], Any]:
    """Return a getter for one key. Plain keys use C code, so that ten thousand runs can be listed within a second."""
    if record is None:
        return itemgetter(name) if default is _REQUIRED else lambda document: document.get(name, default)

    def read(document: Json) -> Any:
        value = document[name]
        return value if value is None or type(value) is record else record(value)

    return read


class RunData(JsonRecord):
    """The data set that a run was trained on, identified by a hash of its content."""

    __slots__ = ()

    name: str
    sha256: str


class RunLineage(JsonRecord):
    """Origin of a run. Recipes add keys for what they depend on."""

    __slots__ = ()

    resumed: list[Json]
    streams: list[str] | None = None
    teacher: Json | None = None
    references: Json | None = None


class RunEnvironment(JsonRecord):
    """The commit, the versions and the machine. None if unknown."""

    __slots__ = ()

    git_commit: str | None = None
    git_dirty: bool | None = None
    git_dirty_hash: str | None = None
    python: str | None = None
    platform: str | None = None
    hostname: str | None = None
    cpu: str | None = None
    cpu_model: str | None = None
    cpu_features: list[str] | None = None
    torch_instruction_set: str | None = None
    cpu_count: int | None = None
    memory_bytes: int | None = None
    gpu: str | None = None
    versions: dict[str, str | None] | None = None
    executable: str | None = None
    recipe_file_sha256: str | None = None
    command_line: list[str] | None = None


class RunTimings(JsonRecord):
    """Times in seconds; None until they are known. `stacked`: how many runs shared the process."""

    __slots__ = ()

    created: float
    ended: float | None
    setup_s: float | None
    wall_s: float | None
    cpu_s: float | None
    stacked: int = 1


class RunResources(JsonRecord):
    """Resources that a run used. None if they could not be measured."""

    __slots__ = ()

    parameters: int | None = None
    trainable_parameters: int | None = None
    flops_per_step: int | None = None
    examples_per_step: int | None = None
    steps_per_epoch: int | None = None
    tensor_bytes: dict[str, int] | None = None
    peak_tensor_bytes: int | None = None
    basis: str | None = None
    peak_process_bytes: int | None = None


class RunMetadata(JsonRecord):
    """One run: its specification, status, environment and resources.

    `docs/schemas/metadata-1.json` describes each key. The seed of a damaged run is None if its folder name lacks it.
    """

    __slots__ = ()

    schema: int
    run_id: str
    study: str
    variant: str
    seed: int
    attempt: int
    recipe: str
    recipe_file: str | None
    synthetic: bool
    options: Json
    identity: Json
    data: RunData | None
    fingerprint: str
    status: str
    reason: str | None
    hint: str | None
    metric: str | None
    direction: str | None
    best_metric_name: str | None
    best_metric_mode: str | None
    best_metric_value: float | None
    best_checkpoint_step: int | None
    best_checkpoint_path: str | None
    best_checkpoint_sha256: str | None
    best_pending: Json | None
    final: dict[str, Any]
    lineage: RunLineage
    environment: RunEnvironment
    timings: RunTimings
    resources: RunResources
    cautions: list[dict[str, str]]
    telemetry: Json | None = None
    sealed: dict[str, Json] | None = None
    checksum: str | None = None
    series: Json | None = None
    series_sha256: dict[str, str] | None = None

    @property
    def data_sha256(self) -> str | None:
        return self.data.sha256 if self.data else None
