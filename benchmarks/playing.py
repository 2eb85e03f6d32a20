"""A language model that plays: does it learn, do short prompts and kept positions help, and what does a buffer buy?

Learning is by the command lines of docs/grpo.md, judged by Fairtrial's own analysis. Prompts are compared on identical
positions in which units are moved, in turns; so are starting positions that are kept against such that are played anew.
Playing beside learning is compared with playing in between by the wall, because that is all that it can gain. Equal
processes are compared with each other, so that it is known how much of a difference between two is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import NOISE, Figure, at_most, estimated, exactly
from benchmarks.measure import interleave, ratio_interval, told_by
from fairtrial.api.benchmarking.profile import ProfileTerms, profile
from fairtrial.api.benchmarking.profile_diff import PROCESS_SPREAD
from fairtrial.core.streams import Streams
from fairtrial.core.training import LoopEvents, RunContext
from fairtrial.recipes.grpo import PlayOptions
from fairtrial.recipes.lm.games import Position
from fairtrial.recipes.lm.run import GrpoRun
from fairtrial.record.store import Store
from fairtrial.stats.samples import Array
from fairtrial.stats.speed import compare_rounds

TITLE = "A language model that plays"
SEEDS = 5
STUDY = [
    "launch", "grpo", "--base-run-name", "learning", "--variant", "untrained:learning_rate=0,steps=1", "--variant",
    "trained:", "--compact-prompts", "--seeds", str(SEEDS),
]  # fmt: skip
VERDICT = ["analyze", "learning"]
ROUNDS, POSITIONS, SAMPLES = 20, 8, 8
BUFFER_ROUNDS, BUFFER_STEPS = 4, 8
MARGIN, ALPHA = 0.05, 0.05
PROCESSES = 8
AGAIN = "again"


def measure(folder: Path) -> list[Figure]:
    import torch

    torch.set_num_threads(1)
    store = Store(folder / "store")
    return [
        *_learning(folder),
        *(figure for game in ("orders", "diplomacy") for figure in _prompts(store, game)),
        *(figure for game in ("orders", "diplomacy") for figure in _positions(store, game)),
        *_buffer(store),
        _processes(folder),
    ]


def _learning(folder: Path) -> list[Figure]:
    store = ["--store", str(folder / "learning"), "--format", "json"]
    _, told = (told_by("fairtrial", *words, *store) for words in (STUDY, VERDICT))
    [comparison] = told["comparisons"]
    effect = comparison["effect"]
    gains = ", ".join(f"{value:+.2f}" for value in effect["samples"])
    better = float(told["verdict"] == "better")
    means = {arm["variant"]: arm["mean"] for arm in told["arms"]}
    return [
        *(Figure(f"return, {name}", value, "", samples=SEEDS) for name, value in means.items()),
        Figure("trained − untrained", effect["value"], "", effect["low"], effect["high"], SEEDS, note=f"gains {gains}"),
        Figure("verdict of analyze is better", better, "", goal=exactly(1), note=told["sentence"]),
    ]


def _run(store: Store, name: str, **options: Any) -> GrpoRun:
    context = RunContext(Streams(1), "v", store.paths.run("playing", name), store.cache)
    return GrpoRun(PlayOptions(groups=POSITIONS, samples=SAMPLES, **options), context, scripted=True)


def _prompts(store: Store, game: str) -> list[Figure]:
    """Tokens per CPU second that are written about the same movements, by compact prompts and by full ones."""
    runs = {form: _run(store, form, game=game, compact_prompts=form == "compact") for form in ("full", "compact")}
    positions = _movements(runs["full"])
    written = {name: _written(run, positions) for name, run in runs.items()}
    found = interleave({**written, AGAIN: written["compact"]}, ROUNDS)
    lengths = {
        name: np.mean([len(run.player.request(each, 0).prompt) for each in positions]) for name, run in runs.items()
    }
    verdict = _verdict(*(1 / np.array(found[name]) for name in ("full", "compact")))
    what = f"{game}, movement"
    return [
        *(Figure(f"{what}: tokens of a {name} prompt", float(each), "tokens") for name, each in lengths.items()),
        estimated(
            f"{what}: written tokens per CPU s, compact / full", ratio_interval(found["compact"], found["full"]), "×",
            note=f"compact is {verdict}; 1.3 was expected",
        ),
        estimated(f"{what}: {NOISE}", ratio_interval(found[AGAIN], found["compact"]), "×"),
    ]  # fmt: skip


def _verdict(control: Array, candidate: Array) -> str:
    """Fairtrial's own word for the candidate's times, round by round."""
    return compare_rounds(control, candidate, ("control", "candidate"), MARGIN, ALPHA).verdict


def _movements(run: GrpoRun) -> list[Position]:
    """Different positions of that kind, from random play."""
    found: list[Position] = []
    chance = np.random.default_rng(3)
    position = run.player.game.open(1)
    while len(found) < POSITIONS:
        legal = position.legal()
        if position.phase == "movement":
            found.append(position)
        for _ in range(3):
            position, _ = position.play(legal[int(chance.integers(len(legal)))])
            position = run.player.game.open(int(chance.integers(10**6))) if position.over else position
            legal = position.legal()
    return found


def _written(run: GrpoRun, positions: list[Position]) -> Callable[[], float]:
    """Every sample of a group asks about the same position. The version is read anew each time, as after an update."""
    requests = [
        run.player.request(each, 100 * number + k) for number, each in enumerate(positions) for k in range(SAMPLES)
    ]

    def write() -> float:
        run.player.engine.forget(0)
        start = time.process_time()
        told = run.player.engine.complete(requests, 0)
        return sum(len(each.tokens) for each in told) / (time.process_time() - start)

    return write


def _positions(store: Store, game: str) -> list[Figure]:
    """CPU time of a rollout whose groups start from kept positions, over one that plays its way there."""
    names = {"cold": False, "warm": True}
    runs = {
        name: _run(store, name, game=game, compact_prompts=True, use_state_cache=kept, state_age=10**6)
        for name, kept in names.items()
    }

    def roll(run: GrpoRun) -> Callable[[], float]:
        def once() -> float:
            start = time.process_time()
            run.play(1, LoopEvents(), version=0)
            return time.process_time() - start

        once()
        return once

    played: Mapping[str, Callable[[], float]] = {name: roll(run) for name, run in runs.items()}
    found = interleave({**played, AGAIN: played["warm"]}, ROUNDS)
    verdict = _verdict(*(np.array(found[name]) for name in ("cold", "warm")))
    what = f"{game}: CPU time of a rollout"
    note = f"positions after 0 to {PlayOptions().opening_decisions} orders; warm is {verdict}"
    return [
        estimated(f"{what}, warm / cold start", ratio_interval(found["warm"], found["cold"]), "×", note=note),
        estimated(f"{what}, {NOISE}", ratio_interval(found[AGAIN], found["warm"]), "×"),
    ]


def _buffer(store: Store) -> list[Figure]:
    """Wall time per step in turns, over that with another process that plays, on two cores."""
    options: dict[str, Any] = {"compact_prompts": True}
    sides: dict[str, dict[str, Any]] = {
        "in turns": options,
        "buffered": {**options, "buffer_depth": 1, "policy_lag": 1},
    }

    def step_ms(name: str) -> Callable[[], dict[str, Any]]:
        terms = ProfileTerms(name=name, steps=BUFFER_STEPS, store=store.root)
        return lambda: dict(profile("e2e", sides[name], terms).document)

    found = interleave({name: step_ms(name) for name in sides}, BUFFER_ROUNDS)
    times = {name: [each["step_ms"]["mean"] for each in documents] for name, documents in found.items()}
    overlap = [100 * each["bubbles"]["overlap_ms"] / each["bubbles"]["window_ms"] for each in found["buffered"]]
    most = max(each["policy_lag_steps"]["max"] for each in found["buffered"])
    return [
        estimated("wall per step, in turns / buffered", ratio_interval(times["in turns"], times["buffered"]), "×"),
        Figure("buffered: share of the time in which both were busy", float(np.mean(overlap)), "%"),
        Figure("buffered: largest lag", float(most), "versions", goal=exactly(1)),
        Figure(
            "in turns: overlap", max(each["bubbles"]["overlap_ms"] for each in found["in turns"]), "ms", goal=exactly(0)
        ),
    ]


def _processes(folder: Path) -> Figure:
    """How far the means of equal processes lie apart, which `profile diff` has to assume where it sees one of each."""
    words = ["profile", "rollout", "--compact-prompts", "--store", str(folder / "processes"), "--format", "json"]
    means = [told_by("fairtrial", *words)["step_ms"]["mean"] for _ in range(PROCESSES)]
    spread = float(np.log(means).std(ddof=1))
    note = f"{min(means):.1f} to {max(means):.1f} ms per step"
    return Figure(
        "standard deviation of the logarithms of mean times, equal processes of profile rollout", spread, "",
        samples=PROCESSES, goal=at_most(PROCESS_SPREAD), note=note,
    )  # fmt: skip
