"""Renamed names: the old ones still work, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` that resolves old names to new ones."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", f"{module}.{names[name]}", stacklevel=3)
        return getattr(importlib.import_module(module), names[name])

    return get


def renamed_attribute(old: str, new: str) -> Any:
    """Return a property that resolves the old name of an attribute to its new one."""

    def get(instance: object) -> Any:
        owner = type(instance).__name__
        warn_renamed(f"{owner}.{old}", f"{owner}.{new}", stacklevel=2)
        return getattr(instance, new)

    return property(get)


def warn_renamed(old: str, new: str, *, stacklevel: int) -> None:
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=stacklevel + 1)
