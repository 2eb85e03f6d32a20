"""Data sets, one module each, with a `make()` that returns arrays, and a `VERSION` that changes with how it does so.

A data set is generated once per store, cached with a hash of its content, and memory-mapped by every run. It has three
splits: `train` for training, `eval` for selection (best checkpoint, sweep winner), and `report` for verdicts and
published numbers.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fairtrial.plugins import Cache, Dataset

if TYPE_CHECKING:
    import numpy

DataName = Literal["mnist1d", "mnist1d_shifted", "digits"]
GENERATED = ("mnist1d", "mnist1d_shifted")
"""Data sets for which new report data can be generated."""
MOST_SETS = 2**30
"""Number of different report sets that can be generated."""
Arrays = Mapping[str, "numpy.ndarray[Any, Any]"]


def load_data(name: str, cache: Cache, report_set: int = 0) -> Dataset:
    """Return the data set with this name. It is generated now if the store does not have it."""
    module = importlib.import_module(f"fairtrial.recipes.data.{name}")

    def make(folder: Path) -> dict[str, Any]:
        arrays = {**load_data(name, cache).arrays(), **module.make_report(report_set)} if report_set else module.make()
        save_arrays(folder, arrays)
        return {
            "sha256": hash_arrays(arrays),
            "shapes": {key: list(value.shape) for key, value in arrays.items()},
        }

    key = {"name": name, "version": module.VERSION, **({"report": report_set} if report_set else {})}
    entry = cache.entry("data", key, make, has_recorded_values)
    return Dataset(name, str(entry.manifest["sha256"]), entry.folder)


def has_recorded_values(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Return whether the arrays in a folder match the hash in its manifest."""
    try:
        digest = hash_arrays(Dataset("", "", folder).arrays())
    except (OSError, ValueError, EOFError):
        return False
    return digest == manifest.get("sha256")


def save_arrays(folder: Path, arrays: Arrays) -> None:
    import numpy

    for key, value in arrays.items():
        numpy.save(folder / f"{key}.npy", value)


def hash_arrays(arrays: Arrays) -> str:
    """Return a hash of the arrays as they are trained on (float32). The last bit of a float64 differs by machine."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        digest.update(f"{key}{arrays[key].shape}{arrays[key].dtype}".encode())
        digest.update(arrays[key].tobytes())
    return digest.hexdigest()
