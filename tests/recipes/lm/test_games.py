"""Games keep the shipped contract, the small one can be learnt, and Diplomacy's forks stay true to the engine."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import FairtrialError
from fairtrial.recipes.lm.games import GAMES, Position, load_game, requires
from fairtrial.recipes.lm.games.orders import BORDERS, CENTRES, NAMES, OrdersPosition
from fairtrial.recipes.lm.tokens import Tokenizer, tokenizer_file
from fairtrial.recipes.lm.trie import Trie, Tries
from fairtrial.record.store import Store
from fairtrial.testing import GAME_CHECKS, GameCase
from fairtrial.testing import game_contract as contract

needs_diplomacy = pytest.mark.skipif(
    importlib.util.find_spec("diplomacy") is None, reason="the package diplomacy is not installed"
)
CASES = {"orders": GameCase("orders", games=40), "diplomacy": GameCase("diplomacy", games=4, decisions=14)}
WORDS = [pytest.param(word, marks=needs_diplomacy if word == "diplomacy" else ()) for word in CASES]


@pytest.mark.parametrize("check", GAME_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("word", WORDS)
def test_games_keep_their_contract(word: str, check: Callable[[GameCase], None]) -> None:
    check(CASES[word])


@pytest.mark.parametrize("check", GAME_CHECKS, ids=lambda check: check.__name__)
def test_the_game_of_the_documentation_keeps_it_too(check: Callable[[GameCase], None]) -> None:
    check(GameCase(str(Path(__file__).parents[3] / "examples/my_game.py"), games=10))


def test_every_game_is_among_the_cases() -> None:
    assert set(GAMES) == set(CASES)


BROKEN = """
import random
from dataclasses import asdict, dataclass, replace
REQUIRES, EXTRA = (), None
state = {{"opened": 0}}
@dataclass
class Count:
    seed: int
    value: int = 0
    played: int = 0
    @property
    def phase(self):
        return {phase}
    @property
    def over(self):
        return {over}
    def legal(self):
        return () if self.over else {legal}
    def prompt(self, *, compact):
        return {prompt}
    def play(self, order):
        {play}
        if {refused}:
            raise ValueError(order)
        return Count(self.seed, self.value + int(order), self.played + 1), {reward}
    def snapshot(self):
        return {snapshot}
class Game:
    phases, decisions = ("count",), 9
    def rules(self, *, compact):
        return "R" if compact else "Rules"
    def open(self, seed):
        state["opened"] += 1
        return Count({opened})
    def restore(self, snapshot):
        return Count(**snapshot)
def make():
    return Game()
"""
FINE = {
    "phase": "'count'",
    "over": "self.played == 9",
    "legal": "[str(i + self.value % 3) for i in range(3)]",
    "prompt": "('R' if compact else 'Rules: count.') + f' {self.seed} {self.value} {self.played}'",
    "play": "pass",
    "refused": "order not in self.legal()",
    "reward": "float(order)",
    "snapshot": "asdict(self)",
    "opened": "seed, seed",
}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({}, None),
        ({"opened": "seed, state['opened']"}, contract.check_the_seed_decides),
        ({"opened": "seed"}, contract.check_the_seed_decides),
        ({"opened": "seed, state['opened']"}, contract.check_another_game_object_is_equal),
        ({"play": "self.value += 1"}, contract.check_positions_are_values),
        ({"legal": "['1']"}, contract.check_orders_are_offered),
        ({"legal": "['1', '1']"}, contract.check_orders_are_offered),
        ({"legal": "['1', '2\\n']"}, contract.check_orders_are_offered),
        ({"phase": "'other'"}, contract.check_orders_are_offered),
        ({"refused": "not order.strip().isdigit()"}, contract.check_other_orders_are_refused),
        ({"over": "False"}, contract.check_games_end),
        ({"reward": "0.0"}, contract.check_rewards_are_numbers),
        ({"reward": "float('inf')"}, contract.check_rewards_are_numbers),
        ({"prompt": "'R' if compact else 'Rules: count.'"}, contract.check_prompts_tell_positions_apart),
        ({"prompt": "f'Rules {self.value}'"}, contract.check_prompts_tell_positions_apart),
        ({"prompt": "f'What? {self.value} {compact}'"}, contract.check_prompts_tell_positions_apart),
        ({"snapshot": "{'seed': self.seed, 'value': self.value}"}, contract.check_snapshots_restore),
        ({"play": "random.random()"}, contract.check_global_generators_are_left_alone),
    ],
)
def test_the_contract_catches_what_it_is_there_for(
    tmp_path: Path, change: dict[str, str], check: Callable[[GameCase], None] | None
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN.format(**{**FINE, **change}))
    case = GameCase(str(path), games=8, decisions=12)
    if check is None:
        for each in GAME_CHECKS:
            each(case)
    else:
        with pytest.raises(AssertionError):
            check(case)


def test_an_unknown_game_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(FairtrialError, match="unknown game 'order'; did you mean 'orders'"):
        load_game("order")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"the game file .* does not exist"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("REQUIRES = ()", "is not a game: it does not define EXTRA, make"),
    ],
)
def test_a_file_that_is_no_game_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FairtrialError, match=said):
        load_game(str(path))


def test_a_missing_package_is_refused_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requires("diplomacy") == (("diplomacy",), "diplomacy")
    assert requires("orders") == ((), None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FairtrialError, match=r"needs diplomacy.*pip install 'fairtrial\[diplomacy\]'"):
        load_game("diplomacy")


def random_states(word: str, seed: int) -> Iterator[Position]:
    """A game that is played at random from beginning to end."""
    chance = random.Random(seed)
    position = CASES[word].game.open(seed)
    while not position.over:
        yield position
        position, _ = position.play(chance.choice(position.legal()))


@pytest.fixture
def tokenizer(store: Store) -> Tokenizer:
    return Tokenizer.from_file(tokenizer_file(store.cache))


def walk(trie: Trie, chance: random.Random) -> list[int]:
    """A random token at every node, down to a leaf."""
    tokens = []
    while not trie.done:
        tokens.append(chance.choice(trie.allowed))
        trie = trie.after(tokens[-1])
    return tokens


def leaves(trie: Trie, so_far: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if trie.done:
        yield so_far
    for token in trie.allowed:
        yield from leaves(trie.after(token), (*so_far, token))


def check_states(states: Iterator[Position], tokenizer: Tokenizer) -> int:
    tries, chance, count = Tries(tokenizer.encode, tokenizer.end), random.Random(3), 0
    for count, position in enumerate(states, 1):  # noqa: B007
        trie, legal = tries.of(position.legal()), position.legal()
        assert tokenizer.decode(walk(trie, chance)) in legal
        assert sorted(map(tokenizer.decode, leaves(trie))) == sorted(legal)
    return count


@pytest.mark.slow
def test_in_ten_thousand_states_only_legal_orders_can_be_written_and_all_of_them(tokenizer: Tokenizer) -> None:
    games = range(500)
    assert check_states((state for seed in games for state in random_states("orders", seed)), tokenizer) >= 10_000


@pytest.mark.slow
@needs_diplomacy
def test_in_states_of_diplomacy_only_legal_orders_can_be_written_and_all_of_them(tokenizer: Tokenizer) -> None:
    assert check_states((state for seed in (3, 8) for state in random_states("diplomacy", seed)), tokenizer) >= 100


@pytest.mark.parametrize("word", WORDS)
def test_every_phase_is_reached(word: str) -> None:
    phases = {state.phase for seed in range(3, 9) for state in random_states(word, seed)}
    assert phases == set(CASES[word].game.phases)


SAID = """
import hashlib, random, tempfile
from pathlib import Path
from fairtrial.recipes.lm.games import load_game
from fairtrial.recipes.lm.tokens import make_vocabulary
position, chance, said = load_game({word!r}).open(8), random.Random(8), hashlib.sha256()
for _ in range(24):
    said.update(repr((position.legal(), position.prompt(compact=False))).encode())
    position, reward = position.play(chance.choice(position.legal()))
with tempfile.TemporaryDirectory() as folder:
    print(said.hexdigest(), make_vocabulary(Path(folder)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS)
def test_games_and_vocabulary_are_the_same_in_every_process(word: str) -> None:
    """Python shuffles its sets of texts anew in every process."""
    said = {
        subprocess.run(
            [sys.executable, "-c", SAID.format(word=word)],
            env={**os.environ, "PYTHONHASHSEED": shuffle},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for shuffle in ("1", "2")
    }
    assert len(said) == 1 and "sha256" in said.pop()


# The small game.


def careless(position: OrdersPosition, chance: random.Random) -> str:
    """Prefers kinds of orders and does not look at the position."""
    return chance.choice([order for order in position.legal() if order.split()[-1] not in ("H", "D", "WAIVE")])


def greedy(position: OrdersPosition, chance: random.Random) -> str:
    """Goes where a centre is to be had, then where one is near; sees what the prompt says and no more."""
    return max(position.legal(), key=lambda order: promise(position, order.split()))


def promise(position: OrdersPosition, words: list[str]) -> float:
    if words[-1] == "B":
        return 1.0
    if words[-1] in ("H", "D", "WAIVE"):
        return -1.0
    target = NAMES.index(words[3])
    friends = [place for place in position.ours if NAMES[place] != words[1] and target in BORDERS[place]]
    if target in position.enemies and not friends:
        return -2.0
    near = any(is_open(position, place) and place not in position.enemies for place in BORDERS[target])
    return 2.0 * is_open(position, target) + 0.5 * near


def is_open(position: OrdersPosition, place: int) -> bool:
    return place in CENTRES and place not in position.owned


def mean_return(player: Callable[[OrdersPosition, random.Random], str], games: int = 500, decisions: int = 8) -> float:
    game, chance, total = load_game("orders"), random.Random(0), 0.0
    for seed in range(games):
        position: Any = game.open(seed)
        for _ in range(decisions):
            if position.over:
                break
            position, reward = position.play(player(position, chance))
            total += reward
    return total / games


def test_good_play_depends_on_the_position_and_careless_play_is_already_better_than_chance() -> None:
    at_random = mean_return(lambda position, chance: chance.choice(position.legal()))
    assert at_random + 0.75 < mean_return(careless) < mean_return(greedy) - 0.75


def test_legal_sets_of_the_small_game_are_small_and_rewards_bounded() -> None:
    for seed in range(60):
        for position in random_states("orders", seed):
            assert 2 <= len(position.legal()) <= 12
            assert all(-1 <= position.play(order)[1] <= 1 for order in position.legal())


def orders_position(**changes: Any) -> OrdersPosition:
    opening = load_game("orders").open(0).snapshot()
    snapshot = {**opening, "ours": [2], "enemies": [4, 5], "owned": [2], "waiting": [2], **changes}
    position = load_game("orders").restore(snapshot)
    assert isinstance(position, OrdersPosition)
    return position


def test_a_lone_army_is_stopped_by_an_enemy_and_one_with_a_friend_drives_it_out() -> None:
    alone = orders_position(ours=[2], waiting=[2], enemies=[3, 0])
    after, reward = alone.play("A cor - dun")
    assert 2 in after.ours and reward <= -0.1
    helped = orders_position(ours=[2, 7], waiting=[2], enemies=[3, 0])
    after, reward = helped.play("A cor - dun")
    assert after.ours == (3, 7) and reward == 1.0


def test_an_army_that_is_driven_out_may_not_go_where_the_attack_came_from() -> None:
    position = orders_position(ours=[7], waiting=[7], enemies=[2, 1], dislodged=2, attacked_from=3)
    assert position.phase == "retreat" and position.legal() == ("A cor R gor", "A cor D")
    assert "R cor dun" in position.prompt(compact=True)


def test_full_prompts_are_long_enough_to_be_worth_sharing_and_compact_ones_short(tokenizer: Tokenizer) -> None:
    for position in random_states("orders", 8):
        assert len(tokenizer.encode(position.prompt(compact=False))) >= 256
        assert len(tokenizer.encode(position.prompt(compact=True))) <= 24
        assert len(position.prompt(compact=True)) <= 72


# Diplomacy.


@pytest.mark.slow
@needs_diplomacy
def test_forks_on_a_shared_engine_stay_equal_to_games_that_were_never_forked() -> None:
    from diplomacy import Game as Engine

    from fairtrial.recipes.lm.games import diplomacy

    pool, phases = diplomacy.Engines(), set()
    games = [(Engine(), random.Random(seed)) for seed in range(3)]
    boards = [diplomacy.read_board(engine) for engine, _ in games]
    for _ in range(36):
        for number, (engine, chance) in enumerate(games):
            choices = pool.choices(boards[number])
            assert choices == diplomacy.find_choices(engine)
            orders = {power: diplomacy.random_orders(choices, power, chance) for power in diplomacy.POWERS}
            after, fork = (pool.resolve(boards[number], orders)[0] for _ in range(2))
            for power, given in orders.items():
                engine.set_orders(power, list(given))
            engine.process()
            assert after == fork == diplomacy.read_board(engine)
            phases.add(boards[number].phase[-1])
            boards[number] = after
    assert phases == {"M", "R", "A"} and len(pool._idle) == 1


def winter(units: list[str], centres: list[str]) -> Any:
    """France alone in the first winter."""
    game = load_game("diplomacy")
    snapshot: Any = json.loads(json.dumps(game.open(0).snapshot()))
    board = snapshot["board"]
    for name in board["units"]:
        for by_power in ("units", "centres", "influence"):
            board[by_power][name] = []
    board["units"]["FRANCE"], board["centres"]["FRANCE"], board["phase"] = units, centres, "W1901A"
    return game.restore({**snapshot, "power": "FRANCE"})


@needs_diplomacy
def test_builds_are_limited_and_never_two_at_one_place() -> None:
    position = winter(["F MAO"], ["BRE", "MAR", "PAR", "SPA", "POR"])
    assert position.phase == "adjustment"
    assert position.legal() == ("A BRE B", "A MAR B", "A PAR B", "F BRE B", "F MAR B", "WAIVE")
    position, _ = position.play("F BRE B")
    assert position.legal() == ("A MAR B", "A PAR B", "F MAR B", "WAIVE")
    position, _ = position.play("WAIVE")
    position, _ = position.play("A PAR B")
    assert position.phase == "movement" and set(position.board.units["FRANCE"]) == {"F MAO", "F BRE", "A PAR"}


@needs_diplomacy
def test_as_many_units_are_removed_as_there_are_too_many() -> None:
    position = winter(["F MAO", "A GAS", "A BUR", "A PIC"], ["PAR"])
    assert position.legal() == ("A BUR D", "A GAS D", "A PIC D", "F MAO D")
    for order, left in (("A GAS D", 3), ("F MAO D", 2)):
        position, _ = position.play(order)
        assert len(position.legal()) == left
    position, _ = position.play("A BUR D")
    assert position.board.phase == "S1902M" and position.board.units["FRANCE"] == ("A PIC",)


@needs_diplomacy
def test_what_leaves_no_choice_is_done_without_asking() -> None:
    position, _ = winter(["A GAS", "A BUR", "A PIC"], ["PAR"]).play("A GAS D")
    assert position.legal() == ("A BUR D", "A PIC D")
    position, _ = winter(["A GAS", "A BUR"], []).play("A GAS D")
    assert position.over and position.legal() == ()


@needs_diplomacy
def test_rewards_of_diplomacy_add_up_to_the_change_of_standing() -> None:
    position: Any = load_game("diplomacy").open(8)
    power, before, total, chance = position.power, position.board.standing(position.power), 0.0, random.Random(8)
    while not position.over:
        position, reward = position.play(chance.choice(position.legal()))
        total += reward
    assert total == pytest.approx(position.board.standing(power) - before)
    assert total != 0 and int(position.board.phase[1:5]) == 1911
