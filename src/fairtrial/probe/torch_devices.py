"""The devices that torch can use on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.options import CPU


def require_devices(names: Iterable[str]) -> None:
    """Raise one error for all of these devices that torch cannot use here. The CPU is accepted without asking torch."""
    asked = [name for name in dict.fromkeys(names) if name != CPU]
    missing = [name for name in asked if not _is_usable(name)] if asked else []
    if missing:
        first, *rest = (f"device: torch cannot use '{name}' on this machine" for name in missing)
        known = ", ".join(usable_devices())
        raise InvalidOptions(first, problems=rest, hint=f"torch can use: {known}.")


def usable_devices() -> list[str]:
    """Return the CPU and the devices of this machine's accelerator, as torch names them."""
    import torch

    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or not _count(accelerator.type):
        return [CPU]
    return [CPU, *(f"{accelerator.type}:{number}" for number in range(_count(accelerator.type)))]


def _is_usable(name: str) -> bool:
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:  # torch does not know this kind of device
        return False
    return (device.index or 0) < _count(device.type)


def _count(kind: str) -> int:
    """Return the number of devices of a kind, 0 if there are none. `meta` has none: its tensors have no values."""
    import torch

    if kind == CPU:
        return 1
    module: Any = getattr(torch, kind, None)
    is_available = getattr(module, "is_available", None)
    return int(module.device_count()) if is_available is not None and is_available() else 0
