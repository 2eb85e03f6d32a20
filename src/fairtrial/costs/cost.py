"""Cost of a configuration on a card: measured hours, rescaled by the cards' speeds, × a dated price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fairtrial.core.devices import Calibration
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.results import Result
from fairtrial.costs.points import CostPoint, Reading
from fairtrial.costs.prices import BUILT_IN, Card, PriceTable

_SHOWN = ("name", "usd_per_hour", "memory_gb", "performance", "basis")
LOCAL = "local"
"""Device name for hours that were measured on this machine."""


@dataclass(frozen=True)
class Priced:
    """A point on a card. `basis` describes how its hours were converted; None if they were measured on that card."""

    point: CostPoint
    card: Card
    hours: Reading
    basis: str | None

    @property
    def name(self) -> str:
        return self.point.name

    @property
    def quality(self) -> Reading:
        return self.point.quality

    @cached_property
    def cost(self) -> Reading:
        return self.hours.scaled(self.card.usd_per_hour)

    @property
    def fits(self) -> bool | None:
        """Whether the card has enough memory; None if the required memory is unknown."""
        return None if self.point.memory is None else self.point.memory <= self.card.memory_gb


@dataclass(frozen=True, repr=False)
class CostModel(Result):
    """Prices points on one card. `local` is this machine's calibration, for hours that were measured here.

    >>> fairtrial.CostModel.a100_80gb()
    <CostModel: a100-80gb at $3.00 per hour, 80 GB>
    """

    card: Card
    table: PriceTable = BUILT_IN
    local: Calibration | None = None

    @classmethod
    def of(cls, name: str, table: PriceTable = BUILT_IN, local: Calibration | None = None) -> CostModel:
        return cls(table.card(name), table, local)

    @classmethod
    def a100_80gb(cls) -> CostModel:
        return cls.of("a100-80gb")

    @classmethod
    def v100(cls) -> CostModel:
        return cls.of("v100")

    @classmethod
    def t4(cls) -> CostModel:
        return cls.of("t4")

    @property
    def headline(self) -> str:
        return f"{self.card.name} at ${self.card.usd_per_hour:.2f} per hour, {self.card.memory_gb:g} GB"

    def to_dict(self) -> dict[str, Any]:
        """Return the card, the cards of the price table, and the devices whose hours can be converted."""
        cards = [{name: getattr(each, name) for name in _SHOWN} for each in self.table.cards.values()]
        return {"card": self.card.name, "cards": cards, "devices": self.devices()}

    def on(self, card: Card) -> CostModel:
        return replace(self, card=card)

    def devices(self) -> list[str]:
        """Return the devices whose hours can be converted."""
        known = dict.fromkeys([*self.table.cards, *self.table.speeds])
        return [*known, LOCAL] if self.local else list(known)

    def check(self, points: Sequence[CostPoint]) -> None:
        """Raise one error that lists all points whose hours were measured on a device of unknown speed."""
        known = self.devices()
        strange = [point for point in points if point.device.lower() not in known]
        problems = [f"point '{point.name}': {unknown('device', point.device, known)}" for point in strange]
        if problems:
            hint = f"Known: {', '.join(known)}. Add the speed of other devices in a file passed with --prices."
            raise UserError(problems[0], problems=problems[1:], hint=hint)

    def price(self, point: CostPoint) -> Priced:
        device = point.device.lower()
        if device == self.card.name:
            return Priced(point, self.card, point.time, None)
        speed, basis = self._speed(device)
        return Priced(point, self.card, point.time.scaled(speed / self.card.performance), basis)

    def _speed(self, device: str) -> tuple[float, str]:
        own = f"{self.card.name} {self.card.performance:g} × an A100 ({self.card.basis})"
        if device == LOCAL and self.local:
            return self.local.performance, f"{self.local.basis}; {own}"
        card = self.table.cards.get(device)
        speed = card.performance if card else self.table.speeds[device]
        return speed, f"{device} {speed:g} × an A100; {own}"
