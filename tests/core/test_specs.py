"""Cells, seeds, fingerprints and names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.core.errors import UserError
from fairtrial.core.paths import check_name
from fairtrial.core.specs import FIXED_SEEDS, RunSpec, seed_list

SPEC = RunSpec(recipe="fake", options={"a": 1}, identity={"a": 1}, seed=1)


def test_the_fingerprint_is_made_of_content_alone() -> None:
    assert replace(SPEC, study="x", variant="y", attempt=3).fingerprint == SPEC.fingerprint
    assert replace(SPEC, options={"a": 1, "checkpoint_every": 5}).fingerprint == SPEC.fingerprint
    others = [
        replace(SPEC, seed=2),
        replace(SPEC, recipe="other"),
        replace(SPEC, identity={"a": 2}),
        replace(SPEC, identity={"a": 1.5}),
        SPEC.with_data({"sha256": "x"}),
    ]
    assert len({SPEC.fingerprint, *(other.fingerprint for other in others)}) == 6


def test_a_spec_survives_the_way_to_a_job() -> None:
    assert RunSpec.from_dict(SPEC.to_dict()) == SPEC


@given(count=st.integers(1, 60), more=st.integers(0, 60))
def test_extending_a_study_keeps_its_first_seeds(count: int, more: int) -> None:
    assert seed_list(count + more)[:count] == seed_list(count)
    assert len(set(seed_list(count))) == count


def test_the_fixed_seeds_come_first() -> None:
    assert tuple(seed_list(15)) == FIXED_SEEDS == (
        1072, 2043, 3014, 4085, 5156, 6227, 7298, 8369, 9440, 10511, 11582, 12653, 13724, 14795, 15866,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["kd", "a b", "lr=0.1,wd=0", "v1.2", "x" * 120])
def test_names_that_can_be_folders(name: str) -> None:
    assert check_name("variant", name) == name


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../up", "a\n", "ends ", "x" * 121, "ü", "-flag"])
def test_names_that_cannot(name: str) -> None:
    with pytest.raises(UserError, match="cannot be a folder name"):
        check_name("variant", name)
