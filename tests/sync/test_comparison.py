"""What two lists of options say about each other."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.core.errors import InvalidOptions
from fairtrial.sync.categories import built_in_categories, parse_categories
from fairtrial.sync.comparison import Agreement, compare_parameters
from fairtrial.sync.exclusions import Exclusion, make_exclusions
from fairtrial.sync.parameters import Parameter, read_parameters


def option(*words: str, **settings: Any) -> click.Option:
    return click.Option(words, **settings)


def program(*parameters: click.Parameter) -> list[Parameter]:
    return read_parameters(click.Command("program", params=list(parameters)))


def compare(train: list[click.Parameter], bench: list[click.Parameter], **exclusions: str) -> Agreement:
    given = {name.replace("_", "-"): reason for name, reason in exclusions.items()}
    return compare_parameters(program(*train), program(*bench), make_exclusions(given))


def differing(train: click.Parameter, bench: click.Parameter) -> dict[str, tuple[str, str]]:
    found = compare([train], [bench])
    assert len(found.common) == 1
    return {each.what: (each.train, each.bench) for each in found.differing}


@pytest.mark.parametrize(
    ("train", "bench", "expected"),
    [
        ({"default": 0.1}, {"default": 0.2}, {"default": ("0.1", "0.2")}),
        ({"default": 0}, {"default": None, "type": int}, {"default": ("0", "None")}),
        ({"default": ""}, {}, {"default": ("''", "None")}),
        ({"is_flag": True}, {"is_flag": True, "default": None}, {"default": ("False", "None")}),
        ({"type": float, "default": 1}, {"type": float, "default": 1.0}, {}),
        ({"type": int}, {"type": float}, {"type": ("integer", "float")}),
        ({"type": int}, {"type": click.IntRange(min=1)}, {"type": ("integer", "integer (≥ 1)")}),
        (
            {"type": click.Choice(["a", "b"])},
            {"type": click.Choice(["a", "c"])},
            {"choices": ("a|b", "a|c")},
        ),
        ({"type": click.Choice(["a", "b"])}, {"type": click.Choice(["b", "a"])}, {}),
        (
            {"type": click.Choice(["a"])},
            {"type": click.Choice(["a"], case_sensitive=False)},
            {"choices": ("a", "a (any case)")},
        ),
        ({"type": click.Choice(["a"])}, {}, {"type": ("choice", "text")}),
        ({"multiple": True, "default": ["a"]}, {"multiple": False, "default": "a"}, {"repeats": ("many times", "once"), "default": ("('a',)", "'a'")}),
        ({"nargs": 2}, {}, {"repeats": ("2 values", "once")}),
        ({"required": True}, {}, {"required": ("yes", "no")}),
        ({"envvar": "X"}, {}, {"environment": ("X", "none")}),
        ({"flag_value": "a"}, {"flag_value": "b"}, {"value": ("a switch for 'a'", "a switch for 'b'")}),
        ({"hidden": True, "help": "a"}, {"help": "b"}, {}),
    ],
)  # fmt: skip
def test_every_difference_is_found_and_nothing_else(
    train: dict[str, Any], bench: dict[str, Any], expected: dict[str, tuple[str, str]]
) -> None:
    assert differing(option("--x", **train), option("--x", **bench)) == expected


def test_flags_that_only_one_side_understands_are_a_difference() -> None:
    assert differing(option("-l", "--lr"), option("--lr")) == {"flags": ("-l, --lr", "--lr")}
    assert differing(option("--x/--no-x"), option("--x", is_flag=True)) == {"flags": ("--x/--no-x", "--x")}
    assert differing(option("--a", "--b"), option("--b", "--a")) == {}, "their order is not"


def test_an_argument_that_became_an_option_is_the_same_parameter_of_another_kind() -> None:
    found = differing(click.Argument(["data"]), option("--data"))
    assert found["kind"] == ("argument", "option") and "flags" not in found


def test_a_switch_that_takes_a_value_now_is_a_difference() -> None:
    assert differing(option("--x", is_flag=True), option("--x"))["value"] == ("a switch", "a value")


def test_a_shared_short_flag_alone_does_not_make_two_options_one() -> None:
    found = compare([option("-l", "--lr", type=float)], [option("-l", "--log-level")])
    assert not found.common and not found.renamed
    assert compare([option("-l", "rate")], [option("-l", "--lr")]).common, "where a side has no other, it does"


@pytest.mark.parametrize(
    ("train", "bench", "because"),
    [
        (option("--lr", default=0.1), option("--learning-rate", default=0.1), ["close name", "same default"]),
        (option("--batch", type=int), option("--batch-size", type=int), ["close name"]),
        (option("--optimizer"), option("--optimiser"), ["close name"]),
        (option("--a", help="Layers."), option("--z", help="Layers."), ["same help"]),
        (option("--a", type=click.Choice(["p", "q"])), option("--z", type=click.Choice(["p", "q"])), ["same choices"]),
        (option("-q", "--a"), option("-q", "--z"), ["same short flag"]),
        (option("--colour", type=int), option("--color", type=str), ["close name"]),
    ],
)
def test_an_option_under_another_name_looks_renamed(
    train: click.Option, bench: click.Option, because: list[str]
) -> None:
    found = compare([train], [bench])
    [renamed] = found.renamed
    assert list(renamed.because) == because and not renamed.certain
    assert str(renamed).startswith(f"looks renamed: {found.missing[0].parameter.shown} in TRAIN, ")
    assert len(found.missing) == len(found.bench_only) == 1, "it is a guess: the option is still missing"


@pytest.mark.parametrize(
    ("train", "bench"),
    [
        (option("--steps", default=1, type=int), option("--width", default=1, type=int)),
        (option("--amp", is_flag=True), option("--fast", is_flag=True)),
        (option("--a", default=64), option("--z", default=64.0)),
        (option("--a", help="Same."), option("--z", help="Same.", flag_value="x")),
        (option("--eval-every", type=int), option("--eval-batches", type=int)),
    ],
)
def test_options_that_merely_resemble_each_other_do_not(train: click.Option, bench: click.Option) -> None:
    assert not compare([train], [bench]).renamed


def test_each_option_is_renamed_once_and_the_best_evidence_wins() -> None:
    found = compare(
        [option("--lr", default=0.1, help="Learning rate."), option("--lr-min", default=0.1)],
        [option("--learning-rate", default=0.1, help="Learning rate.")],
    )
    assert [each.to_dict()["train"] for each in found.renamed] == ["--lr"]


def test_the_same_parameter_with_another_flag_is_certainly_renamed() -> None:
    found = compare([option("--lr", "rate")], [option("--learning-rate", "rate")])
    [renamed] = found.renamed
    assert renamed.certain and not found.missing
    assert [each.what for each in found.differing] == ["flags"]


def test_wildcards_exclude_and_dashes_do_not_matter() -> None:
    train = program(option("--tensorboard-dir"), option("--tensorboard_every"), option("--lr"))
    found = compare_parameters(train, [], make_exclusions({"--tensorboard_*": "nothing is logged", "l?": "fixed"}))
    assert {each.parameter.name: each.exclusion.reason for each in found.excluded} == {
        "tensorboard-dir": "nothing is logged", "tensorboard-every": "nothing is logged", "lr": "fixed",
    }  # fmt: skip
    assert not found.missing and not found.stale


def test_a_stale_exclusion_matches_nothing_or_something_that_bench_has() -> None:
    train, bench = [option("--lr"), option("--log-dir")], [option("--lr")]
    found = compare(train, bench, lr="fixed", typo="never", log_dir="no logs")
    assert {each.exclusion.pattern: each.why for each in found.stale} == {
        "lr": "BENCH has --lr", "typo": "TRAIN has no such option",
    }  # fmt: skip
    everything = compare_parameters(program(*train), program(*bench), [Exclusion("l*", "all of them")])
    assert [each.why for each in everything.stale] == ["BENCH has --lr"], "a wildcard that reaches too far"


def test_exclusions_need_a_pattern_and_a_reason_and_all_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidOptions) as caught:
        make_exclusions({"lr": " ", "": "why", "x": None, "y": 3, "--": "dashes", "good": "reason"})
    told = [caught.value.message, *caught.value.problems]
    assert told == [
        "the exclusion 'lr' has no reason",
        "the exclusion '=why' names no option",
        "the exclusion 'x' has no reason",
        "the reason of the exclusion 'y' is not text: 3",
        "the exclusion '--=dashes' names no option",
    ]


def declared(*words: str, role: str | None = None, reason: str | None = None) -> click.Option:
    made = option(*words)
    made.role, made.excluded_reason = role, reason  # type: ignore[attr-defined]
    return made


def test_an_option_may_declare_why_it_is_left_out() -> None:
    train = [declared("--log-every", role="output", reason="as it is by default")]
    found = compare(train, [])
    assert [each.to_dict() for each in found.excluded] == [
        {"name": "log-every", "reason": "as it is by default", "pattern": None}
    ]
    assert [each.why for each in compare(train, [option("--log-every")]).stale] == ["BENCH has --log-every"]
    given = compare(train, [], log_every="said on the command line")
    assert given.excluded[0].exclusion.reason == "said on the command line"


def test_missing_options_are_sorted_by_role_and_else_by_name() -> None:
    train = [
        option("--lr"), option("--wandb-project"), option("--mystery"), declared("--lr-file", role="output"),
        declared("--wandb-temperature", role="training"), declared("--speed", role="gears"),
    ]  # fmt: skip
    found = {each.parameter.name: each for each in compare(train, []).missing}
    assert {name: (each.category.name, each.suggestion is None) for name, each in found.items()} == {
        "lr": ("training", True),
        "wandb-project": ("logging", False),
        "mystery": ("other", True),
        "lr-file": ("output", False),
        "wandb-temperature": ("training", True),
        "speed": ("gears", True),
    }
    assert found["wandb-project"].suggestion == "--exclude 'wandb-project=what is logged does not change a step'"


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("learning-rate", "training"), ("stage1-batch-size", "stage batch and rate"), ("gradient-checkpointing", "architecture"), ("vit-dropout", "architecture"),
        ("dropout", "training"), ("num-epochs", "epochs"), ("warmup-epochs", "training"), ("start-epoch", "checkpoint"),
        ("output-dim", "model"), ("output-dir", "output"), ("save-model", "checkpoint"), ("resume-from", "checkpoint"),
        ("freeze-layers", "freezing"), ("unfreeze-at", "freezing"), ("early-stopping", "stopping"),
        ("stage2-threshold", "stages"), ("tensorboard-histogram-every", "logging"), ("gcs-bucket-name", "storage"),
        ("num-workers", "compute"), ("dataset", "data"), ("model-name", "model"), ("seed", "training"),
        ("optimizer-beta1", "training"), ("max-grad-norm", "training"), ("run-validation", "data"),
        ("logits-scale", "other"), ("catalog", "other"),
    ],
)  # fmt: skip
def test_names_say_what_an_option_changes(name: str, category: str) -> None:
    [parameter] = program(option(f"--{name}"))
    assert built_in_categories().of(parameter).name == category


def test_a_pattern_matches_whole_words_and_the_first_entry_wins() -> None:
    entries = [
        {"name": "a", "patterns": ["--log_dir", "be*"], "reason": "why"}, {"name": "b", "patterns": ["log", "vit-*-dim"]},
    ]  # fmt: skip
    categories = parse_categories({"categories": entries}, where="here")
    names = ("log-dir", "my-log-dir2", "log", "login", "beta-1", "vit-embed-dim", "vit-dim", "dir-log")
    found = [categories.of(each).name for each in program(*(option(f"--{name}") for name in names))]
    assert found == ["a", "a", "b", "other", "a", "b", "other", "b"]


def test_an_excluded_training_parameter_is_a_warning() -> None:
    found = compare([option("--lr"), option("--log-dir")], [], lr="it is fixed", log_dir="no logs")
    assert [each.parameter.name for each in found.suspicious] == ["lr"]
    assert not found.missing and not found.stale


def test_every_option_has_one_row_with_its_state() -> None:
    found = compare([option("--a"), option("--b", default=1), option("--c")], [option("--b"), option("--d")], c="why")
    assert {row["option"]: row["state"] for row in found.rows()} == {
        "--a": "missing", "--b": "common", "--c": "excluded", "--d": "bench-only",
    }  # fmt: skip
    assert [row["differs"] for row in found.rows() if row["state"] == "common"] == ["type, default"]


values = st.none() | st.integers() | st.booleans() | st.floats() | st.text(max_size=5)
settings = st.fixed_dictionaries(
    {},
    optional={
        "default": values,
        "required": st.booleans(),
        "hidden": st.booleans(),
        "help": st.text(max_size=8),
        "envvar": st.sampled_from(["A", "B"]),
    },
)
words = st.from_regex(r"[a-z]{2,8}(-[a-z]{2,5})?", fullmatch=True)


@pytest.mark.slow
@given(st.dictionaries(words, settings, max_size=8), st.randoms())
def test_a_program_agrees_with_itself_in_any_order(options: dict[str, dict[str, Any]], random: Any) -> None:
    def make() -> list[Parameter]:
        return program(*(option(f"--{name}", type=click.UNPROCESSED, **given) for name, given in options.items()))

    other = make()
    random.shuffle(other)
    found = compare_parameters(make(), other)
    assert len(found.common) == len(make())
    assert not (found.missing or found.bench_only or found.differing or found.renamed or found.stale)


@pytest.mark.slow
@given(st.dictionaries(words, settings, min_size=1, max_size=8), st.data())
def test_whatever_is_taken_away_is_missing_and_nothing_else(options: dict[str, dict[str, Any]], data: Any) -> None:
    train = program(*(option(f"--{name}", type=click.UNPROCESSED, **given) for name, given in options.items()))
    kept = [each for each in train if data.draw(st.booleans())]
    found = compare_parameters(train, kept)
    assert [each.parameter for each in found.missing] == [each for each in train if each not in kept]
    assert not found.differing and not found.bench_only
