"""Start positions of groups: positions in the middle of games, replaced every few policy versions.

The start position is a function of the group's number and of the policy's generation (its version divided by the age
limit, rounded down). Caching positions therefore only saves time and does not change results.
"""

from __future__ import annotations

from fairtrial.plugins import Streams
from fairtrial.recipes.lm.games import Game, Position


class StartPositions:
    """Opens games and plays at most `most_decisions` random legal orders. With `kept`, positions are cached."""

    def __init__(self, game: Game, streams: Streams, *, most_decisions: int, age: int, kept: bool) -> None:
        self.game, self.streams, self.most, self.age, self.kept = game, streams, most_decisions, age, kept
        self.hits = self.misses = self.expired = 0
        self._states: dict[tuple[int, int], Position] = {}

    def position(self, version: int, group: int) -> Position:
        key = (version // self.age, group)
        remembered = self._states.get(key)
        if remembered is not None:
            self.hits += 1
            return remembered
        self.misses += 1
        position = self.opened("opening", *key)
        if self.kept:
            self._forget(version)
            self._states[key] = position
        return position

    def counters(self) -> dict[str, int]:
        return {"state_hits": self.hits, "state_misses": self.misses, "state_expired": self.expired}

    def _forget(self, version: int) -> None:
        """Delete positions of earlier generations, which this and later versions do not use."""
        old = [key for key in self._states if key[0] < version // self.age]
        self.expired += len(old)
        for key in old:
            del self._states[key]

    def opened(self, *place: str | int) -> Position:
        """Return a game after some random orders. `place` names the random stream and determines the result."""
        chance = self.streams.numpy("env", *place)
        position = self.game.open(int(chance.integers(2**31)))
        for _ in range(int(chance.integers(self.most + 1))):
            legal = position.legal()
            after, _ = position.play(legal[int(chance.integers(len(legal)))])
            if after.over:
                break
            position = after
        return position
