"""What an hour on a GPU costs: a dated table of list prices."""

from __future__ import annotations

from dataclasses import dataclass

from fairtrial.core.errors import UserError


@dataclass(frozen=True)
class Gpu:
    """A card, and its list price per hour in dollars as of November 2026."""

    name: str
    usd_per_hour: float


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100-80gb", 3.00),
        Gpu("v100", 2.00),
        Gpu("t4", 0.50),
    )
}


def gpu_named(name: str) -> Gpu:
    if name.lower() not in GPUS:
        raise UserError(
            f"no price for GPU '{name}'; known: {', '.join(GPUS)}",
            hint="Give the price yourself with --price-per-hour.",
        )
    return GPUS[name.lower()]
