"""Programs that know nothing of Fairtrial: filled in, run without a shell, read, timed, and ended."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.core.errors import FairtrialError
from fairtrial.core.options import parse_options
from fairtrial.core.runs import Status
from fairtrial.recipes.command import Options, fill
from fairtrial.record.checkpoints import read_checkpoint
from fairtrial.record.series import read_series
from fairtrial.record.store import Store
from tests.conftest import Answer, start
from tests.harness import eventually, is_alive, parent_of

Cli = Callable[..., Answer]
PYTHON = sys.executable
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
WRITER = """
import json, sys
lr, seed, out = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
print("training with", lr)
with open(out, "w") as file:
    for step in range(5):
        file.write(json.dumps({"step": step, "eval_accuracy": lr + seed / 1e6 + step / 100}) + "\\n")
"""


@pytest.fixture
def writer(tmp_path: Path) -> str:
    path = tmp_path / "my writer.py"
    path.write_text(WRITER)
    return str(path)


DIGITS = """
import numpy

def load_digits(*, return_X_y):
    rows = numpy.loadtxt(FILE, delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(int)
"""


@pytest.fixture
def quick_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of scikit-learn's digits for programs that need nothing else of it: importing it takes seconds."""
    found = importlib.util.find_spec("sklearn")
    assert found is not None and found.origin is not None
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    package = tmp_path / "quick" / "sklearn"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "datasets.py").write_text(DIGITS.replace("FILE", repr(str(file))))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))


def launch(cli: Cli, *words: str, seeds: str = "2") -> Answer:
    return cli("launch", "command", "--base-run-name", "s", "--seeds", seeds, "--format", "json", *words)


@pytest.mark.slow
def test_a_foreign_script_is_launched_with_two_variants_and_five_seeds(
    cli: Cli, store: Store, quick_digits: None
) -> None:
    done = launch(
        cli, "--variant", "slow:lr=0.001", "--variant", "fast:lr=0.5", "--metrics", "{run_dir}/out.jsonl", "--",
        PYTHON, str(EXAMPLES / "train_numpy.py"), "--lr", "{lr}", "--seed", "{seed}", "--out", "{run_dir}/out.jsonl",
        seeds="5",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert [arm["completed"] for arm in done.json["arms"]] == [5, 5]
    assert done.json["differences"][0]["mean"] > 0.05, "the higher rate learns more in so few steps"
    run = store.run("s", "fast.seed1072")
    assert run is not None and run.metadata["timings"]["cpu_s"] > 0.05
    assert run.metadata["resources"]["peak_process_bytes"] > 1e6


def test_what_a_program_prints_is_kept(cli: Cli, store: Store, writer: str) -> None:
    done = launch(
        cli,
        "--variant",
        "a:lr=0.5",
        "--metrics",
        "{run_dir}/m.jsonl",
        "--",
        PYTHON,
        writer,
        "{lr}",
        "{seed}",
        "{run_dir}/m.jsonl",
    )
    assert done.code == 0, done.err
    assert store.paths.run("s", "a.seed1072").log.read_text() == "training with 0.5\n"
    series = read_series(store.paths.run("s", "a.seed1072"))
    assert list(series) == ["eval_accuracy"] and len(series["eval_accuracy"][0]) == 5


def test_values_are_filled_in_element_by_element_without_a_shell(tmp_path: Path, cli: Cli, store: Store) -> None:
    nasty = "$(touch hacked); `x` && 'quote\" {not a placeholder"
    echo = "import json,sys; json.dump(sys.argv[1:], open(sys.argv[2], 'w')); print('done')"
    study = tmp_path / "study.yaml"
    options = {
        "argv": [
            PYTHON,
            "-c",
            echo.replace("{", "{{").replace("}", "}}"),
            "{text}",
            "{run_dir}/argv.json",
            "{seed}",
            "{{literal}}",
        ]
    }
    study.write_text(
        json.dumps(
            {"study": "s", "recipe": "command", "seeds": [7], "options": options, "variants": {"v": {"text": nasty}}}
        )
    )
    assert cli("launch", str(study)).code == 0
    seen = json.loads((store.paths.run("s", "v.seed7").root / "argv.json").read_text())
    assert seen[0] == nasty and seen[2:] == ["7", "{literal}"]
    assert not (tmp_path / "hacked").exists()


def test_fill_does_nothing_but_fill() -> None:
    assert fill("{a}-{b}-{{a}}", {"a": "{b}", "b": 2}) == "{b}-2-{a}"


@pytest.mark.parametrize(
    ("values", "argv", "message"),
    [
        ({}, ["run", "{lr}", "{seed}"], "placeholder {lr} has no value"),
        ({"lr": 1, "wd": 2}, ["run", "{lr}", "{seed}"], "value 'wd' has no placeholder {wd}"),
        ({"wd": 2}, ["run", "{lr}"], "placeholder {lr} has no value; value 'wd' has no placeholder {wd}"),
        ({}, [], "pass the program after '--'"),
        ({}, ["run", "{"], "write {{ and }} for literal braces"),
    ],
)
def test_placeholders_and_values_must_match(values: dict[str, int], argv: list[str], message: str) -> None:
    with pytest.raises(FairtrialError) as caught:
        parse_options(Options, {"values": values, "argv": argv}, where="test")
    assert message in caught.value.message


def test_a_program_that_fails_is_listed_with_its_status_and_the_end_of_its_log(cli: Cli, store: Store) -> None:
    code = "import sys; print('about to fail'); sys.exit(int(sys.argv[1]))"
    done = cli("launch", "command", "--base-run-name", "s", "--seeds", "3,", "--", PYTHON, "-c", code, "{seed}")
    assert done.code == 4
    assert "failed with exit status 3" in done.out and "about to fail" in done.out
    run = store.run("s", "default.seed3")
    assert run is not None and run.status is Status.FAILED


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such-program", "{seed}"], "program 'no-such-program' not found"),
        ([PYTHON, "-c", "pass", "{seed}"], "wrote no metrics to"),
        (
            [
                PYTHON,
                "-c",
                "open('m.jsonl','w').write('{\"epoch\": 1}\\n')".replace("{", "{{").replace("}", "}}"),
                "{seed}",
            ],
            "has no 'step'",
        ),
        ([PYTHON, "-c", "open('m.jsonl','w').write('what?\\n')", "{seed}"], "is not JSON"),
    ],
)
def test_what_goes_wrong_is_said_in_one_sentence(cli: Cli, store: Store, words: list[str], message: str) -> None:
    done = cli("launch", "command", "--base-run-name", "s", "--seeds", "1", "--metrics", "m.jsonl", "--", *words)
    assert done.code == 4
    assert message in done.out


def test_csv_is_read_too(cli: Cli, store: Store) -> None:
    code = "open('out.csv','w').write('epoch,acc,note\\n1,0.5,hello\\n2,0.75,\\n')"
    done = launch(cli, "--metrics", "out.csv", "--step-column", "epoch", "--", PYTHON, "-c", code, "{seed}", seeds="1")
    assert done.code == 0, done.err
    series = read_series(store.paths.run("s", "default.seed1072"))
    assert list(series) == ["acc"] and series["acc"][1].tolist() == [0.5, 0.75]


def test_programs_that_share_one_metrics_file_take_turns(cli: Cli, store: Store, tmp_path: Path) -> None:
    code = """
import json, sys, time, os
assert not os.path.exists("m.jsonl")
with open("m.jsonl", "w") as f:
    for step in range(3):
        time.sleep(0.02)
        f.write(json.dumps(dict(step=step, x=int(sys.argv[1]))) + "\\n")
        f.flush()
"""
    (tmp_path / "p.py").write_text(code)
    (tmp_path / "m.jsonl").write_text("what was there before\n")
    done = launch(cli, "--metrics", "m.jsonl", "--jobs", "3", "--", PYTHON, "p.py", "{seed}", seeds="11,12,13,14")
    assert done.code == 0, done.err
    for seed in (11, 12, 13, 14):
        assert read_series(store.paths.run("s", f"default.seed{seed}"))["x"][1].tolist() == [seed] * 3
    assert [c["code"] for c in done.json["cautions"]] == ["shared file"]
    assert [path.read_text() for path in tmp_path.glob("m.jsonl.before-*")] == ["what was there before\n"]


def test_a_timed_out_program_is_ended_with_everything_it_started(cli: Cli, store: Store, tmp_path: Path) -> None:
    code = "import subprocess, sys, os; c = subprocess.Popen(['sleep', '600']); open('pids', 'w').write(f'{os.getpid()} {c.pid}'); c.wait()"
    done = cli(
        "launch",
        "command",
        "--base-run-name",
        "s",
        "--seeds",
        "1",
        "--timeout",
        "1.5",
        "--",
        PYTHON,
        "-c",
        code.replace("{", "{{").replace("}", "}}"),
        "{seed}",
    )
    assert done.code == 4 and "timed out after 1.5 s" in done.out
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        eventually(lambda pid=pid: not is_alive(pid), timeout=5)


@pytest.mark.slow
def test_a_killed_job_takes_its_program_along(store: Store, tmp_path: Path) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    process = start("launch", "command", "--base-run-name", "s", "--seeds", "1", "--", PYTHON, "-c", code, "{seed}")
    program = int(eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    job = parent_of(program)
    os.kill(job, signal.SIGKILL)
    eventually(lambda: not is_alive(program), timeout=5, what="the end of the program")
    assert process.wait(30) == 4
    process.communicate()


def recorded(tmp_path: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [PYTHON, str(EXAMPLES / "train_numpy_recorded.py"), *words], cwd=tmp_path, stdout=subprocess.DEVNULL
    )


@pytest.mark.slow
def test_four_lines_more_give_a_script_its_best_checkpoint_and_resume(
    store: Store, tmp_path: Path, quick_digits: None
) -> None:
    plain, more = (
        (EXAMPLES / f"{name}.py").read_text().splitlines() for name in ("train_numpy", "train_numpy_recorded")
    )
    added = [line for line in more if line.rstrip().endswith("# +")]
    assert len(added) == 4
    rest = [line for line in more if line.strip() and line not in added]
    assert rest[1:] == [line for line in plain if line.strip()][1:], (
        "apart from those, only the first docstring differs"
    )
    words = ("--lr", "0.5", "--seed", "1", "--out", str(tmp_path / "out.jsonl"))
    assert recorded(tmp_path, *words).wait(60) == 0
    [(study, entry)] = store.directories()
    paths = store.paths.run(study, entry.name)
    expected = {name: values[1].tolist() for name, values in read_series(paths).items()}
    run = store.run(study, entry.name)
    assert run is not None and run.status is Status.COMPLETED
    best = read_checkpoint(paths.best, sha256=run.metadata["best_checkpoint_sha256"])
    assert best.step == run.metadata["best_checkpoint_step"]
    for wait_for in (1, 3):
        store.archive(paths)
        process = recorded(tmp_path, *words)
        # A checkpoint counts once it is on record, which `last.pt` follows: its own file is there a moment earlier.
        eventually(lambda n=wait_for: paths.last.exists() and len(list(paths.checkpoints.glob("step-*.pt"))) >= n)
        process.kill()
        process.wait()
        assert recorded(tmp_path, *words).wait(60) == 0
        run = store.run(study, entry.name)
        assert run is not None and run.status is Status.COMPLETED and run.metadata["lineage"]["resumed"]
        assert {name: values[1].tolist() for name, values in read_series(paths).items()} == expected


def test_a_recorded_script_joins_the_run_that_launched_it(cli: Cli, store: Store, tmp_path: Path) -> None:
    done = launch(
        cli, "--variant", "a:lr=0.5", "--", PYTHON, str(EXAMPLES / "train_numpy_recorded.py"),
        "--lr", "{lr}", "--seed", "{seed}", "--out", "{run_dir}/out.jsonl",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert store.studies() == ["s"]
    run = store.run("s", "a.seed1072")
    assert run is not None and run.status is Status.COMPLETED
    assert run.metadata["best_checkpoint_step"] is not None and run.paths.best.exists()


JOINS = """
import fairtrial
with fairtrial.run() as run:
    seed = {seed}
    run.log(1, eval_accuracy=0.5 + seed / 1e6)
"""


@pytest.mark.parametrize(
    ("seed", "codes"),
    [("run.seed", []), ("0", ["seed not passed", "same over seeds"])],
    ids=["reads run.seed", "knows no seed"],
)
def test_a_program_that_takes_the_seed_of_its_run_is_not_told_that_it_has_none(
    cli: Cli, tmp_path: Path, seed: str, codes: list[str]
) -> None:
    """D: scripts that took `run.seed` were told that all seeds are the same run."""
    (tmp_path / "joins.py").write_text(JOINS.replace("{seed}", seed))
    done = launch(cli, "--", PYTHON, str(tmp_path / "joins.py"))
    assert done.code == 0, done.err
    told = [each["code"] for each in done.json["cautions"]]
    assert [code for code in told if code in ("seed not passed", "same over seeds")] == codes


def test_a_program_that_takes_its_seed_as_an_argument_is_not_told_either(cli: Cli, writer: str) -> None:
    done = launch(cli, "--metrics", "{run_dir}/o.jsonl", "--", PYTHON, writer, "0.5", "{seed}", "{run_dir}/o.jsonl")
    assert done.code == 0 and "seed not passed" not in [each["code"] for each in done.json["cautions"]]
