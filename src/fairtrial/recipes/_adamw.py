"""AdamW on tensors that the caller owns, by calling torch's fused kernel directly.

For models of this size, `torch.optim.AdamW` and its functional form add more time per step than the kernel takes, and
importing the class takes 1.5 seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def update(
    values: Sequence[Tensor], gradients: Sequence[Tensor], averages: Sequence[Tensor], squares: Sequence[Tensor],
    *, step: int, rate: float, decay: float, epsilon: float = 1e-8,
) -> None:  # fmt: skip
    """Perform step number `step`, counted from 1, in place."""
    import torch

    laid_out = [gradient.contiguous() for gradient in gradients]  # the kernel ignores strides
    taken = [torch.tensor(float(step), device=value.device) for value in values]
    with torch.no_grad():
        torch._fused_adamw_(
            list(values), laid_out, list(averages), list(squares), [], taken, amsgrad=False,
            beta1=0.9, beta2=0.999, lr=rate, weight_decay=decay, eps=epsilon, maximize=False,
        )  # fmt: skip


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
