"""Tables of means, as in papers: one row per arm with a mean, a measure of spread and the number of runs.

`record/tables.py` opens such a table and checks its size, as for any other; this module recognizes its columns and
reads its cells. A table of runs is never mistaken for one: a column for the seed, the run or the step, or several rows
per arm, mean that each row is a value of a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from fairtrial.core.cells import id_text, is_missing, number_in, refuse_shape, seed_text, why_no_number
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.printed import MOST_RUNS_PER_ARM, Printed, PrintedArm, SummaryOptions, plus_minus_in, printed_in
from fairtrial.record.tables import MOST_PROBLEMS, MOST_VARIANTS, Table, TableFile

STATISTICS: Mapping[str, tuple[str, ...]] = {
    "mean": ("mean", "average", "avg"),
    "sd": ("sd", "std", "stdev", "stddev", "std_dev", "standard_deviation"),
    "se": ("se", "sem", "stderr", "std_err", "std_error", "standard_error"),
    "low": ("low", "lower", "ci_low", "ci_lower"),
    "high": ("high", "upper", "ci_high", "ci_upper"),
    "ci": ("ci", "half_width", "ci_half_width"),
    "n": ("n", "runs", "seeds", "count", "n_runs", "n_seeds", "num_runs", "num_seeds"),
}
"""Statistic → column names that denote it, alone or after the name of the metric (`accuracy_mean`)."""
_STATISTIC_OF = {name: statistic for statistic, names in STATISTICS.items() for name in names}
_SEPARATORS = re.compile(r"[\s._/-]+")
_OF_RUNS = ("seed", "run", "step", "value")
"""Column roles that do not occur in a table of means."""
MOST_ROWS = 20_000


@dataclass(frozen=True)
class SummaryTable:
    """The rows of a table of means. Their numbers are not parsed yet."""

    label: str
    metric: str | None
    """The name of the metric in the table, or None if the table does not name it."""
    rows: Sequence[SummaryRow]
    options: SummaryOptions

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(row.variant for row in self.rows))

    def arms(self, chosen: Sequence[str]) -> list[PrintedArm]:
        """Parse the numbers of the chosen variants. Raises a UserError with the problems of their cells."""
        problems: list[str] = []
        rows = [row for row in self.rows if row.variant in chosen]
        printed_arms = [row.read(self.options, problems) for row in rows]
        if problems:
            more = len(problems) - MOST_PROBLEMS
            messages = problems[:MOST_PROBLEMS] + ([f"{more} more cells cannot be used"] if more > 0 else [])
            raise UserError(messages[0], problems=messages[1:], hint=_hint(rows, self.options))
        self._refuse_idle_options(rows)
        return [arm for arm in printed_arms if arm is not None]

    def _refuse_idle_options(self, rows: Sequence[SummaryRow]) -> None:
        """Refuse options that have no effect, so that the user does not rely on them."""
        options = self.options
        uses_interval = any(row.shows_interval(options) for row in rows)
        idle = {
            "--n": options.n is not None and not any(row.lacks("n") for row in rows),
            "--plus-minus": options.plus_minus is not None and not any(row.has_plus_minus for row in rows),
            "--interval-level": options.interval_level is not None and not uses_interval,
        }
        why = {
            "--n": "has the number of runs in every row",
            "--plus-minus": "has no cell with ±",
            "--interval-level": "has no interval",
        }
        problems = [f"{self.label} {why[flag]}, so {flag} has no effect" for flag, is_idle in idle.items() if is_idle]
        if problems:
            raise UserError(problems[0], problems=problems[1:], hint="Remove the option.")


@dataclass(frozen=True)
class SummaryRow:
    """One arm (on one task) with its cells by statistic."""

    variant: str
    task: str | None
    metric: str
    place: str
    cells: Mapping[str, Any]
    names: Mapping[str, str]
    """Statistic → name of its column."""

    @property
    def name(self) -> str:
        return self.variant if self.task is None else f"{self.variant} on {self.task}"

    @property
    def has_plus_minus(self) -> bool:
        return plus_minus_in(self.cells["mean"]) is not None

    def lacks(self, statistic: str) -> bool:
        return is_missing(self.cells.get(statistic))

    def shows_interval(self, options: SummaryOptions) -> bool:
        behind = self.has_plus_minus and options.plus_minus == "ci"
        return behind or not (self.lacks("ci") and (self.lacks("low") or self.lacks("high")))

    def read(self, options: SummaryOptions, problems: list[str]) -> PrintedArm | None:
        """Parse the numbers of the row. Add their errors to `problems`, and return None if there are any."""
        before = len(problems)
        cells, names = self._split(options, problems)
        known = {
            statistic: self._number(statistic, cells[statistic], names[statistic], problems)
            for statistic in ("mean", "sd", "se", "low", "high", "ci")
            if not is_missing(cells.get(statistic))
        }
        if is_missing(cells.get("mean")):
            problems.append(f"{self.place}: {names['mean']} is empty")
        elif len(problems) == before:
            self._refuse_spread(known, names, problems)
        n = self._count(options, problems)
        mean, low, high = known.get("mean"), known.get("low"), known.get("high")
        if len(problems) > before or mean is None or n is None:
            return None
        limits = (low, high) if low is not None and high is not None else None
        return PrintedArm(
            self.variant, n, mean, known.get("sd"), known.get("se"), known.get("ci"), limits, self.task, self.place
        )

    def _split(self, options: SummaryOptions, problems: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the cells and their column names, with `0.871 ± 0.012` split into mean and spread."""
        cells, names = dict(self.cells), dict(self.names)
        sides = plus_minus_in(cells["mean"])
        if sides is None:
            return cells, names
        cells["mean"] = sides[0]
        kind = options.plus_minus
        if kind is None:
            problems.append(f"{self.place}: {names['mean']} is {self.cells['mean']!r}, but the meaning of ± is unknown")
        elif not is_missing(cells.get(kind)):
            problems.append(f"{self.place}: both {names['mean']} and {names[kind]} contain the {kind}")
        else:
            cells[kind], names[kind] = sides[1], f"the number after ± in {names['mean']}"
        return cells, names

    def _number(self, statistic: str, cell: Any, name: str, problems: list[str]) -> Printed | None:
        number = printed_in(cell)
        if number is None:
            problems.append(f"{self.place}: {name} {_why_unusable(cell)}")
        elif statistic in ("sd", "se", "ci") and number.value < 0:
            problems.append(f"{self.place}: {name} is {number}; a spread cannot be negative")
        return number

    def _refuse_spread(
        self, known: Mapping[str, Printed | None], names: Mapping[str, str], problems: list[str]
    ) -> None:
        low, high = known.get("low"), known.get("high")
        if (low is None) != (high is None):
            there, absent = ("low", "high") if high is None else ("high", "low")
            problems.append(f"{self.place}: {names[there]} is given, but the other limit, {absent}, is missing")
        elif low is not None and high is not None and low.exact > high.exact:
            problems.append(f"{self.place}: {names['low']} {low} is above {names['high']} {high}")
        elif not known.keys() & {"sd", "se", "ci", "low"}:
            problems.append(f"{self.place}: {self.variant} has no spread: sd, se or interval")

    def _count(self, options: SummaryOptions, problems: list[str]) -> int | None:
        """Return the number of runs, from the row or from --n."""
        cell = self.cells.get("n")
        if is_missing(cell):
            if options.n is None:
                problems.append(f"{self.place}: the number of runs behind the mean of {self.variant} is missing")
            return options.n
        number, name = printed_in(cell), self.names["n"]
        if number is None:
            problems.append(f"{self.place}: {name} {_why_unusable(cell)}")
        elif number.exact.denominator != 1:
            problems.append(f"{self.place}: {name} is {number}, but the number of runs must be an integer")
        elif not 2 <= number.exact <= MOST_RUNS_PER_ARM:
            least = number.exact < 2
            why = "a spread needs at least 2 runs" if least else f"at most {MOST_RUNS_PER_ARM:,} are supported"
            problems.append(f"{self.place}: {name} is {number}; {why}")
        return None if number is None else int(number.exact)


def _why_unusable(cell: Any) -> str:
    number = number_in(cell)
    if number is None:
        return why_no_number(cell)
    if math.isfinite(number) or str(cell).strip().lower().lstrip("+-") not in ("nan", "inf", "infinity"):
        return "is too large or too small to compute with; use another unit"
    return f"is {str(cell).strip()}, not a finite number"


def _hint(rows: Sequence[SummaryRow], options: SummaryOptions) -> str | None:
    """Return a hint about the options that supply missing information, or None."""
    hints = []
    if options.plus_minus is None and any(row.has_plus_minus for row in rows):
        hints.append(
            "Specify the meaning of ± with --plus-minus: sd (standard deviation over runs), se (standard error) or ci "
            "(half-width of an interval)."
        )
    if options.n is None and any(row.lacks("n") for row in rows):
        hints.append("Pass the number of runs per arm with --n.")
    return " ".join(hints) or None


# Recognition of tables of means


def read_summary_table(table: Table, metrics: Sequence[str], options: SummaryOptions) -> SummaryTable | None:
    """Return a table of means, or None if the rows are runs. Raises a UserError if options require a table of means."""
    given = options.given()
    columns = _columns_by_metric(table)
    if not columns:
        if given:
            raise UserError(
                f"{given[0]} requires a table with one mean per arm, but {table.label} {_why_not(table)}",
                hint="Such a table has the columns variant, mean, sd (or se, ci, low and high) and n.",
            )
        return None
    metric = _chosen(table, columns, metrics)
    if metric is None:
        return None
    names_column = any(name in table.files[0].names for name in metrics)
    rows_may_be_runs = not given and (names_column or "n" not in columns[metric])
    rows: list[SummaryRow] = []
    first: dict[tuple[str, str | None, str], SummaryRow] = {}
    problems: list[str] = []
    for row in _rows(table, columns[metric]):
        known = first.setdefault((seed_text(row.variant), row.task, row.metric), row)
        if known is not row:
            if rows_may_be_runs:  # several rows per arm, and nothing else indicates a table of means
                return None
            problems.append(f"{known.place} and {row.place.rpartition(', ')[2]} are both rows of {row.name}")
        rows.append(row)
        if len(problems) == MOST_PROBLEMS or len(rows) > MOST_ROWS:
            break
    rows, own = _of_one_metric(table, rows, metrics)
    _refuse_unusable(table, rows, columns[metric], problems)
    return SummaryTable(table.label, own or metric or None, rows, options)


def _refuse_unusable(
    table: Table, rows: Sequence[SummaryRow], columns: Mapping[str, str], problems: Sequence[str]
) -> None:
    """Raise a UserError if the rows cannot be used as arms, starting with the problem to fix first."""
    if table.columns["variant"] is None:
        free = [name for name in table.text_columns() if name not in columns.values()]
        guess = f", such as {free[0]}" if free else ""
        raise UserError(
            f"{table.label} has no column for the variant, so there is nothing to compare",
            hint=f"Specify this column{guess}, with --variant-column.",
        )
    if problems:
        raise UserError(
            problems[0],
            problems=problems[1:],
            hint="A table of means has one row per variant and task. Specify the column of the task with "
            "--task-column. If the rows are runs, specify the column of the metric with --metric.",
        )
    if not rows:
        raise UserError(f"{table.label} has no row with a mean", hint="It needs one line per variant.")
    nameless = next((row for row in rows if not row.variant), None)
    if nameless is not None:
        raise UserError(f"{nameless.place}: {table.columns['variant']} is empty")
    variants = len({row.variant for row in rows})
    if len(rows) > MOST_ROWS or variants > MOST_VARIANTS:
        limit = f"{MOST_VARIANTS} variants and {MOST_ROWS:,} rows"
        raise UserError(f"{table.label} has more than {limit}", hint="Remove rows that are not needed.")


def _columns_by_metric(table: Table) -> dict[str, dict[str, str]]:
    """Return metric → statistic → column, for metrics with a mean and a spread; "" is an unnamed metric."""
    if any(table.columns[role] is not None for role in _OF_RUNS):
        return {}
    taken = {name for name in table.columns.values() if name}
    by_metric: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for name in table.files[0].names:
        if not name or name in taken:
            continue
        metric, statistic = _parsed(name)
        if statistic is None and _is_plus_minus(table, name):
            by_metric[name] = {"mean": name}
        if statistic is None:
            continue
        known = by_metric.setdefault(metric, {})
        if statistic in known:
            problems.append(f"{table.label}: both '{known[statistic]}' and '{name}' may be the {statistic}")
        known[statistic] = name
    shared = {"n": by_metric[""]["n"]} if "n" in by_metric.get("", {}) else {}
    whole = {
        metric: {**shared, **columns}
        for metric, columns in by_metric.items()
        if "mean" in columns and (columns.keys() & {"sd", "se", "ci", "low"} or _is_plus_minus(table, columns["mean"]))
    }
    if whole and problems:
        raise UserError(problems[0], problems=problems[1:MOST_PROBLEMS], hint="Rename or remove one of them.")
    return whole


def _parsed(name: str) -> tuple[str, str | None]:
    """Split a column name: `accuracy_mean` → accuracy, mean; `sd` → no metric, sd; any other → name, no statistic."""
    parts = list(_SEPARATORS.finditer(name))
    for cut in (None, *parts):
        words = name if cut is None else name[cut.end() :]
        statistic = _STATISTIC_OF.get(_SEPARATORS.sub("_", words).lower())
        if statistic is not None:
            return "" if cut is None else name[: cut.start()], statistic
    return name, None


def _is_plus_minus(table: Table, name: str) -> bool:
    """Return whether the first non-empty cell of a column has the form `0.871 ± 0.012`."""
    if name not in table.text_columns():
        return False
    cells = (cell for file in table.files if name in file.names for _, [cell] in file.rows([name]))
    return plus_minus_in(next((cell for cell in cells if not is_missing(cell)), None)) is not None


def _why_not(table: Table) -> str:
    role = next((role for role in _OF_RUNS if table.columns[role] is not None), None)
    if role is not None:
        return f"has a column for the {role}, '{table.columns[role]}', so its rows are runs"
    return "has no columns for a mean and its spread"


def _chosen(table: Table, columns: Mapping[str, Mapping[str, str]], metrics: Sequence[str]) -> str | None:
    """Return the chosen metric, or None if the user names another column, which means that the rows are runs."""
    if not metrics:
        return next(iter(columns)) if len(columns) == 1 else _refuse_several(table, [*filter(None, columns)])
    wanted = metrics[0]
    alike = [metric for metric in columns if metric and metric.lower() == wanted.lower()]
    if wanted in columns or len(alike) == 1:
        return wanted if wanted in columns else alike[0]
    if "" in columns:
        return ""
    if wanted in table.files[0].names:
        return None
    raise UserError(f"{table.label}: {unknown('metric', wanted, columns)}")


def _refuse_several(table: Table, metrics: Sequence[str]) -> NoReturn:
    more = f" and {len(metrics) - 20} more" if len(metrics) > 20 else ""
    shown = ", ".join(sorted(metrics)[:20])
    raise UserError(f"{table.label} has means of several metrics: {shown}{more}", hint="Choose one with --metric.")


def _of_one_metric(
    table: Table, rows: Sequence[SummaryRow], metrics: Sequence[str]
) -> tuple[list[SummaryRow], str | None]:
    """Return the rows of the chosen metric and its name, if a column names the metric."""
    if table.columns["metric"] is None:
        return list(rows), None
    named = list(dict.fromkeys(row.metric for row in rows))
    if metrics and metrics[0] not in named:
        raise UserError(f"{table.label}: {unknown('metric', metrics[0], named)}")
    if not metrics and len(named) > 1:
        _refuse_several(table, named)
    wanted = metrics[0] if metrics else named[0] if named else None
    return [row for row in rows if row.metric == wanted], wanted


def _rows(table: Table, columns: Mapping[str, str]) -> Iterator[SummaryRow]:
    roles = [role for role in ("variant", "task", "metric") if table.columns[role] is not None]
    for file in table.files:
        absent = next((name for name in columns.values() if name not in file.names), None)
        if absent is not None:
            raise UserError(f"{file.label} has no column '{absent}', which the other files have")
        for line, cells in file.rows([*(file.columns[role] or "" for role in roles), *columns.values()]):
            document = dict(zip(roles, cells, strict=False))
            ids = {role: _id(file, role, cell, line) for role, cell in document.items()}
            statistics = dict(zip(columns, cells[len(roles) :], strict=True))
            if not all(is_missing(cell) for cell in statistics.values()):
                yield SummaryRow(
                    ids.get("variant", ""),
                    ids.get("task") or None,
                    ids.get("metric", ""),
                    file.place(line),
                    statistics,
                    columns,
                )


def _id(file: TableFile, role: str, cell: Any, line: int) -> str:
    if is_missing(cell):
        return ""
    why = refuse_shape(cell, bools=role == "variant")
    if why is not None:
        raise UserError(f"{file.place(line)}: {file.columns[role]} {why}")
    return id_text(cell) if role == "task" else str(cell).strip()
