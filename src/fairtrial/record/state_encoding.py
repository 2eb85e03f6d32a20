"""How checkpoints store values that neither JSON nor `torch.load(weights_only=True)` knows.

NumPy arrays, NumPy scalars and random generators become dictionaries of plain values with a key `__fairtrial__` that
names their kind. Without torch, tuples and bytes are stored in the same way. Decoding builds only the kinds in this
module, from checked parts, so a checkpoint from elsewhere cannot run code.
"""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairtrial.core.errors import StoreError, UserError

KIND = "__fairtrial__"
_NUMERIC_KINDS = "biufcSUMm"
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
HINT = "Save numbers, strings, lists, dictionaries, tensors, arrays, random generators, torch modules and optimizers."


class Unsavable(NamedTuple):
    """A value that cannot be saved: its place in the state and why."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where or 'it'} {self.why}"


def state_of(given: Any) -> Mapping[str, Any]:
    """Return the state to save: a mapping as it is, a torch module or optimizer as its `state_dict()`."""
    if isinstance(given, Mapping):
        return given
    if _has_state_dict(given):
        state: Mapping[str, Any] = given.state_dict()
        return state
    raise UserError(f"a state must be a dictionary or a torch module, not {type(given).__name__}", hint=HINT)


def encode_state(state: Mapping[str, Any], *, for_json: bool) -> Any:
    """Return the state in plain values. Raises a UserError that lists everything that cannot be saved."""
    problems: list[Unsavable] = []
    encoded = _Encoder(for_json, problems).encode(state, "")
    if problems:
        messages = [f"this state cannot be saved: {each}" for each in problems]
        raise UserError(messages[0], problems=messages[1:], hint=HINT)
    return encoded


def decode_state(value: Any) -> Any:
    """Return the value that was encoded, with the same types."""
    if type(value) is list:
        return [decode_state(each) for each in value]
    if type(value) is tuple:
        return tuple(decode_state(each) for each in value)
    if not isinstance(value, dict):
        return value
    if KIND in value:
        decoder = _DECODERS.get(value[KIND]) if isinstance(value[KIND], str) else None
        if decoder is None:
            raise StoreError(f"a checkpoint contains a value of unknown kind {str(value[KIND])[:40]!r}")
        return decoder(value)
    for key in value:  # in place, because torch attaches version numbers to the dictionary of a module's state
        value[key] = decode_state(value[key])
    return value


class _Encoder:
    def __init__(self, for_json: bool, problems: list[Unsavable]) -> None:
        self.for_json = for_json
        self.problems = problems

    def encode(self, value: Any, where: str) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is bytes:
            return {KIND: "bytes", "base64": _text(value)} if self.for_json else value
        if type(value) in (list, tuple):
            items = [self.encode(item, f"{where}[{at}]") for at, item in enumerate(value)]
            if type(value) is list:
                return items
            return {KIND: "tuple", "items": items} if self.for_json else tuple(items)
        if isinstance(value, Mapping):
            return self._mapping(value, where)
        return self._object(value, where)

    def _mapping(self, value: Mapping[Any, Any], where: str) -> Any:
        if KIND in value:
            return self._refuse(where, f"has the key '{KIND}', which is reserved")
        if self.for_json and not all(type(key) is str for key in value):
            pairs = [[self.encode(key, where), self.encode(item, _place(where, key))] for key, item in value.items()]
            return {KIND: "dict", "items": pairs}
        encoded = {key: self.encode(item, _place(where, key)) for key, item in value.items()}
        if all(encoded[key] is item for key, item in value.items()) and type(value).__name__ == "OrderedDict":
            return value  # as torch made it, with its version numbers
        return encoded

    def _object(self, value: Any, where: str) -> Any:
        if _is_torch(value, "Tensor"):
            return value
        if _has_state_dict(value):
            return self.encode(value.state_dict(), where)
        if _is_torch(value, "Generator"):
            return {KIND: "torch.Generator", "device": str(value.device), "state": value.get_state()}
        if isinstance(value, random.Random):
            if type(value) is not random.Random:
                return self._refuse(where, f"is a {type(value).__name__}, whose state cannot be read")
            return {KIND: "random.Random", "state": self.encode(value.getstate(), where)}
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            if type(value) is numpy.ndarray or isinstance(value, numpy.generic):
                return self._array(numpy, value, where)
            if type(value) is numpy.random.Generator:
                return self._generator("numpy.Generator", value.bit_generator.state, where)
            if type(value) is numpy.random.RandomState:
                return self._generator("numpy.RandomState", value.get_state(legacy=False), where)
        return self._refuse(where, f"is of type {type(value).__name__}")

    def _generator(self, kind: str, state: Mapping[str, Any], where: str) -> Any:
        if state["bit_generator"] not in _BIT_GENERATORS:
            return self._refuse(where, f"uses the bit generator {state['bit_generator']}")
        return {KIND: kind, "state": self.encode(state, where)}

    def _array(self, numpy: Any, value: Any, where: str) -> Any:
        kind = "numpy.ndarray" if type(value) is numpy.ndarray else "numpy.generic"
        array = numpy.asarray(value)
        if array.dtype.kind not in _NUMERIC_KINDS:
            return self._refuse(
                where, f"is an array of {array.dtype}; only arrays of numbers, text and times are saved"
            )
        content = numpy.ascontiguousarray(array).tobytes()
        shape = list(array.shape)
        if self.for_json:
            return {KIND: kind, "dtype": array.dtype.str, "shape": shape, "base64": _text(content)}
        torch = sys.modules["torch"]
        data = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
        return {KIND: kind, "dtype": array.dtype.str, "shape": shape, "data": data}

    def _refuse(self, where: str, why: str) -> None:
        self.problems.append(Unsavable(where, why))


def _place(where: str, key: Any) -> str:
    return f"{where}.{key}" if where else str(key)


def _is_torch(value: Any, name: str) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, name))


def _has_state_dict(value: Any) -> bool:
    """Return whether the value is a torch module, an optimizer, a learning-rate schedule or a gradient scaler."""
    is_torch = any(each.__module__.partition(".")[0] == "torch" for each in type(value).__mro__)
    return is_torch and not isinstance(value, type) and callable(getattr(value, "state_dict", None))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _bytes(value: Mapping[str, Any]) -> bytes:
    if "base64" in value:
        return base64.b64decode(value["base64"], validate=True)
    return bytes(value["data"].numpy().tobytes())


def _array_of(value: Mapping[str, Any]) -> Any:
    import numpy as np

    kind = np.dtype(value["dtype"])
    if kind.kind not in _NUMERIC_KINDS:
        raise StoreError(f"a checkpoint contains an array of {kind}, which is never loaded")
    array = np.frombuffer(_bytes(value), dtype=kind).reshape(value["shape"]).copy()
    return array if value[KIND] == "numpy.ndarray" else array[()]


def _numpy_generator(value: Mapping[str, Any]) -> Any:
    import numpy as np

    state = decode_state(value["state"])
    if state["bit_generator"] not in _BIT_GENERATORS:
        raise StoreError(f"a checkpoint contains an unknown bit generator {str(state['bit_generator'])[:40]!r}")
    if value[KIND] == "numpy.RandomState":
        generator = np.random.RandomState(getattr(np.random, state["bit_generator"])())
        generator.set_state(state)
        return generator
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)


def _python_generator(value: Mapping[str, Any]) -> random.Random:
    generator = random.Random()  # noqa: S311 — a training's generator, not a secret
    generator.setstate(decode_state(value["state"]))
    return generator


def _torch_generator(value: Mapping[str, Any]) -> Any:
    import torch

    generator = torch.Generator(device=value["device"])
    generator.set_state(value["state"])
    return generator


_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "bytes": _bytes,
    "tuple": lambda value: tuple(decode_state(value["items"])),
    "dict": lambda value: {decode_state(key): decode_state(item) for key, item in value["items"]},
    "numpy.ndarray": _array_of,
    "numpy.generic": _array_of,
    "numpy.Generator": _numpy_generator,
    "numpy.RandomState": _numpy_generator,
    "random.Random": _python_generator,
    "torch.Generator": _torch_generator,
}
