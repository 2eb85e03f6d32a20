"""What the further observers see: a trace with our phases, the process, the cards."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairtrial.core.errors import UserError
from fairtrial.core.training import LoopEvents
from fairtrial.probe.gpu import Gpus
from fairtrial.probe.interleaving import abba, shuffled
from fairtrial.probe.monitor import ResourceMonitor, _group_bytes, available_bytes, resident_bytes
from fairtrial.probe.noise_scale import squared_lengths
from fairtrial.probe.oom_probe import is_out_of_memory, survives
from fairtrial.probe.trace import TorchTrace, check_folder, free_name
from tests.virtual import VirtualTime


def test_a_trace_of_one_step_has_our_phases(tmp_path: Path) -> None:
    trace = TorchTrace()
    watch = LoopEvents([trace])
    trace.begin(1)
    watch.tell("turn_started")
    with watch.phase("forward"):
        torch.ones(8, 8) @ torch.ones(8, 8)
    with watch.phase("optimizer"), watch.phase("inner"):
        torch.ones(8).add_(1)
    watch.tell("step_ended", 7)
    path = free_name(tmp_path, "t")
    trace.write(path)
    events = json.loads(path.read_text())["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert {"step", "forward", "optimizer", "inner"} <= set(names) and trace.steps == [7] and names.count("step") == 1
    spans = {event["name"]: event for event in events if event.get("cat") in ("user_annotation", "cpu_op")}
    product = spans["aten::mm"] if "aten::mm" in spans else spans["aten::matmul"]
    forward = spans["forward"]
    assert forward["ts"] <= product["ts"] <= product["ts"] + product["dur"] <= forward["ts"] + forward["dur"]


def test_before_it_begins_a_trace_notes_nothing() -> None:
    trace = TorchTrace()
    events = LoopEvents([trace])
    with events.phase("forward"):
        pass
    events.tell("step_ended", 1)
    assert trace.steps == []


def test_traces_do_not_overwrite_each_other_and_need_a_folder(tmp_path: Path) -> None:
    assert free_name(tmp_path, "t").name == "t-1.json" and free_name(tmp_path, "t").name == "t-2.json"
    check_folder(tmp_path / "new" / "folder")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write traces"):
        check_folder(tmp_path / "file")


def test_the_monitor_counts_from_the_first_step_to_the_last() -> None:
    clock = VirtualTime()
    monitor = ResourceMonitor(interval=0.001)
    events = LoopEvents([monitor], clock)
    assert monitor.result() is None
    events.tell("turn_started")
    for step in range(1, 4):
        np.tanh(np.ones(200_000)).sum()
        clock.passes(0.5)
        events.tell("step_ended", step)
    monitor.stop()
    clock.passes(100)
    events.tell("step_ended", 4)
    found = monitor.result()
    assert found is not None and (found.wall_s, found.steps) == (1.5, 3) and found.cpu_s > 0
    shown = found.to_dict()
    assert shown["rss_bytes"]["max"] > 10_000_000 and "unavailable" in shown["gpu"]
    assert shown["cpu_percent"] == pytest.approx(100 * found.cpu_s / 1.5)


def test_memory_that_is_left_is_that_of_the_machine_or_of_the_group(tmp_path: Path) -> None:
    assert resident_bytes() > 0 and (available_bytes() or 1) > 0
    assert _group_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("10\n")
    assert _group_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    assert _group_bytes(tmp_path) == 990


def nvml(cards: int, error: str | None = None) -> types.ModuleType:
    """A driver as NVIDIA's package shows it."""
    module = types.ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def init() -> None:
        if error:
            raise NVMLError(error)

    def memory(handle: int) -> Any:
        return types.SimpleNamespace(used=(handle + 1) * 1000, total=10_000)

    given: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": init,
        "nvmlDeviceGetCount": lambda: cards,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetName": lambda handle: b"Some card",
        "nvmlDeviceGetUtilizationRates": lambda handle: types.SimpleNamespace(gpu=40 + handle),
    }
    for name, value in given.items():
        setattr(module, name, value)
    return module


def test_cards_are_read_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(2))
    monitor = ResourceMonitor()
    events = LoopEvents([monitor], VirtualTime())
    events.tell("turn_started")
    events.tell("step_ended", 1)
    monitor.stop()
    found = monitor.result()
    assert found is not None and found.gpu_unavailable is None
    assert [(card["name"], card["load_percent"], card["memory_bytes"]) for card in found.cards()] == [
        ("Some card", 40, 1000),
        ("Some card", 41, 2000),
    ]


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (nvml(0), "reports no GPU"),
        (nvml(1, "no library"), "no NVIDIA driver responds (no library)"),
        (None, "not installed"),
    ],
)
def test_where_there_are_none_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType | None, told: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert told in str(Gpus().unavailable) and Gpus().read() == []


def test_work_that_fails_elsewhere_is_told_here() -> None:
    assert survives(lambda: None) is None
    assert survives(lambda: "no room") == "no room"
    assert survives(lambda: str(1 / 0)) == "ZeroDivisionError: division by zero"
    assert str(survives(lambda: str(bytearray(1 << 60)))).startswith("out of memory: MemoryError")
    assert not is_out_of_memory("a memory of the past") and not is_out_of_memory(None)


def test_turns_are_fair() -> None:
    order: list[str] = []
    times = abba([lambda: order.append("A") or 1.0, lambda: order.append("B") or 2.0], 2)  # type: ignore[func-returns-value]
    assert "".join(order) == "ABBABAAB" and times == [[2.0, 2.0], [4.0, 4.0]]
    seen: list[int] = []
    rounds = shuffled({name: lambda name=name: seen.append(name) or float(name) for name in range(6)}, 4, seed=1)  # type: ignore[misc]
    assert all(list(each) == list(range(6)) for each in rounds)
    assert len({tuple(seen[at : at + 6]) for at in range(0, 24, 6)}) > 1, "the order is drawn anew"


def test_lengths_of_gradients_are_those_of_numpy() -> None:
    draw = np.random.default_rng(1)
    kept: list[list[np.ndarray]] = []

    def gradients(generator: np.random.Generator) -> tuple[list[torch.Tensor], int]:
        parts = [generator.standard_normal((3, 2)), generator.standard_normal(4)]
        kept.append(parts)
        return [torch.from_numpy(part) for part in parts], 16

    small, large, size = squared_lengths(gradients, draw, pieces=4, measurements=2)
    flat = np.array([np.concatenate([part.ravel() for part in parts]) for parts in kept]).reshape(2, 4, -1)
    assert size == 16 and small == pytest.approx((flat**2).sum(2).mean(1).tolist())
    assert large == pytest.approx((flat.mean(1) ** 2).sum(1).tolist())
