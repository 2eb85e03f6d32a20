"""Adapter that makes a `RunReader` available as a reader plug-in for `--from PATH`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fairtrial.core.readers import ImportedRun, Reader
from fairtrial.core.runs import Status
from fairtrial.readers.contract import RunReader, SourceRun


class PluginReader(Reader):
    """A `RunReader` behind the plug-in contract, which has neither cursors nor files."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader

    def recognize(self, path: Path) -> str | None:
        return self.reader.recognize(path)

    def read(self, path: Path) -> Iterator[ImportedRun]:
        for run in self.reader.read(path):
            if run.series:
                yield imported_run(run)


def imported_run(run: SourceRun) -> ImportedRun:
    """Convert a run for analysis. Without a status, it counts as completed, because most sources record none."""
    return ImportedRun(
        id=run.id,
        series={metric: (series.steps.astype(float), series.values) for metric, series in run.series.items()},
        variant=run.variant,
        seed=run.seed,
        config=dict(run.config),
        status=str(run.status or Status.COMPLETED),
        reason=run.reason,
        started=run.started,
        ended=run.ended,
    )
