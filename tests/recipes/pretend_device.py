"""A torch device that computes on the CPU but is separate from it, to find tensors that are on the wrong device.

A tensor of this device wraps a CPU tensor with its values. As on a GPU, an operation fails if some of its tensors are
here and others on the CPU (except for numbers, which have no dimension), and `.numpy()` fails without `.cpu()`. It is
stricter than CUDA in two ways: index tensors must be on the device too, because CUDA would wait to copy them, and there
are no double-precision tensors, as on MPS.

torch's `FakeTensorMode` with `cuda` tensors would need no such class, but without CUDA in the build it cannot index a
tensor or convert one to a number, which every recipe does.

Registering a device changes the whole process, so only programs that tests start import this module.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "pretend"
aten = torch.ops.aten
BETWEEN_DEVICES = {aten._to_copy.default, aten.copy_.default}
WITHOUT_KERNEL = {aten._fused_adamw_.default, aten._fused_adamw.default}
"""Operations that a new device usually lacks."""


class WrongDevice(RuntimeError):
    """An operation on tensors of two devices."""


class PretendModule(_DummyBackendModule):
    """What `torch.pretend` offers."""

    waits = 0

    def synchronize(self, device: object = None) -> None:
        type(self).waits += 1


_setup_privateuseone_for_python_backend(NAME, backend_module=PretendModule())
DEVICE = torch.device(NAME, 0)


class PretendTensor(torch.Tensor):
    inner: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> PretendTensor:
        if values.dtype == torch.float64:
            raise TypeError(f"{NAME} has no double-precision tensors")
        tensor: PretendTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, values.size(), strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype,
            device=DEVICE,
        )  # fmt: skip
        tensor.inner = values
        return tensor

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"pretend {self.inner!r}"

    def tolist(self) -> Any:
        return self.inner.tolist()  # torch refuses this for subclasses, but not for devices

    @classmethod
    def __torch_dispatch__(cls, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operation, args, kwargs or {})


class PretendDevice(TorchDispatchMode):
    """While it is active, tensors can be created on the device and moved to and from it.

    `inference_mode` is replaced by `no_grad`, because it does not support subclasses of tensors.
    """

    def __enter__(self) -> PretendDevice:
        self._patch = mock.patch.object(torch, "inference_mode", torch.no_grad)
        self._patch.start()
        self._before = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor(…, device=…)` then creates on the CPU and moves
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch._C._set_only_lift_cpu_tensors(self._before)
        self._patch.stop()

    def __torch_dispatch__(self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operation, args, kwargs or {})


def _compute(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the CPU values, and return the result on the device that it belongs to."""
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    ours = [each for each in tensors if isinstance(each, PretendTensor)]
    if ours and operation in WITHOUT_KERNEL:
        raise NotImplementedError(f"{operation} has no kernel for {NAME}")
    if ours and operation not in BETWEEN_DEVICES:
        strangers = [each for each in tensors if not isinstance(each, PretendTensor) and each.dim()]
        if strangers:
            raise WrongDevice(
                f"{operation}: tensors on the device {NAME}:0 and on the CPU, of shape {tuple(strangers[0].shape)}"
            )
    asked = kwargs.get("device")
    here = bool(ours) if asked is None else torch.device(asked).type == NAME
    if operation is aten.copy_.default:
        here = isinstance(args[0], PretendTensor)
    same = {id(each.inner): each for each in ours}  # in-place operations and `out=` return their argument

    def wrapped(value: Any) -> Any:
        if not here or not isinstance(value, torch.Tensor) or isinstance(value, PretendTensor):
            return value
        return same[id(value)] if id(value) in same else PretendTensor(value)

    plain_args, plain_kwargs = tree_map(_plain, (args, kwargs))
    compute = EXTRA.get(operation, operation)
    result = compute(*plain_args, **plain_kwargs)
    if operation is aten._to_copy.default and any(result is each.inner for each in ours):
        result = result.clone()
    if ours and torch.Tag.inplace_view in operation.tags:  # such as `transpose_`: the wrapper has a shape of its own
        with no_dispatch():
            operation(*args, **kwargs)
    return tree_map(wrapped, result)


def _plain(value: Any) -> Any:
    if isinstance(value, PretendTensor):
        return value.inner
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == NAME else value


def _gru_cell(
    of_input: torch.Tensor, of_hidden: torch.Tensor, hidden: torch.Tensor, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Compute the cell that `nn.GRU` calls on devices other than the CPU."""
    of_input, of_hidden = of_input + input_bias, of_hidden + hidden_bias
    reset, update, new = of_input.chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = of_hidden.chunk(3, 1)
    reset, update = (reset + hidden_reset).sigmoid(), (update + hidden_update).sigmoid()
    new = (new + reset * hidden_new).tanh()
    return new + update * (hidden - new), torch.cat((reset, update, new, hidden, hidden_new), 1)


def _gru_cell_backward(above: torch.Tensor, saved: torch.Tensor, _has_bias: bool) -> tuple[torch.Tensor, ...]:
    reset, update, new, hidden, hidden_new = saved.chunk(5, 1)
    of_new = above * (1 - update) * (1 - new * new)
    of_update = above * (hidden - new) * update * (1 - update)
    of_reset = of_new * hidden_new * reset * (1 - reset)
    of_input = torch.cat((of_reset, of_update, of_new), 1)
    of_hidden = torch.cat((of_reset, of_update, of_new * reset), 1)
    return of_input, of_hidden, above * update, of_input.sum(0), of_hidden.sum(0)


EXTRA = {
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
}
