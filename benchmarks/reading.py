"""How fast event files of TensorBoard and offline runs of W&B are read, next to the readers that people use.

Event files are written by torch's SummaryWriter where it is installed, else from its messages with our own checksums.
Every contestant reads the same files in the same process, in turns, and must find the same numbers bit for bit. CPU
seconds are those of the reading thread. Memory is the peak of a process of its own that reads once, less that of one
that only imports the reader.
"""

from __future__ import annotations

import importlib
import json
import math
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure, Goal, at_least, at_most, estimated, medians, ratios, unavailable
from benchmarks.measure import OURS, OURS_AGAIN, Spent, in_this_thread, interleave, median_interval
from fairtrial.readers.crc32c import masked_crc32c
from fairtrial.readers.tensorboard import TensorBoardReader
from fairtrial.readers.wandb_offline import WandbReader

TITLE = "Reading TensorBoard and W&B files"
ROUNDS = 7
STEPS = 50_000
TAGS = ("train/loss", "train/accuracy")
WANDB_ROWS = 10_000
WANDB_KEYS = ("train/loss", "train/accuracy", "lr", "grad_norm", "epoch")
GOAL_POINTS_PER_S = 666_000
GOAL_RATIO = 8
GOAL_WANDB_PER_S = 150_000
GOAL_MEMORY_MB = 11
Values = dict[str, list[float]]


def measure(folder: Path) -> list[Figure]:
    events, offline = folder / "events", folder / "run-big.wandb"
    events.mkdir()
    writer = write_events(events)
    write_wandb(offline)
    expected = by_fairtrial(events)
    contestants: dict[str, Callable[[], Spent]] = {}
    missing: dict[str, str] = {}
    for name, read in {**READERS, OURS_AGAIN: by_fairtrial}.items():
        try:
            if read(events) != expected:
                raise ValueError("it finds other numbers")
            contestants[name] = partial(_spent, read, events)
        except Exception as error:  # noqa: BLE001 — whatever keeps a peer from running is its reason
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    contestants["W&B offline"] = lambda: in_this_thread(lambda: _wandb_values(offline))
    results = interleave(contestants, ROUNDS)
    offline_times = results.pop("W&B offline")
    points, values = STEPS * len(TAGS), _wandb_values(offline)
    return [
        Figure("points in the event file", points, "points", note=f"written by {writer}"),
        _rate("fairtrial, points per CPU second", points, results[OURS], at_least(GOAL_POINTS_PER_S)),
        *medians(results, "cpu", 1e6 / points, "µs per point"),
        *_goals(results),
        *ratios(results, "cpu"),
        *unavailable(missing, "µs per point"),
        _rate("W&B offline, values per CPU second", values, offline_times, at_least(GOAL_WANDB_PER_S)),
        Figure("memory of reading the event file", _memory(events), "MB", goal=at_most(GOAL_MEMORY_MB)),
    ]


def _rate(name: str, count: int, times: list[Spent], goal: Goal) -> Figure:
    return estimated(name, median_interval(count / each.cpu for each in times), "per s", goal)


def _goals(results: dict[str, list[Spent]]) -> list[Figure]:
    if "EventAccumulator" not in results:
        return []
    pairs = zip(results["EventAccumulator"], results[OURS], strict=True)
    ratio = median_interval(theirs.cpu / ours.cpu for theirs, ours in pairs)
    return [estimated("EventAccumulator against fairtrial, CPU", ratio, "times", at_least(GOAL_RATIO))]


def _spent(read: Callable[[Path], Values], events: Path) -> Spent:
    return in_this_thread(lambda: read(events))


# Contestants


def by_fairtrial(events: Path) -> Values:
    [run] = TensorBoardReader().read(events)
    return {tag: series.values.tolist() for tag, series in run.series.items()}


def by_event_accumulator(events: Path) -> Values:
    module = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    found = module.EventAccumulator(str(events), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [event.value for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def by_tbparse(events: Path) -> Values:
    frame = importlib.import_module("tbparse").SummaryReader(str(events)).scalars
    return {str(tag): group["value"].tolist() for tag, group in frame.groupby("tag", sort=False)}


READERS = {OURS: by_fairtrial, "EventAccumulator": by_event_accumulator, "tbparse": by_tbparse}


def _wandb_values(path: Path) -> int:
    [run] = WandbReader().read(path)
    assert not run.notes, run.notes
    return sum(len(series) for series in run.series.values())


MEMORY_PROGRAM = """
import re, sys
from pathlib import Path
import numpy
from fairtrial.readers.crc32c import crc32c
from fairtrial.readers.tensorboard import TensorBoardReader

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

crc32c(numpy.zeros((1, 8), dtype=numpy.uint8))
before = peak()
runs = list(TensorBoardReader().read(Path(sys.argv[1])))
print(peak() - before)
"""


def _memory(events: Path) -> float:
    """Peak memory that reading adds to a process, in MB, the numbers themselves included."""
    argv = [sys.executable, "-c", MEMORY_PROGRAM, str(events)]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


# Files


def write_events(folder: Path) -> str:
    try:
        writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder))
    except ImportError:
        _write_events_by_hand(folder)
        return "our own program, for want of tensorboard"
    for step in range(STEPS):
        for tag in TAGS:
            writer.add_scalar(tag, math.sin(step), step)
    writer.close()
    return "torch's SummaryWriter"


def _write_events_by_hand(folder: Path) -> None:
    events = [b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2"]
    for step in range(STEPS):
        for tag in TAGS:
            value = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", math.sin(step))
            summary = b"\x0a" + bytes([len(value)]) + value
            head = b"\x09" + struct.pack("<d", 1.7e9 + step) + (b"\x10" + _varint(step) if step else b"")
            events.append(head + b"\x2a" + bytes([len(summary)]) + summary)
    with (folder / "events.out.tfevents.1700000000.host.1.0").open("wb") as file:
        for event in events:
            length = struct.pack("<Q", len(event))
            file.write(length + _checksum(length) + event + _checksum(event))


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", int(masked_crc32c(np.frombuffer(content, dtype=np.uint8)[None])[0]))


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def write_wandb(path: Path) -> None:
    """Rows as wandb 0.31 writes them: per row its history, and two summaries that repeat it."""
    with path.open("wb") as file:
        file.write(b":W&B\xe1\xbe\x00")
        for row in range(WANDB_ROWS):
            numbers: dict[str, Any] = {key: row / (7 + at) for at, key in enumerate(WANDB_KEYS)}
            numbers |= {"_step": row, "_timestamp": 1.7e9 + row, "_runtime": row * 0.1}
            items = b"".join(_message(1, _item(key, value)) for key, value in numbers.items())
            runtime = _message(1, _message(2, b"_wandb") + _message(2, b"runtime") + _message(16, b"1"))
            for field, content in ((3, runtime), (3, items), (2, items + _message(2, b"\x08" + _varint(row)))):
                _append(file, b"\x08" + _varint(row + 1) + _message(field, content))


def _item(key: str, value: Any) -> bytes:
    return _message(2, key.encode()) + _message(16, json.dumps(value).encode())


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _append(file: Any, record: bytes) -> None:
    """A record in fragments that do not cross the blocks of 32 KiB."""
    first = True
    while True:
        room = 32768 - file.tell() % 32768
        if room < 7:
            file.write(bytes(room))
            continue
        part, record = record[: room - 7], record[room - 7 :]
        kind = (1 if first else 4) if not record else 2 if first else 3
        file.write(struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part)
        first = False
        if not record:
            return
