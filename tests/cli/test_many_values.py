"""Several values after one flag, for every option that can be repeated."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import fairtrial
from fairtrial.cli._many_values import InsteadOfArguments, ManyValuesCommand
from fairtrial.record.store import Store
from tests.api.comparing.test_analyze import fill
from tests.conftest import Answer
from tests.fuzz.generators import commands

Cli = Callable[..., Answer]
METRIC = "overview/reward"


def parse(line: str, *parameters: click.Parameter) -> dict[str, object]:
    """What a command with these parameters makes of a line; `with` is a repeatable option, `one` takes one value."""
    own = (
        click.Option(["--with", "with"], multiple=True), click.Option(["--one"]), click.Option(["--flag"], is_flag=True),
        click.Option(["--two"], nargs=2), *parameters,
    )  # fmt: skip
    command = ManyValuesCommand("c", params=list(own), callback=lambda **given: given)
    found: dict[str, object] = command.main(line.split(), standalone_mode=False)
    return {name: value for name, value in found.items() if value not in (None, (), False)}


STUDIES = click.Argument(["studies"], nargs=-1)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--with a b c", {"with": ("a", "b", "c")}),
        ("--with a --with b", {"with": ("a", "b")}),
        ("--with a b --one x --with c --flag", {"with": ("a", "b", "c"), "one": "x", "flag": True}),
        ("--with=a", {"with": ("a",)}),
        ("--with=-a --with -b", {"with": ("-a", "-b")}),
        ("--with - a", {"with": ("-", "a")}),
        ("--one --with --two --flag --one", {"one": "--with", "two": ("--flag", "--one")}),
    ],
)
def test_a_repeatable_option_takes_every_word_up_to_the_next_option(line: str, found: dict[str, object]) -> None:
    assert parse(line) == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("study --with a b", {"studies": ("study",), "with": ("a", "b")}),
        ("--with a study", {"studies": ("study",), "with": ("a",)}),
        ("--with a b -- study", {"studies": ("study",), "with": ("a", "b")}),
        ("--with a -- --flag", {"studies": ("--flag",), "with": ("a",)}),
        ("study --with=a other", {"studies": ("study", "other"), "with": ("a",)}),
    ],
)
def test_arguments_stand_before_the_option_or_after_two_dashes(line: str, found: dict[str, object]) -> None:
    assert parse(line, STUDIES) == found


def test_the_option_waits_until_every_required_argument_is_there() -> None:
    two = [click.Argument(["first"]), click.Argument(["second"])]
    assert parse("a --with x b", *two) == {"first": "a", "second": "b", "with": ("x",)}
    assert parse("a b --with x y", *two) == {"first": "a", "second": "b", "with": ("x", "y")}


def test_an_option_in_the_place_of_arguments_takes_all_that_follows() -> None:
    runs = InsteadOfArguments(["--runs"], multiple=True)
    assert parse("--runs a b", STUDIES, runs) == {"runs": ("a", "b")}
    assert parse("study --runs a b", STUDIES, runs) == {"studies": ("study",), "runs": ("a", "b")}


def test_every_repeatable_option_of_the_program_takes_several_values() -> None:
    repeatable = [
        (words, command) for words, command in commands()
        if any(isinstance(each, click.Option) and each.multiple for each in command.params)
    ]  # fmt: skip
    assert len(repeatable) > 20
    assert [words for words, command in repeatable if not isinstance(command, ManyValuesCommand)] == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["--pairs"], "--pairs needs a value"),
        (["--control-run-ids", "--metric", "m"], "--control-run-ids needs a value, but --metric follows"),
        (["--from", "--", "x.csv"], "--from needs a value, but -- follows"),
    ],
)
def test_a_missing_value_is_one_sentence(cli: Cli, line: list[str], told: str) -> None:
    answer = cli("analyze", *line)
    assert (answer.code, answer.err.splitlines()) == (2, [f"Error: {told}", "Hint: See: fairtrial analyze --help"])


def test_the_shell_completes_options_behind_several_values() -> None:
    words = "fairtrial analyze --control-run-ids a b --cand"
    asked = {"_FAIRTRIAL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "5"}
    code = "import sys; from fairtrial.cli.app import main; sys.argv = ['fairtrial']; main()"
    answer = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert answer.stdout.split() == ["plain,--candidate", "plain,--candidate-run-ids"], answer.stderr


# The lines of the reference documents.


@pytest.fixture
def named(store: Store) -> Store:
    """Runs that a script recorded under the names of the documents."""
    for number in range(1, 7):
        record(store, f"run{number}", 100 + number, 1.0 + (number > 3) / 5)
    for number in (1, 2):
        record(store, f"control_run{number}", number, 1.0)
        record(store, f"treatment_run{number}", number, 1.5)
    return store


def record(store: Store, name: str, seed: int, height: float, study: str | None = None) -> None:
    noise = random.Random(f"{name} {seed}")
    with fairtrial.run(seed=seed, variant=name, study=study, store=store.root, metric=METRIC) as run:
        for step in range(0, 50, 5):
            run.log(step, **{METRIC: height * step / 50 + noise.gauss(0, 0.01)})


def test_pairs_are_several_objects_after_one_flag(named: Store, cli: Cli) -> None:
    pairs = [json.dumps({"control": f"control_run{n}", "candidate": f"treatment_run{n}"}) for n in (1, 2)]
    line = ["analyze", "--pairs", *pairs, "--metric", METRIC, "--summary.type", "auc", "--bootstrap.n_resamples"]
    answer = cli(*line, "10000", "--output.csv_path", "results.csv", "--format", "json")
    [found] = answer.json["comparisons"]
    assert (found["n_control"], found["verdict"]) == (2, "better")
    assert found["effect"]["method"] == "paired t" and found["tests"]["bootstrap"]["resamples"] == 10_000
    assert found["bootstrap"]["low"] > found["effect"]["low"]
    assert [line.split(",")[:2] for line in Path("results.csv").read_text().split()[1:]] == [
        ["control", "1"], ["control", "2"], ["candidate", "1"], ["candidate", "2"],
    ]  # fmt: skip
    again = cli(*line[:1], "--pairs", pairs[0], "--pairs", pairs[1], "--metric", METRIC, "--format", "json").json
    assert again["arms"][0]["used"] == 2
    as_list = [{**json.loads(pair), "seed": 1072 + n} for n, pair in enumerate(pairs)]
    listed = cli("analyze", "--pairs", json.dumps(as_list), "--metric", METRIC, "--format", "json").json
    assert list(listed["arms"][0]["values"]) == ["1072", "1073"]


def test_run_ids_follow_one_flag(named: Store, cli: Cli) -> None:
    line = "--control-run-ids run1 run2 run3 --candidate-run-ids run4 run5 run6 --metric overview/reward --format json"
    found = cli("analyze", *line.split()).json
    assert [arm["used"] for arm in found["arms"]] == [3, 3]
    assert found["comparisons"][0]["pairing"] == "unpaired", "their seeds differ"
    assert found["verdict"] == "better"
    repeated = [word for n in (1, 2, 3) for word in ("--control-run-ids", f"run{n}")]
    assert cli("analyze", *repeated, *line.split()[4:]).json == found


def test_a_study_before_run_ids_stays_a_study(named: Store, cli: Cli) -> None:
    answer = cli("analyze", "adhoc", "--control-run-ids", "run1", "run2", "--candidate-run-ids", "run4", "run5")
    assert (answer.code, "a study and run ids cannot be combined" in answer.err) == (1, True)


@pytest.mark.slow
def test_noise_of_runs_with_a_name_each(named: Store, cli: Cli) -> None:
    names = [f"run{n}" for n in (1, 2, 3)]
    line = [*names, "--metric", METRIC, "--threshold", "0.05"]
    found = cli("variance", *line, "--output", "variance_plot.png", "--format", "json").json
    assert (found["n"], found["variant"]) == (3, "run1 … run3")
    assert found["auc"]["n_min"] is not None and found["derivative"]["n_min"] is not None
    assert Path("variance_plot.png").stat().st_size > 10_000


def test_noise_needs_equal_settings_and_different_seeds(store: Store, cli: Cli) -> None:
    fill(store, base={}, new={"effect": 0.2})
    refused = cli("variance", "base", "new")
    assert "2 variants with different settings (s/base, s/new); variance takes one variant" in refused.err
    for name in ("a", "b"):
        record(store, name, 1072, 1.0)
    refused = cli("variance", "a", "b")
    assert "several of them have seed 1072; variance needs different seeds" in refused.err


def test_a_bare_name_means_the_variant_of_one_study(named: Store, cli: Cli) -> None:
    record(named, "run1", 7, 1.0, study="other")
    pair = json.dumps({"control": "run1", "candidate": "run4"})
    assert "2 studies have a variant 'run1': adhoc, other" in cli("analyze", "--pairs", pair).err
    record(named, "run2", 8, 1.0)
    pair = json.dumps({"control": "run2", "candidate": "run4"})
    assert "'run2' names 2 runs: adhoc/run2.seed" in cli("analyze", "--pairs", pair).err
