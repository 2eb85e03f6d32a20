"""What one `log` call of two scalars costs the thread that trains, beside peers that write to local files.

Each contestant opens its log, makes a number of calls, and closes it; only the calls are timed. Closing ends the
contestant's background threads, so that none disturbs the next one. The CPU time is that of the calling thread: a
peer that hands the work to another thread is charged for the handing over alone.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import fairtrial
from benchmarks.figures import Figure, at_most, medians, ratios, unavailable
from benchmarks.measure import OURS, OURS_AGAIN, Spent, Unavailable, in_this_thread, interleave

TITLE = "One log call of two scalars"
ROUNDS = 11
GOAL_US = 5
Log = Callable[[int, float, float], object]
Opened = AbstractContextManager[Log]
_turns = itertools.count()


@contextlib.contextmanager
def fairtrial_run(folder: Path) -> Iterator[Log]:
    with fairtrial.run(study="logging", variant="caller", seed=next(_turns), store=folder / "store") as run:
        yield lambda step, loss, accuracy: run.log(step, loss=loss, accuracy=accuracy)


@contextlib.contextmanager
def raw_jsonl(folder: Path) -> Iterator[Log]:
    """The least that anyone would write by hand: a line with the same content, flushed."""
    with (folder / f"raw-{next(_turns)}.jsonl").open("w") as file:

        def log(step: int, loss: float, accuracy: float) -> None:
            line = {"step": step, "time": time.perf_counter(), "loss": loss, "accuracy": accuracy}
            file.write(json.dumps(line) + "\n")
            file.flush()

        yield log


@contextlib.contextmanager
def tensorboard(folder: Path) -> Iterator[Log]:
    writer = _imported("torch.utils.tensorboard").SummaryWriter(str(folder / f"tensorboard-{next(_turns)}"))

    def log(step: int, loss: float, accuracy: float) -> None:
        writer.add_scalar("loss", loss, step)
        writer.add_scalar("accuracy", accuracy, step)

    yield log
    writer.close()


@contextlib.contextmanager
def mlflow(folder: Path) -> Iterator[Log]:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # without it, recent versions accept databases only
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    client = _imported("mlflow")
    client.set_tracking_uri((folder / "mlflow").as_uri())
    client.start_run()
    yield lambda step, loss, accuracy: client.log_metrics({"loss": loss, "accuracy": accuracy}, step=step)
    client.end_run()


@contextlib.contextmanager
def trackio(folder: Path) -> Iterator[Log]:
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    os.environ["HF_HUB_OFFLINE"] = "1"
    with contextlib.redirect_stdout(io.StringIO()):
        client = _imported("trackio")
        client.init(project="logging", name=f"run-{next(_turns)}", auto_log_gpu=False, auto_log_cpu=False)
        yield lambda step, loss, accuracy: client.log({"loss": loss, "accuracy": accuracy}, step=step)
        client.finish()


CONTESTANTS: dict[str, tuple[Callable[[Path], Opened], int]] = {
    OURS: (fairtrial_run, 100_000),
    OURS_AGAIN: (fairtrial_run, 100_000),
    "raw JSONL": (raw_jsonl, 100_000),
    "trackio": (trackio, 5_000),
    "TensorBoard": (tensorboard, 5_000),
    "MLflow file store": (mlflow, 500),
}
"""Who takes part, and how many calls each makes per round: fewer where they are slow."""


def measure(folder: Path) -> list[Figure]:
    working: dict[str, Callable[[], Spent]] = {}
    missing: dict[str, str] = {}
    for name, (opened, calls) in CONTESTANTS.items():
        try:
            _timed(opened, folder, 50)  # warms up, and shows who can take part
            working[name] = partial(_timed, opened, folder, calls)
        except Exception as error:  # whatever keeps a peer from running is its reason
            if name == OURS:
                raise
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    results = interleave(working, ROUNDS)
    return [
        *medians(results, "cpu", 1e6, "µs", at_most(GOAL_US)),
        *medians(results, "wall", 1e6, "µs"),
        *ratios(results, "cpu"),
        *ratios(results, "wall"),
        *unavailable(missing, "µs"),
    ]


def _timed(opened: Callable[[Path], Opened], folder: Path, calls: int) -> Spent:
    with opened(folder) as log:
        return in_this_thread(lambda: _log_many(log, calls)).per(calls)


def _log_many(log: Log, calls: int) -> None:
    for step in range(calls):
        log(step, 0.123456789 + step, 0.987654321)


def _imported(name: str) -> Any:
    """Peers are optional, so they are imported when their turn comes."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(str(error)) from error
