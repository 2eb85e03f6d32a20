"""A reader behind the contract of plug-ins gives an analysis the same runs."""

from __future__ import annotations

from fairtrial.core.readers import Columns
from fairtrial.core.runs import Status
from fairtrial.readers.catalog import load_reader
from fairtrial.readers.plugin import PluginReader
from tests.readers.checking import FILES, bits, expected_runs


def test_an_analysis_gets_the_runs_of_a_database_with_variant_and_seed_from_the_configuration() -> None:
    place = FILES / "mlflow_sqlite"
    reader = PluginReader(load_reader("mlflow"))
    assert reader.recognize(place) == "an MLflow database, mlflow.db"
    source = reader.open([place], Columns(variant="algo", seed="seed"))
    assert sorted(source.metrics()) == ["score", "train/loss"]
    traces = {trace.run: trace for trace in source.traces(["train/loss"])}
    expected = expected_runs("mlflow_sqlite")
    assert {trace.seed for trace in traces.values()} == {"0", "1", "2"}
    assert {trace.variant for trace in traces.values()} == {"ppo"}
    assert {trace.status for trace in traces.values()} == {Status.COMPLETED, Status.FAILED, Status.RUNNING}
    for run, trace in traces.items():
        assert bits(trace.curves["train/loss"][1]) == bits(expected[run]["series"]["train/loss"]["values"])
