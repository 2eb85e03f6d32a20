"""Suggest changes that speed up training. Each suggestion names its measurement and its gain, with an interval.

The time that steps waited for data is an upper bound for the gain from loading ahead. Every change that is an option of
the recipe is tried, interleaved with the current setting.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.api.benchmarking.bench_runs import MARGIN, HiddenRuns
from fairtrial.api.benchmarking.bench_sizes import BatchSizes, refusal
from fairtrial.core.errors import RunsFailed, UserError
from fairtrial.core.findings import Estimate
from fairtrial.core.formatting import counted
from fairtrial.core.options import TorchOptions
from fairtrial.core.training import LoopEvents
from fairtrial.jobs.run_session import SteppableRun
from fairtrial.probe.phases import StepTimes
from fairtrial.stats.ratios import fieller

LEAST_GAIN = 1.05
"""Smallest speed-up worth suggesting: the lower limit of the gain must reach it."""
WORTH_WRITING = 1.2
"""The same limit for a change that the recipe has no option for: someone has to write the code."""
MOST_WORKERS = 16
BLOCKS = 20
ROUNDS = 6
BLOCK_S = 0.05
STACKED = 8
TIMES_LARGER = 2
DATA = "data"
NAMES = ("as it is", "changed")


@dataclass(frozen=True)
class Suggestion:
    """A change that makes training faster. `change` holds the options to pass; empty if the recipe has none for it."""

    what: str
    change: Mapping[str, Any]
    gain: Estimate
    evidence: str
    remark: str
    tried: bool = True
    """False: the change was not tried, and `gain` is only an upper bound."""

    def __str__(self) -> str:
        gain = f"at most {self.gain.value:.2f} × as fast"
        if self.tried:
            low = "" if self.gain.low is None else f", at least {self.gain.low:.2f} ×"
            gain = f"{self.gain.value:.2f} × as fast{low}"
        return f"{self.what}: {gain}. {self.evidence} {self.remark}".strip()

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "change": dict(self.change), "gain": self.gain.to_dict(), "sentence": str(self)}


def suggest(runs: HiddenRuns, *, steady: Sequence[StepTimes], sizes: BatchSizes | None = None) -> list[Suggestion]:
    """Return every change whose gain reaches LEAST_GAIN at its lower limit, largest gain first."""
    mean = sum(each.seconds for each in steady) / len(steady)
    steps = max(2, math.ceil(BLOCK_S / mean)) if mean > 0 else 2
    tried: list[tuple[str, Callable[[], Suggestion | None]]] = [
        ("loading ahead", lambda: _load_ahead(runs, steady, steps)),
        ("a larger batch", lambda: _larger_batch(runs, steps, sizes)),
        ("threads", lambda: _threads(runs, steps)),
        ("a stack", lambda: _stack(runs, steps)),
    ]
    suggestions = []
    for number, (what, try_it) in enumerate(tried):
        runs.terms.show(f"trying {what}", number, len(tried))
        try:
            suggestions.append(try_it())
        except (RunsFailed, UserError):  # a change that cannot be tried is not suggested
            runs.require(None)
    worth = [each for each in suggestions if each is not None and (each.gain.low or 0) >= LEAST_GAIN]
    return sorted(worth, key=lambda each: -(each.gain.value or 0))


def _load_ahead(runs: HiddenRuns, steady: Sequence[StepTimes], steps: int) -> Suggestion | None:
    """Suggest loading data ahead, which can save at most the time waited. Try it if the recipe has an option for it."""
    size = len(steady) // BLOCKS
    blocks = [steady[place * size : (place + 1) * size] for place in range(BLOCKS)] if size else []
    whole = np.array([sum(each.seconds for each in block) for block in blocks])
    waited = np.array([sum(each.phases.get(DATA, 0.0) for each in block) for block in blocks])
    if not waited.sum():
        return None
    evidence = f"Steps waited for data {100 * waited.sum() / whole.sum():.0f} % of their time."
    most = fieller(whole, whole - waited, runs.terms.alpha, "×")
    if (most.low or 0) < LEAST_GAIN:
        return None
    if "loader_workers" not in runs.recipe.options.model_fields:
        remark = "This recipe has no option for it."
        worth = (most.low or 0) >= WORTH_WRITING
        return Suggestion("Load data in the background", {}, most, evidence, remark, tried=False) if worth else None
    now = int(getattr(runs.resolved, "loader_workers"))  # noqa: B009
    workers = _workers(now, whole.sum(), waited.sum())
    gain = _tried(runs, steps, {"loader_workers": now}, {"loader_workers": workers})
    what = f"Load data ahead with {counted(workers, 'loader worker')}"
    remark = f"Compared with {counted(now, 'worker')} in {ROUNDS} interleaved rounds."
    return Suggestion(what, {"loader_workers": workers}, gain, evidence, remark)


def _workers(now: int, whole: float, waited: float) -> int:
    """Return how many workers can keep up with the rest of a step, if loading takes as long as measured."""
    load, rest = (whole * now if now else waited), whole - waited
    needed = math.ceil(load / rest) if rest > 0 else MOST_WORKERS
    return min(max(now + 1, needed), MOST_WORKERS)


def _larger_batch(runs: HiddenRuns, steps: int, sizes: BatchSizes | None) -> Suggestion | None:
    if "batch_size" not in runs.recipe.options.model_fields:
        return None
    own = int(getattr(runs.resolved, "batch_size"))  # noqa: B009
    larger = TIMES_LARGER * own
    if sizes is not None and sizes.fastest is not None and sizes.fastest.size > own:
        larger = sizes.fastest.size
    if refusal(runs, larger) is not None:
        return None
    gain = _tried(runs, steps, {"batch_size": own}, {"batch_size": larger})
    return Suggestion(
        f"A batch size of {larger:,}",
        {"batch_size": larger},
        gain,
        f"Compared with {own:,} by examples per second in {ROUNDS} interleaved rounds.",
        "It changes the training result, so compare the results too.",
    )


def _threads(runs: HiddenRuns, steps: int) -> Suggestion | None:
    options, cores = runs.resolved, os.cpu_count() or 1
    if not isinstance(options, TorchOptions) or options.device != "cpu" or cores < 2:
        return None
    other = 1 if options.threads > 1 else cores
    gain = _tried(runs, steps, {"threads": options.threads}, {"threads": other})
    return Suggestion(
        f"{counted(other, 'thread')} per run",
        {"threads": other},
        gain,
        f"Compared with {counted(options.threads, 'thread')} in {ROUNDS} interleaved rounds.",
        "This applies to one run at a time: concurrent runs share the same cores." if other > 1 else "",
    )


def _stack(runs: HiddenRuns, steps: int) -> Suggestion | None:
    """Compare one step of several stacked runs with the same number of steps of one run."""
    if runs.job().stack_key is None:
        return None
    room = runs.room_for((2 * ROUNDS + 1) * steps)
    alone, *members = (runs.open(room, seed=seed) for seed in range(1, STACKED + 2))
    runs.require(next((each.ended for each in (alone, *members) if each.ended), None))
    stack = runs.recipe.stack([each.trainable for each in members])
    blocks = [runs.block(alone, steps), _stepped(runs, stack, members, steps)]
    gain = runs.compare(blocks, [1, STACKED], ROUNDS, NAMES, MARGIN).compared.gain
    return Suggestion(
        f"Train {STACKED} seeds in one stack",
        {},
        gain,
        f"Compared one step of {STACKED} stacked runs with {STACKED} steps of one run in {ROUNDS} interleaved rounds.",
        "Sweeps and comparisons do this automatically; the results stay the same.",
    )


def _tried(runs: HiddenRuns, steps: int, now: Mapping[str, Any], then: Mapping[str, Any]) -> Estimate:
    return runs.interleave([now, then], steps, ROUNDS, NAMES, MARGIN).compared.gain


def _stepped(runs: HiddenRuns, stack: Any, members: Sequence[SteppableRun], steps: int) -> Callable[[], float]:
    clock, events, taken = runs.terms.clock, LoopEvents(), 0

    def take() -> float:
        nonlocal taken
        start = clock()
        for _ in range(steps):
            taken += 1
            stack.step(dict.fromkeys(range(len(members)), taken), events)
        members[0].synchronize()
        runs.require(None)
        return clock() - start

    return take
