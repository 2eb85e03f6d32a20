"""Readers: plug-ins that turn the files of other tools into runs with series, configuration and status.

`analyze`, `variance` and `power` use them for `--from`. A reader recognizes its own paths, so that users need not name
it, and it never guesses: if the source does not state a run's variant or seed, the run has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fairtrial.core.cells import id_text, refuse_shape, seed_text
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.plugin_registry import READERS, blame_plugin, load_others, load_plugin, note_ignored, refuse_plugin
from fairtrial.core.runs import Status
from fairtrial.core.traces import Trace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = Sequence[float] | npt.NDArray[np.float64]

MOST_IMPORTED_RUNS = 50_000
IGNORE = "none"
"""As the name of the status column: no column contains the status of runs."""
OF_CONFIGURATION = ("variant", "seed", "task")
"""Roles that a key of a run's configuration can have."""


@dataclass(frozen=True)
class Columns:
    """The column of the file for each role; None: the column with the name of the role, if the file has it.

    >>> fairtrial.Columns(variant="algo", seed="trial").variant
    'algo'
    """

    run: str | None = None
    seed: str | None = None
    variant: str | None = None
    step: str | None = None
    metric: str | None = None
    value: str | None = None
    task: str | None = None
    status: str | None = None
    """`none`: no column, even if one is named `status` or `state`."""

    def found_in(self, names: Sequence[str], where: str) -> dict[str, str | None]:
        """Return the column of each role; raise an error that lists all ambiguous or unknown columns. Ignores case."""
        problems: list[str] = []
        by_role: dict[str, str | None] = {}
        for role in (each.name for each in fields(self)):
            given: str | None = getattr(self, role)
            if role == "status" and given == IGNORE:
                by_role[role] = None
            elif given is not None:
                by_role[role] = _named(given, names, where, problems)
            else:
                by_role[role] = _recognized(role, names, where, problems)
        if problems:
            raise UserError(problems[0], problems=problems[1:])
        return by_role


def _named(given: str, names: Sequence[str], where: str, problems: list[str]) -> str | None:
    """Return the column that the user named: an exact match, or one that ignores case and surrounding spaces."""
    if given in names and given:
        return given
    alike = [name for name in names if name and name.lower() == given.strip().lower()]
    if len(alike) == 1:
        return alike[0]
    problems.append(f"{where}: {unknown('column', given, [name for name in names if name])}")
    return None


def _recognized(role: str, names: Sequence[str], where: str, problems: list[str]) -> str | None:
    alike = [name for name in names if name.lower() == role]
    if len(alike) > 1:
        problems.append(two_candidates(role, alike, where))
    return alike[0] if alike else None


def two_candidates(role: str, names: Sequence[str], where: str) -> str:
    message = " and ".join(f"'{name}'" for name in names[:3])
    return f"{where}: both {message} may contain the {role}; choose one with --{role}-column"


@dataclass(frozen=True)
class ImportedRun:
    """A run as another tool recorded it.

        ImportedRun("exp7", {"reward": ([1, 2, 3], [0.1, 0.4, 0.5])}, seed=7, config={"algo": "ppo"})

    `id` identifies the run within its source and never changes; it distinguishes a run that is read again from a new
    one. `series` maps a metric to its steps, in any order, and the value at each; if a step was logged again after a
    restart, the last value counts. `variant`, `seed` and `task` are None if the source does not state them; the user
    can then name the key of `config` that does. `status` is one of completed, failed, diverged, interrupted, running.
    """

    id: str
    series: Mapping[str, tuple[Numbers, Numbers]]
    variant: str | None = None
    seed: str | int | None = None
    task: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    status: str = "completed"
    reason: str | None = None
    started: float | None = None
    """Unix timestamp in seconds, as are all times."""
    ended: float | None = None


class RunSource(Protocol):
    """An opened source. Its metrics are known before their values are read."""

    @property
    def label(self) -> str: ...

    @property
    def lacking(self) -> Sequence[str]:
        """Roles that the source does not provide, such as `variant` or `step`."""
        ...

    def metrics(self) -> list[str]: ...

    def known(self, metric: str) -> bool:
        """Return whether the user may request it by name, even if it does not look like a metric."""
        ...

    def why_none(self) -> str | None:
        """Return why the source has no metrics, or None if it has some."""
        ...

    def text_columns(self) -> list[str]:
        """Return the columns that may distinguish variants."""
        ...

    def traces(self, metrics: Sequence[str]) -> list[Trace]: ...


class Reader:
    """Reads files of another tool, for `--from PATH`. A plug-in is an instance of a subclass.

    `recognize(path)` checks the name and the first bytes and returns a short description, or None if the path does not
    belong to this reader. `read(path)` yields the runs. Both only read files. A reader for sources that are too large
    to load at once overrides `open`, which determines the metrics first.

        class LossLog(Reader):
            def recognize(self, path):
                return "a loss log" if path.name == "loss.log" else None

            def read(self, path):
                losses = [float(line) for line in path.read_text().splitlines()]
                yield ImportedRun(path.parent.name, {"loss": (range(len(losses)), losses)})

        LOSS_LOG = LossLog()
    """

    def recognize(self, path: Path) -> str | None:
        raise NotImplementedError

    def read(self, path: Path) -> Iterable[ImportedRun]:
        raise NotImplementedError

    def open(self, paths: Sequence[Path], columns: Columns) -> RunSource:
        runs = [run for path in paths for run in self.read(path)]
        return ImportedRuns(files_label([path.name for path in paths]), runs, columns)


def files_label(names: Sequence[str]) -> str:
    """Return the names of files for a message; after the first three of many, only how many more there are."""
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more files"


def find_reader(path: Path) -> tuple[str, Reader]:
    """Return the name and the reader of a path. Plug-ins come first: the table reader accepts everything else."""
    claims: dict[str, Reader] = {}
    for name, reader in load_others(READERS) if path.exists() else ():
        try:
            with blame_plugin(READERS, name):
                if reader.recognize(path) is not None:
                    claims[name] = reader
        except UserError as error:
            note_ignored(f"{error.message}; it is skipped")
    if len(claims) > 1:
        raise UserError(f"{path} is recognized by {len(claims)} readers: {', '.join(claims)}", hint="Uninstall one.")
    if claims:
        return next(iter(claims.items()))
    built_in = {name: load_plugin(READERS, name) for name in READERS.built_in}
    return next((name, reader) for name, reader in built_in.items() if reader.recognize(path) is not None)


def open_runs(paths: Sequence[Path], columns: Columns | None = None) -> RunSource:
    """Open the runs in these paths with the reader that recognizes them.

    source = open_runs([Path("results.csv")])
    traces = source.traces(source.metrics())
    """
    readers = {path: find_reader(path) for path in paths}
    names = list(dict.fromkeys(name for name, _ in readers.values()))
    if len(names) > 1:
        raise UserError(f"the files need different readers: {' and '.join(names)}", hint="Pass files of one kind.")
    name, reader = next(iter(readers.values()))
    with blame_plugin(READERS, name):
        try:
            return reader.open(paths, columns or Columns())
        except _Unfit as error:
            raise refuse_plugin(READERS, name, str(error)) from None


class _Unfit(ValueError):
    """A reader returned something that is not a valid run."""


class ImportedRuns:
    """Runs that were loaded completely. A column that the user names is a key of the runs' configuration."""

    def __init__(self, label: str, runs: Sequence[ImportedRun], columns: Columns) -> None:
        if not runs:
            raise UserError(f"{label} has no runs")
        if len(runs) > MOST_IMPORTED_RUNS:
            raise UserError(f"{label} has more than {MOST_IMPORTED_RUNS:,} runs")
        self.label = label
        self._runs = [_checked(run) for run in runs]
        self._refuse_columns(columns)
        self._columns = columns

    def _refuse_columns(self, columns: Columns) -> None:
        given = {each.name: getattr(columns, each.name) for each in fields(columns)}
        known = sorted({str(key) for run in self._runs for key in run.config})
        problems = [
            f"--{role}-column applies to tables only; {self.label} stores the {role} separately"
            for role, name in given.items()
            if name is not None and role not in OF_CONFIGURATION and name != IGNORE
        ] + [
            f"{self.label}: {unknown('key of the configuration', given[role], known)}"
            for role in OF_CONFIGURATION
            if given[role] is not None and given[role] not in known
        ]
        if problems:
            raise UserError(problems[0], problems=problems[1:])

    @property
    def lacking(self) -> Sequence[str]:
        return [] if any(self._of(run, "variant") for run in self._runs) else ["variant"]

    def metrics(self) -> list[str]:
        return list(dict.fromkeys(name for run in self._runs for name in run.series))

    def known(self, metric: str) -> bool:
        return metric in self.metrics()

    def why_none(self) -> str | None:
        return None

    def text_columns(self) -> list[str]:
        keys = dict.fromkeys(key for run in self._runs for key in run.config)
        return [key for key in keys if len({str(run.config.get(key)) for run in self._runs}) > 1]

    def traces(self, metrics: Sequence[str]) -> list[Trace]:
        return [self._trace(run, metrics) for run in self._runs]

    def _trace(self, run: ImportedRun, metrics: Sequence[str]) -> Trace:
        import numpy as np

        curves = {
            metric: (np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64))
            for metric, (steps, values) in run.series.items()
            if metric in metrics
        }
        seed = self._of(run, "seed")
        variant, task = (self._of(run, role) for role in ("variant", "task"))
        return Trace(
            run.id,
            "all" if variant is None else id_text(variant),
            None if seed is None else seed_text(seed),
            curves,
            Status(run.status),
            run.reason,
            None if task is None else id_text(task),
        )

    def _of(self, run: ImportedRun, role: str) -> Any:
        """Return a role's value: the run's own attribute, or the configuration key that the user named."""
        name = getattr(self._columns, role)
        value = getattr(run, role) if name is None else run.config.get(name)
        why = None if value is None else refuse_shape(value, bools=role != "seed")
        if why:
            raise UserError(f"{self.label}, run {run.id}: {name or role} {why}")
        return value


def _checked(run: ImportedRun) -> ImportedRun:
    """Validate the result of a reader before it is used: an error in it would lead to a wrong verdict."""
    import numpy as np

    if not isinstance(run, ImportedRun):
        raise _Unfit(f"returned a {type(run).__name__} instead of an ImportedRun")
    if run.status not in {status.value for status in Status}:
        raise _Unfit(f"returned run {run.id} with an unknown status, {run.status!r}")
    for metric, (steps, values) in run.series.items():
        if len(steps) != len(values):
            raise _Unfit(f"returned run {run.id} with {len(steps)} steps and {len(values)} values of {metric}")
        if not np.isfinite(np.asarray(steps, dtype=np.float64)).all():
            raise _Unfit(f"returned run {run.id} with a step of {metric} that is not a finite number")
    return run
