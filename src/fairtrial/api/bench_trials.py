"""What would help? Each suggestion names what was measured for it and the gain that it predicts, with an interval.

Loading ahead is judged by how long steps waited for data. Larger batches, more threads and stacks are tried, in turns
with what is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairtrial.analyse.ratios import fieller
from fairtrial.analyse.speed import SpeedComparison, compare_rounds
from fairtrial.api.bench_runs import MARGIN, HiddenRuns
from fairtrial.api.bench_sizes import BatchSizes
from fairtrial.core.errors import RunsFailed, UserError
from fairtrial.core.findings import Estimate
from fairtrial.core.options import TorchOptions
from fairtrial.core.training import Watch
from fairtrial.core.words import counted
from fairtrial.job import RunAtHand
from fairtrial.probe.phases import StepTimes
from fairtrial.probe.turns import abba

LEAST_GAIN = 1.05
"""What is surely less is not worth a change."""
BLOCKS = 20
ROUNDS = 6
BLOCK_S = 0.05
STACKED = 8
TIMES_LARGER = 2
DATA = "data"


@dataclass(frozen=True)
class Suggestion:
    """A change that pays. `change` are the options to give, empty where it is not an option of the recipe."""

    what: str
    change: Mapping[str, Any]
    gain: Estimate
    evidence: str
    remark: str

    def __str__(self) -> str:
        low = "" if self.gain.low is None else f", at least {self.gain.low:.2f} ×"
        return f"{self.what}: {self.gain.value:.2f} × as fast{low}. {self.evidence} {self.remark}".strip()

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "change": dict(self.change), "gain": self.gain.to_dict(), "sentence": str(self)}


def suggest(runs: HiddenRuns, *, steady: Sequence[StepTimes], sizes: BatchSizes | None = None) -> list[Suggestion]:
    """Every change whose gain is surely worth it, the largest first."""
    mean = sum(each.seconds for each in steady) / len(steady)
    steps = max(2, math.ceil(BLOCK_S / mean)) if mean > 0 else 2
    tried: list[tuple[str, Callable[[], Suggestion | None]]] = [
        ("loading ahead", lambda: _load_ahead(runs, steady)),
        ("a larger batch", lambda: _larger_batch(runs, steps, sizes)),
        ("threads", lambda: _threads(runs, steps)),
        ("a stack", lambda: _stack(runs, steps)),
    ]
    found = []
    for number, (what, try_it) in enumerate(tried):
        runs.terms.show(f"trying {what}", number, len(tried))
        try:
            found.append(try_it())
        except (RunsFailed, UserError):  # what cannot be tried is not suggested
            runs.require(None)
    worth = [each for each in found if each is not None and (each.gain.low or 0) >= LEAST_GAIN]
    return sorted(worth, key=lambda each: -(each.gain.value or 0))


def _load_ahead(runs: HiddenRuns, steady: Sequence[StepTimes]) -> Suggestion | None:
    """If data were always there, a step would take what is left without the wait."""
    size = len(steady) // BLOCKS
    if size == 0:
        return None
    blocks = [steady[place * size : (place + 1) * size] for place in range(BLOCKS)]
    whole = np.array([sum(each.seconds for each in block) for block in blocks])
    waited = np.array([sum(each.phases.get(DATA, 0.0) for each in block) for block in blocks])
    gain = fieller(whole, whole - waited, runs.terms.alpha, "×")
    share = waited.sum() / whole.sum() if whole.sum() else 0.0
    if not share or gain.value is None:
        return None
    now = int(getattr(runs.resolved, "loader_workers", 0))
    rest = (whole.sum() - waited.sum()) / (BLOCKS * size)
    load = whole.sum() / (BLOCKS * size) * now if now else waited.sum() / (BLOCKS * size)
    workers = max(now + 1, math.ceil(load / rest)) if rest > 0 else now + 1
    evidence = f"Steps waited for data {100 * share:.0f} % of their time."
    if "loader_workers" not in runs.recipe.options.model_fields:
        return Suggestion("Load data in the background", {}, gain, evidence, "This recipe has no option for it.")
    what = f"Load data ahead with {counted(workers, 'loader worker')}"
    return Suggestion(what, {"loader_workers": workers}, gain, evidence, "")


def _larger_batch(runs: HiddenRuns, steps: int, sizes: BatchSizes | None) -> Suggestion | None:
    own = getattr(runs.resolved, "batch_size", None)
    if not isinstance(own, int):
        return None
    larger = TIMES_LARGER * own
    if sizes is not None and sizes.fastest is not None and sizes.fastest.size > own:
        larger = sizes.fastest.size
    runs_at_hand = [runs.open({"batch_size": size, **_room(runs, steps)}) for size in (own, larger)]
    compared = _in_turns(runs, [runs.block(run, steps) for run in runs_at_hand], [own, larger])
    return Suggestion(
        f"A batch size of {larger:,}", {"batch_size": larger}, compared.gain,
        f"Tried in turns with {own:,}: examples per second over {ROUNDS} rounds.",
        "It changes what is learnt, so judge the results too.",
    )  # fmt: skip


def _threads(runs: HiddenRuns, steps: int) -> Suggestion | None:
    options, cores = runs.resolved, os.cpu_count() or 1
    if not isinstance(options, TorchOptions) or options.device != "cpu" or cores < 2:
        return None
    other = 1 if options.threads > 1 else cores
    compared = _in_turns(runs, [_threaded(runs, threads, steps) for threads in (options.threads, other)])
    return Suggestion(
        f"{counted(other, 'thread')} per run", {"threads": other}, compared.gain,
        f"Tried in turns with {counted(options.threads, 'thread')} over {ROUNDS} rounds.",
        "For one run at a time: several runs at once share the same cores." if other > 1 else "",
    )  # fmt: skip


def _threaded(runs: HiddenRuns, threads: int, steps: int) -> Callable[[], float]:
    import torch

    block = runs.block(runs.open({"threads": threads, **_room(runs, steps)}), steps)

    def take() -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return block()
        finally:
            torch.set_num_threads(before)

    return take


def _stack(runs: HiddenRuns, steps: int) -> Suggestion | None:
    """A step of several runs together, against as many steps of one."""
    if runs.cell().stack_key is None:
        return None
    alone, *members = (runs.open(_room(runs, steps), seed=seed) for seed in range(1, STACKED + 2))
    runs.require(next((each.ended for each in (alone, *members) if each.ended), None))
    stack = runs.recipe.stack([each.trainable for each in members])
    compared = _in_turns(runs, [runs.block(alone, steps), _stepped(runs, stack, members, steps)], [1, STACKED])
    return Suggestion(
        f"Train {STACKED} seeds in one stack", {}, compared.gain,
        f"A step of {STACKED} runs together against {STACKED} steps of one, over {ROUNDS} rounds.",
        "Sweeps and comparisons do it by themselves; no number changes.",
    )  # fmt: skip


def _stepped(runs: HiddenRuns, stack: Any, members: Sequence[RunAtHand], steps: int) -> Callable[[], float]:
    clock, watch, taken = runs.terms.clock, Watch(), 0

    def take() -> float:
        nonlocal taken
        start = clock()
        for _ in range(steps):
            taken += 1
            stack.step(dict.fromkeys(range(len(members)), taken), watch)
        runs.require(None)
        return clock() - start

    return take


def _in_turns(
    runs: HiddenRuns, blocks: Sequence[Callable[[], float]], work: Sequence[float] = (1, 1)
) -> SpeedComparison:
    """Times per unit of work; the first block of each is not counted."""
    for block in blocks:
        block()
    first, second = (np.array(times) / each for times, each in zip(abba(blocks, ROUNDS), work, strict=True))
    return compare_rounds(first, second, ("as it is", "changed"), MARGIN, runs.terms.alpha)


def _room(runs: HiddenRuns, steps: int) -> dict[str, Any]:
    """Training that goes on for as long as is tried."""
    return {"steps": max(getattr(runs.resolved, "steps", 0), (2 * ROUNDS + 1) * steps + 1)}
