"""The default temperature sweep, 45 trainings of 3,000 steps, against plain PyTorch loops that do the same work.

Ours is the command as a person types it, in a process of its own, with the teacher trained before: planning, two
worker processes, every run recorded with its series, checkpoints and fingerprint, the table at the end. The peers
are `benchmarks/plain_sweep.py` with torch's default Adam and with its fused one: two processes, one thread each, the
teacher's logits in a file, nothing recorded. Ratios are of wall time from start to end, imports included, within a
round; the goal is for the lower limit. To save time a round trains 16 of the 45 peers (8 per process, so that neither
waits for the other) and counts their training, not their start, 45/16 times.

The share of the batched-matmul rate: a training step of a stack takes a number of matrix products; how long would
these products alone take on this machine, at the same shapes and in the same batches?
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figures import NOISE, Figure, Goal, at_least, estimated
from benchmarks.measure import (
    OURS,
    OURS_AGAIN,
    Estimate,
    in_a_process,
    interleave,
    median_interval,
    ratio_interval,
    told_by,
)
from fairtrial import LabConfig, temperature_sweep

TITLE = "A temperature sweep of 45 trainings"
ROUNDS = 6
PLAIN, FUSED = "plain PyTorch, default Adam", "plain PyTorch, fused Adam"
GOALS = {PLAIN: 3.5, FUSED: 2.5}
GOAL_SHARE = 60
STACK = 22
ALL, SAMPLE = 45, 16
STEPS_PER_ROUND = 20
SHARE_ROUNDS = 15


def measure(folder: Path) -> list[Figure]:
    store = folder / "store"
    temperature_sweep(4, 4, 1, runs=1, options={"steps": 1}, terms=LabConfig(store=store))  # trains the teacher
    numbers = itertools.count()

    def ours() -> float:
        argv = [sys.executable, "-m", "fairtrial", "temperature", "--quiet", "--store", str(store)]
        return in_a_process([*argv, "--study", f"sweep-{next(numbers)}"]).wall

    def plain(*options: str) -> Callable[[], float]:
        words = [str(_data(store)), str(_logits(store)), *options, "--trainings", str(SAMPLE)]
        return lambda: _scaled(words)

    contestants = {OURS: ours, OURS_AGAIN: ours, PLAIN: plain(), FUSED: plain("--fused")}
    results = interleave(contestants, ROUNDS)
    return [*_times(results), *_share(store)]


def _scaled(words: Sequence[str]) -> float:
    """Wall time of all trainings, from some of them: the start counts once, the training as often as it must."""
    start = time.perf_counter()
    told = told_by("benchmarks.plain_sweep", *words)
    wall = time.perf_counter() - start
    return wall + float(told["training_s"]) * (ALL / SAMPLE - 1)


def _data(store: Path) -> Path:
    return next(store.glob(".cache/data/*/train_x.npy")).parent


def _logits(store: Path) -> Path:
    return next(store.glob(".cache/teacher-outputs/*/logits.npy"))


def _times(results: dict[str, list[float]]) -> list[Figure]:
    figures = [
        estimated(f"{name}, wall", median_interval(times), "s") for name, times in results.items() if name != OURS_AGAIN
    ]
    for name, goal in GOALS.items():
        ratio = ratio_interval(results[name], results[OURS])
        figures.append(estimated(f"{name} / fairtrial, wall", ratio, "×"))
        figures.append(_lower(name, ratio, at_least(goal)))
    figures.append(estimated(f"{NOISE}, wall", ratio_interval(results[OURS_AGAIN], results[OURS]), "×"))
    return figures


def _lower(name: str, ratio: Estimate, goal: Goal) -> Figure:
    return Figure(f"{name} / fairtrial, lower 95 % limit", ratio.low, "×", samples=ratio.n, goal=goal)


def _share(store: Path) -> list[Figure]:
    """How much of the machine's rate for these products a whole training step reaches."""
    step, products, flops = _stack(store)
    rounds = interleave({"step": lambda: _timed(step), "products": lambda: _timed(products)}, SHARE_ROUNDS)
    share = ratio_interval(rounds["products"], rounds["step"]).scaled(100)
    rate = median_interval(flops / seconds / 1e9 for seconds in rounds["step"])
    limit = median_interval(flops / seconds / 1e9 for seconds in rounds["products"])
    return [
        estimated("share of the batched-matmul rate", share, "%", at_least(GOAL_SHARE)),
        estimated("training step, rate", rate, "GFLOP/s"),
        estimated("the products alone, rate", limit, "GFLOP/s", note=f"stack of {STACK}, one thread"),
    ]


def _timed(work: Callable[[], None]) -> float:
    """CPU time per call."""
    start = time.process_time()
    for _ in range(STEPS_PER_ROUND):
        work()
    return (time.process_time() - start) / STEPS_PER_ROUND


def _stack(store: Path) -> tuple[Callable[[], None], Callable[[], None], int]:
    """A training step of a real stack, and its matrix products alone, in buffers of their own."""
    import torch

    from fairtrial.core.training import LoopEvents
    from fairtrial.recipes._stacked import StackEngine
    from fairtrial.recipes._stacks import RunStack

    torch.set_num_threads(1)
    runs = [_run(store, 1 + number / 3, number) for number in range(STACK)]
    stack, events, steps = RunStack(runs, StackEngine), LoopEvents(), itertools.count(1)

    def step() -> None:
        stack.step(dict.fromkeys(range(STACK), next(steps)), events)

    return step, _products(torch), STACK * runs[0].flops_per_step()


def _run(store: Path, temperature: float, seed: int):  # type: ignore[no-untyped-def]
    from fairtrial.api.running.planning import plan_jobs
    from fairtrial.core.registry import load_recipe
    from fairtrial.core.streams import Streams
    from fairtrial.core.training import RunContext
    from fairtrial.plan.cells import resolve, spec_of
    from fairtrial.record.store import Store

    place, recipe = Store(store), load_recipe("distill")
    options = resolve(recipe, {"temperature": temperature}, where="benchmark")
    spec = spec_of(recipe, options, study="benchmark", variant="v", seed=seed)
    [job] = plan_jobs([spec], place, {}).jobs
    needs = {name: place.paths.run(*where) for name, where in job.needs.items()}
    context = RunContext(
        Streams(seed), "v", place.paths.run("benchmark", "v"), place.cache, recipe.data(options, place.cache), needs
    )
    return recipe.build(options, context)


def _products(torch) -> Callable[[], None]:  # type: ignore[no-untyped-def]
    """The products of a step of the default student: 40 inputs, twice 100 hidden units, 10 classes, batches of 100."""
    layers = [(40, 100), (100, 100), (100, 10)]
    products: list[Sequence[object]] = []
    for number, (inputs, outputs) in enumerate(layers):
        x, w = torch.randn(STACK, 100, inputs), torch.randn(STACK, outputs, inputs)
        above = torch.randn(STACK, 100, outputs)
        products.append((x, w.mT, torch.empty(STACK, 100, outputs)))
        products.append((above.mT, x, torch.empty(STACK, outputs, inputs)))
        if number:
            products.append((above, w, torch.empty(STACK, 100, inputs)))

    def work() -> None:
        for left, right, out in products:
            torch.bmm(left, right, out=out)

    return work
