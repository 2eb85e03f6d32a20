"""Price per hour, memory and speed of cards: a dated table that users can replace.

Speeds are relative to an A100-80GB. Those of the A100, the V100 and the T4 are rules of thumb; the others are ratios of
dense half-precision peaks, which real training rarely reaches. A user's own table replaces all prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fairtrial.core.cautions import OLD_PRICES
from fairtrial.core.errors import UserError, all_at_once, unknown
from fairtrial.core.findings import FilledCaution
from fairtrial.core.options import parse_options

REFERENCE = "a100-80gb"
STALE_DAYS = 270
"""Age in days after which a list price may be outdated."""

THUMB = "rule of thumb"
PEAK = "ratio of dense half-precision peaks"


@dataclass(frozen=True)
class Card:
    """A kind of device that can be rented, with its known properties and their source."""

    name: str
    usd_per_hour: float
    memory_gb: float
    performance: float
    as_of: date
    source: str
    basis: str = "given with the price"

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "usd_per_hour": self.usd_per_hour,
            "memory_gb": self.memory_gb,
            "performance": self.performance,
            "performance_basis": self.basis,
            "as_of": self.as_of.isoformat(),
            "source": self.source,
        }


@dataclass(frozen=True)
class PriceTable:
    """Cards by name. `speeds` also includes cards that have no price in this table."""

    cards: Mapping[str, Card]
    source: str
    speeds: Mapping[str, float]

    def card(self, name: str) -> Card:
        card = self.cards.get(name.lower())
        if card is None:
            raise UserError(
                f"{self.source}: {unknown('card', name, self.cards)}",
                hint="Define your own cards in a file passed with --prices.",
            )
        return card

    def cautions(self, card: Card, today: date) -> list[FilledCaution]:
        age = (today - card.as_of).days
        return [OLD_PRICES.fill(card=card.name, as_of=card.as_of, days=age)] if age > STALE_DAYS else []


DOCUMENTED = "documented list price", date(2026, 11, 1)
MEDIAN = "median of published on-demand offers", date(2026, 5, 20)
MIDPOINT = "middle of the range of specialist clouds' on-demand offers", date(2026, 5, 20)
REFERENCE_PRICE = "published reference price of rentals", date(2026, 4, 18)
SPECIALIST = "on-demand price of a specialist cloud", date(2025, 6, 1)
SMALL_CLOUD = "on-demand price of a large cloud's smallest instance with it", date(2026, 6, 17)

BUILT_IN = PriceTable(
    {
        name: Card(name, price, memory, speed, day, source, basis)
        for name, price, memory, speed, basis, (source, day) in (
            ("a100-80gb", 3.00, 80, 1.0, THUMB, DOCUMENTED),
            ("v100", 2.00, 16, 0.6, THUMB, DOCUMENTED),
            ("t4", 0.50, 16, 0.3, THUMB, DOCUMENTED),
            ("b200", 5.88, 180, 7.2, PEAK, REFERENCE_PRICE),
            ("h200", 4.00, 141, 3.17, PEAK, MIDPOINT),
            ("h100", 2.95, 80, 3.17, PEAK, MEDIAN),
            ("l40s", 1.861, 48, 1.16, PEAK, SMALL_CLOUD),
            ("a10g", 1.006, 24, 0.22, PEAK, SMALL_CLOUD),
            ("l4", 0.805, 24, 0.39, PEAK, SMALL_CLOUD),
            ("rtx-4090", 0.69, 24, 0.53, PEAK, SPECIALIST),
        )
    },
    "built-in prices",
    {},
)


class PriceRow(BaseModel):
    """One card of a price file. Memory and performance may be left out for cards that Fairtrial knows."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    usd_per_hour: float = Field(gt=0)
    memory_gb: float | None = Field(default=None, gt=0)
    performance: float | None = Field(default=None, gt=0)


class PriceFile(BaseModel):
    """A price file: date, source and cards."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    as_of: date
    valid_until: date | None = None
    source: str = "your price file"
    cards: dict[str, PriceRow] = Field(min_length=1)


def read_prices(values: Mapping[str, Any], where: str, today: date) -> PriceTable:
    """Return a table from the content of a price file; raise one error that lists all its problems."""
    given: PriceFile = all_at_once(
        lambda: parse_options(PriceFile, values, where=where, noun="key"),
        lambda: _check_dates(values, where, today),
    )[0]
    names = [name.lower() for name in given.cards]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    problems = [f"{where}: cards.{name}: occurs twice" for name in twice]
    for name, row in given.cards.items():
        lacking = [word for word in ("memory_gb", "performance") if getattr(row, word) is None]
        if lacking and name.lower() not in BUILT_IN.cards:
            problems.append(
                f"{where}: cards.{name}: {' and '.join(lacking)} must be set for a card that Fairtrial does not know"
            )
    if problems:
        raise UserError(problems[0], problems=problems[1:], hint="Correct the file passed with --prices.")
    cards = {name.lower(): _card(name.lower(), row, given) for name, row in given.cards.items()}
    return PriceTable(cards, where, {name: card.performance for name, card in BUILT_IN.cards.items()})


def _check_dates(values: Mapping[str, Any], where: str, today: date) -> None:
    """Raise an error if prices are from the future or expired; invalid dates are reported by the model."""
    problems = []
    if (day := _day(values.get("as_of"))) and day > today:
        problems.append(f"{where}: as_of: {day} is in the future")
    if (day := _day(values.get("valid_until"))) and day < today:
        problems.append(f"{where}: valid_until: these prices expired on {day}")
    if problems:
        raise UserError(problems[0], problems=problems[1:], hint="Pass a file with current prices with --prices.")


def _day(given: Any) -> date | None:
    try:
        return date.fromisoformat(str(given)[:10])
    except ValueError:
        return None


def _card(name: str, row: PriceRow, given: PriceFile) -> Card:
    known = BUILT_IN.cards.get(name)
    memory = row.memory_gb or (known.memory_gb if known else 0.0)
    own = row.performance is not None
    performance = row.performance or (known.performance if known else 0.0)
    basis = known.basis if known and not own else "given with the price"
    return Card(name, row.usd_per_hour, memory, performance, given.as_of, given.source, basis)
