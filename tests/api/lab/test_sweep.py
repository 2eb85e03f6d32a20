"""Sweeps through the Python API, on real runs of made-up numbers: what is run, what is kept, what is said."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

import fairtrial
from fairtrial.api.lab.ablation import ablation
from fairtrial.api.lab.arms import LabConfig
from fairtrial.api.lab.compare import compare_strategies as compare
from fairtrial.api.lab.sweep import Sweep, sweep
from fairtrial.core.errors import InvalidOptions, RunsFailed, UserError
from fairtrial.core.runs import Run
from fairtrial.core.specs import CONFIRMING, seed_list
from fairtrial.core.streams import Streams
from fairtrial.recipes.fake import Fake, Options
from fairtrial.record.store import Store
from tests.conftest import Answer

QUICK = {"steps": 5, "noise": 0.005}
GRID = "effect=0:0.05:0.01"


class ProgressCallback:
    """Which runs were made: `watch` is called with tickets only where something is to be done."""

    def __init__(self) -> None:
        self.made: set[str] = set()

    def __call__(self, tickets: Sequence[Any]) -> None:
        self.made |= {ticket.key for ticket in tickets}


def terms(store: Path | None = None, **values: Any) -> LabConfig:
    return LabConfig(store=store, **values)


def runs_in(root: Path, study: str) -> list[Run]:
    return Store(root).match([f"{study}/*"])


def seeds_in(root: Path, study: str) -> set[int]:
    return {run.seed for run in runs_in(root, study)}


def codes(found: Sweep) -> set[str]:
    return {caution["code"] for caution in found.cautions}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for the tests that only look."""
    return tmp_path_factory.mktemp("lab") / "store"


@pytest.fixture(scope="module")
def confirmed(root: Path) -> Sweep:
    return sweep("fake", [GRID], options=QUICK, confirm=4, terms=terms(root))


# What a sweep says


@pytest.mark.slow
def test_a_sweep_has_the_documented_shape(confirmed: Sweep) -> None:
    told = json.loads(json.dumps(confirmed.to_dict(), allow_nan=False))
    assert told["param"] == "effect"
    assert [row["value"] for row in told["results"]] == [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]
    for row in told["results"]:
        assert {"value", "accuracy", "loss", "std_dev", "ci", "runs"} <= row.keys()
        assert row["ci"][0] < row["accuracy"] < row["ci"][1] and row["std_dev"] > 0 and row["runs"] == 3
        assert row["loss"] is None, "this recipe evaluates no loss, and unknown is not 0"
    assert set(told["best"]) == {"value", "accuracy", "confirmed", "set"}
    assert {"mean_accuracy", "variance", "tukey_limit", "range_p", "level"} <= told["statistical_analysis"].keys()
    assert told["metric"] == "eval_accuracy" and told["direction"] == "max" and told["recipe"] == "fake"


@pytest.mark.slow
def test_a_named_sweep_has_its_own_words(confirmed: Sweep) -> None:
    told = replace(confirmed, kind="temperature").to_dict()
    assert told["sweep_type"] == "temperature" and "param" not in told
    assert told["range"] == {"start": 0.0, "end": 0.05, "step": 0.01}
    assert {"temperature", "accuracy", "loss", "std_dev", "ci", "runs"} <= told["results"][0].keys()
    assert told["best"]["temperature"] == told["best_temperature"] == confirmed.best_param
    assert "value" not in told["results"][0] and "value" not in told["best"]
    assert "best_alpha" in replace(confirmed, kind="alpha").to_dict()


def test_every_number_comes_from_runs_in_the_store(confirmed: Sweep, root: Path) -> None:
    runs = runs_in(root, confirmed.study)
    assert len(runs) == 6 * 3
    for point in confirmed.points:
        values = [run.final["eval_accuracy"] for run in runs if run.variant == point.variant]
        assert point.accuracy.value == pytest.approx(fmean(values), rel=1e-12)
        assert point.std_dev == pytest.approx(stdev(values), rel=1e-9)
    means = [point.accuracy.value or 0 for point in confirmed.points]
    assert confirmed.statistics["mean_accuracy"] == pytest.approx(fmean(means), rel=1e-12)
    assert confirmed.statistics["variance"] == pytest.approx(np.var(means), rel=1e-9)


def test_the_best_is_the_largest_mean_and_its_set_is_told_by_value(confirmed: Sweep) -> None:
    assert confirmed.best_param == confirmed.best.value == 0.05
    assert confirmed.best.accuracy.value == max(point.accuracy.value or 0 for point in confirmed.points)
    assert confirmed.alike is not None and confirmed.best in confirmed.alike
    told = confirmed.to_dict()
    assert told["best"]["set"] == [row["value"] for row in told["results"] if row["in_set"]]
    assert 0.0 not in told["best"]["set"]
    limit = confirmed.statistics["tukey_limit"]
    gaps = {p.variant: (confirmed.best.accuracy.value or 0) - (p.accuracy.value or 0) for p in confirmed.points}
    assert limit is not None
    assert {p.variant for p in confirmed.alike} == {name for name, gap in gaps.items() if gap <= limit}


def test_less_can_be_better_and_the_same_runs_tell(confirmed: Sweep, root: Path) -> None:
    watch = ProgressCallback()
    found = sweep("fake", [GRID], options=QUICK, terms=terms(root, direction="min", watch=watch))
    assert found.best_param == 0.0 and found.direction == "min"
    assert watch.made == set() and found.study == confirmed.study


def test_cautions_say_what_the_winner_is_worth(confirmed: Sweep, root: Path) -> None:
    assert "edge of grid" in codes(confirmed) and "best of many" not in codes(confirmed)
    plain = sweep("fake", ["effect=0.02,0.05"], options=QUICK, terms=terms(root))
    assert {"best of many", "one-arm interval", "synthetic"} <= codes(plain)
    on_report = sweep("fake", [GRID], options=QUICK, terms=terms(root, metric="report_accuracy"))
    assert "selected on report data" in codes(on_report)


# Confirmation


def test_a_confirmation_has_fresh_seeds_and_report_data(confirmed: Sweep, root: Path) -> None:
    found = confirmed.confirmation
    assert found is not None
    used, fresh = seeds_in(root, confirmed.study), seeds_in(root, found.study)
    assert used == set(seed_list(3)) and len(fresh) == 4 and not used & fresh
    runs = runs_in(root, found.study)
    assert {run.variant for run in runs} == {"effect=0.05", "effect=0.0"} and len(runs) == 8
    values = [run.final["report_accuracy"] for run in runs if run.variant == found.winner]
    assert found.accuracy.value == pytest.approx(fmean(values), rel=1e-12)


def test_a_confirmation_compares_with_the_default_and_leaves_the_selection_as_it_was(confirmed: Sweep) -> None:
    found, told = confirmed.confirmation, confirmed.to_dict()
    assert found is not None and found.analysis is not None
    assert (found.winner, found.baseline) == ("effect=0.05", "effect=0.0")
    assert told["best"]["confirmed"] == told["confirmation"]["accuracy"] == found.accuracy.value
    assert told["best"]["accuracy"] == confirmed.best.accuracy.value != found.accuracy.value
    assert told["confirmation"]["runs"] == 4 and told["confirmation"]["verdict"] == "better"
    assert told["confirmation"]["baseline_accuracy"] < told["confirmation"]["accuracy"]
    assert "report_accuracy" in told["confirmation"]["sentence"]


def test_the_baseline_can_be_named_and_may_lie_off_the_grid(root: Path) -> None:
    for given in (0.2, "0.2", {"effect": 0.2}):
        found = sweep("fake", ["effect=0,0.05"], options=QUICK, confirm=2, baseline=given, terms=terms(root, runs=2))
        assert found.confirmation is not None
        assert (found.confirmation.baseline, found.confirmation.winner) == ("effect=0.2", "effect=0.05")
        assert found.confirmation.to_dict()["verdict"] != "better"


def test_a_winner_that_is_the_baseline_runs_alone_and_says_so(cli: Callable[..., Answer], store: Store) -> None:
    line = ("sweep", "fake", "--param", "effect=-0.1,0", "--steps", "5", "--runs", "2", "--confirm", "2")
    answer = cli(*line)
    assert answer.code == 0, answer.err
    assert "The best value is the baseline itself" in answer.out
    found = cli(*line, "--format", "json").json["confirmation"]
    assert found["winner"] == found["baseline"] == "effect=0.0"
    assert (found["verdict"], found["comparison"]) == (None, None)
    assert found["accuracy"] == found["baseline_accuracy"]
    assert {run.variant for run in runs_in(store.root, found["study"])} == {"effect=0.0"}


def test_a_baseline_without_a_confirmation_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="a baseline is only used with --confirm"):
        sweep("fake", [GRID], baseline=0.0)
    assert not (tmp_path / "store").exists()


def test_a_baseline_that_does_not_fit_is_refused_before_anything_runs(tmp_path: Path) -> None:
    two = ["effect=0,0.1", "label=a,b"]
    with pytest.raises(InvalidOptions, match="the baseline must set effect, label"):
        sweep("fake", two, confirm=2, baseline=0.1)
    with pytest.raises(InvalidOptions, match="the baseline must set effect, label"):
        sweep("fake", two, confirm=2, baseline={"effect": 0.1})
    with pytest.raises(InvalidOptions, match="baseline: effect: must be"):
        sweep("fake", [GRID], confirm=2, baseline="much")
    with pytest.raises(UserError, match="best_mode has no default to compare with"):
        sweep("fake", ["best_mode=max,min"], confirm=2)
    assert not (tmp_path / "store").exists()


def test_fresh_seeds_are_fresh_whatever_seeds_the_sweep_had(store: Store) -> None:
    own = [CONFIRMING + seed for seed in seed_list(2)]
    found = sweep("fake", ["effect=0,0.1"], options=QUICK, confirm=2, terms=terms(runs=own))
    assert found.confirmation is not None
    assert not seeds_in(store.root, found.study) & seeds_in(store.root, found.confirmation.study)


def test_a_confirmation_of_equal_settings_is_unbiased() -> None:
    """The recipe's own numbers: the best of fifteen equal settings looks 0.7 too good, on fresh seeds 0."""
    settings = [Options(label=f"v{n}", noise=1.0) for n in range(15)]
    selected, confirmed_ = [], []
    for number in range(400):
        own = [10**8 * number + seed for seed in seed_list(3)]
        means = [fmean(Fake(options, Streams(seed)).offset for seed in own) for options in settings]
        selected.append(max(means))
        best = settings[means.index(max(means))]
        confirmed_.append(fmean(Fake(best, Streams(CONFIRMING + seed)).offset for seed in own))
    assert fmean(selected) > 0.5
    assert abs(fmean(confirmed_)) <= 3 * stdev(confirmed_) / math.sqrt(len(confirmed_))


# What is run, and what is kept


def test_the_same_sweep_again_makes_no_run(confirmed: Sweep, root: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.glob("*/*/metadata.json")}
    assert len(before) >= 6 * 3 + 2 * 4
    watch = ProgressCallback()
    again = sweep("fake", [GRID], options=QUICK, confirm=4, terms=terms(root, watch=watch))
    assert watch.made == set()
    assert {path: path.stat().st_mtime_ns for path in root.glob("*/*/metadata.json")} == before
    here, there = again.to_dict(), confirmed.to_dict()
    assert (here["results"], here["best"], here["confirmation"]) == (
        there["results"], there["best"], there["confirmation"],
    )  # fmt: skip


def test_a_larger_grid_and_more_runs_keep_what_is_finished() -> None:
    first, wider, more = ProgressCallback(), ProgressCallback(), ProgressCallback()
    one = sweep("fake", ["effect=0:0.02:0.01"], options=QUICK, terms=terms(runs=2, watch=first))
    two = sweep("fake", ["effect=0:0.04:0.01"], options=QUICK, terms=terms(runs=2, watch=wider))
    assert one.study == two.study
    assert len(first.made) == 3 * 2 and len(wider.made) == 2 * 2 and not first.made & wider.made
    assert [point.accuracy for point in two.points[:3]] == [point.accuracy for point in one.points]
    three = sweep("fake", ["effect=0.01,0.04"], options=QUICK, terms=terms(runs=3, watch=more))
    assert {name.rpartition("seed")[2] for name in more.made} == {"3014"} and len(more.made) == 2
    assert three.runs == 3 and [point.accuracy.n for point in three.points] == [3, 3]
    fewer = sweep("fake", ["effect=0.01,0.04"], options=QUICK, terms=terms(runs=2))
    assert [point.accuracy.n for point in fewer.points] == [2, 2], "only the seeds that were asked for"


def test_other_fixed_settings_are_another_study() -> None:
    one, other = (sweep("fake", ["effect=0"], options=o, terms=terms(runs=1)) for o in (QUICK, {"steps": 6}))
    named = sweep("fake", ["effect=0"], options=QUICK, terms=terms(runs=1, study="mine"))
    assert len({one.study, other.study, named.study}) == 3 and named.study == "mine"


def test_several_options_make_a_grid_or_go_side_by_side() -> None:
    params = ["effect=0,0.2", "label=a,b"]
    grid = sweep("fake", params, options=QUICK, terms=terms(runs=2))
    assert [point.value for point in grid.points] == [
        {"effect": effect, "label": label} for effect in (0.0, 0.2) for label in ("a", "b")
    ]
    assert grid.best_param["effect"] == 0.2 and grid.to_dict()["param"] == ["effect", "label"]
    watch = ProgressCallback()
    zipped = sweep("fake", params, options=QUICK, zipped=True, terms=terms(runs=2, watch=watch))
    assert [point.value for point in zipped.points] == [{"effect": 0.0, "label": "a"}, {"effect": 0.2, "label": "b"}]
    assert watch.made == set(), "those settings are part of the grid"
    assert zipped.best_param == {"effect": 0.2, "label": "b"}


def test_one_run_per_value_has_no_spread_and_no_set() -> None:
    found = sweep("fake", ["effect=0,0.1"], options=QUICK, terms=terms(runs=1))
    told = found.to_dict()
    assert told["best"]["value"] == 0.1 and told["best"]["set"] is None and found.alike is None
    assert [(row["std_dev"], row["ci"], row["in_set"], row["runs"]) for row in told["results"]] == [
        (None, None, None, 1),
        (None, None, None, 1),
    ]
    assert found.winner.reason == "too few runs" and "few seeds" in codes(found)
    assert told["statistical_analysis"]["tukey_limit"] is None


def test_one_value_is_best_by_itself() -> None:
    found = sweep("fake", ["effect=0.1"], options=QUICK, terms=terms(runs=[7, 9]))
    told = found.to_dict()
    assert told["best"]["set"] == [0.1] and told["statistical_analysis"]["variance"] is None
    assert "best of many" not in codes(found)


# Runs that are lost


def test_settings_that_diverge_are_counted_and_never_win(store: Store) -> None:
    found = sweep("fake", ["diverge_at=3,0"], options=QUICK, terms=terms(runs=2))
    lost, whole = found.to_dict()["results"]
    assert (lost["accuracy"], lost["std_dev"], lost["ci"], lost["runs"], lost["lost"]) == (None, None, None, 0, 2)
    assert (whole["runs"], whole["lost"]) == (2, 0)
    assert found.best_param == 0 and found.to_dict()["best"]["set"] == [0]
    assert "lost runs in a sweep" in codes(found)
    worse = sweep("fake", ["diverge_at=3,0"], options=QUICK, terms=terms(runs=2, direction="min"))
    assert worse.best_param == 0, "nor where less is better"
    again = ProgressCallback()
    sweep("fake", ["diverge_at=3,0"], options=QUICK, terms=terms(runs=2, watch=again))
    assert again.made == set(), "a divergence is a result"


def test_a_setting_that_fails_leaves_a_result_that_says_so() -> None:
    found = sweep("fake", ["fail_at=0,3"], options=QUICK, terms=terms(runs=2))
    assert found.failed and found.best_param == 0
    assert [row["lost"] for row in found.to_dict()["results"]] == [0, 2]
    assert any("asked to fail" in reason for reason in found.points[1].lost.values())
    assert found.points[1].alike is False and "lost runs in a sweep" in codes(found)


def test_a_sweep_without_losses_has_not_failed(confirmed: Sweep) -> None:
    assert not confirmed.failed and "lost runs in a sweep" not in codes(confirmed)


def test_a_baseline_that_diverges_is_told_as_such() -> None:
    found = sweep("fake", ["diverge_at=0,9"], options=QUICK, confirm=2, baseline=3, terms=terms(runs=2))
    assert found.confirmation is not None and found.failed
    told = found.confirmation.to_dict()
    assert told["baseline_accuracy"] is None and told["verdict"] == "inconclusive"
    assert told["accuracy"] is not None


@pytest.mark.parametrize("param", ["diverge_at=2,4", "fail_at=2,4"])
def test_where_no_run_completes_there_is_no_winner(param: str) -> None:
    with pytest.raises(RunsFailed, match=r"no run of study 'sweep-fake-.*' completed"):
        sweep("fake", [param], options=QUICK, terms=terms(runs=1))


def test_a_setting_without_a_completed_run_has_no_loss() -> None:
    how = terms(runs=1, metric="train_loss", direction="min")
    found = sweep("fake", ["fail_at=0,4"], options={**QUICK, "log_every": 1}, terms=how)
    row = found.to_dict()["results"][1]
    assert (row["accuracy"], row["loss"]) == (None, None)


# Mistakes are told before anything is run


@pytest.mark.parametrize(
    ("values", "confirm", "what"),
    [
        ({"level": 0.5}, 0, "level must lie between 0.5 and 1, not 0.5"),
        ({"level": 1.0}, 0, "level must lie between 0.5 and 1, not 1"),
        ({"level": 95}, 0, "level must lie between 0.5 and 1, not 95"),
        ({"level": math.nan}, 0, "level must lie between 0.5 and 1, not nan"),
        ({"runs": 0}, 0, "runs must be at least 1, not 0"),
        ({"runs": -3}, 0, "runs must be at least 1, not -3"),
        ({"runs": [1, 1]}, 0, "each seed may occur only once"),
        ({"runs": []}, 0, "seeds: must be integers"),
        ({}, -1, "confirm must be at least 1, not -1"),
        ({"direction": "up"}, 0, "direction must be max or min"),
        ({"study": "a/b"}, 0, "cannot be a folder name"),
    ],
)
def test_terms_that_make_no_sense_are_refused(tmp_path: Path, values: Any, confirm: int, what: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        sweep("fake", [GRID], confirm=confirm, terms=terms(**values))
    assert what in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_all_that_is_wrong_with_the_terms_is_told_at_once() -> None:
    with pytest.raises(InvalidOptions) as caught:
        sweep("fake", [GRID], confirm=-2, terms=terms(runs=0, level=2))
    assert len([caught.value.message, *caught.value.problems]) == 3


@pytest.mark.parametrize(
    ("params", "what"),
    [
        (["efect=0,1"], "did you mean 'effect'"), (["effect=0:1:0"], "step must be above 0"), ([], "nothing to sweep"),
        (["effect=0,1", "effect=2"], "swept twice"), (["steps=1,2"], "both swept and fixed"), (["effect"], "NAME=VALUES"),
    ],
)  # fmt: skip
def test_a_grid_that_makes_no_sense_is_refused(tmp_path: Path, params: list[str], what: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        sweep("fake", params, options=QUICK)
    assert what in str(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("verb", [fairtrial.temperature_sweep, fairtrial.alpha_sweep])
def test_named_sweeps_refuse_ranges_by_their_own_name(tmp_path: Path, verb: Callable[..., Sweep]) -> None:
    name = verb.__name__.removesuffix("_sweep")
    with pytest.raises(InvalidOptions, match=f"{name}: step must be above 0"):
        verb(0.5, 1, 0)
    with pytest.raises(InvalidOptions, match=f"{name}: must be"):
        verb(-1, 2, 1)
    with pytest.raises(InvalidOptions, match=f"{name} is both swept and fixed"):
        verb(0.5, 1, 0.5, options={name: 1})
    with pytest.raises(InvalidOptions, match="runs must be at least 1"):
        verb(0.5, 1, 0.5, 0)
    assert not (tmp_path / "store").exists()


STRATEGIES = ("none", "kd", "mse", "attention", "progressive", "combined")
COMPONENTS = ("temperature", "soft_targets", "logit_regression", "attention_loss", "layer_matching")


def test_unknown_strategies_are_all_told_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions) as caught:
        compare(["kdd", "mse", "zzz"])
    told = str(caught.value)
    assert "unknown strategy 'kdd'; did you mean 'kd'?" in told and "unknown strategy 'zzz'" in told
    assert all(name in (caught.value.hint or "") for name in STRATEGIES)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("names", "how", "what"),
    [
        ([], {}, "no strategy is named"),
        (["kd", "kd"], {}, "strategy kd is named twice"),
        (["kd"], {"options": {"strategy": "mse"}}, "strategy is what is compared"),
        (["kd"], {"family": "bonferroni"}, "unknown family adjustment 'bonferroni'"),
        (["kd"], {"terms": LabConfig(runs=0)}, "runs must be at least 1"),
        (["kd"], {"terms": LabConfig(level=0.4)}, "level must lie between"),
        (["attention"], {"options": {"student": "mlp"}}, "needs models with spatial maps"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(tmp_path: Path, names: list[str], how: Any, what: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        compare(names, **how)
    assert what in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_unknown_components_are_all_told_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions) as caught:
        ablation(["temprature", "zzz", "layer_matching"])
    told = str(caught.value)
    assert "unknown component 'temprature'; did you mean 'temperature'?" in told and "unknown component 'zzz'" in told
    assert all(name in (caught.value.hint or "") for name in COMPONENTS)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("names", "how", "what"),
    [
        ([], {}, "no component is named"),
        (["temperature", "temperature"], {}, "component temperature is named twice"),
        (["temperature"], {"also": ["temperature+zzz"]}, "--also temperature+zzz: unknown component 'zzz'"),
        (["temperature"], {"base": {"strategi": "kd"}}, "did you mean 'strategy'"),
        (["temperature"], {"options": {"temperature": -1}}, "temperature: must be greater than 0"),
        (["temperature"], {"family": "none"}, "unknown family adjustment 'none'"),
        (["temperature"], {"terms": LabConfig(runs=0)}, "runs must be at least 1"),
    ],
)
def test_an_ablation_that_makes_no_sense_is_refused(tmp_path: Path, names: list[str], how: Any, what: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        ablation(names, **how)
    assert what in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_a_base_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file"):
        ablation(["temperature"], base=tmp_path / "none.yaml")
    assert not (tmp_path / "store").exists()
