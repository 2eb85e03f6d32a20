"""How long a person waits for `--help`: ours beside the command lines of peers, each in a new process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, at_least, at_most, estimated, medians, ratios, unavailable
from benchmarks.measure import (
    OURS,
    OURS_AGAIN,
    Spent,
    Unavailable,
    in_a_process,
    interleave,
    median_interval,
    ratio_interval,
)

TITLE = "--help"
ROUNDS = 21
GOAL_MS = 150
GOAL_RATIO = 4
PEERS = ("tensorboard", "trackio", "mlflow")


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001 — it writes nothing
    working: dict[str, Callable[[], Spent]] = {}
    missing: dict[str, str] = {}
    for name, program in {OURS: OURS, OURS_AGAIN: OURS, **{peer: peer for peer in PEERS}}.items():
        try:
            argv = [_program(program), "--help"]
            in_a_process(argv)  # warms the file cache up, and shows who can take part
            working[name] = partial(in_a_process, argv)
        except Unavailable as reason:
            missing[name] = str(reason)
    results = interleave(working, ROUNDS)
    return [
        *medians(results, "wall", 1e3, "ms", at_most(GOAL_MS)),
        *medians(results, "cpu", 1e3, "ms"),
        *ratios(results, "wall"),
        *ratios(results, "cpu"),
        *_against_the_best(results),
        *unavailable(missing, "ms"),
    ]


def _program(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise Unavailable(f"{name} is not installed")
    return str(path)


def _against_the_best(results: dict[str, list[Spent]]) -> list[Figure]:
    times = {name: [spent.wall for spent in each] for name, each in results.items()}
    peers = [name for name in times if name in PEERS]
    if not peers:
        return []
    best = min(peers, key=lambda name: median_interval(times[name]).median)
    ratio = ratio_interval(times[best], times[OURS])
    return [estimated("fastest peer / fairtrial, wall", ratio, "×", at_least(GOAL_RATIO), f"the fastest is {best}")]
