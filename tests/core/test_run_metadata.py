"""The typed model of a run's metadata: attributes for us, a dictionary for everybody, and nothing lost between."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import orjson
import pytest

from fairtrial.core import metadata_schema
from fairtrial.core.paths import RunPaths
from fairtrial.core.run_metadata import (
    JsonRecord,
    RunData,
    RunEnvironment,
    RunLineage,
    RunMetadata,
    RunResources,
    RunTimings,
)
from fairtrial.core.specs import RunSpec
from fairtrial.record.metadata import new_metadata, parse_metadata, write_metadata
from tests.test_old_files import OLD, unpack

SPEC = RunSpec("fake", {"steps": 3}, {"steps": 3}, 7, "s", "v", data={"name": "digits", "sha256": "a" * 64})
OF_RECIPES = {"teacher", "references"}
"""Keys of the lineage that recipes add; the schema takes any."""


@pytest.fixture
def metadata() -> RunMetadata:
    return new_metadata(SPEC, {"git_commit": "c" * 40, "hostname": None}, synthetic=True)


@pytest.mark.parametrize(
    ("record", "model"),
    [
        (RunMetadata, metadata_schema.Metadata),
        (RunData, metadata_schema.DataIdentity),
        (RunLineage, metadata_schema.Lineage),
        (RunEnvironment, metadata_schema.Environment),
        (RunTimings, metadata_schema.Timings),
        (RunResources, metadata_schema.Resources),
    ],
)
def test_records_and_schema_have_the_same_keys(record: type[JsonRecord], model: Any) -> None:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    assert record.known_keys - OF_RECIPES == fields.keys()
    assert record.required_keys == {name for name, field in fields.items() if field.is_required()}


def test_every_key_is_an_attribute(metadata: RunMetadata) -> None:
    assert metadata.seed == metadata["seed"] == 7
    assert metadata.timings.created == metadata["timings"]["created"]
    assert metadata.environment.git_commit == "c" * 40
    assert metadata.data is not None and metadata.data_sha256 == metadata.data.sha256 == "a" * 64
    assert metadata.replace(data=None).data_sha256 is None


def test_a_part_that_was_read_from_a_file_is_typed_too(metadata: RunMetadata) -> None:
    read = RunMetadata.of(json.loads(json.dumps(metadata)))
    assert type(read["timings"]) is dict and type(read.timings) is RunTimings
    assert read == metadata and read.timings == metadata.timings and read.environment.hostname is None


def test_a_key_that_older_versions_did_not_write_has_its_default(metadata: RunMetadata) -> None:
    timings = RunTimings.of({key: value for key, value in metadata.timings.items() if key != "stacked"})
    assert timings.stacked == 1 and "stacked" not in timings
    assert metadata.telemetry is None and metadata.series is None and metadata.lineage.streams is None
    assert RunEnvironment.of({}).cpu_features is None


def test_a_required_key_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError, match="created"):
        _ = RunTimings.of({}).created


def test_a_copy_keeps_the_order_of_keys_and_those_of_other_versions(metadata: RunMetadata) -> None:
    read = RunMetadata.of({"of_tomorrow": [1], **metadata, "timings": {"idle_s": 2, **metadata.timings}})
    changed = read.replace(telemetry={"sent": 1}, seed=8, timings=read.timings.replace(stacked=2))
    assert list(changed) == [*read, "telemetry"]
    assert (changed.seed, changed["of_tomorrow"], changed["timings"]["idle_s"]) == (8, [1], 2)
    assert list(changed.timings) == list(read.timings)
    assert read.seed == 7 and read.timings.stacked == 1


def test_a_misspelled_key_is_refused(metadata: RunMetadata) -> None:
    with pytest.raises(TypeError, match="RunMetadata has no key 'sed'"):
        metadata.replace(sed=3)
    with pytest.raises(AttributeError):
        metadata.seed = 3  # type: ignore[misc]


def test_users_can_go_on_treating_metadata_as_a_dictionary(metadata: RunMetadata) -> None:
    assert isinstance(metadata, dict) and {**metadata} == metadata
    assert json.loads(json.dumps(metadata)) == metadata == orjson.loads(orjson.dumps(metadata))
    for again in (pickle.loads(pickle.dumps(metadata)), copy.deepcopy(metadata)):
        assert type(again) is RunMetadata and again == metadata


def test_metadata_of_earlier_versions_are_written_back_byte_for_byte(tmp_path: Path) -> None:
    for archive in sorted(OLD.glob("*.tar.xz")):
        unpack(archive, tmp_path / archive.stem)
    files = sorted(tmp_path.rglob("metadata.json"))
    assert len(files) >= 5
    for path in files:
        content = path.read_bytes()
        metadata = parse_metadata(content, str(path))
        write_metadata(RunPaths(path.parent), metadata.replace(reason=metadata.reason, timings=metadata.timings))
        assert path.read_bytes() == content
