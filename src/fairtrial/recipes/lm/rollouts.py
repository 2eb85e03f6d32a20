"""Rollouts: groups of samples that start from the same position and play some decisions, all in parallel.

All randomness is a function of (run, step, group, sample, decision). The options determine which groups are sampled
together, so that a rollout is bit-identical for any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from fairtrial.core.training import Split
from fairtrial.plugins import LoopEvents, Observer, Streams
from fairtrial.recipes.lm.engine import SamplingEngine
from fairtrial.recipes.lm.games import Game, Position
from fairtrial.recipes.lm.start_positions import StartPositions
from fairtrial.recipes.lm.tokens import Tokenizer
from fairtrial.recipes.lm.trie import Tries
from fairtrial.recipes.lm.types import (
    Completion,
    Floats,
    OrderDecision,
    Rollout,
    RolloutPart,
    Sample,
    SamplingRequest,
    Tokens,
    Trajectory,
)

KNOWN_TEXTS = 4096
"""Number of prompts whose tokens are cached, because positions recur within a group and from step to step."""


ROUNDING = 1e-9
"""Relative tolerance below which returns count as equal: such differences come from the order of summation."""


@dataclass(frozen=True)
class PlayConfig:
    """The options that a worker needs to play rollouts."""

    groups: int
    samples: int
    horizon: int
    compact: bool
    temperature: float
    batch_groups: int
    opening_decisions: int
    state_age: int
    state_cache: bool
    prefixes: int
    scripted: bool = False
    """Whether to play random orders instead of the model's, so that two measurements have the same positions."""

    @property
    def batches(self) -> int:
        return -(-self.groups // self.batch_groups)

    def groups_of(self, batch: int) -> range:
        return range(batch * self.batch_groups, min(self.groups, (batch + 1) * self.batch_groups))


class PhaseRecorder(Observer):
    """Records the start and end times of phases, which a worker sends to the trainer."""

    borders = "phases"

    def __init__(self) -> None:
        self.notes: list[Any] = []


@dataclass
class Seat:
    """The state of one sample during a rollout."""

    group: int
    sample: int
    position: Position
    decisions: list[OrderDecision] = field(default_factory=list)


@dataclass(frozen=True)
class JudgedPosition:
    """The result at one position: whether the model's unconstrained order was legal, and the reward from there."""

    position: str
    legal: bool
    reward: float


Reference = Callable[[Sequence[tuple[Tokens, Completion]]], Sequence[Floats]]


class GamePlayer:
    """Plays games with a language model, one order at a time."""

    def __init__(
        self, game: Game, tokenizer: Tokenizer, engine: SamplingEngine, config: PlayConfig, streams: Streams,
        reference: Reference | None = None,
    ) -> None:  # fmt: skip
        self.game, self.engine, self.config, self.streams = game, engine, config, streams
        self.start_positions = StartPositions(
            game, streams, most_decisions=config.opening_decisions, age=config.state_age, kept=config.state_cache
        )
        self._tokenizer, self._reference = tokenizer, reference
        # BLAS threads would change the last digits, so sampling uses one, here and in workers.
        self._libraries = ThreadpoolController()
        self._rules = game.rules(compact=config.compact)
        self._rule_tokens = tokenizer.encode(self._rules)
        self._read = lru_cache(KNOWN_TEXTS)(self._tokens)
        self._tries = Tries(tokenizer.encode, tokenizer.end)

    def part(self, step: int, version: int, batch: int, events: LoopEvents) -> RolloutPart:
        """Play the groups of a batch from their start positions for `horizon` decisions."""
        before, begun = self.counters(), events.clock()
        with events.phase("game"):
            seats = [
                Seat(group, sample, position)
                for group in self.config.groups_of(batch)
                for position in [self.start_positions.position(version, group)]
                for sample in range(self.config.samples)
            ]
        for turn in range(self.config.horizon):
            deciding = [seat for seat in seats if not seat.position.over]
            if not deciding:
                break
            seeds = [self.streams.seed("env", "sample", step, seat.group, seat.sample, turn) for seat in deciding]
            self._decide(deciding, seeds, version, self.config.temperature, events, scripted=self.config.scripted)
        with events.phase("reference"):
            trajectories = self._judged(seats)
        after = self.counters()
        counted = {name: after[name] - before.get(name, 0) for name in after}
        return RolloutPart(step, batch, version, trajectories, begun, events.clock(), counters=counted)

    def episodes(self, split: Split, count: int, part: int, decisions: int, version: int) -> list[float]:
        """Play games from their start with the most likely orders, and return their returns.

        Different parts have different games. Games are truncated after `decisions` decisions.
        """
        seats = [
            Seat(0, each, self.game.open(self.streams.seed(split, "episodes", part, each))) for each in range(count)
        ]
        return self._returns(seats, decisions, version, lambda deciding, _: [0] * len(deciding), 0.0)

    def judge(self, count: int, version: int) -> list[JudgedPosition]:
        """Evaluate a policy version on `count` positions that depend only on the seed.

        At each position the model first generates one order without the constraint to legal orders, which is only
        checked. It then plays `horizon` decisions from the position with the constraint. Orders are sampled as in a
        rollout.
        """

        def seeds(seats: Sequence[Seat], *turn: int | str) -> list[int]:
            return [self.streams.seed("env", "judged", seat.sample, *turn) for seat in seats]

        seats = [Seat(0, each, self.start_positions.opened("judged", each)) for each in range(count)]
        drawn = zip(seats, seeds(seats, "free"), strict=True)
        requests = [replace(self.request(seat.position, seed), allowed=None) for seat, seed in drawn]
        with self._libraries.limit(limits=1, user_api="blas"):
            written = self.engine.complete(requests, version, temperature=self.config.temperature)
        legal = [
            self._order(completion) in seat.position.legal() for seat, completion in zip(seats, written, strict=True)
        ]
        shown = [seat.position.prompt(compact=True) for seat in seats]
        returns = self._returns(seats, self.config.horizon, version, seeds, self.config.temperature)
        return [JudgedPosition(*each) for each in zip(shown, legal, returns, strict=True)]

    def _order(self, completion: Completion) -> str:
        """Return the text of a completion up to the end token, or all of it if there is none."""
        tokens = completion.tokens
        end = tokens.index(self._tokenizer.end) if self._tokenizer.end in tokens else len(tokens)
        return self._tokenizer.decode(tokens[:end])

    def _returns(
        self,
        seats: Sequence[Seat],
        decisions: int,
        version: int,
        seeds: Callable[[Sequence[Seat], int], list[int]],
        temperature: float,
    ) -> list[float]:
        """Play up to `decisions` decisions and return the returns. Temperature 0 plays the most likely orders."""
        for turn in range(decisions):
            deciding = [seat for seat in seats if not seat.position.over]
            if not deciding:
                break
            self._decide(deciding, seeds(deciding, turn), version, temperature, LoopEvents())
        return [sum(decision.reward for decision in seat.decisions) for seat in seats]

    def counters(self) -> dict[str, float]:
        return {**asdict(self.engine.counters), **self.start_positions.counters()}

    def _decide(
        self, seats: Sequence[Seat], seeds: Sequence[int], version: int, temperature: float, events: LoopEvents, *,
        scripted: bool = False,
    ) -> None:  # fmt: skip
        """Sample one order for each seat, in one batch, and play it."""
        with events.phase("tokenize"):
            requests = [self.request(seat.position, seed) for seat, seed in zip(seats, seeds, strict=True)]
        with events.phase("generate"), self._libraries.limit(limits=1, user_api="blas"):
            completions = self.engine.complete(requests, version, temperature=temperature)
        with events.phase("game"):
            for seat, request, completion in zip(seats, requests, completions, strict=True):
                self._play(seat, request, completion, scripted=scripted)

    def request(self, position: Position, seed: int) -> SamplingRequest:
        """Return the sampling request for an order at this position."""
        trie = self._tries.of(position.legal())
        prompt = self._read(position.prompt(compact=self.config.compact))
        return SamplingRequest(prompt, seed, trie, trie.depth, prefix=len(self._rule_tokens))

    def _tokens(self, prompt: str) -> Tokens:
        """Return the tokens of a prompt: those of the rules, which are tokenized once, and those of the rest."""
        return self._rule_tokens + self._tokenizer.encode(prompt.removeprefix(self._rules))

    def _play(self, seat: Seat, request: SamplingRequest, completion: Completion, *, scripted: bool) -> None:
        before = seat.position
        legal = before.legal() if scripted else ()
        order = legal[request.seed % len(legal)] if legal else self._tokenizer.decode(completion.tokens[:-1])
        seat.position, reward = before.play(order)
        position = before.prompt(compact=True) if scripted else ""
        seat.decisions.append(OrderDecision(request.prompt, completion, None, before.phase, reward, position))

    def _judged(self, seats: Sequence[Seat]) -> list[Trajectory]:
        """Return the trajectories, with reference log-probabilities if there is a frozen model."""
        decisions = [decision for seat in seats for decision in seat.decisions]
        if self._reference is None:
            values: Sequence[Floats | None] = [None] * len(decisions)
        else:
            values = self._reference([(each.prompt, each.completion) for each in decisions])
        judged = iter(replace(each, reference=reference) for each, reference in zip(decisions, values, strict=True))
        return [Trajectory(seat.group, seat.sample, [next(judged) for _ in seat.decisions]) for seat in seats]


def samples_of(rollout: Rollout) -> list[Sample]:
    """Return a training sample for every decision, with the group-relative advantage of its trajectory.

    Samples with equal prompts are adjacent, so that each prompt is processed once.
    """
    advantages = _advantages(rollout.trajectories)
    placed = [
        (
            (each.group, turn, decision.prompt),
            Sample(decision.prompt, decision.completion, decision.reference, advantage),
        )
        for each, advantage in zip(rollout.trajectories, advantages, strict=True)
        for turn, decision in enumerate(each.decisions)
    ]
    return [sample for _, sample in sorted(placed, key=lambda pair: pair[0])]


def _advantages(trajectories: Sequence[Trajectory]) -> list[float]:
    """Return the standardized returns within each group; 0 if all returns of a group are equal."""
    totals = np.array([each.total for each in trajectories])
    groups = np.array([each.group for each in trajectories])
    values = np.zeros(len(totals))
    for group in np.unique(groups):
        mine = groups == group
        spread = totals[mine].std()
        if spread > ROUNDING * max(1.0, abs(totals[mine].mean())):
            values[mine] = (totals[mine] - totals[mine].mean()) / spread
    return [float(each) for each in values]
