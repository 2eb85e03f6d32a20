"""The contract between a game and the language model that plays one seat of it.

A game is played in decisions: a position offers a set of legal orders, each a short text; one is chosen; the game moves
on to the next position in which this seat has something to decide, and says what that was worth. Everybody else at the
table belongs to the game and plays by its seed.

A game is a module with

    REQUIRES     names of the packages that it imports inside its functions
    EXTRA        the extra of Fairtrial that installs them, or None
    make()       gives the game

Its file name is the word that a person types; a file of one's own is named by its path, `./my_game.py`.

Implementers guarantee:

- Everything follows from the seed that a position was opened with and the orders since: no clock, no global generator,
  and nothing that depends on the order in which Python keeps the members of a set.
- Positions are values. `play` leaves the position that it was called on as it was, so a fork is the position itself,
  and forks that are given the same orders stay equal.
- While `over` is false, `phase` is one of the game's phases, and `legal` has at least two orders, none of them twice,
  empty or with a line break in it. Where there is only one thing to do the game does it.
- Once `over` is true, `legal` is empty and `play` raises ValueError. That is so after `decisions` decisions at the
  latest.
- `prompt` begins with `rules` of the same form. Positions with different legal orders have different prompts, and the
  compact prompt is the shorter one.
- `snapshot` survives JSON, and `restore(snapshot())` is equal to the position in everything that can be observed, now
  and later.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from fairtrial.core.canonical import file_hash
from fairtrial.core.errors import unknown
from fairtrial.core.registry import require_packages
from fairtrial.plugins import UserError

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

    @property
    def phases(self) -> Sequence[str]: ...

    @property
    def decisions(self) -> int: ...

    def rules(self, *, compact: bool) -> str:
        """What every prompt of this game begins with: it is the same for all positions, and worth caching."""
        ...

    def open(self, seed: int) -> Position:
        """A new game."""
        ...

    def restore(self, snapshot: Mapping[str, Any]) -> Position: ...


def load_game(name: str) -> Game:
    """The game of that name. Its packages are imported here and not before."""
    require_game(name)
    game: Game = _module(name).make()
    return game


def require_game(name: str) -> None:
    """Refuse a game that is not known, or whose packages are missing."""
    packages, extra = requires(name)
    require_packages(f"game '{name}'", packages, extra)


def hash_game(file: str) -> str:
    """What a game in a file of someone's own is known by."""
    return file_hash(Path(file))


def requires(name: str) -> tuple[tuple[str, ...], str | None]:
    """The packages that a game needs, and the extra of Fairtrial that installs them. Imports none of them."""
    module = _module(name)
    return tuple(module.REQUIRES), module.EXTRA


def _module(name: str) -> ModuleType:
    if name.endswith(".py"):
        return _from_file(Path(name).expanduser().absolute())
    if name not in GAMES:
        raise UserError(unknown("game", name, GAMES), hint="A game may also be a file: ./my_game.py")
    return importlib.import_module(f"fairtrial.recipes.lm.games.{name}")


def _from_file(path: Path) -> ModuleType:
    name = f"fairtrial_game_{path.stem}"
    module = sys.modules.get(name)
    if module is not None and module.__file__ == str(path):
        return module
    if not path.is_file():
        raise UserError(f"no game file {path}", hint=f"Built-in games: {', '.join(GAMES)}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UserError(f"game file {path} cannot be loaded: {type(error).__name__}: {error}") from error
    lacking = [word for word in ("REQUIRES", "EXTRA", "make") if not hasattr(module, word)]
    if lacking:
        del sys.modules[name]
        raise UserError(f"{path} is not a game: it does not define {', '.join(lacking)}")
    return module
