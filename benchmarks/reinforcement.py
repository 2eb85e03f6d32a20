"""PPO on CartPole against Stable-Baselines3 with equal options, environments and threads, in turns.

One run: environment steps per second of CPU while training, both in this process. Ten seeds: wall time of the whole
study in two processes, ours as `launch` makes it, stacked and recorded with series and checkpoints, theirs as a script
that records nothing. To save time a round trains two of the ten peers, one per process, and counts their training five
times, their start once. Both learn for a quarter of the default steps. Returns: the default training, 100 held-out
episodes per run, as many seeds on both sides; the lower limit of the difference must not be far below nothing.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, variance
from typing import Any

from scipy import special

from benchmarks.figures import NOISE, Figure, at_least, estimated
from benchmarks.measure import OURS, OURS_AGAIN, interleave, median_interval, ratio_interval, told_by
from benchmarks.peer_ppo import make_peer
from fairtrial import Study, launch
from fairtrial.core.streams import Streams
from fairtrial.core.training import LoopEvents, RunContext
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.recipes import ppo
from fairtrial.record.store import Store

TITLE = "PPO on CartPole"
PEER = "Stable-Baselines3"
ROUNDS = 6
ONE_STEPS, STUDY_STEPS = 40, 100
SEEDS, SAMPLE, PROCESSES = 10, 2, 2
GOAL_ONE, GOAL_STUDY = 2, 5
RETURN_SEEDS, EPISODES, MARGIN = 20, 100, -25
SOLVED = 475
CHOSEN = {
    "Acrobot-v1": {"steps": 60, "envs": 16, "rollout": 256, "epochs": 4, "minibatches": 16, "gamma": 0.99,
                   "gae_lambda": 0.94, "normalize_observations": True},
    "Pendulum-v1": {"steps": 100, "envs": 4, "rollout": 256, "epochs": 10, "minibatches": 16, "gamma": 0.9,
                    "gae_lambda": 0.95},
}  # fmt: skip
LIMITS = {"CartPole-v1": (SOLVED, 9), "Acrobot-v1": (-100, 8), "Pendulum-v1": (-250, 8)}


def measure(folder: Path) -> list[Figure]:
    return [*_one_run(folder), *_study(folder), *_solved(folder), *_returns(folder)]


def _one_run(folder: Path) -> list[Figure]:
    import torch

    torch.set_num_threads(1)
    contestants = {
        OURS: lambda: _train_one(folder), OURS_AGAIN: lambda: _train_one(folder), PEER: _train_peer,
    }  # fmt: skip
    rates = interleave(contestants, ROUNDS)
    goal = at_least(GOAL_ONE)
    return [
        *(
            estimated(f"one run, {name}", median_interval(rates[name]), "environment steps per CPU s")
            for name in (OURS, PEER)
        ),
        estimated("one run, fairtrial / Stable-Baselines3", ratio_interval(rates[OURS], rates[PEER]), "×", goal),
        estimated(f"one run, {NOISE}", ratio_interval(rates[OURS_AGAIN], rates[OURS]), "×"),
    ]


def _train_one(folder: Path) -> float:
    options = ppo.Options(steps=ONE_STEPS)
    place = Store(folder / "one")
    run = ppo.build(options, RunContext(Streams(1), "v", place.paths.run("s", "v"), place.cache))
    events = LoopEvents()

    def train() -> None:
        for step in range(1, ONE_STEPS + 1):
            run.step(step, events)

    return _rate(options, train)


def _train_peer() -> float:
    options = ppo.Options(steps=ONE_STEPS)
    peer = make_peer(options, 1)
    return _rate(options, lambda: peer.learn(_env_steps(options)))


def _env_steps(options: ppo.Options) -> int:
    return options.steps * options.rollout * options.envs


def _rate(options: ppo.Options, train: Callable[[], object]) -> float:
    start = time.process_time()
    train()
    return _env_steps(options) / (time.process_time() - start)


def _study(folder: Path) -> list[Figure]:
    numbers = itertools.count()

    def ours() -> float:
        start = time.perf_counter()
        _launch(folder / "study", f"study-{next(numbers)}", range(1, SEEDS + 1), {"steps": STUDY_STEPS})
        return time.perf_counter() - start

    def theirs() -> float:
        start = time.perf_counter()
        told = _peers(STUDY_STEPS, range(1, SAMPLE + 1), 0)
        return time.perf_counter() - start + float(told["training_s"]) * (SEEDS / SAMPLE - 1)

    walls = interleave({OURS: ours, OURS_AGAIN: ours, PEER: theirs}, ROUNDS)
    ratio = ratio_interval(walls[PEER], walls[OURS])
    return [
        *(estimated(f"ten seeds, {name}, wall", median_interval(walls[name]), "s") for name in (OURS, PEER)),
        estimated("ten seeds, Stable-Baselines3 / fairtrial, wall", ratio, "×", at_least(GOAL_STUDY)),
        estimated(f"ten seeds, {NOISE}, wall", ratio_interval(walls[OURS_AGAIN], walls[OURS]), "×"),
    ]


def _launch(store: Path, name: str, seeds: Sequence[int], options: Mapping[str, Any]) -> list[float]:
    """A study in stacks, two at a time; what each run reports."""
    study = Study.model_validate({"study": name, "recipe": "ppo", "options": dict(options), "seeds": list(seeds)})
    launched = launch(study, store=store, terms=ExecutionPolicy(jobs=PROCESSES, stack=True))
    return [float(run.final["report_return_mean"]) for run in launched.runs]


def _peers(steps: int, seeds: Sequence[int], episodes: int) -> dict[str, Any]:
    words = ["--steps", str(steps), "--episodes", str(episodes), "--processes", str(PROCESSES)]
    return told_by("benchmarks.peer_ppo", *words, "--seeds", *map(str, seeds))


def _solved(folder: Path) -> list[Figure]:
    """How many of the seeds 1 to 10 solve each task, by the mean over 100 report episodes."""
    figures = []
    for name, (limit, goal) in LIMITS.items():
        options = {"env": name, **CHOSEN.get(name, {})}
        returns = _launch(folder / "solved", name, range(1, SEEDS + 1), options)
        note = f"{limit} or more over {EPISODES} episodes; worst {min(returns):.1f}, mean {mean(returns):.1f}"
        solved = float(sum(value >= limit for value in returns))
        figures.append(Figure(f"{name}, seeds that solve it", solved, f"of {SEEDS}", goal=at_least(goal), note=note))
    return figures


def _returns(folder: Path) -> list[Figure]:
    """Final returns over fresh seeds: ours less theirs, with a one-sided limit by Welch."""
    seeds = range(101, 101 + RETURN_SEEDS)
    ours = _launch(folder / "returns", "returns", seeds, {})
    theirs = list(_peers(ppo.Options().steps, seeds, EPISODES)["returns"].values())
    return [
        Figure("held-out return, fairtrial", mean(ours), "", samples=len(ours)),
        Figure("held-out return, Stable-Baselines3", mean(theirs), "", samples=len(theirs)),
        Figure(
            "held-out return, difference, lower 95 % limit", _lower_limit(ours, theirs), "", samples=len(ours),
            goal=at_least(MARGIN),
        ),
    ]  # fmt: skip


def _lower_limit(ours: Sequence[float], theirs: Sequence[float]) -> float:
    parts = [variance(values) / len(values) for values in (ours, theirs)]
    error = sum(parts)
    if not error:
        return mean(ours) - mean(theirs)
    freedom = error**2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (ours, theirs), strict=True))
    return mean(ours) - mean(theirs) - float(special.stdtrit(freedom, 0.95)) * math.sqrt(error)
