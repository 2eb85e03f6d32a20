"""The contract between a game and the language model that plays one seat of it.

A game is played in decisions: a position offers a set of legal orders, each a short text; one is chosen; the game moves
on to the next position in which this seat has something to decide, and says what that was worth. Everybody else at the
table belongs to the game and plays by its seed.

Implementers guarantee:

- Everything follows from the seed that a position was opened with and the orders since: no clock, no global generator.
- Positions are values. `play` leaves the position that it was called on as it was, so a fork is the position itself, and
  forks that are given the same orders stay equal.
- `legal` is never empty while `over` is false, has no order twice, and no order contains a line break.
- `restore(snapshot())` is equal to the position in everything that can be observed, now and later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

GAMES = ("orders", "diplomacy")


class Position(Protocol):
    """A moment in a game in which this seat decides something."""

    @property
    def phase(self) -> str:
        """What kind of decision this is: `movement`, `retreat` …; throughput is told by it."""
        ...

    @property
    def over(self) -> bool:
        """Nothing is left to decide."""
        ...

    def legal(self) -> Sequence[str]:
        """The orders that may be given, in a fixed order."""
        ...

    def prompt(self, *, compact: bool) -> str:
        """What the model is shown: all that is known in words, or the least that distinguishes positions."""
        ...

    def play(self, order: str) -> tuple[Position, float]:
        """The next position and the reward of getting there. An order that is not legal raises ValueError."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """What `restore` needs: plain values that JSON can hold."""
        ...


class Game(Protocol):
    """How positions come to be. `phases` names every kind of decision; `decisions` limits a game's length."""

    phases: Sequence[str]

    def rules(self, *, compact: bool) -> str:
        """What every prompt of this game begins with: it is the same for all positions, and worth caching."""
        ...

    def open(self, seed: int) -> Position:
        """A new game."""
        ...

    def restore(self, snapshot: Mapping[str, Any]) -> Position: ...


def load_game(name: str) -> Game:
    """The game of that name. Its packages are imported here and not before."""
    import importlib

    game: Game = importlib.import_module(f"fairtrial.recipes.lm.games.{name}").make()
    return game
