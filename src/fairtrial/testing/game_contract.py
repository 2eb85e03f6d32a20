"""The contract of games, checked by playing them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairtrial.recipes.lm.games import Game, Position, load_game


@dataclass(frozen=True)
class GameCase:
    """A game to check, the number of random games to play, and the maximum number of decisions in each."""

    word: str
    games: int = 20
    decisions: int = 40

    @cached_property
    def game(self) -> Game:
        return load_game(self.word)

    def played(self, seed: int) -> Iterator[Position]:
        """Yield the positions of one game with random orders; the seed determines both."""
        chance = random.Random(seed)  # noqa: S311
        position = self.game.open(seed)
        yield position
        for _ in range(self.decisions):
            if position.over:
                return
            position, _ = position.play(chance.choice(position.legal()))
            yield position

    def positions(self) -> Iterator[Position]:
        for seed in range(self.games):
            yield from self.played(seed)


def observe(position: Position) -> Mapping[str, Any]:
    """Return everything that can be observed of a position."""
    return {
        "phase": position.phase,
        "over": position.over,
        "legal": tuple(position.legal()),
        "full": position.prompt(compact=False),
        "compact": position.prompt(compact=True),
        "snapshot": json.dumps(position.snapshot(), sort_keys=True),
    }


def check_the_seed_decides(case: GameCase) -> None:
    """Check that games with equal seeds are equal, and that other seeds change the legal orders or the rewards."""
    again = [observe(position) for position in case.played(0)]
    assert again == [observe(position) for position in case.played(0)], "two games with the same seed differ"
    stories = [_story(case, seed) for seed in range(case.games)]
    assert any(story != stories[0] for story in stories[1:]), "the seed has no effect"


def _story(case: GameCase, seed: int) -> list[tuple[tuple[str, ...], float]]:
    """Return the legal orders and rewards of a game that always plays the first order."""
    position = case.game.open(seed)
    story: list[tuple[tuple[str, ...], float]] = []
    while not position.over and len(story) < case.decisions:
        legal = tuple(position.legal())
        position, reward = position.play(legal[0])
        story.append((legal, reward))
    return story


def check_another_game_object_is_equal(case: GameCase) -> None:
    """Check that a game does not depend on games that were played before."""
    fresh = GameCase(case.word, case.games, case.decisions)
    last = case.games - 1
    used = [observe(position) for position in case.played(last)]
    assert used == [observe(position) for position in fresh.played(last)], (
        "a game depends on games that were played before"
    )


def check_positions_are_values(case: GameCase) -> None:
    """Check that `play` does not change its position, and that forks with the same orders stay equal."""
    chance = random.Random(1)  # noqa: S311
    for seed in range(case.games):
        position = fork = case.game.open(seed)
        for _ in range(case.decisions):
            if position.over:
                break
            before, order = observe(position), chance.choice(position.legal())
            for tried in (chance.choice(position.legal()), order):
                after, reward = position.play(tried)
                assert observe(position) == before, "playing changed the position that it was called on"
            fork, reward_of_fork = fork.play(order)
            assert (observe(fork), reward_of_fork) == (observe(after), reward), "two forks with the same orders differ"
            position = after


def check_orders_are_offered(case: GameCase) -> None:
    """Check that an unfinished game has at least two legal orders: distinct, of one line, in a fixed sequence."""
    for position in case.positions():
        legal = tuple(position.legal())
        if position.over:
            continue
        assert position.phase in case.game.phases, f"{position.phase!r} is not one of the game's phases"
        assert len(legal) >= 2, f"there is no choice among {legal}"
        assert len(set(legal)) == len(legal), f"an order is offered twice in {legal}"
        assert all(order.strip() and len(f"{order}.".splitlines()) == 1 for order in legal), (
            f"an order is empty or has a line break in {legal}"
        )
        assert tuple(position.legal()) == legal, "two calls of legal() differ"


def check_other_orders_are_refused(case: GameCase) -> None:
    """Check that an illegal order raises ValueError, as does every order once a game is over."""
    for position in case.positions():
        for order in ("", "no such order", *(f"{order} " for order in position.legal()[:1])):
            try:
                position.play(order)
            except ValueError:
                continue
            raise AssertionError(f"the order {order!r} is not legal but was accepted")


def check_games_end(case: GameCase) -> None:
    """Check that a game is over after at most `decisions` decisions, and that nothing is legal then."""
    chance = random.Random(2)  # noqa: S311
    position, decided = case.game.open(0), 0
    while not position.over:
        assert decided < case.game.decisions, f"a game is not over after {decided} decisions"
        order = chance.choice(position.legal())
        position, _ = position.play(order)
        decided += 1
    assert not position.legal(), "a game that is over has legal orders"
    try:
        position.play(order)
    except ValueError:
        return
    raise AssertionError("a game that is over accepts orders")


def check_rewards_are_numbers(case: GameCase) -> None:
    """Check that rewards are finite floats, and that not all are equal, so that there is something to learn."""
    seen = set()
    for position in case.positions():
        for order in position.legal()[:3]:
            _, reward = position.play(order)
            assert isinstance(reward, float) and abs(reward) < float("inf"), (
                f"the reward {reward!r} is not a finite float"
            )
            seen.add(reward)
    assert len(seen) > 1, "every order has the same reward"


def check_prompts_tell_positions_apart(case: GameCase) -> None:
    """Check that prompts start with the rules, differ if legal orders differ, and are shorter in compact form."""
    offered: dict[str, tuple[str, ...]] = {}
    for position in case.positions():
        for compact in (False, True):
            prompt, legal = position.prompt(compact=compact), tuple(position.legal())
            assert prompt.startswith(case.game.rules(compact=compact)), "a prompt does not start with the rules"
            assert position.over or offered.setdefault(prompt, legal) == legal, (
                f"two positions with different legal orders have the prompt\n{prompt}"
            )
        assert len(position.prompt(compact=True)) < len(position.prompt(compact=False)), "the compact prompt is longer"


def check_snapshots_restore(case: GameCase) -> None:
    """Check that a snapshot survives JSON, and that a position restored by another game object stays equal."""
    fresh = GameCase(case.word)
    for seed in range(case.games):
        chance = random.Random(seed)  # noqa: S311
        positions = list(case.played(seed))
        position = chance.choice(positions)
        restored = fresh.game.restore(json.loads(json.dumps(position.snapshot())))
        for _ in range(case.decisions):
            assert observe(restored) == observe(position), "a restored position differs"
            if position.over:
                break
            order = chance.choice(position.legal())
            (position, reward), (restored, again) = position.play(order), restored.play(order)
            assert reward == again, "a restored position gives another reward"


def check_global_generators_are_left_alone(case: GameCase) -> None:
    """Check that a game neither uses nor changes the global random generators."""
    import numpy

    expected = [observe(position) for position in GameCase(case.word, 1, case.decisions).positions()]
    random.seed(5)
    numpy.random.seed(5)
    before = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
    seen = [observe(position) for position in GameCase(case.word, 1, case.decisions).positions()]
    after = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
    assert seen == expected, "the game depends on a global random generator"
    assert before == after, "the game changed a global random generator"


GAME_CHECKS: tuple[Callable[[GameCase], None], ...] = (
    check_the_seed_decides,
    check_another_game_object_is_equal,
    check_positions_are_values,
    check_orders_are_offered,
    check_other_orders_are_refused,
    check_games_end,
    check_rewards_are_numbers,
    check_prompts_tell_positions_apart,
    check_snapshots_restore,
    check_global_generators_are_left_alone,
)
