"""Reader for trackio projects: one SQLite database each, with the metrics of a row as JSON text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.core.untrusted import UntrustedDocument, parse_json_fast
from fairtrial.readers.configuration import flatten
from fairtrial.readers.contract import ConfigValue, Cursor, SourceRun, clear_errors
from fairtrial.readers.json_rows import number_of, parse_loosely
from fairtrial.readers.places import files_below, glance
from fairtrial.readers.points import PointCollector, counted
from fairtrial.readers.sqlite_files import Database, companions, has_tables, open_database
from fairtrial.readers.whole_files import file_stamps, finished, sized


class TrackioReader:
    """Each run of every project below a folder, such as `$TRACKIO_DIR`, is a run."""

    name = "trackio"
    title = "trackio projects (sqlite)"

    def recognize(self, place: Path) -> str | None:
        projects = [path for path in glance(place, _is_database) if _is_project(path)]
        return f"{counted(len(projects), 'trackio project')}: {projects[0].stem}" if projects else None

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        projects = [path for path in files_below(place, _is_database) if _is_project(path)]
        if not projects:
            raise UserError(f"{place} has no trackio project", hint="A project is a file named PROJECT.db.")
        for path in projects:
            with open_database(path) as database:
                yield from _runs_of_project(database, since, several=len(projects) > 1)


def _is_database(name: str) -> bool:
    return name.endswith(".db")


def _is_project(path: Path) -> bool:
    if not has_tables(path, "metrics"):
        return False
    try:
        with open_database(path) as database:
            return {"run_name", "step", "metrics", "timestamp"} <= set(database.columns("metrics"))
    except UserError:
        return False


def _runs_of_project(database: Database, since: Mapping[str, Cursor] | None, *, several: bool) -> Iterator[SourceRun]:
    files = [path for path in companions(database.path) if path.exists()]
    stamps = file_stamps(files)
    configs = _configs(database)
    names = [
        str(name) for (name,) in database.rows("SELECT run_name FROM metrics GROUP BY run_name ORDER BY MIN(rowid)")
    ]
    for name in names:
        points = PointCollector(f"{database.path}, run {name}")
        bad = 0
        query = "SELECT timestamp, step, metrics FROM metrics WHERE run_name = ? ORDER BY rowid"
        for stamp, step, text in database.rows(query, name):
            try:
                row = parse_loosely(text, where=f"{database.path}, run {name}")
            except UserError:
                bad += 1
                continue
            if not isinstance(row, dict) or not isinstance(step, int):
                bad += 1
                continue
            time = _time(stamp)
            for metric, value in flatten(row, str(database.path)).items():
                if (number := number_of(value)) is not None:
                    points.add(metric, step, number, time)
        run = SourceRun(
            id=f"{database.path.stem}/{name}" if several else name,
            name=name,
            series=points.series(),
            config=configs.get(name, {}),
            files=sized(files),
            notes=(f"{counted(bad, 'row')} skipped: not in a known format",) if bad else (),
        )
        yield finished(run, stamps, since)


def _configs(database: Database) -> dict[str, dict[str, ConfigValue]]:
    if "configs" not in database.tables:
        return {}
    configs: dict[str, dict[str, ConfigValue]] = {}
    for name, text in database.rows("SELECT run_name, config FROM configs"):
        content = text.encode() if isinstance(text, str) else bytes(text or b"")
        try:
            config = parse_json_fast(content, where=str(database.path))
        except UntrustedDocument:
            continue
        if isinstance(config, dict):
            flat = flatten(config, str(database.path))
            configs[str(name)] = {key: value for key, value in flat.items() if not key.startswith("_")}
    return configs


def _time(stamp: Any) -> float:
    if isinstance(stamp, int | float):
        return float(stamp)
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except (ValueError, OverflowError):
        return math.nan
