"""SQL queries over a store with DuckDB: table `runs` from the index, table `metrics` from the columnar copies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import DEEPEST
from fairtrial.record.index import Row, list_rows
from fairtrial.record.recorded import with_series
from fairtrial.record.series import Series
from fairtrial.record.store import Store

if TYPE_CHECKING:
    import duckdb
    import pyarrow

COLUMNS = (
    "study", "variant", "seed", "run", "attempt", "recipe", "synthetic", "status", "reason", "metric", "value",
    "best_metric_name", "best_metric_value", "best_checkpoint_step", "wall_s", "cpu_s", "created", "commit",
)  # fmt: skip


def run_query(
    store: Store, sql: str, damaged: Callable[[str, str], None] = lambda _name, _reason: None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a query and return column names and rows. The query cannot access files or the network.

    A damaged run has the status `damaged` in `runs` and has no rows in `metrics`. If the query uses `metrics`,
    `damaged` is called with the name of each such run and the reason.
    """
    import duckdb

    rows = list_rows(store)
    series: list[Series] = []
    if "metrics" in sql.lower():
        rows, series = _with_series(store, rows)
        for row in rows:
            if row["status"] == Status.DAMAGED:
                damaged(f"{row['study']}/{row['run']}", str(row["reason"]))
    with duckdb.connect() as connection:
        connection.register("runs", _runs_table(rows))
        if "metrics" in sql.lower():
            connection.register("metrics", _metrics_table(rows, series))
        connection.execute("SET enable_external_access = false")
        return _fetch(connection, sql)


def _fetch(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    import duckdb

    try:
        result = connection.execute(sql)
        if not result or not result.description:
            raise UserError("the query returns no result", hint="Use a query such as: select … from runs")
        names = [column[0] for column in result.description]
        return _distinct(names), [tuple(_simple(value) for value in row) for row in result.fetchall()]
    except duckdb.Error as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(
            first,
            hint=f"Table runs has {', '.join(COLUMNS)}, options; table metrics has "
            "study, variant, seed, run, metric, step, value.",
        ) from None


def _distinct(names: list[str]) -> list[str]:
    """Number duplicate column names, so that no column is lost."""
    return [name if name not in names[:place] else f"{name}_{place}" for place, name in enumerate(names)]


def _simple(value: Any, depth: int = 1) -> Any:
    """Convert a value, including nested values, to types that every output format supports.

    Strings, 64-bit numbers, dates and UUIDs are unchanged. Decimals become floats, integers beyond 64 bits and
    intervals become strings, binary values become hexadecimal digits, and map keys become strings.
    """
    if value is None or isinstance(value, (str, bool, float, date, UUID)):
        return value
    if isinstance(value, int):
        return str(value) if abs(value) >= 1 << 63 else value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if depth < DEEPEST and isinstance(value, dict):
        return {_text(key): _simple(inner, depth + 1) for key, inner in value.items()}
    if depth < DEEPEST and isinstance(value, (list, tuple)):
        return [_simple(inner, depth + 1) for inner in value]
    return value if isinstance(value, time) and value.tzinfo is None else str(value)


def _text(key: Any) -> str:
    """Return a map key as a JSON key."""
    simple = _simple(key)
    return str(simple).lower() if isinstance(simple, bool) else str(simple)


def _runs_table(rows: list[Row]) -> pyarrow.Table:
    import orjson
    import pyarrow

    data: dict[str, Any] = {
        name: [_number(row[name]) if name == "value" else row[name] for row in rows] for name in COLUMNS
    }
    data["options"] = [orjson.dumps(row["options"]).decode() for row in rows]
    return pyarrow.table({name: _column(name, values) for name, values in data.items()})


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _column(name: str, values: list[Any]) -> Any:
    import pyarrow

    kinds = {
        "seed": pyarrow.int64(),
        "attempt": pyarrow.int64(),
        "best_checkpoint_step": pyarrow.int64(),
        "synthetic": pyarrow.bool_(),
        **dict.fromkeys(("value", "best_metric_value", "wall_s", "cpu_s", "created"), pyarrow.float64()),
    }
    return pyarrow.array(values, kinds.get(name, pyarrow.string()))


def _with_series(store: Store, rows: list[Row]) -> tuple[list[Row], list[Series]]:
    """Return the rows and the series of each run. A run with damaged series gets the status `damaged`."""
    checked, series = [], []
    for row in rows:
        run = store.look_at(row["study"], row["run"])
        seen, own = with_series(run) if run is not None else (None, {})
        if seen is not None and seen.status is Status.DAMAGED:
            row = {**row, "status": Status.DAMAGED.value, "reason": seen.reason}
        checked.append(row)
        series.append(own)
    return checked, series


def _metrics_table(rows: list[Row], series: list[Series]) -> pyarrow.Table:
    """Return a table with one row per value. Columns that describe the run are dictionary-encoded."""
    import numpy
    import pyarrow

    empty: list[Any] = [numpy.empty(0, numpy.int32)]
    run_codes, metric_codes, steps, values = list(empty), list(empty), list(empty), list(empty)
    metrics: dict[str, int] = {}
    for code, own in enumerate(series):
        for name, (at, recorded) in own.items():
            run_codes.append(numpy.full(len(at), code, numpy.int32))
            metric_codes.append(numpy.full(len(at), metrics.setdefault(name, len(metrics)), numpy.int32))
            steps.append(at)
            values.append(recorded)
    of_run = pyarrow.array(numpy.concatenate(run_codes))
    named = {name: _column(name, [row[name] for row in rows]) for name in ("study", "variant", "run", "seed")}
    columns = {name: pyarrow.DictionaryArray.from_arrays(of_run, column) for name, column in named.items()}
    names = pyarrow.array(list(metrics), pyarrow.string())
    columns["metric"] = pyarrow.DictionaryArray.from_arrays(pyarrow.array(numpy.concatenate(metric_codes)), names)
    columns["step"] = pyarrow.array(numpy.concatenate(steps).astype(numpy.int64))
    columns["value"] = pyarrow.array(numpy.concatenate(values).astype(numpy.float64))
    columns["seed"] = columns["seed"].dictionary_decode()
    return pyarrow.table(columns)
