"""The contract of readers: a reader recognizes a path and turns it into runs.

Implementations of `RunReader` must guarantee:

- `recognize` is cheap (it looks only at names and first bytes), never raises for any content, and describes in one line
  what it found. It does not claim a path that only looks similar.
- `read` yields every run with exactly the logged numbers: NaN and infinities included, nothing rounded, nothing
  interpolated. Values that the source does not contain are None or absent, never a default.
- A damaged or growing file yields its intact part plus a note. A path without any usable content raises one
  `UserError`. No content causes another exception, execution of code from the file, or unbounded memory use.
- Reading can resume: `read(place, since={run.id: run.cursor})` yields for each run only what was added (`continues` is
  true), or the whole run again if the source was rewritten (`continues` is false).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, Protocol

import numpy as np
import numpy.typing as npt

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import open_file

Cursor = Mapping[str, Any]
"""The position from which to resume a run: JSON values that only the reader that created them interprets."""

P = ParamSpec("P")
ConfigValue = str | int | float | bool | None


@dataclass(frozen=True)
class MetricSeries:
    """The points of one metric in the order in which they were logged.

    `steps` are integers unless the source logged fractional steps, such as epochs. `times` are seconds since 1970: NaN
    for a point without a time, and None if the source has no times.
    """

    steps: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    times: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class SourceFile:
    """A file that a run was read from. `size` is the number of bytes read; the hash covers only those bytes."""

    path: Path
    size: int

    def sha256(self) -> str:
        """Return the hash of the first `size` bytes. Raises UserError if the file has become shorter or is gone."""
        digest, left = hashlib.sha256(), self.size
        try:
            with open_file(self.path) as file:
                while left and (block := file.read(min(left, 1 << 20))):
                    digest.update(block)
                    left -= len(block)
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror or error}") from None
        if left:
            raise UserError(f"{self.path} became shorter while it was being read", hint="Read it again.")
        return digest.hexdigest()


@dataclass(frozen=True)
class SourceRun:
    """One run as its source describes it.

    `id` is stable when the source is read again, and unique within a source. Keys of nested configurations are joined
    with dots (`optimizer.lr`). `variant` and `seed` are set only if the source names them explicitly, as a table with a
    column per method does; usually they are keys of `config`. `status` is None if the source does not record it.
    `summary` has values that the source stores once per run, such as totals; they are not points of a series.
    `started` and `ended` are seconds since 1970. For a run that continues, `rewound` maps a metric to the step from
    which the points given here replace earlier ones.
    """

    id: str
    name: str
    series: Mapping[str, MetricSeries]
    variant: str | None = None
    seed: str | None = None
    config: Mapping[str, ConfigValue] = field(default_factory=dict)
    summary: Mapping[str, ConfigValue] = field(default_factory=dict)
    status: Status | None = None
    reason: str | None = None
    started: float | None = None
    ended: float | None = None
    files: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()
    cursor: Cursor = field(default_factory=dict)
    continues: bool = False
    rewound: Mapping[str, int | float] = field(default_factory=dict)


def clear_errors(read: Callable[P, Iterator[SourceRun]]) -> Callable[P, Iterator[SourceRun]]:
    """Convert an OSError during reading to a UserError, because a file may disappear at any time."""

    @functools.wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> Iterator[SourceRun]:
        try:
            yield from read(*args, **kwargs)
        except OSError as error:
            where = f" {error.filename}" if error.filename else ""
            raise UserError(f"cannot read{where}: {error.strerror or error}") from None

    return reading


class RunReader(Protocol):
    """Turn one kind of path into runs. `name` is what users type; `title` describes what it reads."""

    name: str
    title: str

    def recognize(self, place: Path) -> str | None:
        """Describe what is at the path, in one line without a final period; None if it is not of this kind."""

    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        """Yield the runs of a path in a stable order. Raises UserError if nothing can be read."""
