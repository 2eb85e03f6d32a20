"""scikit-learn's 8 × 8 digits as 64-point signals: 1,000 for train, 297 for eval, 500 for report."""

from __future__ import annotations

from typing import Any

VERSION = 1
SPLITS = {"train": (0, 1000), "eval": (1000, 1297), "report": (1297, 1797)}


def make() -> dict[str, Any]:
    import numpy
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = numpy.random.Generator(numpy.random.PCG64(0)).permutation(len(labels))
    x = (images[order] / 16.0).astype(numpy.float32)
    y = labels[order].astype(numpy.int64)
    arrays = {}
    for split, (start, end) in SPLITS.items():
        arrays[f"{split}_x"], arrays[f"{split}_y"] = x[start:end], y[start:end]
    return arrays
