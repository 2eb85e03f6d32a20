"""AdamW over tensors that the caller keeps: torch's own fused kernel, without what its optimizer does around it.

Its class and its function cost more per step than the kernel does for models of this size, and the class a second and
a half of imports.
"""

from __future__ import annotations

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
