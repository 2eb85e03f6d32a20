"""Reader for Lightning's CSVLogger: `metrics.csv` and `hparams.yaml` in a folder per version.

The logger rewrites the header when new metrics appear, and deletes the file when a run resumes in the same folder.
A file that has changed is therefore read again as a whole.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from fairtrial.core.cells import csv_records, header_names, is_missing, number_in
from fairtrial.core.errors import UserError
from fairtrial.core.untrusted import read_file
from fairtrial.core.yaml_values import load_yaml
from fairtrial.readers.configuration import flatten
from fairtrial.readers.contract import ConfigValue, Cursor, SourceRun, clear_errors
from fairtrial.readers.places import files_below, first_bytes, glance, relative_name
from fairtrial.readers.points import PointCollector, counted
from fairtrial.readers.whole_files import file_stamps, finished, sized

_LARGEST_FILE_BYTES = 256 << 20
_LARGEST_HPARAMS_BYTES = 4 << 20


class LightningReader:
    """Each folder with a `metrics.csv` that has a `step` column is a run."""

    name = "lightning"
    title = "Lightning CSVLogger (metrics.csv, hparams.yaml)"

    def recognize(self, place: Path) -> str | None:
        logs = [path for path in glance(place, _is_metrics) if _has_steps(path)]
        return f"{counted(len(logs), 'metrics.csv file')} of Lightning's CSVLogger" if logs else None

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        files = [path for path in files_below(place, _is_metrics) if _has_steps(path)]
        if not files:
            raise UserError(f"{place} has no metrics.csv with a 'step' column")
        for path in files:
            yield _read_run(path, relative_name(path if place.is_file() else path.parent, place), since)


def _is_metrics(name: str) -> bool:
    return name == "metrics.csv"


def _has_steps(path: Path) -> bool:
    header = first_bytes(path, 65_536).split(b"\n", 1)[0].decode(errors="replace").strip()
    return "step" in header.split(",")


def _read_run(path: Path, name: str, since: Mapping[str, Cursor] | None) -> SourceRun:
    points = PointCollector(str(path))
    notes: list[str] = []
    stamps = file_stamps([path])
    text = read_file(path, most=_LARGEST_FILE_BYTES).decode(errors="replace")
    whole = text.endswith("\n")
    try:
        rows = list(csv_records(text.splitlines(keepends=True)))
    except csv.Error as error:
        raise UserError(f"{path} is not a CSV file: {error}") from None
    header = header_names(rows[0][0], str(path))
    if not whole and len(rows) > 1:
        rows.pop()
        notes.append(f"{path.name} ends inside a line: it is still being written or was truncated")
    for cells, complete, line in rows[1:]:
        if not complete or len(cells) != len(header):
            notes.append(f"{path.name}: line {line} does not match the header; skipped")
            continue
        row = dict(zip(header, cells, strict=True))
        step = number_in(row["step"])
        if step is None:
            notes.append(f"{path.name}: line {line} has no step; skipped")
            continue
        for metric, cell in row.items():
            if metric != "step" and not is_missing(cell) and (number := number_in(cell)) is not None:
                points.add(metric, step, number)
    config, extra = _hparams(path.with_name("hparams.yaml"), notes)
    run = SourceRun(
        id=name, name=name, series=points.series(), config=config, files=sized([path, *extra]), notes=tuple(notes)
    )
    return finished(run, stamps, since)


def _hparams(path: Path, notes: list[str]) -> tuple[dict[str, ConfigValue], list[Path]]:
    """Return the hyperparameters if they are plain values; Python objects in the YAML are never constructed."""
    if not path.is_file():
        return {}, []
    try:
        values = load_yaml(read_file(path, most=_LARGEST_HPARAMS_BYTES).decode())
    except (yaml.YAMLError, UnicodeDecodeError):
        notes.append("hparams.yaml contains values that are not plain YAML; ignored")
        return {}, []
    return (flatten(values, str(path)) if isinstance(values, dict) else {}), [path]
