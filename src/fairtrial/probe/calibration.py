"""How fast is this machine? Timed on what training mostly does, for as long as it takes to be steady."""

from __future__ import annotations

import time

from fairtrial.core.devices import Calibration

SIZE = 768
CARD_SIZE = 4096
"""A card has to be filled to show what it can do."""
REPEATS = 15
PRODUCTS = 4
"""Matrix products per repetition: long enough for the clock, short enough to slip between other work."""


def calibrate(name: str, threads: int, device: str = "cpu") -> Calibration:
    """The median rate of single-precision matrix products, with the quartiles of its repetitions, and the best."""
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
    """GFLOP/s of a few products in a row."""
    start = time.perf_counter()
    for _ in range(PRODUCTS):
        torch.mm(a, b, out=out)
    float(out[0, 0])  # a device that works behind the program's back has finished when it gives this
    return PRODUCTS * 2 * len(a) ** 3 / (time.perf_counter() - start) / 1e9
