"""MNIST-1D, generated locally: 40-point signals in ten classes.

The published 4,000 training and 1,000 test examples are `train` and `report`. `eval` is a new sample from the same
distribution.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

VERSION = 1
PUBLISHED_SEED = 42
EVAL_SEED = 20_261_115
EVAL_SIZE = 1000
FRESH_SEEDS = 2**31
"""First seed of freshly generated report data, far from the two seeds above. mnist1d accepts seeds below 2^32."""


def make() -> dict[str, Any]:
    return splits(PUBLISHED_SEED, EVAL_SEED)


def make_report(number: int) -> dict[str, Any]:
    return fresh_report(number)


def splits(seed: int, eval_seed: int, **changes: Any) -> dict[str, Any]:
    """Generate train and report data from `seed` and eval data from `eval_seed`, with `changes` to the settings."""
    published, fresh = generate(seed, **changes), generate(eval_seed, **changes)
    return {
        "train_x": published["x"],
        "train_y": published["y"],
        "eval_x": fresh["x"][:EVAL_SIZE],
        "eval_y": fresh["y"][:EVAL_SIZE],
        "report_x": published["x_test"],
        "report_y": published["y_test"],
    }


def fresh_report(number: int, **changes: Any) -> dict[str, Any]:
    """Generate new report data from the same distribution, which no run has been evaluated on."""
    fresh = generate(FRESH_SEEDS + number, **changes)
    return {"report_x": fresh["x_test"], "report_y": fresh["y_test"]}


def generate(seed: int, **changes: Any) -> dict[str, Any]:
    import mnist1d.data
    import numpy

    settings = mnist1d.data.get_dataset_args()
    settings.seed = seed
    for name, value in changes.items():
        setattr(settings, name, value)
    with _global_generators_kept():
        raw = mnist1d.data.make_dataset(settings)
    kinds = {"x": numpy.float32, "x_test": numpy.float32, "y": numpy.int64, "y_test": numpy.int64}
    return {key: numpy.ascontiguousarray(raw[key], dtype=kind) for key, kind in kinds.items()}


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    """Restore the state of the global random generators on exit, because mnist1d reseeds them."""
    import numpy

    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        numpy.random.set_state(numpy_state)
