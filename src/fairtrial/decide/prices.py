"""What an hour on a GPU costs: a dated table of list prices."""

from __future__ import annotations

from dataclasses import dataclass

from fairtrial.core.errors import UserError, unknown


@dataclass(frozen=True)
class Gpu:
    """A card: its price per hour in dollars, its memory, and its speed relative to an A100."""

    name: str
    usd_per_hour: float
    memory_gb: int
    speed: float
    basis: str


_BASIS = "reference price list, 2026-11"
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100-80gb", 3.00, 80, 1.0, _BASIS),
        Gpu("v100", 2.00, 16, 0.6, _BASIS),
        Gpu("t4", 0.50, 16, 0.3, _BASIS),
    )
}


def gpu_named(name: str) -> Gpu:
    if name.lower() not in GPUS:
        raise UserError(unknown("GPU", name, GPUS), hint="Give the price yourself with --price-per-hour.")
    return GPUS[name.lower()]
