"""A small game of orders: armies on eight provinces capture supply centers from an enemy that plays from the seed.

The provinces form a ring, and each also borders the opposite one. The player gives one order at a time, and after it
one army of the enemy moves. A single army cannot dislodge another one; with a friendly army next to the target it can,
and the dislodged army retreats. After every army has had an order, a new army may be built.

Every decision has an immediate reward, and the return of a game is their sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REQUIRES: tuple[str, ...] = ()
EXTRA = None

NAMES = ("alb", "bre", "cor", "dun", "eno", "fal", "gor", "hex")
BORDERS = tuple(tuple(sorted(((i - 1) % 8, (i + 1) % 8, (i + 4) % 8))) for i in range(8))
CENTRES = (0, 2, 3, 4, 6, 7)
HOMES = (0, 4)
PHASES = ("movement", "retreat", "build")

MOST_ARMIES = 3
MOST_DECISIONS = 24

TAKEN = 1.0
BUILT = 0.25
WASTED = -0.1
LOST = -0.5
LEAST_REWARD, MOST_REWARD = -1.0, 1.0

RULES = """\
You command the armies of one side on a map of eight provinces. Six provinces are supply centres; alb and eno are \
your homes. You give one order at a time, and after each movement one army of the enemy moves.
A movement order is H to hold, or - and the province to go to. Entering a supply centre that is not yours makes it \
yours and earns 1. A province with an enemy army is entered only if another army of yours borders it; the enemy is \
then driven out. Otherwise the order is wasted. Wasted orders and holding cost 0.1. A centre that the enemy enters is \
lost and costs 0.5. Two armies of the enemy together can drive out yours.
A retreat order is R and a free province, or D to disband, which costs 0.5.
A build order is B at a free home that is yours, which earns 0.25, or WAIVE, which costs 0.1. You may have as many \
armies as centres, but no more than three.
"""
COMPACT_RULES = "Orders\n"


@dataclass(frozen=True, slots=True)
class OrdersPosition:
    """A position, with provinces as indices. `waiting` has our armies that had no order in this round yet."""

    seed: int
    decided: int
    ours: tuple[int, ...]
    enemies: tuple[int, ...]
    owned: tuple[int, ...]
    waiting: tuple[int, ...]
    dislodged: int | None = None
    attacked_from: int | None = None
    building: bool = False

    @property
    def phase(self) -> str:
        if self.dislodged is not None:
            return "retreat"
        return "build" if self.building else "movement"

    @property
    def over(self) -> bool:
        return self.decided >= MOST_DECISIONS or not (self.waiting or self.building or self.dislodged is not None)

    def legal(self) -> Sequence[str]:
        if self.over:
            return ()
        if self.dislodged is not None:
            name = NAMES[self.dislodged]
            ways = refuges(self.dislodged, self.attacked_from, (*self.ours, *self.enemies))
            return (*(f"A {name} R {NAMES[place]}" for place in ways), f"A {name} D")
        if self.building:
            homes = free_homes(self.owned, (*self.ours, *self.enemies))
            return (*(f"A {NAMES[home]} B" for home in homes), "WAIVE")
        place = self.waiting[0]
        name = NAMES[place]
        return (*(f"A {name} - {NAMES[to]}" for to in BORDERS[place] if to not in self.ours), f"A {name} H")

    def play(self, order: str) -> tuple[OrdersPosition, float]:
        if order not in self.legal():
            raise ValueError(f"{order!r} is not a legal order here")
        turn = _Turn(self)
        words = order.split()
        if self.dislodged is not None:
            turn.retreat(NAMES.index(words[3]) if words[2] == "R" else None)
        elif self.building:
            turn.build(NAMES.index(words[1]) if words[0] == "A" else None)
        else:
            turn.move(self.waiting[0], NAMES.index(words[3]) if words[2] == "-" else None)
        return turn.position(), min(max(turn.reward, LEAST_REWARD), MOST_REWARD)

    def prompt(self, *, compact: bool) -> str:
        return self._compact_prompt() if compact else self._full_prompt()

    def _compact_prompt(self) -> str:
        """Return each province with its marks: + a center to capture, = our center, ! an enemy army.

        A name in capitals has our army waiting for an order; a capitalized one has our army.
        """
        board = " ".join(map(self._mark, range(8)))
        return f"{COMPACT_RULES}{board}\n{self._asked()}\n"

    def _mark(self, place: int) -> str:
        name = NAMES[place]
        if place in self.ours:
            name = name.upper() if place in self.waiting else name.capitalize()
        centre = ("=" if place in self.owned else "+") if place in CENTRES else ""
        return f"{name}{'!' if place in self.enemies else ''}{centre}"

    def _asked(self) -> str:
        if self.over:
            return "-"
        if self.dislodged is not None:
            return f"R {NAMES[self.dislodged]} {self._attacker()}"
        return "B" if self.building else f"M {NAMES[self.waiting[0]]}"

    def _full_prompt(self) -> str:
        board = "\n".join(map(self._describe, range(8)))
        return f"{RULES}Decision {self.decided + 1} of {MOST_DECISIONS}.\n{board}\n{self._question()}\n"

    def _describe(self, place: int) -> str:
        borders = ", ".join(NAMES[other] for other in BORDERS[place])
        return f"{NAMES[place]} borders {borders}; it {self._worth(place)} and {self._occupant(place)}."

    def _worth(self, place: int) -> str:
        if place not in CENTRES:
            return "is no centre"
        return "is your centre" if place in self.owned else "is a centre to take"

    def _occupant(self, place: int) -> str:
        if place in self.enemies:
            return "has an enemy army"
        if place not in self.ours:
            return "is empty"
        return "has your army, which waits for an order" if place in self.waiting else "has your army"

    def _question(self) -> str:
        if self.over:
            return "The game is over."
        may = f"You may order: {'; '.join(self.legal())}.\nOrder:"
        if self.dislodged is not None:
            return f"Retreat. Your army in {NAMES[self.dislodged]} was driven out from {self._attacker()}. {may}"
        return f"Build. {may}" if self.building else f"Movement of your army in {NAMES[self.waiting[0]]}. {may}"

    def _attacker(self) -> str:
        assert self.attacked_from is not None
        return NAMES[self.attacked_from]

    def snapshot(self) -> Mapping[str, Any]:
        values = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


def refuges(place: int, attacked_from: int | None, occupied: Sequence[int]) -> list[int]:
    return [near for near in BORDERS[place] if near != attacked_from and near not in occupied]


def free_homes(owned: Collection[int], occupied: Sequence[int]) -> list[int]:
    return [home for home in HOMES if home in owned and home not in occupied]


class _Turn:
    """The transition from a position to the next one, with its reward."""

    def __init__(self, before: OrdersPosition) -> None:
        self.reward = 0.0
        self._before = before
        self._ours = set(before.ours)
        self._enemies = list(before.enemies)
        self._owned = set(before.owned)
        self._waiting = list(before.waiting)
        self._dislodged: int | None = None
        self._attacked_from: int | None = None
        self._building = False

    def position(self) -> OrdersPosition:
        return OrdersPosition(
            self._before.seed,
            self._before.decided + 1,
            tuple(sorted(self._ours)),
            tuple(self._enemies),
            tuple(sorted(self._owned)),
            tuple(self._waiting),
            self._dislodged,
            self._attacked_from,
            self._building,
        )

    def move(self, place: int, target: int | None) -> None:
        self._waiting.remove(place)
        if target is None or not self._drive_out(place, target):
            self.reward += WASTED
        else:
            self._ours.remove(place)
            self._enter(target)
        self._enemy_moves()
        self._next_round()

    def retreat(self, refuge: int | None) -> None:
        if refuge is None:
            self.reward += LOST
        else:
            self._enter(refuge)
        self._next_round()

    def build(self, home: int | None) -> None:
        self.reward += WASTED if home is None else BUILT
        if home is not None:
            self._ours.add(home)
        self._waiting = sorted(self._ours)

    def _drive_out(self, place: int, target: int) -> bool:
        """Return whether the target is free. An enemy there is dislodged if another army of ours borders the target."""
        if target not in self._enemies:
            return True
        if not any(friend != place and target in BORDERS[friend] for friend in self._ours):
            return False
        free = [other for other in range(8) if other not in self._ours and other not in self._enemies]
        self._enemies[self._enemies.index(target)] = free[self._draw("flight") % len(free)]
        return True

    def _enter(self, target: int) -> None:
        self._ours.add(target)
        if target in CENTRES and target not in self._owned:
            self._owned.add(target)
            self.reward += TAKEN

    def _enemy_moves(self) -> None:
        """Move one random enemy army. If it can dislodge one of ours, it attacks half of the time."""
        who = self._draw("who") % len(self._enemies)
        place = self._enemies[who]
        ways = [near for near in BORDERS[place] if near not in self._enemies]
        prey = [near for near in ways if near in self._ours and self._has_help(place, near)]
        if not ways:
            return
        chosen = prey if prey and self._draw("courage") % 2 else ways
        target = chosen[self._draw("where") % len(chosen)]
        if target in self._ours and target not in prey:
            return
        self._enemies[who] = target
        if target in self._owned:
            self._owned.remove(target)
            self.reward += LOST
        if target in self._ours:
            self._is_dislodged(target, place)

    def _has_help(self, place: int, target: int) -> bool:
        return any(friend != place and target in BORDERS[friend] for friend in self._enemies)

    def _is_dislodged(self, place: int, attacked_from: int) -> None:
        """Dislodge our army: it must retreat, or is disbanded if there is no free province."""
        self._ours.remove(place)
        if place in self._waiting:
            self._waiting.remove(place)
        if refuges(place, attacked_from, (*self._ours, *self._enemies)):
            self._dislodged, self._attacked_from = place, attacked_from

    def _next_round(self) -> None:
        if self._waiting or self._dislodged is not None:
            return
        room = len(self._ours) < min(MOST_ARMIES, len(self._owned))
        self._building = room and bool(free_homes(self._owned, (*self._ours, *self._enemies)))
        if not self._building:
            self._waiting = sorted(self._ours)

    def _draw(self, what: str) -> int:
        return draw(self._before.seed, self._before.decided, what)


DRAWS = {"flight": 1, "who": 2, "courage": 3, "where": 4, "opening": 5}
_WORD = (1 << 64) - 1


def draw(seed: int, number: int, what: str) -> int:
    """Return 62 pseudorandom bits that depend only on the arguments (SplitMix64).

    A random generator object would take more time than the game.
    """
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + DRAWS[what] * 0x8CB92BA72F3D8DD7) & _WORD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _WORD
    return (mixed ^ (mixed >> 31)) >> 2


class OrdersGame:
    """Two armies per side, placed by the seed. We own our homes without an enemy, and the centers that we occupy."""

    phases = PHASES
    decisions = MOST_DECISIONS

    def rules(self, *, compact: bool) -> str:
        return COMPACT_RULES if compact else RULES

    def open(self, seed: int) -> OrdersPosition:
        places = list(range(8))
        for last in range(7, 0, -1):
            other = draw(seed, last, "opening") % (last + 1)
            places[last], places[other] = places[other], places[last]
        ours, enemies = tuple(sorted(places[:2])), tuple(places[2:4])
        owned = {place for place in HOMES if place not in enemies} | {place for place in ours if place in CENTRES}
        return OrdersPosition(seed, 0, ours, enemies, tuple(sorted(owned)), ours)

    def restore(self, snapshot: Mapping[str, Any]) -> OrdersPosition:
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in snapshot.items()
        }
        return OrdersPosition(**plain)


def make() -> OrdersGame:
    return OrdersGame()
