"""What is typed or handed in may be wrong in any way: the answer is a sentence and a documented exit code, soon."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.specs import confirmation_seeds, seed_list
from tests.conftest import Answer
from tests.fuzz.cases import WORKSPACE

Cli = Callable[..., Answer]

PROFILE = WORKSPACE / "runs" / ".profiles" / "p" / "1" / "snapshot.json"


@pytest.fixture(autouse=True)
def _end_of_patience() -> Iterator[None]:
    """A command that waits for a pipe, or reads a device, fails its test and does no harm."""

    def handle(*_: object) -> None:
        raise AssertionError("the command hangs")

    kept, before = signal.signal(signal.SIGALRM, handle), resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (4 << 30), before[1]))
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, kept)
    resource.setrlimit(resource.RLIMIT_AS, before)


# Counts without end


@pytest.mark.parametrize(
    "words",
    [
        ("launch", "fake", "--seeds", "1000000000", "--dry-run"),
        ("sweep", "fake", "--param", "effect=0:1:0.5", "--runs", "1000000000"),
        ("sweep", "fake", "--param", "effect=0:1:0.5", "--confirm", "1000000000"),
        ("compare", "--strategies", "kd", "--runs", "1000000000"),
    ],
)
def test_more_seeds_than_any_study_has_are_refused_at_once(cli: Cli, words: tuple[str, ...]) -> None:
    answer = cli(*words)
    assert answer.code == 1 and "1,000,000,000 seeds are more than 10,000" in answer.err
    assert not list(Path(os.environ["FAIRTRIAL_STORE"]).rglob("metadata.json")), "and nothing was trained before"


def test_a_study_file_with_too_many_seeds_or_runs_is_refused_at_once(cli: Cli) -> None:
    Path("seeds.yaml").write_text("study: q\nrecipe: fake\nseeds: 100000000\n")
    assert "100,000,000 seeds are more than 10,000" in cli("launch", "seeds.yaml", "--dry-run").err
    Path("listed.yaml").write_text(f"study: q\nrecipe: fake\nseeds: {list(range(10_001))}\n")
    assert "10,001 seeds are more than 10,000" in cli("launch", "listed.yaml", "--dry-run").err
    variants = "".join(f"  v{n}: {{effect: {n}}}\n" for n in range(11))
    Path("runs.yaml").write_text(f"study: q\nrecipe: fake\nseeds: 10000\nvariants:\n{variants}")
    answer = cli("launch", "runs.yaml", "--dry-run")
    assert answer.code == 1 and "11 variants with 10,000 seeds are more than 100,000 runs" in answer.err


def test_seeds_that_are_there_thousands_of_times_are_named_in_one_line(cli: Cli) -> None:
    Path("twice.yaml").write_text(f"study: q\nrecipe: fake\nseeds: {[n // 2 for n in range(10_000)]}\n")
    answer = cli("launch", "twice.yaml", "--dry-run")
    assert answer.code == 1 and answer.err.strip().endswith("each seed may occur only once; repeated: 0, 1, 2, 3, 4")


def test_no_list_of_seeds_is_made_that_nobody_could_run(cli: Cli) -> None:
    with pytest.raises(InvalidOptions, match="10,001 seeds are more than 10,000"):
        seed_list(10_001)
    with pytest.raises(InvalidOptions, match="10,001 seeds are more than 10,000"):
        confirmation_seeds(10_001)
    assert len(seed_list(10_000)) == len(set(confirmation_seeds(10_000, seed_list(50)))) == 10_000
    words = ("research", "preregister", "artifact.yaml", "--hypothesis", "h", "--methods", "m", "--derive-seeds")
    assert "not in the range 1<=x<=10000" in cli(*words, "10001").err


# Numbers that are none


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "words",
    [
        ("power", "--sesoi", "0.1", "--sd"), ("power", "--sesoi", "0.1", "--sd", "1", "--hours-per-run"),
        ("analyze", "s", "--alpha"), ("analyze", "s", "--summary.percent"), ("recommend", "--max-cost"),
        ("profile", "diff", "p", "q", "--margin"), ("variance", "s", "--threshold"),
    ],
)  # fmt: skip
def test_no_option_takes_a_number_that_is_not_finite(cli: Cli, words: tuple[str, ...], value: str) -> None:
    answer = cli(*words, value)
    assert answer.code == 2 and (f"{words[-1]} must be a finite number" in answer.err or "range" in answer.err)


@pytest.mark.parametrize("flag", ["--keep-best", "--batch-size", "--eval-every", "--log-every"])
def test_an_option_beyond_64_bits_is_refused_before_anything_is_written(cli: Cli, flag: str) -> None:
    answer = cli("train", "fake", "--steps", "3", flag, "1" + "0" * 30)
    assert answer.code == 1 and "must be an integer of at most 64 bits" in answer.err
    assert not list(Path(os.environ["FAIRTRIAL_STORE"]).rglob("metadata.json"))


def test_a_flag_beyond_64_bits_is_refused(cli: Cli) -> None:
    answer = cli("runs", "list", "--limit", "1" + "0" * 30)
    assert answer.code == 2 and "--limit must be an integer of at most 64 bits" in answer.err


def test_text_that_no_file_can_hold_is_refused(cli: Cli) -> None:
    Path("own.yaml").write_text('study: q\nrecipe: fake\noptions: {label: "\\uD800"}\n')
    answer = cli("launch", "own.yaml", "--dry-run")
    assert answer.code == 1 and "label: must be text that can be encoded in UTF-8" in answer.err


def test_an_argument_that_is_not_utf_8_is_refused(shell: Cli) -> None:
    answer = shell("train", "fake", "--steps", "3", "--label", os.fsdecode(b"a\xff"))
    assert answer.code == 2 and "not UTF-8 text" in answer.err and "Traceback" not in answer.err


# Values of --config


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("limit: [3]", "limit: must be a single value"), ("limit: {a: 1}", "limit: must be a single value"),
        ("study: [[s]]", "study: must be a single value or a list of values"), ("where: [[a]]", "where: must be a single value or a list of values"),
        ("limit: .inf", "limit: must be an integer, not inf"), ("limit: 2.5", "limit: must be an integer, not 2.5"),
        ("limit: true", "limit: must be a number, not true"),
    ],
)  # fmt: skip
def test_a_configuration_has_values_that_could_be_typed(cli: Cli, text: str, told: str) -> None:
    Path("own.yaml").write_text(f"{text}\n")
    answer = cli("runs", "list", "--config", "own.yaml")
    assert answer.code == 1 and told in answer.err


def test_a_configuration_may_have_lists_mappings_and_dates(cli: Cli) -> None:
    Path("own.yaml").write_text("steps: 5\nlabel: 2026-01-02\nbenchmark: {random_score: 0, human_score: 2}\n")
    answer = cli("train", "fake", "--config", "own.yaml")
    assert answer.code == 0, answer.err
    [metadata] = Path(os.environ["FAIRTRIAL_STORE"]).rglob("metadata.json")
    options = json.loads(metadata.read_text())["options"]
    assert options["benchmark"]["human_score"] == 2.0 and options["label"] == "2026-01-02"


# Files that are none


FILE_ARGUMENTS = {
    "--config": ("runs", "list", "--config", "x.yaml"),
    "launch": ("launch", "x.yaml", "--dry-run"),
    "--configs": ("cost-performance", "--gpu", "t4", "--configs", "x.yaml"),
    "--configs csv": ("cost-performance", "--gpu", "t4", "--configs", "x.csv"),
    "--prices": ("power", "--sesoi", "1", "--sd", "1", "--gpu", "t4", "--hours-per-run", "1", "--prices", "x.yaml"),
    "--baseline": ("bench", "fake", "--baseline", "x.json"),
    "profile show": ("profile", "show", "x.json"),
    "profile diff": ("profile", "diff", "x.json", "x.json"),
    "profile check": ("profile", "check", "x.json", "1 < 2"),
    "--base": ("ablation", "--base", "x.yaml"),
    "--exclude-file": ("sync", "tests.cli.test_hostile_inputs:a", "b:c", "--exclude-file", "x.yaml"),
    "--categories": ("sync", "tests.cli.test_hostile_inputs:a", "b:c", "--categories", "x.yaml"),
    "--docs": ("sync", "program.py:one", "program.py:one", "--docs", "x.md"),
    "research": ("research", "cite", "x/artifact.yaml"),
    "--plan": ("analyze", "--plan", "x.json"),
    "--trust": ("research", "verify", str(WORKSPACE / "bundle.zip"), "--trust", "x.pub"),
}
"""Every option and argument of the program that names a file to read, but for tables and bundles."""


@pytest.mark.parametrize("kind", ["fifo", "zero", "folder", "binary"])
@pytest.mark.parametrize("words", FILE_ARGUMENTS.values(), ids=FILE_ARGUMENTS)
def test_what_is_not_an_ordinary_file_is_refused_at_once(cli: Cli, words: tuple[str, ...], kind: str) -> None:
    Path("program.py").write_text("import click\n@click.command()\n@click.option('--a')\ndef one(a): pass\n")
    name = next(word for word in words if word.startswith("x"))
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff\xfe")
    answer = cli(*words)
    assert answer.code in (1, 2, 3) and answer.err.count("Error") >= 1, answer


@pytest.mark.parametrize("kind", ["fifo", "zero"])
def test_an_artifact_that_is_not_a_file_is_not_a_project(cli: Cli, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo("artifact.yaml")
    else:
        Path("artifact.yaml").symlink_to("/dev/zero")
    assert cli("runs", "list").code == 0


def test_an_artifact_that_is_too_large_is_not_read(cli: Cli) -> None:
    Path("artifact.yaml").write_text("# " + "x" * (2 << 20))
    os.environ.pop("FAIRTRIAL_STORE")
    answer = cli("runs", "list")
    assert answer.code == 1 and "the store of its project is unknown" in answer.err


# SQL


@pytest.mark.parametrize("form", ["text", "json", "csv", "markdown", "latex"])
@pytest.mark.parametrize(
    "value",
    [
        "map {'a': 1}", "map {1: 'a', 2: 'b'}", "map {true: 1.5::decimal(4, 1)}", "{'a': [1::hugeint << 100]}",
        "[1.5::decimal(9, 2)]", "'\\xAA'::blob", "['\\xAA'::blob]", "interval 1 month", "{'i': interval 1 day}",
        "timestamp '2026-01-01'", "[timestamptz '2026-01-01 00:00:00+01']", "[uuid()]", "[timetz '12:00:00+01']",
        "'1101'::bit", "['nan'::double]", "map {[1]: 2}", "[" * 300 + "1" + "]" * 300,
    ],
)  # fmt: skip
def test_sql_spells_every_type_in_every_format(cli: Cli, value: str, form: str) -> None:
    answer = cli("runs", "sql", f"select {value} as x", "--format", form)
    assert answer.code == 0 and answer.out.strip(), answer.err


def test_sql_keeps_values_what_they_are(cli: Cli) -> None:
    query = """select map {1: 'a'} as m, [170141183460469231731687303715884105727::hugeint, 5] as h, 2.5::decimal(9, 2)
               as d, '\\xAA\\x01'::blob as b, {'k': interval 1 day} as i, date '2026-01-02' as t, 'x' as s, 7 as n"""
    [row] = cli("runs", "sql", query, "--format", "json").json["rows"]
    assert row == {
        "m": {"1": "a"}, "h": ["170141183460469231731687303715884105727", 5], "d": 2.5, "b": "aa01",
        "i": {"k": "1 day, 0:00:00"}, "t": "2026-01-02", "s": "x", "n": 7,
    }  # fmt: skip


# Snapshots


def _changed(document: Any, path: str, value: Any) -> Any:
    *above, last = path.split(".")
    place = document
    for part in above:
        place = place[int(part)] if part.isdigit() else place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


@pytest.mark.parametrize("command", [("profile", "show", "x.json"), ("profile", "diff", "x.json", "x.json")])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("bubbles.window_ms", 0), ("bubbles.neither_ms", "x"), ("step_ms.mean", None), ("lanes.generation", []),
        ("inference.all.requests", ...), ("inference.all.latency_ms.p95", "1"), ("work.0.ms", "15.2"), ("work", {}),
        ("work.0.ms", 0), ("memory", None), ("cautions", [1]), ("tokens_per_second.generated", "many"), ("code", None),
        ("hardware.gpu", 3), ("hardware", []), ("configuration", 1), ("steps", "1"), ("mode", "other"),
    ],
)  # fmt: skip
def test_a_snapshot_of_another_shape_is_refused_by_its_key(
    cli: Cli, command: tuple[str, ...], path: str, value: Any
) -> None:
    Path("x.json").write_text(json.dumps(_changed(json.loads(PROFILE.read_text()), path, value)))
    answer = cli(*command)
    assert answer.code == 1 and "is not a valid snapshot" in answer.err
    assert path.split(".")[0] in answer.err


def test_a_whole_snapshot_is_shown_and_compared(cli: Cli) -> None:
    Path("x.json").write_text(PROFILE.read_text())
    assert cli("profile", "show", "x.json", "--format", "json").json["work"] == json.loads(PROFILE.read_text())["work"]
    assert cli("profile", "diff", "x.json", "x.json").code == 0


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seconds", ["1.0", "2.0"]), ("seconds", []), ("seconds.0", -1), ("seconds.0", 1e300), ("processes", {}),
        ("processes", []), ("machine", [["a", 1]]), ("versions", None), ("configuration", ...),
    ],
)  # fmt: skip
def test_a_baseline_of_another_shape_is_refused_by_its_key(cli: Cli, path: str, value: Any) -> None:
    kept = json.loads((WORKSPACE / "baseline.json").read_text())
    if path.endswith(".0"):
        kept["seconds"][0] = value
    else:
        kept = _changed(kept, path, value)
    Path("b.json").write_text(json.dumps(kept))
    answer = cli("bench", "fake", "--max-batches", "60", "--baseline", "b.json")
    assert answer.code == 1 and f"is damaged: {path.split('.')[0]}" in answer.err.replace("'", "")
