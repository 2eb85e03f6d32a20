"""Reader for the Hugging Face Trainer: `trainer_state.json` of the newest checkpoint of each output folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UserError
from fairtrial.core.untrusted import read_file
from fairtrial.readers.configuration import plain_value
from fairtrial.readers.contract import ConfigValue, Cursor, SourceRun, clear_errors
from fairtrial.readers.json_rows import number_of, parse_loosely
from fairtrial.readers.places import files_below, glance, relative_name
from fairtrial.readers.points import PointCollector, counted
from fairtrial.readers.whole_files import file_stamps, finished, sized

STATE = "trainer_state.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,15})")


class HuggingFaceReader:
    """Each output folder of a Trainer is a run; its newest state contains the whole history."""

    name = "huggingface"
    title = "Hugging Face Trainer (trainer_state.json)"

    def recognize(self, place: Path) -> str | None:
        folders = _output_folders(glance(place, _is_state))
        return f"{counted(len(folders), 'output folder')} of a Hugging Face Trainer" if folders else None

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        folders = _output_folders(files_below(place, _is_state))
        if not folders:
            raise UserError(f"{place} has no {STATE}", hint="A Trainer writes it with each checkpoint.")
        for folder, states in folders.items():
            name = relative_name(states[-1] if place.is_file() else folder, place)
            yield _read_run(name, states, since)


def _is_state(name: str) -> bool:
    return name == STATE


def _output_folders(states: list[Path]) -> dict[Path, list[Path]]:
    """Return the state files of each output folder, the newest last."""
    folders: dict[Path, list[tuple[int, Path]]] = {}
    for path in states:
        match = _CHECKPOINT.fullmatch(path.parent.name)
        folder, step = (path.parent.parent, int(match[1])) if match else (path.parent, 10**16)
        folders.setdefault(folder, []).append((step, path))
    return {folder: [path for _, path in sorted(states)] for folder, states in folders.items()}


def _read_run(name: str, states: list[Path], since: Mapping[str, Cursor] | None) -> SourceRun:
    """Read the newest state that is valid; a truncated state falls back to the previous one."""
    notes: list[str] = []
    for path in reversed(states):
        try:
            state = parse_loosely(read_file(path), where=str(path))
        except (UserError, FileNotFoundError) as error:
            problem = error
            notes.append(f"{path.parent.name}/{STATE} cannot be read; using an older one")
            continue
        if isinstance(state, dict) and isinstance(state.get("log_history"), list):
            return _run_of_state(name, path, state, notes, since)
        problem = UserError(f"{path} is not a Trainer state: it has no log_history")
    raise UserError(str(problem))


def _run_of_state(
    name: str, path: Path, state: dict[str, Any], notes: list[str], since: Mapping[str, Cursor] | None
) -> SourceRun:
    points = PointCollector(str(path))
    history = [row for row in state["log_history"] if isinstance(row, dict)]
    totals: dict[str, ConfigValue] = {}
    if history and "train_runtime" in history[-1]:
        totals = {key: plain_value(value) for key, value in history.pop().items() if key != "step"}
    for row in history:
        step = row.get("step")
        if not isinstance(step, int):
            continue
        for metric, value in row.items():
            if metric != "step" and (number := number_of(value)) is not None:
                points.add(str(metric), step, number)
    keys = ("max_steps", "num_train_epochs", "train_batch_size", "trial_name", "best_model_checkpoint", "best_metric")
    run = SourceRun(
        id=name,
        name=name,
        series=points.series(),
        config={key: plain_value(state[key]) for key in keys if isinstance(state.get(key), str | int | float)},
        summary=totals,
        files=sized([path]),
        notes=tuple(notes),
    )
    return finished(run, file_stamps([path]), since)
