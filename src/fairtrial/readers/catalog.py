"""The readers by name, imported on first use, and detection of the readers for a path."""

from __future__ import annotations

import importlib
from pathlib import Path

from fairtrial.core.errors import UserError, unknown
from fairtrial.readers.contract import RunReader

READERS = {
    "tensorboard": "tensorboard:TensorBoardReader",
    "wandb": "wandb_offline:WandbReader",
    "wandb-csv": "wandb_export:WandbExportReader",
    "mlflow": "mlflow_store:MlflowReader",
    "trackio": "trackio_store:TrackioReader",
    "huggingface": "huggingface:HuggingFaceReader",
    "sb3": "stable_baselines3:StableBaselinesReader",
    "lightning": "lightning_csv:LightningReader",
    "optuna": "optuna_storage:OptunaReader",
    "ray": "ray_tune:RayTuneReader",
    "table": "table_files:TableFilesReader",
}
"""Readers in the order in which they are tried; `table` is the fallback. `stdout` is missing: it needs patterns."""


def load_reader(name: str) -> RunReader:
    if name not in READERS:
        raise UserError(unknown("reader", name, READERS))
    module, _, reader = READERS[name].partition(":")
    made: RunReader = getattr(importlib.import_module(f"fairtrial.readers.{module}"), reader)()
    return made


def recognizing(place: Path) -> dict[str, str]:
    """Map each reader that recognizes a path to its description. `table` is tried only if no other reader matches."""
    seen: dict[str, str] = {}
    for name in READERS:
        if name == "table" and seen:
            break
        if what := load_reader(name).recognize(place):
            seen[name] = what
    return seen
