"""Altair and its renderer, brought in when the first chart is drawn.

Start-up stays instant, and a missing package is a sentence. The other files import `alt` from here.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fairtrial.core.errors import MissingExtra

__all__ = ["Chart", "Panel", "alt", "load"]


def load(package: str) -> ModuleType:
    """A package of the `charts` extra."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"charts need {error.name or package}, which is not installed",
            hint="Install it with: pip install 'fairtrial[charts]'",
        ) from None


class _OnDemand:
    """Stands for a module until something of it is used."""

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
