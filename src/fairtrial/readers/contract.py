"""What a reader promises: it recognizes a place, and turns it into runs.

Whoever implements `RunReader` guarantees that

- `recognize` is cheap (it looks at names and first bytes), never raises for any content, and says in one line what it
  saw. It does not claim a place that only looks similar.
- `read` yields every run that is there with exactly the numbers that were logged: NaN and infinities included, nothing
  rounded, nothing interpolated. What the source does not say is None or absent, never a default.
- A damaged or growing file gives what is sound, plus a note. A place of which nothing can be used gives one
  `UserError`. No content leads to another exception, to running code that it holds, or to unbounded memory.
- Reading can go on where it stopped: `read(place, since={run.id: run.cursor})` yields for each run only what was added
  (`continues` is true), or the whole run again where the source was rewritten (`continues` is false).
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
"""Where to go on with a run: values that JSON can hold, understood by the reader that gave them and by nobody else."""

P = ParamSpec("P")
ConfigValue = str | int | float | bool | None


@dataclass(frozen=True)
class MetricSeries:
    """The points of one metric in the order of their steps' arrival.

    `steps` are whole numbers unless the source logged by fractions, such as epochs. `times` are seconds since 1970, NaN
    where a single point has none, and None where the source keeps no times.
    """

    steps: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    times: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class SourceFile:
    """A file that a run was read from, as it was when it was read: a file that grows has the hash of that part."""

    path: Path
    size: int

    def sha256(self) -> str:
        """The hash of the first `size` bytes. Raises a UserError where the file has become shorter or is gone."""
        digest, left = hashlib.sha256(), self.size
        try:
            with open_file(self.path) as file:
                while left and (block := file.read(min(left, 1 << 20))):
                    digest.update(block)
                    left -= len(block)
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror or error}") from None
        if left:
            raise UserError(f"{self.path} became shorter while it was read", hint="Read it again.")
        return digest.hexdigest()


@dataclass(frozen=True)
class SourceRun:
    """One run as its source describes it.

    `id` stays the same whenever the source is read again, and differs between runs of one source. Keys of nested
    configurations are joined with points (`optimizer.lr`). `variant` and `seed` are what the source itself names so,
    as a table with a column per method does; usually they are keys of `config`. `status` is None where the source
    does not say. `summary` has values that the source keeps once per run, such as totals; they are not points of a
    series. `started` and `ended` are seconds since 1970. `rewound` has, for a run that continues, the metrics whose
    points from a step on are replaced by those given here.
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
    """Makes a sentence of what the file system says while a reader reads: a file may vanish at any moment."""

    @functools.wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> Iterator[SourceRun]:
        try:
            yield from read(*args, **kwargs)
        except OSError as error:
            where = f" {error.filename}" if error.filename else ""
            raise UserError(f"cannot read{where}: {error.strerror or error}") from None

    return reading


class RunReader(Protocol):
    """Turns one kind of place into runs. `name` is the word that users type; `title` says what it reads."""

    name: str
    title: str

    def recognize(self, place: Path) -> str | None:
        """What it sees there, in one line without a full stop; None where the place is not of its kind."""

    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        """The runs of a place, in a stable order. Raises UserError where nothing can be read."""
