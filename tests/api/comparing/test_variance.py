"""Repeats with the same seed, and random streams that are varied one by one, from real runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairtrial
from fairtrial.core.errors import InvalidOptions, UserError
from fairtrial.core.options import LoopOptions, parse_options
from fairtrial.core.registry import load_recipe
from fairtrial.core.specs import FIXED_SEEDS
from fairtrial.core.stream_seeds import StreamSeeds
from fairtrial.core.streams import STREAMS, Streams
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.plan.study import Study
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.own_recipe import PLAIN

Cli = Callable[..., Answer]
SHORT = {"steps": 4, "eval_every": 2}

RESTLESS = """
import os

class Own(Plain):
    \"\"\"Not reproducible: the same seed gives another result each time.\"\"\"

    def step(self, step, watch):
        return {"loss": 1.0}

    def evaluate(self, split):
        chance = int.from_bytes(os.urandom(4), "big") / 2**32
        return {"accuracy": 0.5 + 0.001 * chance + (self.streams.seed("init") % 1000) / 1000}
"""


def launch(store: Store, study: dict[str, Any]) -> None:
    """Every cell of a study, one after another in this process."""
    asked = Study.model_validate(study)
    for name, values in asked.variants.items():
        for seed in asked.seed_list:
            options = {**asked.options, **values}
            fairtrial.train(asked.recipe, options, seed=seed, study=asked.study, variant=name, store=store.root)


def train_again(store: Store, recipe: str, seed: int, **options: object) -> None:
    fairtrial.train(recipe, options, seed=seed, study="s", variant="v", store=store.root, again=True)


def test_identical_repeats_are_said_to_be_identical_and_are_not_further_seeds(store: Store, cli: Cli) -> None:
    launch(store, {"study": "s", "recipe": "fake", "variants": {"v": {}}, "options": SHORT, "seeds": 3})
    before = fairtrial.variance("s:v", store=store.root)
    assert before.same_seed is None and before.to_dict()["same_seed"] is None
    for _ in range(2):
        train_again(store, "fake", FIXED_SEEDS[0], **SHORT)
    found = fairtrial.variance("s:v", store=store.root)
    assert found.n == 3 and found.spreads == before.spreads
    assert found.same_seed is not None
    parts = found.same_seed["auc"]
    assert parts.identical and (parts.seeds, parts.repeated, parts.runs) == (3, 1, 5)
    text = cli("variance", "s:v").out
    assert "Repeats with the same seed are identical" in text
    assert "the seed determines the result" in text
    by_glob = fairtrial.variance("s/v.*", store=store.root)
    assert by_glob.to_dict() == found.to_dict()


def test_repeats_that_differ_are_shown_apart_from_seeds(store: Store, cli: Cli, tmp_path: Path) -> None:
    recipe = tmp_path / "restless.py"
    recipe.write_text(PLAIN + RESTLESS)
    for seed in (1, 2, 3):
        for _ in range(2):
            train_again(store, str(recipe), seed, **SHORT)
    found = fairtrial.variance("s:v", store=store.root).same_seed
    assert found is not None
    parts = found["auc"]
    assert not parts.identical and (parts.seeds, parts.repeated, parts.runs) == (3, 3, 6)
    assert parts.same_seed.value is not None and 0 < parts.same_seed.value < 0.001
    assert parts.between_seeds.value is not None and parts.between_seeds.value > 0.01
    assert parts.share.value is not None and parts.share.value > 0.99
    lines = cli("variance", "s:v").out.splitlines()
    assert any(line.startswith("Repeats with the same seed: sd of the AUC") for line in lines)
    assert any(line.startswith("Additional noise between seeds: sd") for line in lines)
    assert any(line.startswith("Seeds account for > 99 % of the variance (95 % interval") for line in lines)
    assert cli("variance", "s:v", "--format", "json").json["same_seed"]["auc"]["seeds"] == 3


# Streams


def test_every_stream_can_have_a_seed_of_its_own() -> None:
    assert set(StreamSeeds.model_fields) == set(STREAMS)
    for name in STREAMS:
        plain, held, other = Streams(1), Streams(1, own={name: 2}), Streams(2)
        for each in STREAMS:
            assert held.seed(each, 5) == (other if each == name else plain).seed(each, 5)


def test_runs_without_the_option_are_what_they_were() -> None:
    """Seeds of streams and fingerprints, as they were before there was such an option."""
    assert Streams(7).seed("init") == 4680121035227814216
    assert Streams(7).seed("order", 3) == 3058580389896518305
    recipe = load_recipe("fake")
    prints = [
        spec_of(recipe, resolve(recipe, values, where="t"), study="s", variant="v", seed=1).fingerprint
        for values in ({}, {"stream_seed": {}}, {"stream_seed": None}, {"stream_seed": {"order": 1}})
    ]
    assert prints[0] == prints[1] == prints[2] != prints[3]
    assert prints[0] == FINGERPRINT


FINGERPRINT = "ca742e7e43998e45a516805caa3a82f462559a7140526b9fb26a5ac9a39f411d"


def test_seeds_of_streams_can_be_spelled_in_one_word() -> None:
    options = parse_options(LoopOptions, {"stream_seed": "init=3+order=4"}, where="t")
    assert options.to_dict()["stream_seed"] == {"init": 3, "order": 4}
    assert parse_options(LoopOptions, options.to_dict(), where="t") == options
    for wrong, told in (
        ("init", "STREAM=SEED"), ("init=1+init=2", "twice"), ("ini=1", "did you mean"), ({"init": -1}, "greater"),
        ({"init": "x"}, "integer"), ({"init": 2**63}, "less"),
    ):  # fmt: skip
        with pytest.raises(InvalidOptions, match=told):
            parse_options(LoopOptions, {"stream_seed": wrong}, where="t")


def test_a_stream_that_is_held_still_is_the_same_in_every_run(with_data: Store) -> None:
    small = {"model": "linear", "steps": 3, "labels": 200, "eval_every": 0, "checkpoint_every": 3}
    study = {
        "study": "c", "recipe": "classify", "options": small, "seeds": 2,
        "variants": {"all": {}, "held": {"stream_seed": {"init": 0, "order": 0, "subset": 0}}},
    }  # fmt: skip
    launch(with_data, study)
    values = {
        name: [with_data.run("c", f"{name}.seed{seed}").final["report_loss"] for seed in FIXED_SEEDS[:2]]  # type: ignore[union-attr]
        for name in ("all", "held")
    }
    assert values["held"][0] == values["held"][1] and values["all"][0] != values["all"][1]
    like_seed_0 = fairtrial.train("classify", small, seed=0, store=with_data.root).run
    assert like_seed_0.final["report_loss"] == values["held"][0]


def test_variance_says_which_stream_matters_most(store: Store, cli: Cli) -> None:
    """The made-up recipe draws 99 % of its variance from the order, the rest from the initial weights."""
    plain = ("launch", "fake", "--base-run-name", "p", "--variant", "v:", "--seeds", "2", "--correlation", "0.99")
    assert cli(*plain, "--steps", "4", "--eval-every", "2").code == 0
    refused = cli("variance", "p", "--by-stream")
    assert refused.code == 1 and "vary all their random streams at once (init, order)" in refused.err
    command = refused.err.split("one by one: fairtrial ")[1].strip().replace("--seeds 5", "--seeds 8")
    assert cli(*shlex.split(command)).code == 0
    found = cli("variance", "p-streams", "--by-stream", "--format", "json").json
    assert found["most"] == "order" and found["indistinguishable"] == [] and found["summary"] == "auc"
    assert [row["streams"] for row in found["streams"]] == [["order"], ["init"]]
    assert found["streams"][1]["share"]["value"] < 0.1 and found["all"]["n"] == 8
    text = cli("variance", "p-streams", "--by-stream").out
    assert text.startswith("order changes the AUC of eval_accuracy most")
    same = fairtrial.variance_by_stream(["p-streams:order", "p-streams:init"], store=store.root)
    assert same.ranking.together is None and same.ranking.rows[0].share.value is None


def test_streams_of_a_real_model_are_varied_one_by_one(with_data: Store) -> None:
    small = {"model": "linear", "steps": 20, "labels": 200, "eval_every": 10, "checkpoint_every": 0}
    held = {
        name: {"stream_seed": {other: 0 for other in ("init", "order", "subset") if other != name}}
        for name in ("init", "order", "subset")
    }
    study = {"study": "c", "recipe": "classify", "options": small, "variants": {"all": {}, **held}, "seeds": 3}
    launch(with_data, study)
    found = fairtrial.variance_by_stream("c", store=with_data.root)
    assert {row.name for row in found.ranking.rows} == {"init", "order", "subset"}
    assert all(row.sd.value and row.n == 3 for row in found.ranking.rows)
    assert found.ranking.together is not None and found.ranking.together.n == 3
    spread = fairtrial.variance("c:subset", store=with_data.root).spreads["auc"]
    [row] = [row for row in found.ranking.rows if row.name == "subset"]
    assert spread.sd == pytest.approx(row.sd.value)


def test_what_streams_were_shared_by_pairs_takes_their_own_seeds_into_account(store: Store) -> None:
    arms = {"base": {}, "new": {"effect": 0.1, "stream_seed": {"order": 0}}}
    launch(store, {"study": "s", "recipe": "fake", "variants": arms, "options": SHORT, "seeds": 3})
    [comparison] = fairtrial.analyze("s", store=store.root).comparisons
    assert comparison.streams == "init"


def test_runs_that_cannot_tell_streams_apart_are_refused(store: Store) -> None:
    arms = {"still": {"stream_seed": {"init": 0, "order": 0}}, "order": {"stream_seed": {"init": 0}},
            "twice": {"stream_seed": {"init": 1}}}  # fmt: skip
    launch(store, {"study": "s", "recipe": "fake", "variants": arms, "options": SHORT, "seeds": 2})
    with pytest.raises(UserError, match="fixes every random stream"):
        fairtrial.variance_by_stream("s", store=store.root)
    with pytest.raises(UserError, match="two variants vary order"):
        fairtrial.variance_by_stream(["s:order", "s:twice"], store=store.root)


def test_programs_that_do_not_record_their_streams_are_refused(store: Store, cli: Cli) -> None:
    for seed in (1, 2):
        with fairtrial.run(study="p", variant="v", seed=seed, store=store.root) as run:
            run.log(1, accuracy=0.5 + 0.1 * seed)
    refused = cli("variance", "p", "--by-stream", "--metric", "accuracy")
    assert refused.code == 1 and "did not record their random streams" in refused.err


def test_a_seed_for_a_stream_that_is_never_drawn_from_is_pointed_out(store: Store) -> None:
    run = fairtrial.train("fake", {**SHORT, "stream_seed": {"env": 1}}, store=store.root).run
    [told] = [each for each in run.metadata["cautions"] if each["code"] == "stream seed without effect"]
    assert "env" in told["text"] and "init, order" in told["remedy"]


def test_a_metric_that_does_not_vary_over_seeds_is_questioned(cli: Cli) -> None:
    Path("still.csv").write_text("seed,acc\n1,0.5\n2,0.5\n3,0.5\n")
    assert (
        "all 3 runs have the same value; does the seed reach your program?"
        in cli("variance", "--from", "still.csv").out
    )
    assert "Does the seed reach your program?" in cli("power", "--sesoi", "0.1", "--from", "still.csv").err


def test_the_caution_about_one_arm_stops_where_enough_runs_are_seen(tmp_path: Path) -> None:
    def cautions(n: int) -> set[str]:
        rows = [f"{seed},{value!r}" for seed, value in enumerate(np.random.default_rng(0).normal(10, 1, n).tolist())]
        (tmp_path / "r.csv").write_text("\n".join(["seed,acc", *rows]) + "\n")
        found = fairtrial.variance(source=tmp_path / "r.csv")
        return {caution["code"] for caution in found.spreads["last"].cautions}

    assert cautions(5) == {"one-arm interval"} and cautions(98) == set()
