"""`fairtrial --help` is instant, because nothing heavy is imported for it; a job starts on a bare node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "numpy", "scipy", "pydantic", "rich", "duckdb", "pyarrow", "yaml", "orjson", "altair", "ray")
NOT_IN_A_JOB = ("scipy", "duckdb", "rich", "altair", "click", "yaml", "sklearn", "mnist1d")


def imported_by(command: str, source: Path) -> set[str]:
    """The top-level packages that a command line has imported when it ends."""
    code = (
        f"import sys; from fairtrial.cli.app import run; run({command.split()!r}); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_help_imports_nothing_heavy() -> None:
    assert not imported_by("--help", ROOT / "src") & set(HEAVY)


def test_version_imports_nothing_heavy() -> None:
    assert not imported_by("--version", ROOT / "src") & set(HEAVY)


def test_a_heavy_import_that_reaches_help_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    errors = source / "fairtrial/core/errors.py"
    errors.write_text(errors.read_text() + "\nimport pydantic\n")
    assert imported_by("--help", source) & set(HEAVY) == {"pydantic"}


def test_import_fairtrial_costs_nothing() -> None:
    code = "import sys, fairtrial; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {*HEAVY, "click"}


def test_listing_runs_needs_neither_torch_nor_pydantic() -> None:
    assert not imported_by("runs list", ROOT / "src") & {"torch", "pydantic", "numpy", "duckdb", "pyarrow"}


def test_showing_a_run_needs_neither_numpy_nor_pydantic(tmp_path: Path) -> None:
    """Not even for a run that was resumed: it is shown within half a second, however long it is."""
    code = (
        "import fairtrial\n"
        f"run = fairtrial.run(study='s', variant='v', seed=1, store={str(tmp_path)!r})\n"
        "run.log(1, loss=0.5)\nrun.save(1, {})\nrun.release()\n"
        f"with fairtrial.run(study='s', variant='v', seed=1, store={str(tmp_path)!r}) as run:\n"
        "    run.resume()\n    run.log(2, loss=0.25)\n"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    used = imported_by(f"runs show s/v.seed1 --store {tmp_path}", ROOT / "src")
    assert not used & {"torch", "pydantic", "numpy", "duckdb", "pyarrow"}


JOB = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from pathlib import Path
from fairtrial.core.specs import RunSpec
from fairtrial.core.specs import Job
from fairtrial.jobs.run_session import run_cell
import fairtrial.jobserver
spec = RunSpec(recipe="fake", options=dict(steps=5), identity={{}}, seed=1)
print(run_cell(Job(spec, Path({store!r}))).status)
"""


def test_a_job_runs_on_a_bare_node(tmp_path: Path) -> None:
    code = JOB.format(absent=(*NOT_IN_A_JOB, "torch"), store=str(tmp_path / "store"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "completed", done.stderr
