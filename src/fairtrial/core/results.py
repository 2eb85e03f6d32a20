"""What every result has in common: printing, display in notebooks, data frames and charts.

A result is a frozen value that keeps its evidence; how it is shown is decided elsewhere. `Result` looks up the view of
its class, which is the one that the shell command of the same name uses, so `print(result)` shows what the command
prints. `core` must not import those views, so they are named here and imported on first use, like plug-ins.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from fairtrial.core.errors import MissingExtra

VIEWS = "fairtrial.cli._results"
"""The module with the views of all results."""
LONGEST_REPR = 120


class ResultViews(Protocol):
    """What `VIEWS` provides."""

    def text(self, result: Any) -> str:
        """Return the report that the shell command prints."""

    def headline(self, result: Any) -> str:
        """Return the result in one line."""

    def rows(self, result: Any) -> Sequence[Mapping[str, Any]]:
        """Return the rows that the shell command writes as CSV."""

    def html(self, result: Any) -> str:
        """Return an HTML fragment."""

    def draw(self, result: Any, path: Path) -> None:
        """Write the chart of the result. Raises UserError if it has none."""


class Picture:
    """A chart that notebooks display. `save` writes it as PNG, SVG or PDF, by the suffix."""

    def __init__(self, result: Result, svg: str) -> None:
        self.svg = svg
        self._result = result

    def save(self, path: str | os.PathLike[str]) -> Path:
        return self._result.plot(path)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture of {self._result!r}>"


class Result:
    """A result that can be printed, displayed in a notebook, drawn, and converted to a data frame."""

    def __str__(self) -> str:
        return _views().text(self)

    def __repr__(self) -> str:
        line = _views().headline(self)
        line = line if len(line) <= LONGEST_REPR else f"{line[: LONGEST_REPR - 1]}…"
        return f"<{type(self).__name__}: {line}>"

    def _repr_html_(self) -> str:
        return _views().html(self)

    def to_pandas(self) -> Any:
        """Return the rows of the result, those of `--format csv`, as a pandas DataFrame."""
        return _frames("pandas").DataFrame(_views().rows(self))

    def to_polars(self) -> Any:
        """Return the rows of the result, those of `--format csv`, as a polars DataFrame."""
        return _frames("polars").DataFrame(_views().rows(self), infer_schema_length=None)

    def chart(self) -> Picture:
        """Return the chart of the result, which a notebook displays."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "chart.svg"
            _views().draw(self, path)
            return Picture(self, path.read_text(encoding="utf-8"))

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Write the chart of the result as PNG, SVG or PDF, by the suffix, and return the path."""
        target = Path(path)
        _views().draw(self, target)
        return target


def _views() -> ResultViews:
    return cast(ResultViews, importlib.import_module(VIEWS))


def _frames(package: str) -> Any:
    try:
        return sys.modules.get(package) or importlib.import_module(package)
    except ImportError:
        raise MissingExtra(f"{package} is not installed", hint=f"Install it: pip install {package}") from None
