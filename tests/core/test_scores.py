"""Normalized scores: a straight line through two references, and strict about what is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.core.errors import InvalidOptions
from fairtrial.core.findings import Estimate
from fairtrial.core.options import LoopOptions, parse_options
from fairtrial.core.scores import References
from fairtrial.recipes._references import ATARI, references_for
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import make, request_for, series_of

FINITE = st.floats(-1e6, 1e6)


@given(FINITE, FINITE, FINITE)
def test_random_is_zero_and_human_is_the_scale(random: float, human: float, score: float) -> None:
    if abs(human - random) < 1e-3:
        return
    line = References(random, human, 100)
    assert line.normalized(random) == 0 and line.normalized(human) == pytest.approx(100)
    low, high = line.normalized(score - 1), line.normalized(score + 1)
    assert (low < high) == (random < human)


@given(st.tuples(FINITE, FINITE, FINITE), st.booleans())
def test_intervals_carry_over(ends: tuple[float, float, float], reversed_scale: bool) -> None:
    low, value, high = sorted(ends)
    line = References(10, -10) if reversed_scale else References(-10, 10)
    found = line.carry_over(Estimate(value, low, high, 0.95, "t", 5, unit="points", samples=(low, high)))
    assert found.low is not None and found.high is not None and found.value is not None
    assert found.low <= found.value <= found.high and found.unit is None
    assert {found.low, found.high} == {line.normalized(low), line.normalized(high)}


@pytest.mark.parametrize(
    ("given_values", "told"),
    [
        ({"random_score": 1.0}, "human_score is missing"),
        ({"random_score": 1.0, "human_score": 1.0}, "must differ from random_score"),
        ({"random_score": 1.0, "human_score": float("nan")}, "benchmark.human_score: must be a finite number"),
        ({"random_score": 1.0, "human_score": float("inf")}, "benchmark.human_score: must be a finite number"),
        ({"random_scor": 1.0}, "unknown key 'benchmark.random_scor'; did you mean 'benchmark.random_score'?"),
        ({"xyz": 1.0}, "unknown key 'benchmark.xyz'; valid: best_metric,"),
        ({"scale": 0}, "benchmark.scale: must be greater than 0"),
        ({"best_metric_mode": "up"}, "benchmark.best_metric_mode"),
    ],
)
def test_the_mapping_is_strict(given_values: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidOptions) as error:
        parse_options(LoopOptions, {"benchmark": given_values}, where="t")
    assert told in str(error.value)


def test_best_metric_and_the_mapping_are_one_option() -> None:
    both = {"best_metric": "eval_loss", "benchmark": {"best_metric": "eval_loss", "best_metric_mode": "min"}}
    options = parse_options(LoopOptions, both, where="t")
    assert (options.best_metric, options.best_mode) == ("eval_loss", "min")
    assert parse_options(LoopOptions, options.to_dict(), where="t") == options
    with pytest.raises(InvalidOptions, match="set to 'eval_loss', but to 'eval_accuracy' in benchmark"):
        parse_options(LoopOptions, {**both, "benchmark": {"best_metric": "eval_accuracy"}}, where="t")


def test_scores_are_logged_beside_the_raw_ones(store: Store) -> None:
    references = {"random_score": 0.1, "human_score": 0.6, "scale": 1.0}
    make(store, "fake", steps=50, benchmark=references)
    series = series_of(store)
    for split in ("eval", "report", "report_best"):
        raw, score = (
            float.fromhex(series[f"{split}_{name}"][-1][1]) for name in ("accuracy", "human_normalized_score")
        )
        assert score == pytest.approx((raw - 0.1) / 0.5)
    run = store.run("s", "v.seed1")
    assert run is not None and run.metadata["lineage"]["references"]["human"] == 0.6


def test_a_run_without_references_is_what_it_was(store: Store) -> None:
    plain = request_for(store, "fake", steps=50)
    assert "benchmark" not in plain.spec.identity and plain.spec.options["benchmark"] is None
    make(store, "fake", steps=50)
    assert not [name for name in series_of(store) if "normalized" in name]


@pytest.mark.slow
def test_a_study_file_may_have_the_mapping(cli: Callable[..., Answer], store: Store, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    text = "study: s\nrecipe: fake\nseeds: 1\noptions: {steps: 20}\nbenchmark: {random_score: 0, human_score: 0.5"
    path.write_text(text + ", humn: 1}\n")
    assert "unknown key 'benchmark.humn'" in cli("launch", str(path)).err
    path.write_text(text + "}\n")
    assert cli("launch", str(path)).code == 0
    assert "report_human_normalized_score" in cli("runs", "show", "s/default.seed1072", "--format", "json").out


def test_there_are_57_games_and_every_spelling_finds_its_own() -> None:
    assert len(ATARI) == 57 and all(random < human for random, human in ATARI.values())
    spellings = (
        "ALE/Breakout-v5",
        "Breakout-v4",
        "BreakoutNoFrameskip-v4",
        "BreakoutDeterministic-v4",
        "Breakout-ram-v4",
    )
    for name in spellings:
        found = references_for(name)
        assert found is not None and (found.random, found.human) == (1.7, 30.5) and "DQN Zoo" in found.basis
    pole = references_for("CartPole-v1")
    assert pole is not None and pole.human == 475 and references_for("Nothing-v1") is None
