"""GRPO with a tiny Llama against TRL with equal work and threads, in turns, in this process.

A step: prompts are tokenised, continued, decoded and rewarded; advantages are taken within groups; the frozen model is
asked, and all weights are updated once. Counted are the tokens that were generated and trained per second of CPU. All
tokens are open and texts never end early, as the peer cannot be told what is legal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.figures import NOISE, Figure, at_least, estimated
from benchmarks.measure import OURS, OURS_AGAIN, interleave, median_interval, ratio_interval
from benchmarks.peer_trl import Peer, reward, words_tokenizer
from fairtrial.core.training import LoopEvents
from fairtrial.recipes.lm.types import Sample, SamplingRequest
from fairtrial.recipes.lm.weights import Blueprint

TITLE = "GRPO with a tiny Llama"
PEER = "TRL"
ROUNDS, STEPS, WARM_UP = 12, 6, 2
VOCABULARY, BETA, RATE = 300, 0.04, 1e-4


@dataclass(frozen=True)
class Case:
    """How many prompts of which lengths, continued how often and how far, and how much faster we ought to be."""

    name: str
    prompts: int
    lengths: tuple[int, int]
    samples: int
    tokens: int
    goal: float

    def texts(self) -> list[str]:
        draw = np.random.default_rng(7)
        sizes = draw.integers(self.lengths[0], self.lengths[1] + 1, self.prompts)
        return [" ".join(f"w{token}" for token in draw.integers(1, VOCABULARY, size)) for size in sizes]


CASES = (
    Case("8 prompts of 4 to 6 tokens, 4 samples of 32", 8, (4, 6), 4, 32, goal=2),
    Case("4 prompts of 256 tokens, 8 samples of 16", 4, (256, 256), 8, 16, goal=5),
)


def measure(folder: Path) -> list[Figure]:
    import torch

    from fairtrial.recipes.lm.model import tiny_model

    torch.set_num_threads(1)
    blueprint = tiny_model(VOCABULARY, 1)
    return [
        figure for number, case in enumerate(CASES) for figure in _measure_case(folder / str(number), case, blueprint)
    ]


def _measure_case(folder: Path, case: Case, blueprint: Blueprint) -> list[Figure]:
    texts = case.texts()
    peer = Peer(folder, blueprint, texts, samples=case.samples, tokens=case.tokens, beta=BETA, rate=RATE)
    contestants: dict[str, Callable[[], float]] = {
        OURS: lambda: _rate(case, our_steps(case, blueprint, texts, STEPS)),
        OURS_AGAIN: lambda: _rate(case, our_steps(case, blueprint, texts, STEPS)),
        PEER: lambda: _rate(case, peer.steps(STEPS)),
    }
    rates = interleave(contestants, ROUNDS)
    ratio = ratio_interval(rates[OURS], rates[PEER])
    return [
        *(estimated(f"{case.name}: {name}", median_interval(rates[name]), "tokens per CPU s") for name in (OURS, PEER)),
        estimated(f"{case.name}: fairtrial / {PEER}", ratio, "×", at_least(case.goal)),
        estimated(f"{case.name}: {NOISE}", ratio_interval(rates[OURS_AGAIN], rates[OURS]), "×"),
    ]


def _rate(case: Case, spent: Sequence[float]) -> float:
    """The first steps of either side prepare what later ones use."""
    return case.prompts * case.samples * case.tokens / median(spent[WARM_UP:])


def our_steps(case: Case, blueprint: Blueprint, texts: Sequence[str], count: int) -> list[float]:
    """CPU seconds of each step of a new training."""
    from fairtrial.recipes.lm.engine import SamplingEngine
    from fairtrial.recipes.lm.learner import GrpoConfig, Learner

    tokenizer = words_tokenizer(blueprint.vocabulary).backend_tokenizer
    learner = Learner(blueprint, GrpoConfig(learning_rate=RATE, beta=BETA, chunk=case.prompts))
    engine = SamplingEngine(blueprint, lambda _: learner.values(), batch=case.prompts * case.samples)
    events, spent = LoopEvents(), []
    for step in range(count):
        start = time.process_time()
        samples = _play(case, engine, tokenizer, texts, step)
        learner.step(samples, events)
        spent.append(time.process_time() - start)
    return spent


def _play(case: Case, engine: Any, tokenizer: Any, texts: Sequence[str], step: int) -> list[Sample]:
    prompts = [tuple(each.ids) for each in tokenizer.encode_batch(list(texts))]
    requests = [
        SamplingRequest(prompt, seed=(step * 1000 + group) * 1000 + number, allowed=None, most_tokens=case.tokens)
        for group, prompt in enumerate(prompts)
        for number in range(case.samples)
    ]
    done = engine.complete(requests, version=step)
    tokenizer.decode_batch([each.tokens for each in done])
    rewards = np.array([reward(each.tokens) for each in done]).reshape(-1, case.samples)
    advantages = (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(axis=1, keepdims=True, ddof=1) + 1e-4)
    return [
        Sample(request.prompt, each, None, float(advantage))
        for request, each, advantage in zip(requests, done, advantages.ravel(), strict=True)
    ]
