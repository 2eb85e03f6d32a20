"""The interface between a game and the language model that plays one seat of it.

A game is a sequence of decisions. A position offers a set of legal orders, each a short text, and the model chooses
one. The game then moves on to the next position in which this seat has a decision, and returns the reward. The game
plays all other seats, from its seed.

A game is a module with

    REQUIRES     names of the packages that it imports inside its functions
    EXTRA        the extra of Fairtrial that installs them, or None
    make()       returns the game

The user types the module's name for a built-in game, and a path such as `./my_game.py` for their own.

Implementers guarantee:

- A game depends only on the seed that its position was opened with and the orders since: no clock, no global random
  generator, and no dependence on the iteration order of sets.
- Positions are immutable. `play` does not change the position that it is called on, so that a fork is the position
  itself, and forks that receive the same orders stay equal.
- While `over` is false, `phase` is one of the game's phases, and `legal` has at least two orders, without duplicates,
  empty texts or line breaks. If there is only one legal order, the game plays it itself.
- Once `over` is true, `legal` is empty and `play` raises ValueError. A game is over after at most `decisions`
  decisions.
- `prompt` starts with `rules` of the same form. Positions with different legal orders have different prompts, and the
  compact prompt is the shorter one.
- `snapshot` survives a round trip through JSON, and `restore(snapshot())` behaves exactly like the position.
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
    """A state of a game in which this seat has a decision."""

    @property
    def phase(self) -> str:
        """The kind of decision, such as `movement` or `retreat`. Throughput is reported per phase."""
        ...

    @property
    def over(self) -> bool:
        """Whether the game is over."""
        ...

    def legal(self) -> Sequence[str]:
        """Return the legal orders, in a fixed sequence."""
        ...

    def prompt(self, *, compact: bool) -> str:
        """Return the prompt: a full description or, with `compact`, the minimum that distinguishes positions."""
        ...

    def play(self, order: str) -> tuple[Position, float]:
        """Return the next position and the reward. An order that is not legal raises ValueError."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """Return the JSON-compatible values that `restore` needs."""
        ...


class Game(Protocol):
    """Creates positions. `phases` names every kind of decision; `decisions` limits a game's length."""

    @property
    def phases(self) -> Sequence[str]: ...

    @property
    def decisions(self) -> int: ...

    def rules(self, *, compact: bool) -> str:
        """Return the text that every prompt of this game starts with. The sampling engine caches it."""
        ...

    def open(self, seed: int) -> Position:
        """Return the first position of a new game."""
        ...

    def restore(self, snapshot: Mapping[str, Any]) -> Position: ...


def load_game(name: str) -> Game:
    """Return the game with this name. Its packages are not imported before this call."""
    require_game(name)
    game: Game = _module(name).make()
    return game


def require_game(name: str) -> None:
    """Raise an error if the game is unknown or its packages are missing."""
    packages, extra = requires(name)
    require_packages(f"game '{name}'", packages, extra)


def hash_game(file: str) -> str:
    """Return the hash that identifies a user's game file."""
    return file_hash(Path(file))


def requires(name: str) -> tuple[tuple[str, ...], str | None]:
    """Return the packages that a game needs, without importing them, and the extra that installs them."""
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
        raise UserError(f"the game file {path} does not exist", hint=f"Built-in games: {', '.join(GAMES)}")
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
