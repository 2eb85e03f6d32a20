"""Data sets, each a file with a `make()` that gives arrays, a `VERSION` of how they are made, and three splits.

A data set is made once per store, kept by content, and memory-mapped by every run. `train` is learned from,
`eval` selects (best checkpoint, sweep winner), `report` is what verdicts and published numbers come from.
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
MOST_SETS = 2**30
"""Data sets that can be generated anew, and how many different sets of report data that gives."""
Arrays = Mapping[str, "numpy.ndarray[Any, Any]"]


def load_data(name: str, cache: Cache, report_set: int = 0) -> Dataset:
    """The data set of that name, made now if this store does not have it."""
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
    """Whether the arrays in a folder have the hash that its manifest states."""
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
    """A hash of the values as they are trained on (float32): the last bit of a float64 differs by machine."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        digest.update(f"{key}{arrays[key].shape}{arrays[key].dtype}".encode())
        digest.update(arrays[key].tobytes())
    return digest.hexdigest()
