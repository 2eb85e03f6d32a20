"""What a run uses: time, process memory, and the memory and arithmetic of one training step.

Tensor memory and FLOPs come from a rehearsal: one real step, taken on a snapshot and rolled back before
training begins. Restoring a snapshot is exact (that is what resuming rests on), so losses do not change.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from typing import Any

from fairtrial.core.training import Trainable, Watch


def peak_process_bytes(*, of_children: bool = False) -> int:
    """The largest resident size of this process, or of the largest program that it started."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN if of_children else resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kilobytes


def children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def step_expense(trainable: Trainable, step: int) -> dict[str, Any]:
    """Parameters, FLOPs and tensor memory of one step; null where a trainable has no tensors to count."""
    known = {name: getattr(trainable, name, None) for name in ("examples_per_step", "steps_per_epoch")}
    if not hasattr(trainable, "tensor_groups"):
        return known | dict.fromkeys(
            ("parameters", "trainable_parameters", "flops_per_step", "tensor_bytes", "peak_tensor_bytes")
        )
    snapshot = trainable.state()
    if hasattr(trainable, "flops_per_step"):
        trainable.step(step, Watch())
        flops, kept = int(trainable.flops_per_step()), {}  # its own groups hold what it keeps for the backward pass
    else:
        flops, activations = _rehearse(trainable, step)
        kept = {"activations": activations}
    groups: Mapping[str, Any] = trainable.tensor_groups()
    counted = {name: sum(t.numel() * t.element_size() for t in tensors) for name, tensors in groups.items()} | kept
    trained, frozen = (sum(tensor.numel() for tensor in groups.get(name, ())) for name in ("parameters", "frozen"))
    trainable.load_state(snapshot)
    return known | {
        "parameters": trained + frozen,
        "trainable_parameters": trained,
        "flops_per_step": flops,
        "tensor_bytes": counted,
        "peak_tensor_bytes": sum(counted.values()),
        "basis": "rehearsed steps, rolled back; activations are the tensors kept for the backward pass",
    }


def _rehearse(trainable: Trainable, step: int) -> tuple[int, int]:
    """FLOPs of one step, and the bytes that its backward pass had to keep."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    groups = trainable.tensor_groups()  # type: ignore[attr-defined]
    known = {tensor.untyped_storage().data_ptr() for tensors in groups.values() for tensor in tensors}
    saved: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        trainable.step(step, Watch())
    trained = dict(saved)
    counter = FlopCounterMode(display=False)
    with counter:
        trainable.step(step, Watch())
    return counter.get_total_flops(), sum(trained.values())
