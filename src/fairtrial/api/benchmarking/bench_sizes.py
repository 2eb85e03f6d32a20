"""Time batch sizes in random order on equal numbers of examples, and find the knee of step time against size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.api.benchmarking.bench_runs import HiddenRuns
from fairtrial.core.cautions import NOT_A_LINE, SIZE_NOT_MEASURED
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.core.options import TorchOptions
from fairtrial.jobs.run_session import SteppableRun
from fairtrial.probe.interleaving import shuffled
from fairtrial.probe.monitor import available_bytes
from fairtrial.probe.oom_probe import OUT_OF_MEMORY, is_out_of_memory, survives
from fairtrial.stats.knee import Knee, find_knee
from fairtrial.stats.samples import Array
from fairtrial.stats.speed import log_mean

ROUNDS = 8
LEAST_STEPS = 2
"""Minimum number of steps per size and round."""
BENT = 0.1
FIXED = ("parameters", "gradients", "optimizer", "frozen")
"""Kinds of tensors that do not grow with the batch."""


@dataclass(frozen=True)
class SizeRow:
    """One batch size. A size that could not be measured has a reason and no figures."""

    size: int
    steps: int = 0
    examples: int = 0
    """Examples per step: more than the size if gradients are accumulated."""
    seconds: Sequence[float] = ()
    """Seconds per step, one value per round."""
    throughput: Estimate | None = None
    tensor_bytes: int | None = None
    reason: str | None = None

    @property
    def out_of_memory(self) -> bool:
        return bool(self.reason and self.reason.startswith(OUT_OF_MEMORY))

    @property
    def step_s(self) -> float | None:
        return float(np.mean(self.seconds)) if self.seconds else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "batch_size": self.size, "examples": self.examples * self.steps, "steps": self.steps, "step_s": self.step_s,
            "throughput": None if self.throughput is None else self.throughput.to_dict(),
            "tensor_bytes": self.tensor_bytes, "reason": self.reason, "out_of_memory": self.out_of_memory,
        }  # fmt: skip


@dataclass(frozen=True)
class BatchSizes:
    rows: Sequence[SizeRow]
    knee: Knee | None
    largest: int | None
    """The largest size that memory allows, extrapolated from the measured sizes."""
    largest_basis: str
    cautions: Sequence[FilledCaution]

    @property
    def measured(self) -> list[SizeRow]:
        return [row for row in self.rows if row.reason is None]

    @property
    def fastest(self) -> SizeRow | None:
        return max(self.measured, key=lambda row: row.throughput.value or 0 if row.throughput else 0, default=None)

    def to_dict(self) -> dict[str, Any]:
        fastest = self.fastest
        return {
            "rows": [row.to_dict() for row in self.rows],
            "knee": None if self.knee is None else self.knee.to_dict(),
            "fastest": None if fastest is None else fastest.size,
            "largest_by_memory": self.largest,
            "largest_basis": self.largest_basis,
        }


def measure_batch_sizes(runs: HiddenRuns) -> BatchSizes:
    """Measure the requested sizes. Sizes that fail are found first: the rest determine how many examples each sees."""
    sizes = sorted(runs.terms.batch_sizes)
    refused = {size: reason for size in sizes if (reason := refusal(runs, size)) is not None}
    steps = _steps(runs, [size for size in sizes if size not in refused])
    opened = {
        size: runs.open({"batch_size": size, **runs.room_for((ROUNDS + 1) * count)}) for size, count in steps.items()
    }
    rows = {size: SizeRow(size, reason=reason) for size, reason in refused.items()}
    for size, run in opened.items():
        resources = run.resources
        examples = resources.get("examples_per_step") or size
        rows[size] = SizeRow(size, steps[size], examples, tensor_bytes=resources.get("peak_tensor_bytes"))
    rows |= _timed(runs, {size: rows[size] for size in opened}, opened)
    return _summarize(runs, [rows[size] for size in sizes], opened)


def _steps(runs: HiddenRuns, sizes: Sequence[int]) -> dict[int, int]:
    """Return the steps per round of each size, so that all sizes see equally many examples, to the nearest step."""
    own = int(getattr(runs.resolved, "batch_size", 1))
    examples = max(own * runs.terms.steps / ROUNDS, LEAST_STEPS * max(sizes, default=1))
    return {size: max(LEAST_STEPS, round(examples / size)) for size in sizes}


def refusal(runs: HiddenRuns, size: int) -> str | None:
    """Return why a size cannot be measured, or None. On a CPU, one step is tried in a child process that may die."""
    alone = {"threads": 1} if isinstance(runs.resolved, TorchOptions) else {}

    def try_it() -> str | None:
        with runs.briefly({"batch_size": size, **alone, **runs.room_for(1)}) as run:
            run.advance(1)
            return None if run.ended is None else str(run.ended.reason)

    if getattr(runs.resolved, "device", "cpu") == "cpu":
        reason = survives(try_it, runs.terms.should_stop)
    else:  # running out of GPU memory only raises an exception, so no child process is needed
        message = try_it()
        reason = f"{OUT_OF_MEMORY}: {message}" if is_out_of_memory(message) else message
    runs.require(None)
    return reason


def _timed(runs: HiddenRuns, rows: Mapping[int, SizeRow], opened: Mapping[int, SteppableRun]) -> dict[int, SizeRow]:
    terms = runs.terms
    blocks = {size: runs.block(run, rows[size].steps) for size, run in opened.items()}
    for block in blocks.values():  # warm-up: the first steps of a run are slower
        block()
    taken = []
    for number in range(ROUNDS):
        terms.show("batch sizes", number, ROUNDS)
        taken += shuffled(blocks, 1, seed=terms.seed + number)
    size_rows = {}
    for size, row in rows.items():
        seconds = np.array([each[size] / row.steps for each in taken])
        rate = log_mean(np.log(row.examples / seconds), terms.alpha)
        size_rows[size] = replace(row, seconds=seconds.tolist(), throughput=replace(rate, unit="examples/s"))
    return size_rows


def _summarize(runs: HiddenRuns, rows: Sequence[SizeRow], opened: Mapping[int, SteppableRun]) -> BatchSizes:
    measured = [row for row in rows if row.reason is None]
    times: Array = np.array([row.seconds for row in measured]).T
    knee = find_knee([row.size for row in measured], times, runs.terms.alpha)
    cautions = [SIZE_NOT_MEASURED.fill(size=row.size, reason=row.reason) for row in rows if row.reason is not None]
    if knee is not None and knee.misfit > BENT:
        cautions.append(NOT_A_LINE.fill(percent=f"{100 * knee.misfit:.0f}"))
    largest, basis = _largest(opened, [row.size for row in rows if row.reason is not None])
    return BatchSizes(rows, knee, largest, basis, cautions)


def _largest(opened: Mapping[int, SteppableRun], refused: Sequence[int]) -> tuple[int | None, str]:
    """Estimate the largest size by a straight line through the tensor bytes of the smallest and the largest size.

    Counts tensors kept for the backward pass but not the workspace of operations, so it is an upper bound. It is at
    most the number of training examples, and below any size that failed.
    """
    kept = {size: _growing_bytes(run) for size, run in opened.items()}
    known = {size: each for size, each in kept.items() if each is not None}
    free = _free_bytes(next(iter(opened.values()), None))
    if len(known) < 2 or free is None:
        return None, "needs two sizes whose tensors can be counted"
    first, last = min(known), max(known)
    slope = (known[last] - known[first]) / (last - first)
    if slope <= 0:
        return None, "tensors do not grow with the batch"
    limits = {f"{slope:,.0f} bytes of tensors per example, {free / 1e9:.3g} GB free": free / slope}
    limits |= {f"{size:,} could not be measured": size - 1 for size in refused}
    data = _data_size(opened)
    if data is not None:
        limits["all training examples in one step"] = data
    basis = min(limits, key=lambda each: limits[each])
    return math.floor(limits[basis]), basis


def _data_size(opened: Mapping[int, SteppableRun]) -> int | None:
    """Return a lower bound for the number of training examples, from the epoch length of each size."""
    resources = [run.resources for run in opened.values()]
    known = [each["steps_per_epoch"] * each["examples_per_step"] for each in resources if each.get("steps_per_epoch")]
    return max(known, default=None)


def _free_bytes(run: SteppableRun | None) -> int | None:
    device = getattr(getattr(run, "trainable", None), "device", None)
    if getattr(device, "type", "cpu") == "cpu":
        return available_bytes()
    import torch

    memory = getattr(torch.get_device_module(device), "mem_get_info", None)  # MPS shares the memory of the machine
    return available_bytes() if memory is None else int(memory(device)[0])


def _growing_bytes(run: SteppableRun) -> int | None:
    groups = run.resources.get("tensor_bytes")
    return None if groups is None else sum(size for name, size in groups.items() if name not in FIXED)
