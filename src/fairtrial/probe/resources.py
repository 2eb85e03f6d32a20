"""Resources of a run: time, process memory, and the memory and FLOPs of one training step.

Tensor memory and FLOPs come from a rehearsal: real steps that are rolled back to a snapshot before training begins.
Restoring a snapshot is exact (resuming relies on this), so losses do not change.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fairtrial.core.training import LoopEvents, Trainable


def peak_process_bytes(*, of_children: bool = False) -> int:
    """Return the peak resident size of this process, or of the largest program that it started."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN if of_children else resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kilobytes


def children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def step_expense(trainable: Trainable, step: int) -> dict[str, Any]:
    """Return the parameters, FLOPs and tensor memory of one step; None if a trainable has no tensors to count."""
    known = {name: getattr(trainable, name, None) for name in ("examples_per_step", "steps_per_epoch")}
    if not hasattr(trainable, "tensor_groups"):
        return known | dict.fromkeys(
            ("parameters", "trainable_parameters", "flops_per_step", "tensor_bytes", "peak_tensor_bytes")
        )
    snapshot = trainable.state()
    flops, kept = _rehearsed(trainable, step)
    groups: Mapping[str, Any] = trainable.tensor_groups()
    counted = {name: sum(t.numel() * t.element_size() for t in tensors) for name, tensors in groups.items()} | kept
    trained, frozen = (sum(tensor.numel() for tensor in groups.get(name, ())) for name in ("parameters", "frozen"))
    if flops is not None:
        trainable.load_state(snapshot)
    return known | {
        "parameters": trained + frozen,
        "trainable_parameters": trained,
        "flops_per_step": flops,
        "tensor_bytes": counted,
        "peak_tensor_bytes": sum(counted.values()),
        "basis": NOT_REHEARSED if flops is None else REHEARSED,
    }


REHEARSED = "rehearsed steps, rolled back; activations are the tensors kept for the backward pass"
_DISABLED = "__dynamo_disable"
"""Attribute in which torch caches the compiler-disabled version of a function."""
NOT_REHEARSED = "tensors that training keeps between steps; a step is not rehearsed"


def _rehearsed(trainable: Trainable, step: int) -> tuple[int | None, dict[str, int]]:
    """Return the FLOPs of a step, and its activation memory unless the tensor groups already include it."""
    if not getattr(trainable, "can_be_rehearsed", True):
        return None, {}
    if hasattr(trainable, "flops_per_step"):
        trainable.step(step, LoopEvents())
        return int(trainable.flops_per_step()), {}
    flops, activations = _rehearse(trainable, step)
    return flops, {"activations": activations}


def _rehearse(trainable: Trainable, step: int) -> tuple[int, int]:
    """Return the FLOPs of one step, and the peak bytes that its backward passes keep at one time."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    groups = trainable.tensor_groups()  # type: ignore[attr-defined]
    kept = _Kept({tensor.untyped_storage().data_ptr() for tensors in groups.values() for tensor in tensors})
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda held: held.tensor):
        trainable.step(step, LoopEvents())
    counter = FlopCounterMode(display=False)
    with _compiler_left_out(), counter:
        trainable.step(step, LoopEvents())
    return counter.get_total_flops(), kept.most


@contextmanager
def _compiler_left_out() -> Iterator[None]:
    """Prevent torch from loading its compiler, which takes over a second, only to disable it for the FLOP counter.

    With a version of torch that disables it in another way, the compiler is loaded.
    """
    from torch.utils import flop_counter

    mode = getattr(flop_counter, "_FlopCounterMode", None)
    counting = getattr(getattr(mode, "__torch_dispatch__", None), "__wrapped__", None)
    if counting is None or hasattr(counting, _DISABLED):
        yield
        return
    setattr(counting, _DISABLED, counting)
    try:
        yield
    finally:
        delattr(counting, _DISABLED)


class _Kept:
    """Sums the storages that are currently kept for a backward pass, each counted once."""

    def __init__(self, known: set[int]) -> None:
        self._known = known
        self._holders: dict[int, int] = {}
        self._now = 0
        self.most = 0

    def pack(self, tensor: Any) -> _Held:
        return _Held(tensor, self)

    def add(self, place: int, size: int) -> None:
        self._holders[place] = self._holders.get(place, 0) + 1
        if self._holders[place] == 1 and place not in self._known:
            self._now += size
            self.most = max(self.most, self._now)

    def drop(self, place: int, size: int) -> None:
        self._holders[place] -= 1
        if self._holders[place] == 0 and place not in self._known:
            self._now -= size


class _Held:
    """A tensor saved by autograd; deleting it removes it from the sum."""

    def __init__(self, tensor: Any, kept: _Kept) -> None:
        storage = tensor.untyped_storage()
        self.tensor, self._kept = tensor, kept
        self._place, self._size = storage.data_ptr(), storage.nbytes()
        kept.add(self._place, self._size)

    def __del__(self) -> None:
        self._kept.drop(self._place, self._size)
