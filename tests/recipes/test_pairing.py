"""Two variants with one seed share init, order and subset where shapes allow: that is what pairs them."""

from __future__ import annotations

from typing import Any

import torch

from fairtrial.core.options import parse_options
from fairtrial.core.registry import load_recipe
from fairtrial.core.streams import Streams
from fairtrial.core.training import RunContext
from fairtrial.record.store import Store
from tests.harness import request_for


def build(store: Store, recipe: str, seed: int = 1, **options: Any) -> Any:
    """A trainable as a job would build it, before its first step."""
    job = request_for(store, recipe, seed=seed, **options)
    loaded = load_recipe(recipe)
    parsed = parse_options(loaded.options, job.spec.options, where="test")
    context = RunContext(
        streams=Streams(seed),
        variant="v",
        run=store.paths.run("s", job.spec.run_id),
        cache=store.cache,
        data=loaded.data(parsed, store.cache),
        needs={name: store.paths.run(*where) for name, where in job.needs.items()},
    )
    return loaded.build(parsed, context)


def weights(trainable: Any) -> dict[str, torch.Tensor]:
    return dict(trainable.state()["module"])


def orders(trainable: Any, steps: int = 30) -> list[list[int]]:
    return [trainable.batches.at(step).tolist() for step in range(1, steps)]


SHORT = {"steps": 30, "teacher_steps": 5, "teacher_width": 4, "labels": 1000}


def test_strategies_share_the_student_the_order_and_the_subset(with_data: Store) -> None:
    none, kd = (build(with_data, "distill", strategy=strategy, **SHORT) for strategy in ("none", "kd"))
    assert all(torch.equal(weights(none)[name], weights(kd)[name]) for name in weights(none))
    assert orders(none) == orders(kd)
    assert len({index for batch in orders(none) for index in batch}) == 1000


def test_projections_of_one_strategy_do_not_move_the_student(with_data: Store) -> None:
    small = {**SHORT, "student": "cnn", "student_width": 4}
    none, combined = (build(with_data, "distill", strategy=s, **small) for s in ("none", "combined"))
    assert all(torch.equal(weights(none)[name], weights(combined)[name]) for name in weights(none))


def test_another_input_keeps_the_layers_whose_shape_is_the_same(with_data: Store) -> None:
    short, long = (
        weights(build(with_data, "classify", model="transformer", data=data)) for data in ("mnist1d", "digits")
    )
    layers = {name.rpartition(".")[0] for name in short}
    same = {layer for layer in layers if all(short[n].shape == long[n].shape for n in short if n.startswith(layer))}
    assert layers - same == {"positions", "output"}
    for name in short:
        assert torch.equal(short[name], long[name]) == (name.rpartition(".")[0] in same), name


def test_learning_rate_and_schedule_share_everything(with_data: Store) -> None:
    slow = build(with_data, "classify", learning_rate=1e-4)
    fast = build(with_data, "classify", learning_rate=1e-1, schedule="cosine")
    assert all(torch.equal(weights(slow)[name], weights(fast)[name]) for name in weights(slow))
    assert orders(slow) == orders(fast)


def test_seeds_share_nothing(with_data: Store) -> None:
    one, two = (build(with_data, "distill", seed=seed, strategy="none", **SHORT) for seed in (1, 2))
    assert not any(torch.equal(weights(one)[name], weights(two)[name]) for name in weights(one))
    assert orders(one) != orders(two)


def test_an_epoch_sees_every_example_once(with_data: Store) -> None:
    trainable = build(with_data, "classify", batch_size=100)
    for epoch in range(2):
        seen = sorted(index for batch in range(40) for index in trainable.batches.at(1 + epoch * 40 + batch))
        assert seen == list(range(4000))


def test_streams_are_independent_of_each_other_and_of_what_was_asked_before() -> None:
    streams = Streams(7)
    first = streams.numpy("order", 3).random(4).tolist()
    streams.numpy("init").random(1000)
    assert streams.numpy("order", 3).random(4).tolist() == first
    seeds = {Streams(root).seed(name, index) for root in range(20) for name in ("init", "order") for index in range(20)}
    assert len(seeds) == 800
