"""Speed of this machine, measured with matrix products, the main operation of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GIGABYTE = 1e9
A100_GFLOPS = 19_500.0
"""Peak of an A100 in single precision without tensor cores, the arithmetic that the calibration times."""


@dataclass(frozen=True)
class Calibration:
    """Rate of single-precision matrix products on this machine, with its interval over repetitions."""

    device: str
    threads: int
    gflops: float
    low: float
    high: float
    repeats: int
    size: int
    best: float
    """Rate of the fastest repetition."""

    @property
    def performance(self) -> float:
        """Speed relative to an A100."""
        return self.gflops / A100_GFLOPS

    @property
    def basis(self) -> str:
        return (
            f"{self.gflops:.3g} GFLOP/s here ({self.device}, {self.threads} thread{'s' * (self.threads > 1)}; matrix "
            f"products of {self.size} × {self.size}, single precision, the middle half of {self.repeats} repetitions "
            f"between {self.low:.3g} and {self.high:.3g}) against an A100's peak of {A100_GFLOPS:,.0f}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "performance": self.performance, "basis": self.basis}
