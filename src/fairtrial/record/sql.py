"""SQL over a store, through DuckDB: `runs` from the index, `metrics` from the columnar copies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairtrial.core.errors import UserError
from fairtrial.core.paths import RunPaths
from fairtrial.record.index import Row, list_rows
from fairtrial.record.series import read_series
from fairtrial.record.store import Store

if TYPE_CHECKING:
    import duckdb
    import pyarrow

COLUMNS = (
    "study", "variant", "seed", "run", "attempt", "recipe", "synthetic", "status", "reason", "metric", "value",
    "best_metric_name", "best_metric_value", "best_checkpoint_step", "wall_s", "cpu_s", "created", "commit",
)  # fmt: skip


def run_query(store: Store, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows. The query sees the store and nothing else: no files, no network."""
    import duckdb

    rows = list_rows(store)
    with duckdb.connect() as connection:
        connection.register("runs", _runs_table(rows))
        if "metrics" in sql.lower():
            connection.register("metrics", _metrics_table(rows))
        connection.execute("SET enable_external_access = false")
        return _fetch(connection, sql)


def _fetch(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    import duckdb

    try:
        result = connection.execute(sql)
        return [column[0] for column in result.description or []], result.fetchall()
    except duckdb.Error as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(first, hint=f"Table runs has {', '.join(COLUMNS)}, options; table metrics has "
                        "study, variant, seed, run, metric, step, value.") from None  # fmt: skip


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
        "seed": pyarrow.int64(), "attempt": pyarrow.int64(), "best_checkpoint_step": pyarrow.int64(),
        "synthetic": pyarrow.bool_(),
        **dict.fromkeys(("value", "best_metric_value", "wall_s", "cpu_s", "created"), pyarrow.float64()),
    }  # fmt: skip
    return pyarrow.array(values, kinds.get(name, pyarrow.string()))


def _metrics_table(rows: list[Row]) -> pyarrow.Table:
    import numpy
    import pyarrow

    tables = []
    for row in rows:
        for name, (steps, values) in read_series(RunPaths(Path(row["path"]))).items():
            count = len(steps)
            fixed = {key: pyarrow.array([row[key]] * count, pyarrow.string()) for key in ("study", "variant", "run")}
            seed = pyarrow.array(numpy.full(count, row["seed"] if row["seed"] is not None else -1))
            tables.append(
                pyarrow.table(
                    {
                        **fixed,
                        "seed": seed,
                        "metric": pyarrow.array([name] * count),
                        "step": steps,
                        "value": values,
                    }
                )
            )
    if tables:
        return pyarrow.concat_tables(tables)
    kinds = {key: pyarrow.string() for key in ("study", "variant", "run", "metric")}
    return pyarrow.schema(
        {**kinds, "seed": pyarrow.int64(), "step": pyarrow.int64(), "value": pyarrow.float64()}
    ).empty_table()
