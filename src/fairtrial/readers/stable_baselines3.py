"""Reader for Stable-Baselines3: `evaluations.npz` of EvalCallback and `monitor.csv` of Monitor.

An evaluation has several episodes. They are not replicates of the run: the value of the run at a step is their mean.
"""

from __future__ import annotations

import io
import math
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.core.errors import UserError
from fairtrial.core.untrusted import open_file, read_file
from fairtrial.readers.configuration import plain_value
from fairtrial.readers.contract import Cursor, MetricSeries, SourceRun, clear_errors
from fairtrial.readers.json_rows import parse_loosely
from fairtrial.readers.places import files_below, first_bytes, glance, relative_name
from fairtrial.readers.points import PointCollector, counted
from fairtrial.readers.whole_files import file_stamps, finished, sized

_LARGEST_ARRAY_BYTES = 64 << 20
_ARRAYS = ("timesteps", "results", "ep_lengths", "successes")
_LONGEST_LINE = 10_000


class StableBaselinesReader:
    """Each folder with `evaluations.npz` is a run, and each `monitor.csv` is a run."""

    name = "sb3"
    title = "Stable-Baselines3 (evaluations.npz, monitor.csv)"

    def recognize(self, place: Path) -> str | None:
        files = [path for path in glance(place, _is_own) if _looks_own(path)]
        kinds = [
            counted(len(logs), kind)
            for kind in ("evaluations.npz", "monitor.csv")
            if (logs := [path for path in files if path.name.endswith(kind)])
        ]
        return (
            f"{' and '.join(kinds)} of Stable-Baselines3".replace("npzs", "npz").replace("csvs", "csv")
            if kinds
            else None
        )

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        files = [path for path in files_below(place, _is_own) if _looks_own(path)]
        if not files:
            raise UserError(f"{place} has neither evaluations.npz nor monitor.csv of Stable-Baselines3")
        for path in files:
            run = _evaluations(path, place) if path.suffix == ".npz" else _monitor(path, place)
            yield finished(run, file_stamps([path]), since)


def _is_own(name: str) -> bool:
    return name == "evaluations.npz" or name.endswith("monitor.csv")


def _looks_own(path: Path) -> bool:
    return first_bytes(path, 2) == (b"PK" if path.suffix == ".npz" else b"#{")


def _evaluations(path: Path, place: Path) -> SourceRun:
    arrays = _load_arrays(path)
    steps, results = arrays.get("timesteps"), arrays.get("results")
    if steps is None or results is None or steps.ndim != 1 or steps.dtype.kind not in "iu":
        raise UserError(f"{path} has no evaluations: the arrays 'timesteps' and 'results' are missing or invalid")
    series = {}
    names = {"results": "eval/mean_reward", "ep_lengths": "eval/mean_ep_length", "successes": "eval/success_rate"}
    for key, metric in names.items():
        values = arrays.get(key)
        if values is None:
            continue
        if values.ndim != 2 or len(values) != len(steps) or values.dtype.kind not in "iufb" or not values.shape[1]:
            raise UserError(
                f"{path}: the array '{key}' does not have one row of episodes for each of the {len(steps)} steps"
            )
        series[metric] = MetricSeries(steps.astype(np.int64), values.mean(axis=1, dtype=np.float64))
    name = relative_name(path if place.is_file() else path.parent, place)
    episodes = results.shape[1]
    return SourceRun(
        id=name,
        name=name,
        series=series,
        files=sized([path]),
        notes=(f"each value is the mean of {counted(episodes, 'episode')}; episodes are not replicates",),
    )


def _load_arrays(path: Path) -> dict[str, Any]:
    """Load the arrays. Object arrays are rejected, because they need unpickling; sizes are checked before reading."""
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(read_file(path))) as archive:
            for name in _ARRAYS:
                if f"{name}.npy" not in archive.namelist():
                    continue
                if archive.getinfo(f"{name}.npy").file_size > _LARGEST_ARRAY_BYTES:
                    raise UserError(f"{path}: the array {name} is larger than {_LARGEST_ARRAY_BYTES >> 20} MB")
                content = archive.read(f"{name}.npy")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    arrays[name] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except UserError:
        raise
    except (ValueError, OSError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error, NotImplementedError,
            RuntimeError, SyntaxError, TypeError, OverflowError) as error:  # fmt: skip
        raise UserError(f"{path} is damaged or does not contain plain arrays ({type(error).__name__})") from None
    return arrays


def _monitor(path: Path, place: Path) -> SourceRun:
    """Read a monitor file: a line of JSON, a header, and a row per episode (reward, length, seconds since start)."""
    points = PointCollector(str(path))
    notes: list[str] = []
    with open_file(path) as file:
        first = file.readline(_LONGEST_LINE)
        head = parse_loosely(first[1:], where=f"{path}, first line") if first[:1] == b"#" else {}
        if not isinstance(head, dict):
            raise UserError(f"{path} does not begin with a Monitor header")
        names = file.readline(_LONGEST_LINE).decode(errors="replace").strip().split(",")
        if not {"r", "l", "t"} <= set(names) or len(set(names)) != len(names):
            raise UserError(f"{path} does not have the columns r, l and t, each once")
        started = head.get("t_start")
        begin = float(started) if isinstance(started, int | float) else math.nan
        step = 0
        for number, line in enumerate(file, 3):
            cells = line.decode(errors="replace").rstrip("\r\n").split(",")
            if not line.endswith(b"\n"):
                notes.append(f"{path.name} ends inside a line: it is still being written or was truncated")
                break
            try:
                row = dict(zip(names, map(_cell, cells), strict=True))
                step += int(row["l"] or 0)
            except (ValueError, OverflowError):
                notes.append(f"{path.name}: line {number} does not match the header; the rest is not read")
                break
            time = begin + (row["t"] or 0.0)
            for metric, value in row.items():
                if metric != "t" and value is not None:
                    points.add(metric, step, value, time)
    name = relative_name(path, place)
    for suffix in (".monitor.csv", "monitor.csv"):
        if not place.is_file() and name.endswith(suffix):
            name = name.removesuffix(suffix).rstrip("/") or place.name
            break
    return SourceRun(
        id=name,
        name=name,
        series=points.series(),
        config={"env_id": plain_value(head["env_id"])} if head.get("env_id") else {},
        started=None if math.isnan(begin) else begin,
        files=sized([path]),
        notes=("each point is a training episode, at the number of steps taken so far", *notes),
    )


def _cell(text: str) -> float | None:
    if not text.strip():
        return None
    if "_" in text:
        raise ValueError(text)
    return float(text)
