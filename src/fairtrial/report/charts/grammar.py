"""Lazy import of Altair and its renderer, on first use.

This keeps start-up fast and turns a missing package into a clear error. The other modules import `alt` from here.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fairtrial.core.errors import MissingExtra

__all__ = ["Chart", "Panel", "alt", "load"]


def load(package: str) -> ModuleType:
    """Import a package of the `charts` extra."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"charts need {error.name or package}, which is not installed",
            hint="Install it with: pip install 'fairtrial[charts]'",
        ) from None


class _OnDemand:
    """A proxy for a module that is imported when one of its attributes is first used."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        return getattr(load(self._package), name)


if TYPE_CHECKING:
    import altair as alt

    Panel = alt.LayerChart | alt.FacetChart
    Chart = Panel | alt.HConcatChart | alt.ConcatChart
else:
    alt = _OnDemand("altair")
    Chart = Panel = object
