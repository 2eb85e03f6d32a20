"""TensorBoard: torch's SummaryWriter, tensorboardX and the messages that Keras writes.

Environment: torch==2.13.0, tensorboard==2.21.0, tensorboardX (see expected.json). Run: python tensorboard_files.py
Expected values: tensorboard's EventAccumulator; for restarts without `purge_step`, which it does not rewind, what was
logged.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

from _expected import fresh, points, write_expected

VALUES = [1.0, 0.5, math.nan, 0.1, math.inf, -math.inf, 1e-45, 3.4e38, -0.0, 0.30000001192092896, 1e300, 7.0]


def accumulated(folder: Path) -> dict[str, Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    series = {}
    for tag in events.Tags()["scalars"]:
        found = events.Scalars(tag)
        series[tag] = points([e.step for e in found], [e.value for e in found], [e.wall_time for e in found])
    for tag in events.Tags()["tensors"]:
        if events.summary_metadata[tag].plugin_data.plugin_name == "scalars":
            found = events.Tensors(tag)
            values = [tensor_util.make_ndarray(e.tensor_proto).item() for e in found]
            series[tag] = points([e.step for e in found], values, [e.wall_time for e in found])
    return series


def with_torch() -> None:
    import numpy
    import torch
    from torch.utils.tensorboard import SummaryWriter

    out = fresh("tensorboard")
    with SummaryWriter(out / "plain" / "seed_1") as writer:
        for step, value in enumerate(VALUES):
            writer.add_scalar("train/loss", value, step)
            writer.add_scalar("train/été", step * 0.1, 100 * step)
        writer.add_scalar("late", 5.0, 2**40)
        writer.add_scalar("negative", 5.0, -3)
        writer.add_histogram("weights", torch.arange(20.0), 3)
        writer.add_image("picture", numpy.zeros((3, 16, 16), dtype=numpy.uint8), 3)
        writer.add_text("hyperparameters", "|param|value|\n|-|-|\n|seed|1|\n|env_id|CartPole-v1|")
        writer.add_text("note", "nothing that holds options")
        writer.add_hparams({"lr": 0.25, "name": "adam", "nesterov": True}, {"hparam/score": 0.75})
    with SummaryWriter(out / "styles") as writer:
        for step, value in enumerate(VALUES):
            writer.add_scalar("new_style", value, step, new_style=True)
            writer.add_scalar("double", value, step, new_style=True, double_precision=True)
    first = SummaryWriter(out / "purged")
    for step in range(10):
        first.add_scalar("loss", step + 0.5, step)
    first.close()
    time.sleep(1.1)
    second = SummaryWriter(out / "purged", purge_step=6)
    for step in range(6, 12):
        second.add_scalar("loss", step + 0.75, step)
    second.close()
    logged: dict[int, float] = {}
    for begin, end, offset in ((0, 10, 0.5), (4, 8, 0.75), (7, 12, 0.875)):
        with SummaryWriter(out / "restarted") as writer:
            for step in range(begin, end):
                writer.add_scalar("loss", step + offset, step)
        logged = {step: value for step, value in logged.items() if step < begin}
        logged |= {step: step + offset for step in range(begin, end)}
        time.sleep(1.1)
    a, b = SummaryWriter(out / "at_once", filename_suffix=".a"), SummaryWriter(out / "at_once", filename_suffix=".b")
    for step in range(5):
        a.add_scalar("loss", step + 0.5, step)
        b.add_scalar("loss", step + 0.75, step)
    a.close()
    b.close()
    runs = {name: {"series": accumulated(out / name)} for name in ("plain/seed_1", "styles", "purged")}
    runs["plain/seed_1"]["config"] = {
        "seed": "1", "env_id": "CartPole-v1", "lr": 0.25, "name": "adam", "nesterov": 1.0,  # torch stores truth values as numbers
    }  # fmt: skip
    runs["plain/seed_1"]["summary"] = {"hparam/score": 0.75}
    runs["restarted"] = {"series": {"loss": points(list(logged), list(logged.values()))}}
    write_expected(out, runs, "torch", "tensorboard")


def with_tensorboardx() -> None:
    from tensorboardX import SummaryWriter

    out = fresh("tensorboardx")
    with SummaryWriter(str(out / "run")) as writer:
        for step, value in enumerate(VALUES):
            writer.add_scalar("train/loss", value, step)
            writer.add_scalars("both", {"a": step, "b": 2 * step}, step)
    write_expected(out, {}, "tensorboardX")


def like_keras() -> None:
    """`tf.summary.scalar` writes these messages; TensorFlow itself is not needed for them."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary import scalar_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    out = fresh("tensorboard_v2")
    writer = EventFileWriter(str(out / "train"))
    for step, value in enumerate(VALUES[:10]):
        writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=scalar_pb("epoch_loss", value)))
    writer.close()
    write_expected(out, {"train": {"series": accumulated(out / "train")}}, "tensorboard")


def complete_tensorboardx() -> None:
    """Expected values of the files that tensorboardX wrote, by TensorBoard's own reader in its own environment."""
    import json

    from _expected import FILES

    path = FILES / "tensorboardx" / "expected.json"
    document = json.loads(path.read_text())
    out = path.parent
    document["runs"] = {
        folder.relative_to(out).as_posix(): {"series": accumulated(folder)}
        for folder in sorted({file.parent for file in out.rglob("*tfevents*")})
    }
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    for part in sys.argv[1:] or ["with_torch", "like_keras"]:
        globals()[part]()
