"""AdamW on tensors that the caller owns, by calling torch's fused kernel directly where the device has one.

For models of this size, `torch.optim.AdamW` and its functional form add more time per step than the kernel takes, and
importing the class takes 1.5 seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

FUSED = ("cpu", "cuda", "mps", "xpu")
"""Device types for which torch has a fused kernel. On other devices, single operations compute the same formula."""
BETA1, BETA2 = 0.9, 0.999


def update(
    values: Sequence[Tensor], gradients: Sequence[Tensor], averages: Sequence[Tensor], squares: Sequence[Tensor],
    *, step: int, rate: float, decay: float, epsilon: float = 1e-8,
) -> None:  # fmt: skip
    """Perform step number `step`, counted from 1, in place."""
    import torch

    with torch.no_grad():
        if values[0].device.type not in FUSED:
            for each in zip(values, gradients, averages, squares, strict=True):
                _update_plainly(*each, step=step, rate=rate, decay=decay, epsilon=epsilon)
            return
        laid_out = [gradient.contiguous() for gradient in gradients]  # the kernel ignores strides
        taken = [torch.tensor(float(step), device=values[0].device)] * len(laid_out)  # the kernel only reads it
        torch._fused_adamw_(
            list(values), laid_out, list(averages), list(squares), [], taken, amsgrad=False,
            beta1=BETA1, beta2=BETA2, lr=rate, weight_decay=decay, eps=epsilon, maximize=False,
        )  # fmt: skip


def _update_plainly(
    value: Tensor, gradient: Tensor, average: Tensor, square: Tensor,
    *, step: int, rate: float, decay: float, epsilon: float,
) -> None:  # fmt: skip
    """Compute the same step as the fused kernel, up to rounding, with operations that every device has."""
    value.mul_(1 - rate * decay)
    average.lerp_(gradient, 1 - BETA1)
    square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    scale = square.sqrt().div_((1 - BETA2**step) ** 0.5).add_(epsilon)
    value.addcdiv_(average, scale, value=-rate / (1 - BETA1**step))


def update_rows(
    values: Tensor, gradients: Tensor, averages: Tensor, squares: Tensor, terms: Sequence[tuple[float, float, int]], *,
    epsilon: float = 1e-8,
) -> None:  # fmt: skip
    """Update one row per run with its own (rate, decay, step).

    Adjacent runs with equal terms share one kernel call, which does not change the result.
    """
    start = 0
    for (rate, decay, step), group in itertools.groupby(terms):
        rows = slice(start, start := start + len(list(group)))
        update(
            [values[rows]], [gradients[rows]], [averages[rows]], [squares[rows]],
            step=step, rate=rate, decay=decay, epsilon=epsilon,
        )  # fmt: skip
