"""What every game must keep, checked by really playing it."""

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
    """A game, how many games of it are played at random, and the most decisions that are looked at in each."""

    word: str
    games: int = 20
    decisions: int = 40

    @cached_property
    def game(self) -> Game:
        return load_game(self.word)

    def played(self, seed: int) -> Iterator[Position]:
        """The positions of one game, in which orders are drawn by the seed as well."""
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
    """Everything that can be seen of a position."""
    return {
        "phase": position.phase,
        "over": position.over,
        "legal": tuple(position.legal()),
        "full": position.prompt(compact=False),
        "compact": position.prompt(compact=True),
        "snapshot": json.dumps(position.snapshot(), sort_keys=True),
    }


def check_the_seed_decides(case: GameCase) -> None:
    """Two games of one seed are equal throughout; other seeds show in what is offered or in what it is worth."""
    again = [observe(position) for position in case.played(0)]
    assert again == [observe(position) for position in case.played(0)], "two games with one seed differ"
    stories = [_story(case, seed) for seed in range(case.games)]
    assert any(story != stories[0] for story in stories[1:]), "the seed reaches nothing"


def _story(case: GameCase, seed: int) -> list[tuple[tuple[str, ...], float]]:
    """What is offered and paid when always the first order is given."""
    position = case.game.open(seed)
    story: list[tuple[tuple[str, ...], float]] = []
    while not position.over and len(story) < case.decisions:
        legal = tuple(position.legal())
        position, reward = position.play(legal[0])
        story.append((legal, reward))
    return story


def check_another_game_object_is_equal(case: GameCase) -> None:
    """Nothing is remembered from games that were played before."""
    fresh = GameCase(case.word, case.games, case.decisions)
    last = case.games - 1
    used = [observe(position) for position in case.played(last)]
    assert used == [observe(position) for position in fresh.played(last)], "what was played before is remembered"


def check_positions_are_values(case: GameCase) -> None:
    """Playing on leaves a position as it was, and forks that are given the same orders stay equal."""
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
    """While a game goes on there are at least two orders, each once, each on one line, always in the same order."""
    for position in case.positions():
        legal = tuple(position.legal())
        if position.over:
            continue
        assert position.phase in case.game.phases, f"{position.phase!r} is not among the phases of the game"
        assert len(legal) >= 2, f"there is no choice among {legal}"
        assert len(set(legal)) == len(legal), f"an order is offered twice in {legal}"
        assert all(order.strip() and len(f"{order}.".splitlines()) == 1 for order in legal), (
            f"no single line in {legal}"
        )
        assert tuple(position.legal()) == legal, "asked twice, the orders differ"


def check_other_orders_are_refused(case: GameCase) -> None:
    """An order that is not legal raises ValueError, and so does every order once a game is over."""
    for position in case.positions():
        for order in ("", "no such order", *(f"{order} " for order in position.legal()[:1])):
            try:
                position.play(order)
            except ValueError:
                continue
            raise AssertionError(f"the order {order!r} is not legal and was taken")


def check_games_end(case: GameCase) -> None:
    """A game is over after its most decisions at the latest; nothing is legal then."""
    chance = random.Random(2)  # noqa: S311
    position, decided = case.game.open(0), 0
    while not position.over:
        assert decided < case.game.decisions, f"a game goes on after {decided} decisions"
        order = chance.choice(position.legal())
        position, _ = position.play(order)
        decided += 1
    assert not position.legal(), "a game that is over offers orders"
    try:
        position.play(order)
    except ValueError:
        return
    raise AssertionError("a game that is over takes orders")


def check_rewards_are_numbers(case: GameCase) -> None:
    """A reward is a finite float, and not all are equal: there is something to learn."""
    seen = set()
    for position in case.positions():
        for order in position.legal()[:3]:
            _, reward = position.play(order)
            assert isinstance(reward, float) and abs(reward) < float("inf"), f"{reward!r} is no reward"
            seen.add(reward)
    assert len(seen) > 1, "every order is worth the same"


def check_prompts_tell_positions_apart(case: GameCase) -> None:
    """A prompt begins with the rules; different orders have different prompts; the compact form is the shorter one."""
    offered: dict[str, tuple[str, ...]] = {}
    for position in case.positions():
        for compact in (False, True):
            prompt, legal = position.prompt(compact=compact), tuple(position.legal())
            assert prompt.startswith(case.game.rules(compact=compact)), "a prompt does not begin with the rules"
            assert position.over or offered.setdefault(prompt, legal) == legal, f"two positions look like\n{prompt}"
        assert len(position.prompt(compact=True)) < len(position.prompt(compact=False)), "the compact prompt is longer"


def check_snapshots_restore(case: GameCase) -> None:
    """A snapshot survives JSON, and what is restored from it is equal, now and later, in another game object too."""
    fresh = GameCase(case.word)
    for seed in range(case.games):
        chance = random.Random(seed)  # noqa: S311
        positions = list(case.played(seed))
        position = chance.choice(positions)
        restored = fresh.game.restore(json.loads(json.dumps(position.snapshot())))
        for _ in range(case.decisions):
            assert observe(restored) == observe(position), "what was restored differs"
            if position.over:
                break
            order = chance.choice(position.legal())
            (position, reward), (restored, again) = position.play(order), restored.play(order)
            assert reward == again, "what was restored is rewarded differently"


def check_global_generators_are_left_alone(case: GameCase) -> None:
    """Nothing relies on global random state, and nothing changes it."""
    import numpy

    expected = [observe(position) for position in GameCase(case.word, 1, case.decisions).positions()]
    random.seed(5)
    numpy.random.seed(5)
    before = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
    seen = [observe(position) for position in GameCase(case.word, 1, case.decisions).positions()]
    after = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
    assert seen == expected, "a global generator reaches the game"
    assert before == after, "a global generator was moved"


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
