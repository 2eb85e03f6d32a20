"""MLflow: a file store by 2.9.2, an sqlite store by the newest version. Run with each: python mlflow_files.py

Expected values: MLflow's own client.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from _expected import fresh, points, write_expected

os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"}
LOSSES = [1.0, 0.1, math.nan, math.inf, -math.inf, 1e-300, 0.30000000000000004, -0.0]


def main() -> None:
    import mlflow
    from mlflow.tracking import MlflowClient

    old = mlflow.__version__.startswith("2")
    out = fresh("mlflow_files" if old else "mlflow_sqlite")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mlflow.set_tracking_uri(f"file://{folder}/mlruns" if old else f"sqlite:///{folder}/mlflow.db")
        client = MlflowClient()
        experiment = client.create_experiment("demo", artifact_location="file:///artifacts")
        names = {}
        for number, end in enumerate(["FINISHED", "FAILED", None]):
            run = client.create_run(experiment, run_name=f"run {number}", tags={"mlflow.user": "user"})
            names[run.info.run_id] = f"run {number}"
            for key, value in {"lr": 0.25, "seed": number, "algo": "ppo"}.items():
                client.log_param(run.info.run_id, key, value)
            for step, value in enumerate(LOSSES):
                client.log_metric(run.info.run_id, "train/loss", value, step=step, timestamp=1_700_000_000_000 + step)
            client.log_metric(run.info.run_id, "score", number + 0.5, step=7)
            if end:
                client.set_terminated(run.info.run_id, end)
        runs = {}
        for run_id, run_name in names.items():
            found = client.get_run(run_id)
            series = {}
            for key in found.data.metrics:
                history = sorted(client.get_metric_history(run_id, key), key=lambda each: (each.timestamp, each.step))
                times = [each.timestamp / 1000 for each in history]
                # The client gives the largest float where infinity was logged to a database.
                values = [
                    math.copysign(math.inf, each.value) if abs(each.value) > 1e308 else each.value for each in history
                ]
                series[key] = points([each.step for each in history], values, times)
            status = {"FINISHED": "completed", "FAILED": "failed", "RUNNING": "running"}[found.info.status]
            runs[run_id] = {"series": series, "config": dict(found.data.params), "status": status, "name": run_name}
        if old:
            shutil.copytree(folder / "mlruns", out / "mlruns")
        else:
            with sqlite3.connect(folder / "mlflow.db") as database:
                database.execute("PRAGMA page_size = 512")  # a hundred empty tables, a page each
                database.execute("VACUUM")
            shutil.copy(folder / "mlflow.db", out)
    write_expected(out, runs, "mlflow")


if __name__ == "__main__":
    main()
