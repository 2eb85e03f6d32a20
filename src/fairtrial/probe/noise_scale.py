"""Gradients of small batches at fixed weights, to estimate the gradient noise scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PIECES = 8
MEASUREMENTS = 50


def squared_lengths(
    batch_gradients: Callable[[Any], tuple[Any, int]],
    draw: Any,
    *,
    pieces: int = PIECES,
    measurements: int = MEASUREMENTS,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[list[float], list[float], int]:
    """Return, per measurement, the mean squared norm of `pieces` gradients and of their mean; and the batch size."""
    import torch

    small, large, size = [], [], 0
    for _ in range(measurements):
        if should_stop():
            break
        total: list[Any] = []
        lengths = 0.0
        for _ in range(pieces):
            gradients, size = batch_gradients(draw)
            exact = [gradient.detach().to(torch.float64, copy=True) for gradient in gradients]
            lengths += sum(float(each.square().sum()) for each in exact)
            total = [a.add_(b) for a, b in zip(total, exact, strict=True)] if total else exact
        small.append(lengths / pieces)
        large.append(sum(float((each / pieces).square().sum()) for each in total))
    return small, large, size
