"""Diplomacy on the standard map. The seed selects our power; the other powers give random legal orders.

A decision is one order: for one unit in movement and retreat, for one build or removal in adjustment. When all orders
of a phase are given, the `diplomacy` package resolves it. Phases in which our power has no choice are skipped.

The reward is the change of a score: 1 for each supply center that we own, and a quarter for each that we occupy but do
not own yet, since ownership changes only in fall. The rewards of a game sum to the change of the score, so that the
quarters do not change which play is best.

Copying an engine of the package is slow; loading a board into one is fast. A position therefore stores plain values,
and engines are borrowed from a pool.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diplomacy import Game as Engine

REQUIRES = ("diplomacy",)
EXTRA = "diplomacy"

PHASES = {"M": "movement", "R": "retreat", "A": "adjustment"}
POWERS = ("AUSTRIA", "ENGLAND", "FRANCE", "GERMANY", "ITALY", "RUSSIA", "TURKEY")
YEARS = 10
FIRST_YEAR = 1901
MOST_DECISIONS = 600
OCCUPIED = 0.25
CENTRE_NAMES = """
ANK BEL BER BRE BUD BUL CON DEN EDI GRE HOL KIE LON LVP MAR MOS MUN
NAP NWY PAR POR ROM RUM SER SEV SMY SPA STP SWE TRI TUN VEN VIE WAR
"""
CENTRES = frozenset(CENTRE_NAMES.split())
COMPLETED = "COMPLETED"
SEASONS = {"S": "Spring", "F": "Fall", "W": "Winter"}

RULES = """\
You play one power in Diplomacy on the standard map of Europe. Orders of all powers are resolved together. Armies (A) \
move on land, fleets (F) at sea and along coasts.
Movement orders: H holds; - moves to a province; S supports a unit that holds or moves; C convoys an army over sea; \
VIA says that an army goes by convoy. Retreat orders: R retreats to a province, D disbands. Adjustment orders: B \
builds at a home centre, D removes a unit, WAIVE builds nothing.
Supply centres belong to the power whose unit stands there after a fall turn. A power may have as many units as \
centres. You gain 1 for every centre that becomes yours and lose 1 for every one that is taken; a quarter of it \
is paid when you enter a centre that is not yours, and taken back when you leave it.
"""
COMPACT_RULES = "Diplomacy\n"

Orders = tuple[str, ...]
Units = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Board:
    """The state that determines the next phase. Units, centers and the rest are by power, in the engine's order.

    The engine's own state lacks the dislodged and the destroyed units, which affect retreats.
    """

    phase: str
    units: Units
    centres: Units
    retreats: Mapping[str, Mapping[str, tuple[str, ...]]]
    influence: Units
    dislodged: Mapping[str, str]
    destroyed: tuple[str, ...]

    @property
    def year(self) -> int:
        return int(self.phase[1:5])

    def standing(self, power: str) -> float:
        owned = self.centres[power]
        waits = sum(1 for unit in self.units[power] if unit[2:5] in CENTRES and unit[2:5] not in owned)
        return len(owned) + OCCUPIED * waits

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Board:
        return cls(**{name: _frozen(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _frozen(inner) for key, inner in value.items()}
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class OrderChoices:
    """The legal orders of each power in a phase. `orders[power]` has one tuple of legal orders per unit to order.

    In adjustment, a power instead chooses `counts[power]` builds or removals from `orders[power][0]`.
    """

    orders: Mapping[str, tuple[Orders, ...]]
    counts: Mapping[str, int] | None

    def legal(self, power: str, given: Orders) -> Orders:
        """Return the legal orders after those given; none if the power's orders are complete."""
        questions = self.orders[power]
        if self.counts is None:
            return questions[len(given)] if len(given) < len(questions) else ()
        if len(given) >= self.counts[power]:
            return ()
        used = {order[2:5] for order in given if order != "WAIVE"}
        return tuple(order for order in questions[0] if order == "WAIVE" or order[2:5] not in used)


class Engines:
    """A pool of engines. A borrowed engine has one user until it is returned."""

    def __init__(self) -> None:
        self._idle: list[Engine] = []

    @contextmanager
    def borrow(self) -> Iterator[Engine]:
        try:
            engine = self._idle.pop()
        except IndexError:
            engine = self._make()
        yield engine
        self._idle.append(engine)

    def _make(self) -> Engine:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the package does not close one of its files
            from diplomacy import Game as Engine

            return Engine()

    def opening(self) -> Board:
        return read_board(self._make())

    def choices(self, board: Board) -> OrderChoices:
        with self.borrow() as engine:
            load_board(engine, board)
            return find_choices(engine)

    def resolve(self, board: Board, orders: Mapping[str, Orders]) -> tuple[Board, OrderChoices]:
        with self.borrow() as engine:
            load_board(engine, board)
            for power, given in orders.items():
                engine.set_orders(power, list(given), expand=False)
            engine.process()
            return read_board(engine), find_choices(engine)


def read_board(engine: Engine) -> Board:
    powers = engine.powers
    return Board(
        engine.get_current_phase(),
        {name: tuple(power.units) for name, power in powers.items()},
        {name: tuple(power.centers) for name, power in powers.items()},
        {name: {unit: tuple(ways) for unit, ways in power.retreats.items()} for name, power in powers.items()},
        {name: tuple(power.influence) for name, power in powers.items()},
        dict(engine.dislodged),
        tuple(engine.popped),
    )


def load_board(engine: Engine, board: Board) -> None:
    """Load a board into an engine, overwriting the state of the previous game.

    The engine's `set_state` takes several times as long, mostly for a hash that is not needed here, and it does not
    reset the fields that are set at the end of this function.
    """
    engine._clear_history()
    engine.set_current_phase(board.phase)
    for name, power in engine.powers.items():
        power.units = list(board.units[name])
        power.centers = list(board.centres[name])
        power.retreats = {unit: list(ways) for unit, ways in board.retreats[name].items()}
        power.influence = list(board.influence[name])
    engine.build_caches()
    engine.dislodged = dict(board.dislodged)
    engine.popped = list(board.destroyed)
    engine.error, engine.result, engine.outcome, engine.lost, engine.note = [], {}, [], {}, ""
    engine.status = "forming"  # the status of a new engine


def find_choices(engine: Engine) -> OrderChoices:
    """Return all legal orders, sorted, because the engine collects them in sets."""
    if engine.is_game_done:
        return OrderChoices({}, None)
    possible = {place: tuple(sorted(orders)) for place, orders in engine.get_all_possible_orders().items() if orders}
    places = engine.get_orderable_locations()
    if engine.phase_type != "A":
        return OrderChoices({name: tuple(possible[place] for place in own) for name, own in places.items()}, None)
    merged = {name: sorted({order for place in own for order in possible[place]}) for name, own in places.items()}
    return OrderChoices({name: (tuple(orders),) for name, orders in merged.items()}, _counts(engine, places))


def _counts(engine: Engine, places: Mapping[str, Sequence[str]]) -> dict[str, int]:
    due = {name: abs(len(power.centers) - len(power.units)) for name, power in engine.powers.items()}
    return {name: min(count, len(places[name])) for name, count in due.items()}


def random_orders(choices: OrderChoices, power: str, chance: random.Random) -> Orders:
    given: Orders = ()
    while options := choices.legal(power, given):
        given = (*given, chance.choice(options))
    return given


@dataclass(frozen=True)
class DiplomacyPosition:
    """A board, and the orders that our power has given in this phase so far."""

    seed: int
    power: str
    decided: int
    board: Board
    given: Orders
    engines: Engines = field(compare=False, repr=False)
    known: OrderChoices | None = field(default=None, compare=False, repr=False)

    @cached_property
    def choices(self) -> OrderChoices:
        return self.known or self.engines.choices(self.board)

    @property
    def phase(self) -> str:
        return PHASES.get(self.board.phase[-1], "movement")

    @property
    def over(self) -> bool:
        return self.decided >= MOST_DECISIONS or is_over(self.board, self.power)

    def legal(self) -> Sequence[str]:
        return () if self.over else self.choices.legal(self.power, self.given)

    def play(self, order: str) -> tuple[DiplomacyPosition, float]:
        if order not in self.legal():
            raise ValueError(f"{order!r} is not a legal order here")
        after = self._go_on((*self.given, order))
        return after, after.board.standing(self.power) - self.board.standing(self.power)

    def _go_on(self, given: Orders) -> DiplomacyPosition:
        """Return the next position in which our power has a choice, resolving phases as needed."""
        board, choices = self.board, self.choices
        while not is_over(board, self.power):
            given = without_choice(choices, self.power, given)
            if choices.legal(self.power, given):
                break
            board, choices = self._resolve(board, choices, given)
            given = ()
        return DiplomacyPosition(self.seed, self.power, self.decided + 1, board, given, self.engines, choices)

    def _resolve(self, board: Board, choices: OrderChoices, given: Orders) -> tuple[Board, OrderChoices]:
        chance = random.Random(f"{self.seed}/{board.phase}")  # noqa: S311
        others = {name: random_orders(choices, name, chance) for name in POWERS if name != self.power}
        return self.engines.resolve(board, {**others, self.power: given})

    def prompt(self, *, compact: bool) -> str:
        return compact_prompt(self) if compact else full_prompt(self)

    def snapshot(self) -> Mapping[str, Any]:
        own = {"seed": self.seed, "power": self.power, "decided": self.decided, "given": list(self.given)}
        return {**own, "board": self.board.to_dict()}


def is_over(board: Board, power: str) -> bool:
    if board.phase == COMPLETED or board.year >= FIRST_YEAR + YEARS:
        return True
    return not (board.units[power] or board.centres[power] or board.retreats[power])


def without_choice(choices: OrderChoices, power: str, given: Orders) -> Orders:
    """Append the orders that have no alternative."""
    while len(options := choices.legal(power, given)) == 1:
        given = (*given, *options)
    return given


def asked_about(position: DiplomacyPosition) -> str:
    """Return the unit that needs an order or, in adjustment, the kind of adjustment."""
    if position.phase != "adjustment":
        return " ".join(position.legal()[0].split()[:2])
    return "a build" if "WAIVE" in position.legal() else "a removal"


def full_prompt(position: DiplomacyPosition) -> str:
    board, power = position.board, position.power
    lines = [_when(board), f"You are {power}.", *(_describe(board, name) for name in POWERS)]
    if position.over:
        return RULES + "\n".join([*lines, "The game is over.", ""])
    given = "; ".join(position.given) or "none"
    question = f"Give one order for {asked_about(position)}. You may order: {'; '.join(position.legal())}."
    return RULES + "\n".join([*lines, f"Your orders in this phase so far: {given}.", question, "Order:", ""])


def _when(board: Board) -> str:
    if board.phase == COMPLETED:
        return "One power has won."
    return f"{SEASONS[board.phase[0]]} {board.year}, {PHASES[board.phase[-1]]}."


def _describe(board: Board, power: str) -> str:
    units = ", ".join(board.units[power]) or "no units"
    centres = ", ".join(board.centres[power]) or "no centres"
    driven_out = "".join(
        f" {unit} is dislodged and may go to {', '.join(ways) or 'nowhere'}."
        for unit, ways in board.retreats[power].items()
    )
    return f"{power} has {units}; it owns {centres}.{driven_out}"


def compact_prompt(position: DiplomacyPosition) -> str:
    """Return one line per power: its units without spaces, dislodged units with their retreats, a bar, its centers."""
    board = position.board
    lines = [_compact_line(board, name) for name in POWERS if board.units[name] or board.centres[name]]
    lines += [f"{board.phase} {position.power[0]}" + "".join(f";{order}" for order in position.given)]
    lines += ["" if position.over else asked_about(position)]
    return COMPACT_RULES + "\n".join([*lines, ""])


def _compact_line(board: Board, power: str) -> str:
    units = [unit.replace(" ", "") for unit in board.units[power]]
    driven_out = [f"*{unit.replace(' ', '')}>{','.join(ways)}" for unit, ways in board.retreats[power].items()]
    return f"{power[0]} {' '.join([*units, *driven_out])}|{' '.join(board.centres[power])}"


class DiplomacyGame:
    """Diplomacy for at most ten years. A game ends early when our power is eliminated or any power has won."""

    phases = tuple(PHASES.values())
    decisions = MOST_DECISIONS

    def __init__(self) -> None:
        self._engines = Engines()
        self._opening = self._engines.opening()
        self._first_choices = self._engines.choices(self._opening)

    def rules(self, *, compact: bool) -> str:
        return COMPACT_RULES if compact else RULES

    def open(self, seed: int) -> DiplomacyPosition:
        power = random.Random(f"{seed}/power").choice(POWERS)  # noqa: S311
        return DiplomacyPosition(seed, power, 0, self._opening, (), self._engines, self._first_choices)

    def restore(self, snapshot: Mapping[str, Any]) -> DiplomacyPosition:
        seed, power, decided = snapshot["seed"], snapshot["power"], snapshot["decided"]
        board = Board.from_dict(snapshot["board"])
        return DiplomacyPosition(seed, power, decided, board, tuple(snapshot["given"]), self._engines)


def make() -> DiplomacyGame:
    return DiplomacyGame()
