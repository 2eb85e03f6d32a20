"""Names in a store, for shell completion: read from folder names and the index, never from runs or over the network."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from fairtrial.core.paths import StorePaths, is_url, parts_of_run_id
from fairtrial.core.untrusted import path_inside
from fairtrial.record.store_location import StoreLocation, mirror_folder, store_address


def store_paths(store: StoreLocation) -> StorePaths:
    """Return the folder of a store, or this machine's mirror of a shared store."""
    address = store_address(store)
    return StorePaths(mirror_folder(address) if is_url(address) else Path(address))


def study_names(store: StoreLocation) -> list[str]:
    return sorted(_folders(store_paths(store).root))


def run_names(store: StoreLocation, study: str) -> list[str]:
    """Return the ids of a study's runs."""
    return sorted(name for name in _folders(_study(store, study)) if parts_of_run_id(name))


def variant_names(store: StoreLocation, studies: Iterable[str] = ()) -> list[str]:
    """Return the variants of some studies, or of all studies if none is given."""
    ids = (name for study in studies or study_names(store) for name in _folders(_study(store, study)))
    return sorted({parts[0] for name in ids if (parts := parts_of_run_id(name))})


def metric_names(store: StoreLocation, studies: Iterable[str] = ()) -> list[str]:
    """Return the metrics of some studies, or of all studies in the index if none is given."""
    from fairtrial.record.index import all_rows, indexed_rows
    from fairtrial.record.store import Store

    place, chosen = Store(store_paths(store).root), set(studies)
    known = {name for row in indexed_rows(place) if not chosen or row["study"] in chosen for name in row["final"]}
    # The index may be older than a study. Bringing it up to date for that one study is fast.
    return sorted(known or {name for study in chosen for row in all_rows(place, study) for name in row["final"]})


def profile_snapshot_names(store: StoreLocation) -> list[str]:
    return sorted(_folders(store_paths(store).profiles))


def _study(store: StoreLocation, study: str) -> Path:
    return path_inside(store_paths(store).root, study, what="study")


def _folders(path: Path) -> Iterator[str]:
    with os.scandir(path) as entries:
        yield from (entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
