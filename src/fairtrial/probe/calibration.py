"""Measure the speed of this machine with matrix products, the main operation of training."""

from __future__ import annotations

import time

from fairtrial.core.devices import Calibration

SIZE = 768
CARD_SIZE = 4096
"""Matrix size for GPUs; only large matrices reach the full speed of a GPU."""
REPEATS = 15
PRODUCTS = 4
"""Matrix products per repetition: long enough for the clock, short enough to fit between other work."""


def calibrate(name: str, threads: int, device: str = "cpu") -> Calibration:
    """Measure the rate of single-precision matrix products: the median, quartiles and maximum over repetitions."""
    import numpy
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        size = SIZE if device == "cpu" else CARD_SIZE
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randn(size, size, generator=generator).to(device) for _ in range(2))
        out = torch.empty(size, size, device=device)
        torch.mm(a, b, out=out)
        rates = [_rate(torch, a, b, out) for _ in range(REPEATS)]
    finally:
        torch.set_num_threads(before)
    low, middle, high = (float(each) for each in numpy.quantile(rates, [0.25, 0.5, 0.75]))
    return Calibration(name, threads, middle, low, high, REPEATS, size, max(rates))


def _rate(torch, a, b, out) -> float:  # type: ignore[no-untyped-def]
    """Return the GFLOP/s of a few consecutive products."""
    start = time.perf_counter()
    for _ in range(PRODUCTS):
        torch.mm(a, b, out=out)
    float(out[0, 0])  # waits for an asynchronous device, because it needs the result
    return PRODUCTS * 2 * len(a) ** 3 / (time.perf_counter() - start) / 1e9
