"""Data: known by content, split for learning, selecting and reporting, and made without disturbing anyone."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy
import pytest

from fairtrial.core.errors import FairtrialError
from fairtrial.recipes.data import load_data, mnist1d_shifted
from fairtrial.recipes.data.mnist1d import generate
from fairtrial.record.store import Store
from tests.harness import edit_metadata, forked, make, wait

PUBLISHED = {"train": 4000, "eval": 1000, "report": 1000}


def test_mnist1d_keeps_the_published_split_and_selects_on_fresh_data(with_data: Store) -> None:
    data = load_data("mnist1d", with_data.cache)
    assert {split: len(data.array(f"{split}_y")) for split in PUBLISHED} == PUBLISHED
    assert data.array("train_x").dtype == numpy.float32 and data.array("train_x").shape[1] == 40
    rows = [{row.tobytes() for row in data.array(f"{split}_x")} for split in PUBLISHED]
    assert not rows[0] & rows[1] and not rows[0] & rows[2] and not rows[1] & rows[2]
    assert load_data("mnist1d", with_data.cache).sha256 == data.sha256


def test_digits_are_split_without_overlap(with_data: Store) -> None:
    data = load_data("digits", with_data.cache)
    assert [len(data.array(f"{split}_y")) for split in ("train", "eval", "report")] == [1000, 297, 500]


@pytest.mark.slow
def test_making_data_leaves_the_global_generators_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import mnist1d.data

    few = mnist1d.data.get_dataset_args()
    few.num_samples = 200
    monkeypatch.setattr(mnist1d.data, "get_dataset_args", lambda: few)
    random.seed(1)
    numpy.random.seed(1)
    before = random.getstate(), numpy.random.get_state()[1].tolist()
    assert len(load_data("mnist1d", store.cache).array("train_y")) == 160
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == before


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, mnist1d_shifted.SHIFT], ids=["published", "shifted"])
def test_generated_examples_are_those_of_the_mnist1d_library(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    import mnist1d.data

    settings = mnist1d.data.get_dataset_args()
    settings.num_samples, settings.seed = 500, 7
    vars(settings).update(changes)
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    theirs = mnist1d.data.make_dataset(settings)
    random.setstate(python_state)
    numpy.random.set_state(numpy_state)
    monkeypatch.setattr(mnist1d.data, "get_dataset_args", lambda: settings)
    for name, ours in generate(7, **changes).items():
        assert ours.tobytes() == theirs[name].astype(ours.dtype).tobytes(), name


def test_two_processes_make_a_data_set_once(store: Store) -> None:
    made = store.root / "made"
    made.mkdir(parents=True)

    def get() -> None:
        def make_it(folder: os.PathLike[str]) -> dict[str, str]:
            (made / str(os.getpid())).touch()
            return {"sha256": "x"}

        store.cache.entry("data", {"name": "slow"}, make_it)

    children = [forked(get) for _ in range(6)]
    assert [wait(pid) for pid in children] == [0] * 6
    assert len(list(made.iterdir())) == 1


def test_a_killed_maker_leaves_nothing_that_looks_finished(store: Store) -> None:
    def die(folder: os.PathLike[str]) -> dict[str, str]:
        os.kill(os.getpid(), 9)
        return {}

    assert wait(forked(lambda: store.cache.entry("data", {"name": "x"}, die))) == -9
    entry = store.cache.entry("data", {"name": "x"}, lambda _: {"sha256": "whole"})
    assert entry.manifest["sha256"] == "whole"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 5000}, "batch_size: 5000 is more than the 4000 training examples"),
        ({"labels": 5000}, "labels: the data set has 4000 examples, fewer than the requested 5000"),
    ],
)
def test_more_than_there_is_is_refused(with_data: Store, options: dict[str, int], message: str) -> None:
    outcome = make(with_data, "classify", **options)
    assert outcome.status == "failed" and message in (outcome.reason or "")


def test_the_data_are_part_of_a_cells_fingerprint(with_data: Store) -> None:
    make(with_data, "classify", model="linear", steps=2)
    paths = with_data.paths.run("s", "v.seed1")
    edit_metadata(paths, data={"name": "mnist1d", "sha256": "0" * 64}, fingerprint="1" * 64)
    with pytest.raises(FairtrialError, match="already exists with different options"):
        make(with_data, "classify", model="linear", steps=2)
