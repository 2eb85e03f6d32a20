"""AdamW over tensors that the caller keeps: torch's own fused kernel, without what its optimizer does around it.

Its class and its function cost more per step than the kernel does for models of this size, and the class a second and
a half of imports.
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
    """Step number `step`, counted from 1, in place. The kernel takes memory as it lies, so gradients are laid out."""
    import torch

    laid_out = [gradient.contiguous() for gradient in gradients]
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
    """A row per run, by its rate, decay and step. Equal neighbours are moved in one call; that changes no number."""
    start = 0
    for (rate, decay, step), group in itertools.groupby(terms):
        rows = slice(start, start := start + len(list(group)))
        update(
            [values[rows]], [gradients[rows]], [averages[rows]], [squares[rows]],
            step=step, rate=rate, decay=decay, epsilon=epsilon,
        )  # fmt: skip
