"""Operations of `llama_torch` with explicit gradients.

For tensors of this size, torch's overhead between operations exceeds their arithmetic. Each function here is a single
autograd operation that computes in place where it can and saves only what its gradient needs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def normed(x: Tensor, epsilon: float) -> Tensor:
    """Scale the rows of x to a mean square of 1 (RMSNorm without weights)."""
    tensor: Tensor = _Normed.apply(x, epsilon)  # type: ignore[no-untyped-call]
    return tensor


def gated(both: Tensor) -> Tensor:
    """Return SiLU of the first half of each row, times the second half."""
    tensor: Tensor = _Gated.apply(both)  # type: ignore[no-untyped-call]
    return tensor


def rotated(x: Tensor, rope: Tensor) -> Tensor:
    """Multiply adjacent pairs in the last dimension, as complex numbers, by `rope`."""
    tensor: Tensor = _Rotated.apply(x, rope)  # type: ignore[no-untyped-call]
    return tensor


def attend_to_both(q: Tensor, early_k: Tensor, early_v: Tensor, k: Tensor, v: Tensor, missing: Tensor | None) -> Tensor:
    """Attend from samples to their shared context and, causally, to themselves, with one softmax over both.

    `q` (packs, key heads, samples, repeats, tokens, width); `early_k`, `early_v` (packs, key heads, context, width);
    `k`, `v` (packs, key heads, samples, tokens, width). `missing` is -inf at the padding of a context.
    """
    tensor: Tensor = _AttendToBoth.apply(q, early_k, early_v, k, v, missing)  # type: ignore[no-untyped-call]
    return tensor


def chosen_logprobs(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probability of one token per row, and the sum of all rows' entropies, which has no gradient."""
    taken, entropy = _ChosenLogprobs.apply(logits, targets)  # type: ignore[no-untyped-call]
    return taken, entropy


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        scale = x.square().mean(dim=-1, keepdim=True).add_(epsilon).rsqrt_()
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        y, scale = ctx.saved_tensors
        along = (gradient * y).mean(dim=-1, keepdim=True)
        return torch.addcmul(gradient, y, along, value=-1).mul_(scale), None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, dim=-1)
        opened = torch.nn.functional.silu(gate)
        ctx.save_for_backward(both, opened)
        return opened * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        both, opened = ctx.saved_tensors
        gate, up = both.chunk(2, dim=-1)
        tensor = torch.empty_like(both)
        of_gate, of_up = tensor.chunk(2, dim=-1)
        torch.mul(gradient, opened, out=of_up)
        of_gate.copy_(torch.ops.aten.silu_backward(gradient * up, gate))
        return tensor


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rope: Tensor) -> Tensor:
        ctx.save_for_backward(rope)
        return _times(x, rope)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rope,) = ctx.saved_tensors
        return _times(gradient.contiguous(), rope.conj_physical()), None


def _times(x: Tensor, rope: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.view(*x.shape[:-1], x.shape[-1] // 2, 2))
    return torch.view_as_real(pairs * rope).view(x.shape)


class _AttendToBoth(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, early_k: Tensor, early_v: Tensor, k: Tensor, v: Tensor, missing: Tensor | None
    ) -> Tensor:
        shape = q.shape
        packs, heads, samples, repeats, length, wide = shape
        q = q.reshape(packs, heads, -1, wide)
        of_sample = (packs, heads, samples, repeats * length)
        early = q @ early_k.transpose(-1, -2)
        if missing is not None:
            early += missing
        late = q.view(*of_sample, wide) @ k.transpose(-1, -2)
        late.view(packs, heads, samples, repeats, length, length).add_(_ahead(late, length))
        _softmax_over_both(early, late.view(packs, heads, -1, length))
        attended = early @ early_v
        attended += (late @ v).view_as(attended)
        ctx.save_for_backward(q, early_k, early_v, k, v, early, late, attended)
        return attended.view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, early_k, early_v, k, v, early, late, attended = ctx.saved_tensors
        shape, of_sample = gradient.shape, (*late.shape[:-1], q.shape[-1])
        gradient = gradient.reshape(q.shape)
        along = (gradient * attended).sum(dim=-1, keepdim=True)
        early_scores = (gradient @ early_v.transpose(-1, -2)).sub_(along).mul_(early)
        late_scores = gradient.view(of_sample) @ v.transpose(-1, -2)
        late_scores.sub_(along.view(*late.shape[:-1], 1)).mul_(late)
        of_q = early_scores @ early_k
        of_q += (late_scores @ k).view_as(of_q)
        return (
            of_q.view(shape),
            early_scores.transpose(-1, -2) @ q,
            early.transpose(-1, -2) @ gradient,
            late_scores.transpose(-1, -2) @ q.view(of_sample),
            late.transpose(-1, -2) @ gradient.view(of_sample),
            None,
        )


def _ahead(like: Tensor, length: int) -> Tensor:
    return like.new_full((length, length), -torch.inf).triu_(1)


def _softmax_over_both(early: Tensor, late: Tensor) -> None:
    """Apply a joint softmax in place: corresponding rows of both tensors together sum to 1."""
    top = late.amax(dim=-1, keepdim=True)
    if early.shape[-1]:
        top = torch.maximum(top, early.amax(dim=-1, keepdim=True))
    early.sub_(top).exp_()
    late.sub_(top).exp_()
    total = early.sum(dim=-1, keepdim=True).add_(late.sum(dim=-1, keepdim=True))
    early.div_(total)
    late.div_(total)


class _ChosenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        chances = logits.softmax(dim=1)
        # Computed from the most likely token, whose probability is large enough for an accurate logarithm.
        whole = logits.amax(dim=1) - chances.amax(dim=1).log()
        entropy = whole.sum() - torch.dot(chances.view(-1), logits.reshape(-1))
        ctx.save_for_backward(chances, targets)
        ctx.mark_non_differentiable(entropy)
        return logits.gather(1, targets[:, None])[:, 0] - whole, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:
        chances, targets = ctx.saved_tensors
        grad_logits = chances * -gradient[:, None]
        return grad_logits.scatter_add_(1, targets[:, None], gradient[:, None]), None
