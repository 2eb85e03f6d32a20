"""Metrics files as programs really write them: appended to, written again with more columns, replaced, cut off.

Each program here is a real one that `launch command` starts. Where it has to be looked at in between, it waits for a
row of its own to turn up in the run's metrics, never for a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.recipes.command import MetricsFile
from fairtrial.record.series import read_series
from fairtrial.record.store import Store
from tests.conftest import Answer

Cli = Callable[..., Answer]

WAIT = """
import csv, os, sys, time
out, run_dir = sys.argv[1], os.path.dirname(sys.argv[1])

def wait_until_logged(text):
    end = time.monotonic() + 20
    while text not in open(os.path.join(run_dir, "metrics.jsonl")).read():
        assert time.monotonic() < end, f"{text} was never logged"
        time.sleep(0.01)

def rest():
    time.sleep(0.3)
"""
LIGHTNING = """
class CSVLogger:  # as lightning.fabric.loggers.csv_logs: appends, and writes everything again when a key is new
    def __init__(self, path):
        self.path, self.keys = path, []

    def save(self, **metrics):
        new = set(metrics) - set(self.keys)
        exists = os.path.isfile(self.path)
        self.keys = sorted([*self.keys, *new])
        if new and exists:
            with open(self.path, newline="") as file:
                rows = list(csv.DictReader(file))
            with open(self.path, "w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=self.keys)
                writer.writeheader()
                writer.writerows(rows)
        with open(self.path, "a" if exists else "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=self.keys)
            if not exists:
                writer.writeheader()
            writer.writerow(metrics)
"""
STABLE_BASELINES = """
class CSVOutputFormat:  # as stable_baselines3.common.logger: overwrites the open file in place when a key is new
    def __init__(self, path):
        self.file, self.keys = open(path, "w+t"), []

    def write(self, **values):
        extra = [key for key in values if key not in self.keys]
        if extra:
            self.keys.extend(extra)
            self.file.seek(0)
            lines = self.file.readlines()
            self.file.seek(0)
            self.file.write(",".join(self.keys) + "\\n")
            for line in lines[1:]:
                self.file.write(line[:-1] + "," * len(extra) + "\\n")
        self.file.write(",".join(str(values.get(key, "")) for key in self.keys) + "\\n")
        self.file.flush()
"""


def run(cli: Cli, store: Store, code: str, name: str = "m.csv", *words: str) -> tuple[Answer, Any, dict[str, Any]]:
    Path("program.py").write_text(WAIT + code)
    done = cli(
        "launch", "command", "--base-run-name", "s", "--seeds", "1,", "--metrics", "{run_dir}/" + name, *words, "--",
        sys.executable, "program.py", "{run_dir}/" + name, "{seed}",
    )  # fmt: skip
    found = store.run("s", "default.seed1")
    assert found is not None
    series = {
        key: dict(zip(*(each.tolist() for each in both), strict=True)) for key, both in read_series(found.paths).items()
    }
    return done, found, series


def test_a_header_that_grows_as_in_lightning_keeps_every_value_in_its_column(cli: Cli, store: Store) -> None:
    code = (
        LIGHTNING
        + """
log = CSVLogger(out)
for step in range(3):
    log.save(epoch=0, step=step, z_loss=step + 0.5)
wait_until_logged('"z_loss":2.5')
log.save(epoch=0, step=2, accuracy=0.25)
wait_until_logged('"accuracy":0.25')
for step in range(3, 6):
    log.save(epoch=1, step=step, z_loss=step + 0.5)
wait_until_logged('"z_loss":5.5')
log.save(epoch=1, step=5, accuracy=0.75, best=0.75)
"""
    )
    done, found, series = run(cli, store, code)
    assert done.code == 0, done.out + done.err
    assert found.status is Status.COMPLETED
    assert series["z_loss"] == {step: step + 0.5 for step in range(6)}
    assert series["accuracy"] == {2: 0.25, 5: 0.75} and series["best"] == {5: 0.75}
    assert set(series["epoch"].values()) == {0, 1} and set(series) == {"z_loss", "accuracy", "best", "epoch"}
    lines = found.paths.metrics.read_text().splitlines()
    assert len(lines) == 8, "a row that was logged before is not logged again"


def test_a_file_overwritten_in_place_as_in_stable_baselines_is_read(cli: Cli, store: Store) -> None:
    code = (
        STABLE_BASELINES
        + """
log = CSVOutputFormat(out)
for step in range(400):
    log.write(**{"step": step, "rollout/reward": step / 8})
wait_until_logged('"rollout/reward":49.875')
for step in range(400, 405):
    log.write(**{"step": step, "rollout/reward": step / 8, "train/loss": 0.5})
wait_until_logged('"train/loss":0.5')
"""
    )
    done, _, series = run(cli, store, code, "progress.csv")
    assert done.code == 0, done.out + done.err
    assert series["rollout/reward"] == {step: step / 8 for step in range(405)}
    assert series["train/loss"] == dict.fromkeys(range(400, 405), 0.5)


@pytest.mark.parametrize("name", ["m.csv", "m.jsonl"])
def test_a_file_that_is_replaced_with_every_row_is_read_once(cli: Cli, store: Store, name: str) -> None:
    code = """
rows = []
for step in range(4):
    rows.append((step, step / 4))
    with open(out + ".new", "w") as file:
        if out.endswith("csv"):
            file.write("step,x\\n")
        for at, x in rows:
            file.write(f"{at},{x}\\n" if out.endswith("csv") else '{"step": %d, "x": %r}\\n' % (at, x))
    os.replace(out + ".new", out)
    wait_until_logged(f'"x":{step / 4}')
"""
    done, found, series = run(cli, store, code, name)
    assert done.code == 0, done.out + done.err
    assert series == {"x": {step: step / 4 for step in range(4)}}
    assert len(found.paths.metrics.read_text().splitlines()) == 4


def test_what_was_logged_stays_when_a_program_starts_its_file_over(cli: Cli, store: Store) -> None:
    code = """
open(out, "w").write("step,x\\n1,10\\n2,20\\n")
wait_until_logged('"x":20.0')
open(out, "w").write("step,x\\n2,21\\n3,31\\n")
"""
    done, _, series = run(cli, store, code)
    assert done.code == 0, done.out + done.err
    assert series == {"x": {1: 10, 2: 21, 3: 31}}, "the last that was written about a step counts"


def test_only_a_line_feed_ends_a_line(cli: Cli, store: Store) -> None:
    code = """
with open(out, "w", encoding="utf-8") as file:
    for step, mark in enumerate("\\u2028\\u2029\\u0085"):
        file.write('{"step": %d, "note": "a%sb", "x": 1}\\n' % (step, mark))
"""
    done, _, series = run(cli, store, code, "m.jsonl")
    assert done.code == 0, done.out + done.err
    assert len(series["x"]) == 3


def test_separators_in_cells_do_not_split_rows(tmp_path: Path) -> None:
    metrics, journal = MetricsFile(tmp_path / "m.csv", "step"), Journal()
    marks = "\u2028\u2029\u0085\v\f\x1c\x1d\x1e"
    rows = "".join(f"{step},1,a{mark}b\n" for step, mark in enumerate(marks))
    (tmp_path / "m.csv").write_bytes(f"step,x,t\n{rows}".encode())
    metrics.copy_new(journal, ended=True)  # type: ignore[arg-type]
    assert [step for step, _ in journal.lines] == list(range(len(marks)))


def test_a_quoted_newline_in_csv_is_part_of_its_cell(cli: Cli, store: Store) -> None:
    code = """
with open(out, "w") as file:
    file.write('step,note,x\\n0,"first\\n')
    file.flush()
    rest()
    file.write('second, and ""quoted"" text",0.5\\n1,plain,0.75\\n')
    file.flush()
    wait_until_logged('"x":0.75')
"""
    done, _, series = run(cli, store, code)
    assert done.code == 0, done.out + done.err
    assert series == {"x": {0: 0.5, 1: 0.75}}


BAD_FILES = {
    "a row without a step": ("step,x\n1,1\n,2\n3,3\n", "row 2 of", "has no 'step'"),
    "a column twice": ("step,y,x,y\n1,7,1,8\n3,7,3,8\n", "the column 'y' twice", "as columns 2 and 4"),
    "an open quote": ('step,x\n1,1\n3,3\n4,"4\n', "row 3 of", "has an unclosed quote"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_does_not_end_its_program_but_the_run_fails(cli: Cli, store: Store, kind: str) -> None:
    text, *told = BAD_FILES[kind]
    code = f"""
open(out, "w").write({text!r})
wait_until_logged('"step":{"1" if "quote" in kind else "3"}')
rest()
open(os.path.join(run_dir, "went-on"), "w").close()
"""
    done, found, series = run(cli, store, code)
    assert done.code == 4 and found.status is Status.FAILED
    assert all(words in str(found.reason) for words in told), found.reason
    assert (found.path / "went-on").exists(), "the program was not ended"
    assert series == {"x": {1: 1, 3: 3}}, "what can be read is logged"


def test_a_key_twice_in_a_line_fails_the_run_and_other_lines_stay(cli: Cli, store: Store) -> None:
    code = """open(out, "w").write('{"step": 1, "x": 1}\\n{"step": 2, "x": 2, "x": 9}\\n')"""
    done, found, series = run(cli, store, code, "m.jsonl")
    assert done.code == 4 and "has the key 'x' twice" in str(found.reason)
    assert series == {"x": {1: 1}}


def test_how_the_program_ended_is_told_before_what_is_wrong_with_its_file(cli: Cli, store: Store) -> None:
    done, found, series = run(cli, store, """open(out, "w").write("step,x\\n1,1\\n,2\\n"); sys.exit(7)""")
    assert done.code == 4 and "exit status 7" in str(found.reason) and series == {"x": {1: 1}}


def test_a_pipe_in_place_of_the_file_does_not_hang(cli: Cli, store: Store) -> None:
    done, found, _ = run(cli, store, "os.mkfifo(out); rest()", "m.csv", "--timeout", "15")
    assert done.code == 4 and "is a pipe" in str(found.reason)


def test_capitals_index_columns_and_names_of_ours_are_understood(cli: Cli, store: Store) -> None:
    done, _, series = run(cli, store, """open(out, "w").write(",Step,_time,x\\n0,1.0,7,0.5\\n1,2.0,8,\\n")""")
    assert done.code == 0, done.out + done.err
    assert series == {"program_time": {1: 7, 2: 8}, "x": {1: 0.5}}


# Without a process: contents at every moment of a rewrite.


class Journal:
    """Takes what is logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, dict[str, float]]] = []

    def log(self, step: int, values: dict[str, float]) -> None:
        self.lines.append((step, dict(values)))

    @property
    def points(self) -> dict[tuple[str, int], float]:
        return {(name, step): value for step, values in self.lines for name, value in values.items()}


def test_no_moment_of_a_rewrite_in_place_is_taken_for_data(tmp_path: Path) -> None:
    """Every prefix of the new content over the old one: nothing may be logged that neither of the two says."""
    steps = range(10, 26)
    old = "step,a\n" + "".join(f"{n},{n + 100}\n" for n in steps)
    new = "a,step,b\n" + "".join(f"{n + 100},{n},{'7' if n > 22 else ''}\n" for n in steps)
    said = {("a", n): n + 100.0 for n in steps} | {("b", n): 7.0 for n in steps if n > 22}
    read = old.index("20,")
    path = tmp_path / "m.csv"
    for length in range(1, len(new) - 24, 3):
        path.unlink(missing_ok=True)
        metrics, journal = MetricsFile(path, "step"), Journal()
        path.write_text(old[:read])
        metrics.copy_new(journal)  # type: ignore[arg-type]
        with path.open("r+") as file:
            file.write(new[:length] + old[length:])
        for _ in range(3):
            metrics.copy_new(journal)  # type: ignore[arg-type]
        assert journal.points.items() <= said.items(), f"after {length} bytes: {journal.lines}"
        path.write_text(new)
        metrics.copy_new(journal, ended=True)  # type: ignore[arg-type]
        metrics.check()
        assert journal.points == said


def test_a_file_with_other_rows_waits_for_the_end_and_counts_then(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    metrics, journal = MetricsFile(path, "step"), Journal()
    path.write_text('{"step": 1, "x": 10}\n{"step": 1, "x": 11}\n')
    metrics.copy_new(journal)  # type: ignore[arg-type]
    assert journal.points == {("x", 1): 11}
    path.rename(tmp_path / "other.jsonl")
    path.write_text('{"step": 1, "x": 10}\n{"step": 2, "x": 20}\n{"step": 3, "x": 30}\n')
    for _ in range(4):
        metrics.copy_new(journal)  # type: ignore[arg-type]
    assert journal.points == {("x", 1): 11}, "it may be in the middle of being written"
    metrics.copy_new(journal, ended=True)  # type: ignore[arg-type]
    metrics.check()
    assert journal.points == {("x", 1): 10, ("x", 2): 20, ("x", 3): 30}


def test_a_file_that_became_shorter_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    metrics, journal = MetricsFile(path, "step"), Journal()
    path.write_text("".join(f'{{"step": {n}, "x": {n}}}\n' for n in range(3)))
    metrics.copy_new(journal)  # type: ignore[arg-type]
    path.write_text('{"step": 0, "x": 5}\n')
    metrics.copy_new(journal, ended=True)  # type: ignore[arg-type]
    assert journal.points == {("x", 0): 5, ("x", 1): 1, ("x", 2): 2}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("1.5,1", "has the step 1.5"),
        ("1e30,1", "has the step 1e30"),
        ("nan,1", "has the step nan"),
        ("two,1", "has the step two"),
        ("2,1,9", "has 3 cells, its header has 2"),
    ],
)
def test_a_row_that_cannot_be_logged_is_named(tmp_path: Path, row: str, told: str) -> None:
    path = tmp_path / "m.csv"
    metrics, journal = MetricsFile(path, "step"), Journal()
    path.write_text(f"step,x\n1,1\n{row}\n3,3\n")
    for ended in (False, True):
        metrics.copy_new(journal, ended=ended)  # type: ignore[arg-type]
    assert [step for step, _ in journal.lines] == [1, 3]
    with pytest.raises(UserError, match="row 2 of"):
        metrics.check()
    assert told in metrics.problems[0] and len(metrics.problems) == 1


def test_a_row_of_any_length_is_read_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairtrial.recipes._metrics_file.LONGEST_LINE_BYTES", 1000)
    monkeypatch.setattr("fairtrial.recipes._metrics_file.MOST_AT_ONCE_BYTES", 300)
    for name, line in (("m.jsonl", '{"step": %d, "x": 1, "t": "%s"}\n'), ("m.csv", '%d,1,"%s"\n')):
        path = tmp_path / name
        metrics, journal = MetricsFile(path, "step"), Journal()
        head = "step,x,t\n" if name == "m.csv" else ""
        path.write_text(head + "".join(line % (n, "t" * 90) for n in range(20)) + line % (20, "t" * 2000))
        metrics.copy_new(journal)  # type: ignore[arg-type]
        assert 0 < len(journal.lines) < 20, "one look takes a part"
        metrics.copy_new(journal, ended=True)  # type: ignore[arg-type]
        assert len(journal.lines) == 20
        assert "row 21 of" in metrics.problems[0] and "longer than" in metrics.problems[0]
