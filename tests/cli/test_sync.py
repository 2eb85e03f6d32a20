"""sync as a person uses it: two programs of their own, Fairtrial's own, and bad input."""

from __future__ import annotations

import csv
import io
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial import FairtrialError, sync
from fairtrial.cli.bench import command as bench_command
from fairtrial.cli.train import command as train_command
from fairtrial.core.options import not_benched
from fairtrial.core.registry import load_recipe, recipe_names
from tests.conftest import Answer

Cli = Callable[..., Answer]

ROOT = Path(__file__).parent.parent.parent
NOT_BENCH = ROOT / "examples" / "train_not_bench.yaml"

CLICK_TRAIN = """
import click

@click.command()
@click.option("--lr", "learning_rate", default=0.001, help="Step size.")
@click.option("--batch-size", default=64, help="Examples per step.")
@click.option("--dropout", default=0.1, help="Share of units dropped.")
@click.option("--num-workers", default=4, help="Loader processes.")
@click.option("--tensorboard-dir", help="Where TensorBoard looks.")
@click.option("--amp/--no-amp", default=False, help="Mixed precision.")
@click.argument("data")
def main(**options): ...
"""

CLICK_BENCH = """
import click

@click.command()
@click.option("--lr", "learning_rate", default=0.001, help="Step size.")
@click.option("--batch-size", default=32, help="Examples per step.")
@click.option("--workers", default=4, help="Loader processes.")
@click.option("--amp/--no-amp", default=False, help="Mixed precision.")
@click.option("--warmup-batches", default=5, help="Steps to leave out.")
@click.argument("data")
def main(**options): ...

def benchmark(data, batch_size, workers, amp, warmup_batches): ...
"""

TYPER_TRAIN = """
from typing import Annotated, Optional
import typer

app = typer.Typer()

@app.command()
def train(
    data: str,
    learning_rate: Annotated[float, typer.Option("--lr", help="Step size.")] = 0.001,
    batch_size: Annotated[int, typer.Option(help="Examples per step.")] = 64,
    dropout: Annotated[float, typer.Option(help="Share of units dropped.")] = 0.1,
    num_workers: Annotated[int, typer.Option(help="Loader processes.")] = 4,
    tensorboard_dir: Annotated[Optional[str], typer.Option(help="Where TensorBoard looks.")] = None,
    amp: Annotated[bool, typer.Option(help="Mixed precision.")] = False,
): ...

@app.command()
def export(): ...
"""

TYPER_BENCH = """
from typing import Annotated
import typer

app = typer.Typer()

@app.command()
def bench(
    data: str,
    learning_rate: Annotated[float, typer.Option("--lr", help="Step size.")] = 0.001,
    batch_size: Annotated[int, typer.Option(help="Examples per step.")] = 32,
    workers: Annotated[int, typer.Option(help="Loader processes.")] = 4,
    amp: Annotated[bool, typer.Option(help="Mixed precision.")] = False,
    warmup_batches: Annotated[int, typer.Option(help="Steps to leave out.")] = 5,
): ...

def benchmark(data, batch_size, workers, amp, warmup_batches): ...
"""

FIVE_GAPS = (
    "--exclude",
    "tensorboard-*=nothing is logged",
    "--exclude",
    "amp=old",
    "--interface",
    "bench.py:benchmark",
)


@pytest.fixture(params=["click", "typer"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The same two programs, written with Click and with Typer."""
    with_click = request.param == "click"
    (tmp_path / "train.py").write_text(CLICK_TRAIN if with_click else TYPER_TRAIN)
    (tmp_path / "bench.py").write_text(CLICK_BENCH if with_click else TYPER_BENCH)
    return ("train.py:main", "bench.py:main") if with_click else ("train.py:app train", "bench.py:app")


def test_all_five_gaps_are_found(cli: Cli, programs: tuple[str, str]) -> None:
    answer = cli("sync", *programs, *FIVE_GAPS, "--format", "json")
    assert answer.code == 3, answer.err
    found = answer.json
    assert found["schema"] == 1 and found["status"] == "FAIL"
    assert [each["name"] for each in found["missing"]] == ["dropout", "num-workers"]
    assert found["missing"][0] == {
        "name": "dropout", "flag": "--dropout", "kind": "option", "help": "Share of units dropped.", "hidden": False,
        "category": "training", "add_to": "bench", "suggestion": None,
    }  # fmt: skip
    assert found["differing"] == [{"name": "batch-size", "what": "default", "train": "64", "bench": "32"}]
    assert found["stale_exclusions"] == [{"pattern": "amp", "reason": "old", "why": "BENCH has --amp"}]
    assert found["renamed"] == [
        {"train": "--num-workers", "bench": "--workers", "because": ["close name", "same help", "same default"],
         "certain": False}
    ]  # fmt: skip
    assert [each["parameter"] for each in found["not_accepted"]] == ["learning_rate"]
    assert found["excluded"] == [{"name": "tensorboard-dir", "reason": "nothing is logged", "pattern": "tensorboard-*"}]
    assert set(found["common"]) == {"lr", "batch-size", "amp", "data"}
    assert set(found["train_only"]) == {"dropout", "num-workers", "tensorboard-dir"}
    assert set(found["bench_only"]) == {"workers", "warmup-batches"}
    assert found["undocumented"] is None and found["test"] is None, "what was not asked for is unknown"


def test_the_text_has_both_reports(cli: Cli, programs: tuple[str, str]) -> None:
    answer = cli("sync", *programs, *FIVE_GAPS)
    assert answer.code == 3
    lines = [line.rstrip() for line in answer.out.splitlines()]
    first = lines.index("=== CLI Option Sync Report ===")
    second = lines.index("=== Benchmark Training Sync Report ===")
    assert first == 0 < second and lines[second + 2] == "Status: FAIL"
    train, bench = ("train.py:main", "bench.py:main") if "main" in programs[0] else ("train", "bench")
    assert lines[second + 4 : second + 8] == [
        "Common options: 4", f"{train} only (excluded): 1", f"{train} only (MISSING - action required): 2",
        f"{bench} only: 2",
    ]  # fmt: skip
    for words in (
        rf"Options in {train} but NOT in {bench}:\n  --dropout\n",
        rf"Missing options that need to be added to {bench}:\n  --dropout: Share of units dropped\. \[training\]",
        r"looks renamed: --num-workers in TRAIN, --workers in BENCH",
        r"--batch-size +default +TRAIN 64 +BENCH 32",
        r"Stale exclusions:\n  amp +BENCH has --amp",
        r"Not accepted by bench\.py:benchmark:\n  --lr +learning_rate",
        r"Excluded:\n  --tensorboard-dir +nothing is logged",
    ):
        assert re.search(words, answer.out), words
    assert lines[-1] == "Test result: not run"


@pytest.mark.parametrize("kind", ["click", "typer"])
def test_programs_that_agree_pass(cli: Cli, tmp_path: Path, kind: str) -> None:
    text, word = (CLICK_TRAIN, "main") if kind == "click" else (TYPER_TRAIN, "app train")
    (tmp_path / f"same_{kind}.py").write_text(text)
    answer = cli("sync", f"same_{kind}.py:{word}", f"same_{kind}:{word}")
    assert answer.code == 0 and "Status: PASS" in answer.out and "Common options: 7\n" in answer.out
    assert len(re.findall(r"only.*: 0$", answer.out, re.MULTILINE)) == 5


def test_click_and_typer_can_be_held_against_each_other(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CLICK_TRAIN)
    (tmp_path / "b.py").write_text(TYPER_TRAIN)
    answer = cli("sync", "a.py:main", "b.py:app train", "--format", "json")
    assert answer.code == 0, answer.out


def test_options_to_be_excluded_come_with_the_word_that_does_it(cli: Cli, programs: tuple[str, str]) -> None:
    answer = cli("sync", *programs)
    section = answer.out.partition("need to be added to the exclusion list")[2]
    assert "Where TensorBoard looks." in section
    [word] = re.findall(r"--exclude '.*'", section)
    again = cli("sync", *programs, *shlex.split(word), "--format", "json").json
    assert [each["name"] for each in again["excluded"]] == ["tensorboard-dir"] and not again["stale_exclusions"]


def test_a_parameter_under_another_flag_is_said_once_and_counts(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import click\n"
        "a = click.Command('a', params=[click.Option(['--lr', 'rate'], default=1)])\n"
        "b = click.Command('b', params=[click.Option(['--learning-rate', 'rate'], default=2)])\n"
    )
    answer = cli("sync", "p.py:a", "p.py:b")
    assert (
        answer.code == 3 and "renamed: --lr in TRAIN, --learning-rate in BENCH (the same parameter rate)" in answer.out
    )
    assert re.search(r"Differing:\n  --lr +default +TRAIN 1 +BENCH 2 *\n", answer.out)
    differing = cli("sync", "p.py:a", "p.py:b", "--format", "json").json["differing"]
    assert [each["what"] for each in differing] == ["flags", "default"]


def test_an_excluded_training_parameter_is_shown_as_a_warning_only(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import click\na = click.Command('a', params=[click.Option(['--lr'], help='Rate.')])\nb = click.Command('b')\n"
    )
    answer = cli("sync", "p.py:a", "p.py:b", "--exclude", "lr=it is fixed")
    assert answer.code == 0 and "Warning: excluded, but looks like a training parameter:\n  --lr" in answer.out
    [warned] = cli("sync", "p.py:a", "p.py:b", "--exclude", "lr=it is fixed", "--format", "json").json[
        "suspicious_exclusions"
    ]
    assert warned["name"] == "lr" and warned["category"] == "training" and warned["help"] == "Rate."


def test_rows_have_the_state_of_every_option(cli: Cli, programs: tuple[str, str]) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("sync", *programs, *FIVE_GAPS, "--format", "csv").out)))
    states = {row["option"]: row["state"] for row in rows}
    assert states["--dropout"] == "missing" and states["--tensorboard-dir"] == "excluded"
    assert states["--workers"] == "bench-only" and states["DATA"] == "common"
    assert [row["option"] for row in rows if row["differs"]] == ["--batch-size"]


def test_the_docs_must_name_every_option_of_bench(cli: Cli, programs: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("`--lr-decay`, --batch-size, --workers, --amp/--no-amp, --warmup-batches")
    found = cli("sync", *programs, "--docs", "page.md", "--format", "json").json
    assert [each["flags"] for each in found["undocumented"]] == [["--lr"]]
    assert re.search(r"Absent from the docs:\n  --lr +Step size", cli("sync", *programs, "--docs", "page.md").out)


def test_the_test_command_counts(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "same.py").write_text(CLICK_TRAIN)
    (tmp_path / "check.py").write_text("import sys; print('checking'); sys.exit(int(sys.argv[1]))")
    line = ("sync", "same.py:main", "same.py:main", "--run-test")
    passed = cli(*line, f"{sys.executable} check.py 0")
    assert passed.code == 0 and "Test result: PASS\n" in passed.out and "Running: " in passed.err
    failed = cli(*line, f"{sys.executable} check.py 5")
    assert failed.code == 3 and "Status: FAIL" in failed.out
    assert (
        "Test result: FAIL\n" in failed.out
        and "failed with exit code 5 in" in failed.out
        and "| checking" in failed.out
    )
    document = cli(*line, f"{sys.executable} check.py 5", "--format", "json").json
    assert (
        document["test_result"] == "FAIL"
        and document["test"]["status"] == "failed"
        and document["test"]["exit_code"] == 5
    )
    assert document["test"]["tail"] == ["checking"] and document["gaps"] == ["1 test command failed"]


def test_an_interface_that_takes_anything_is_noted(cli: Cli, programs: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def run(**rest): ...")
    found = cli("sync", *programs, "--interface", "f.py:run", "--format", "json").json
    assert (
        found["interface"] == {"function": "f.py:run", "takes_any": True, "parameters": []}
        and found["not_accepted"] == []
    )
    assert "accepts any parameter" in cli("sync", *programs, "--interface", "f.py:run").out


def assert_told(answer: Answer, *parts: str, code: int = 1) -> None:
    assert answer.code == code, answer.out + answer.err
    assert "Traceback" not in answer.err and answer.err.startswith("Error: ")
    for part in parts:
        assert part in answer.err


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("no_such_module:x", ["no module 'no_such_module'"]),
        ("own_modul:x", ["no module 'own_modul'; did you mean 'own_module'?"]),
        ("own_module.inner:x", ["no module 'own_module.inner'"]),
        ("fairtrial.cli.trian:x", ["no module 'fairtrial.cli.trian'; did you mean 'fairtrial.cli.train'?"]),
        ("own_module:trian", ["own_module has no attribute 'trian'; did you mean 'train'?", "Commands there: train, group, app"]),
        ("own_module:function", ["is of type function, not a Click or Typer command", "@app.command()"]),
        ("own_module:number", ["is of type int, not a Click or Typer command"]),
        ("own_module:empty", ["Typer cannot convert 'own_module:empty' to a command"]),
        ("own_module", ["'own_module' does not name a module and an attribute", "package.module:attribute"]),
        ("", ["does not name a module and an attribute"]),
        ("own_module:", ["does not name a module and an attribute"]),
        ("own_module:train 'x", ["No closing quotation"]),
        ("own_module:group", ["is a group of commands: inner", "'own_module:group inner'"]),
        ("own_module:app", ["is a group of commands: one, two"]),
        ("own_module:app onne", ["unknown command 'onne'; did you mean 'one'?"]),
        ("own_module:train more", ["the command has no subcommands, but 'more' was given"]),
        ("broken.py:x", ["broken.py cannot be imported: ZeroDivisionError", "--debug"]),
        ("needy:x", ["needy cannot be imported: ModuleNotFoundError", "not_there"]),
        ("leaving:x", ["leaving exits when it is imported (exit code 7)", "__main__"]),
        ("missing.py:x", ["file not found", "missing.py"]),
        ("fairtrial.cli.train:command clasify", ["did you mean 'classify'?"]),
        ("fairtrial.cli.train:command ./none.py", ["no recipe file"]),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_one_clear_sentence(cli: Cli, tmp_path: Path, word: str, parts: list[str]) -> None:
    (tmp_path / "own_module.py").write_text(
        "import click, typer\n"
        "train = click.Command('train')\n"
        "group = click.Group('group', commands=[click.Command('inner')])\n"
        "app, empty = typer.Typer(), typer.Typer()\n"
        "@app.command()\ndef one(): ...\n"
        "@app.command()\ndef two(): ...\n"
        "function, number = (lambda: 1), 3\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "needy.py").write_text("import not_there")
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(7)")
    before = list(sys.path)
    assert_told(cli("sync", word, "own_module:train"), *parts)
    assert sys.path == before


def test_debug_shows_the_trace_of_somebodys_module(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(FairtrialError) as caught:
        cli("sync", "broken.py:x", "broken.py:x", "--debug")
    assert "ZeroDivisionError" in str(caught.value)


def test_all_that_is_wrong_is_told_at_once(cli: Cli, tmp_path: Path) -> None:
    answer = cli(
        "sync", "nowhere:a", "nothing.py:b", "--exclude", "lr", "--exclude", "x=", "--interface", "os:getcwdd",
        "--docs", "none.md", "--run-test", "'open",
    )  # fmt: skip
    assert_told(
        answer, "no module 'nowhere'", "nothing.py", "the exclusion 'lr' has no reason", "'x' has no reason",
        "did you mean 'getcwd'?", "cannot read the docs file none.md: No such file", "No closing quotation",
    )  # fmt: skip
    assert len(re.findall(r"^Error: ", answer.err, re.MULTILINE)) == 7


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lr:\n", "the exclusion 'lr' has no reason"),
        ("lr: [a]\n", "the reason of the exclusion 'lr' is not text: ['a']"),
        ("- lr\n", "does not contain a mapping"),
        ("*-dir: why\n", "is not valid YAML"),
        ("lr: a\nlr: b\n", "occurs twice"),
    ],
)
def test_a_bad_file_of_exclusions_is_explained(
    cli: Cli, programs: tuple[str, str], tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "not.yaml").write_text(text)
    assert_told(cli("sync", *programs, "--exclude-file", "not.yaml"), told)
    assert_told(cli("sync", *programs, "--exclude-file", "none.yaml"), "no file none.yaml")


def test_a_file_of_exclusions_counts_and_flags_win(cli: Cli, programs: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "not.yaml").write_text("tensorboard-*: nothing is logged\n'dropout': measured without\n")
    line = ("sync", *programs, "--exclude-file", "not.yaml", "--exclude", "dropout=said here", "--format", "json")
    excluded = {each["name"]: each["reason"] for each in cli(*line).json["excluded"]}
    assert excluded == {"tensorboard-dir": "nothing is logged", "dropout": "said here"}


def test_usage_is_told_as_everywhere(cli: Cli, programs: tuple[str, str]) -> None:
    assert_told(cli("sync", "one:only"), "Missing argument 'BENCH'", code=2)
    assert_told(cli("sync", *programs, "--exclude", "a=b", "--exclude", "a=c"), "'a' is given twice", code=2)
    assert_told(cli("sync", *programs, "--run-test", "no-such-program"), "no-such-program: no such program", "PATH")


def test_what_a_module_prints_is_no_part_of_the_answer(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("print('hello')\n" + CLICK_TRAIN)
    answer = cli("sync", "loud.py:main", "loud:main", "--format", "json")
    assert answer.json["status"] == "PASS" and "hello" in answer.err


def test_the_function_takes_commands_as_they_are() -> None:
    found = sync(
        train_command.get_command(None, "fake"), bench_command.get_command(None, "fake"), exclude_file=NOT_BENCH
    )  # type: ignore[arg-type]
    assert found.agrees and found.train == "fake"


BENCHED = [name for name in recipe_names() if name != "command"]


@pytest.mark.parametrize("recipe", BENCHED)
def test_train_and_bench_agree_for_every_recipe(recipe: str) -> None:
    """By construction: a recipe's options are declared once, and their roles say which of them bench leaves out."""
    found = sync(
        f"fairtrial.cli.train:command {recipe}", f"fairtrial.cli.bench:command {recipe}", exclude_file=NOT_BENCH
    )
    assert found.status == "PASS", found.gaps
    declared = {
        each.parameter.variable: each.exclusion.reason for each in found.options.excluded if each.exclusion.declared
    }
    assert declared == not_benched(load_recipe(recipe).options) and not found.options.suspicious


def test_an_option_that_bench_lost_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtrial.cli.bench import BenchGroup

    monkeypatch.setattr(BenchGroup, "without", lambda self, recipe: [*not_benched(recipe.options), "learning_rate"])
    found = sync("fairtrial.cli.train:command classify", "fairtrial.cli.bench:command classify", exclude_file=NOT_BENCH)
    assert [each.parameter.name for each in found.options.missing] == ["learning-rate"]
    assert found.options.missing[0].category.name == "training"


def test_the_command_that_the_page_shows_for_fairtrial_itself_passes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "sync.md").read_text().replace("\\\n", " ")
    drifted, own = re.findall(r"^\$ fairtrial (sync .*)$", page, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert cli(*shlex.split(own)).code == 0
    assert cli(*shlex.split(drifted)).code == 3
