"""profile: real rollouts and updates, measured so that it adds up, kept, compared and checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.api.benchmarking.profile import ProfileTerms, profile
from fairtrial.api.benchmarking.profile_diff import diff_profiles
from fairtrial.api.benchmarking.profile_figures import Played, ProfileMeasures, buffer_limit
from fairtrial.core.errors import UserError
from fairtrial.core.options import parse_options
from fairtrial.probe.phases import StepTimes
from fairtrial.recipes.grpo import PlayOptions
from fairtrial.recipes.lm.learner import LearningCounters
from fairtrial.recipes.lm.types import Rollout, RolloutPart
from fairtrial.record.store import Store
from tests.conftest import Answer

Cli = Callable[..., Answer]
TINY = {"groups": 2, "samples": 2, "horizon": 2, "compact_prompts": True, "rank": 4}


@pytest.fixture(autouse=True)
def _shared_vocabulary(with_data: Store) -> None: ...


def adds_up(document: dict[str, Any]) -> None:
    """On every lane phases, residual and idle time are the window; and so are the shares of who was busy."""
    for lane in document["lanes"].values():
        assert sum(lane["phases_ms"].values()) + lane["idle_ms"] == pytest.approx(lane["window_ms"])
    bubbles = document["bubbles"]
    parts = ("overlap_ms", "only_generation_ms", "only_training_ms", "neither_ms")
    assert sum(bubbles[part] for part in parts) == pytest.approx(bubbles["window_ms"])


LINES = {
    "smoke": "rollout --smoke",
    "cached": "rollout --groups 2 --samples 2 --horizon 2 --use-state-cache --compact-prompts",
    "groups": "rollout --steps 2 --groups 4",
    "trainer": "trainer --groups 2 --samples 2",
    "e2e": "e2e --steps 4 --buffer-depth 3 --policy-lag 2",
}


@pytest.mark.parametrize("name", LINES)
def test_every_line_of_the_plan_runs(cli: Cli, name: str) -> None:
    small = ["--samples", "2", "--horizon", "1"] if name in ("groups", "e2e") else []
    told = cli("profile", *LINES[name].split(), *small, "--profile-name", name, "--format", "json")
    assert told.code == 0, told.err
    document = told.json
    adds_up(document)
    assert Path(document["snapshot"]).is_file() and (Path(document["trace"]) / "lanes.json").is_file()
    assert document["tokens"]["generated"] > 0
    trained = document["tokens_per_second"]["trained"]
    mode = LINES[name].split()[0]
    assert trained is None if mode == "rollout" else trained > 0
    assert set(document["lanes"]) == {"rollout": {"generation"}, "trainer": {"training"}}.get(
        mode, {"generation 1", "training"}
    )
    shown = cli("profile", "show", name).out
    assert all((line in shown) == (mode == "e2e") for line in ("Training waited", "Policy lag", "Buffer:"))
    check = cli("profile", "check", name, "buffer_depth.configured<=3", "steps>=1")
    assert check.code == 0 and "✓" in check.out


def test_the_sanity_line_learns_for_real_and_says_what_it_cannot(cli: Cli) -> None:
    line = "profile trainer --steps 1 --groups 1 --samples 1 --horizon 1 --no-warmup --profile-name X --compact-prompts"
    told = cli(*line.split())
    assert told.code == 0
    assert "no group baseline: no policy gradient" in told.out
    assert "one step: no percentiles or intervals" in told.out
    snapshot, trace = (line.split(": ")[1] for line in told.out.splitlines()[-2:])
    document = json.loads(Path(snapshot).read_text())
    assert {"loss_forward_ms", "backward_ms", "optimizer_ms", "residual_ms"} <= set(document["phases_ms"])
    assert document["phases_ms"]["backward_ms"] > 0 and document["tokens"]["trained"] > 0
    assert document["step_ms"]["low"] is None and document["step_ms"]["p95"] is None
    events = json.loads((Path(trace) / "lanes.json").read_text())["traceEvents"]
    assert {"loss_forward", "backward", "optimizer"} <= {each["name"] for each in events if each["ph"] == "X"}


def test_playing_in_turns_has_no_overlap_and_a_buffer_keeps_its_bound() -> None:
    in_turns = profile("e2e", TINY, ProfileTerms(name="turns", steps=3)).document
    assert in_turns["bubbles"]["overlap_ms"] == 0 and in_turns["policy_lag_steps"] == {"max": 0, "mean": 0}
    buffered = profile(
        "e2e", {**TINY, "buffer_depth": 3, "policy_lag": 2}, ProfileTerms(name="buffered", steps=4)
    ).document
    adds_up(buffered)
    assert buffered["policy_lag_steps"]["max"] == 2 == buffered["max_policy_lag_steps"]
    depth = buffered["buffer_depth"]
    assert 0 <= depth["min"] <= depth["mean"] <= depth["max"] <= depth["allowed"] == 2 < depth["configured"] == 3
    assert buffered["buffer_limit"]["by"] in ("policy_lag", "rollouts", "short_run")
    assert in_turns["buffer_limit"]["by"] == "no_buffer" and in_turns["buffer_depth"]["max"] == 0
    assert buffered["memory"]["peak_player_bytes"] > 0 == (in_turns["memory"]["peak_player_bytes"] or 0)


@pytest.mark.parametrize(
    ("options", "depths", "waited", "by", "said"),
    [
        ({"buffer_depth": 3, "policy_lag": 2}, {1: 0.4, 2: 0.6}, 0.0, "policy_lag", "--policy-lag 2 is the limit"),
        ({"buffer_depth": 2, "policy_lag": 2}, {1: 0.4, 2: 0.6}, 0.0, "buffer_depth", "--buffer-depth 2 is the limit"),
        ({"buffer_depth": 2, "policy_lag": 2}, {0: 0.9, 1: 0.1}, 0.2, "rollouts", "training waited 20.0 % of the time"),
        ({"buffer_depth": 2, "policy_lag": 2}, {0: 0.9, 1: 0.1}, 0.0, "short_run", "take more --steps"),
        ({"buffer_depth": 2, "policy_lag": 0}, {0: 1.0}, 0.9, "policy_lag", "--policy-lag 0 is the limit"),
        ({}, None, 0.0, "no_buffer", "playing and learning alternate"),
    ],
)  # fmt: skip
def test_what_limits_the_buffer_is_told(
    options: dict[str, int], depths: dict[int, float] | None, waited: float, by: str, said: str
) -> None:
    rollout = Rollout(1, 0, [RolloutPart(1, 0, 0, (), 0.0, 0.25)])
    measured = ProfileMeasures(
        "e2e",
        [Played(1, rollout, 0, waited)],
        (),
        [StepTimes(1, 0.0, 1.0, {}, {}, {})],
        LearningCounters(),
        LearningCounters(),
        depths,
    )
    chosen = parse_options(PlayOptions, options, where="profile")
    found = buffer_limit(measured, chosen)
    assert found is not None and found["by"] == by and said in found["reason"]


def test_caches_are_counted_and_say_what_was_spared() -> None:
    document = profile("rollout", {**TINY, "use_state_cache": True}, ProfileTerms(name="c", steps=3)).document
    cache = document["cache"]
    assert cache["state_hits"] == 3 * 2 and cache["state_misses"] == 0, "warming up did not fill the cache"
    assert cache["adapter_hits"] == 3 * 2 and cache["adapter_misses"] == 0
    assert cache["prefix_hits"] > 0 and cache["shared_prefills"] >= 3 * 2


def test_prompts_are_compared_on_identical_positions() -> None:
    for name, compact in (("full", False), ("compact", True)):
        profile("rollout", {**TINY, "compact_prompts": compact}, ProfileTerms(name=name, steps=4))
    found = diff_profiles("full", "compact")
    assert found.steps == 4 and found.settings == {"compact_prompts": (False, True)}
    assert found.per_step["decisions"][0] == found.per_step["decisions"][1]
    assert found.per_step["prompt_tokens"][0] > 10 * found.per_step["prompt_tokens"][1]
    assert found.compared.ratio.n == 4 and found.compared.ratio.low is not None
    assert [each["code"] for each in found.cautions] == ["measured apart"]
    assert found.tokens_per_second["generated"][1] > found.tokens_per_second["generated"][0] > 0
    assert found.quality is not None and found.quality["legal_share"].n == 64
    assert not any(each.falls for each in found.quality.values())


def test_prompts_that_cost_legality_or_reward_get_a_caution(cli: Cli) -> None:
    places = [profile("rollout", TINY, ProfileTerms(name=name, steps=1)).place for name in ("a", "b")]
    same = diff_profiles("a", "b").quality
    assert same is not None and {each.difference for each in same.values()} == {0}, "the same positions and orders"
    documents = [json.loads(place.snapshot.read_text()) for place in places]
    assert documents[0]["quality"] == documents[1]["quality"]

    def changed(**quality: Any) -> None:
        places[1].snapshot.write_text(json.dumps({**documents[1], "quality": {**documents[1]["quality"], **quality}}))

    reward = documents[1]["quality"]["reward"]
    changed(reward=[each - 0.1 * (number % 3 > 0) for number, each in enumerate(reward)])
    told = cli("profile", "diff", "a", "b")
    assert (
        told.code == 0 and "positions: significant drop." in told.out and "Caution: the reward falls from" in told.out
    )
    assert "The share of legal orders: " in told.out and "no significant drop" in told.out
    changed(reward=[each + 0.1 * (-1) ** number for number, each in enumerate(reward)])
    assert "positions: significant drop" not in cli("profile", "diff", "a", "b").out, "noise is no fall"
    changed(positions="elsewhere")
    assert "used different positions" in cli("profile", "diff", "a", "b").out
    changed(reward=reward[:3])
    assert "one value for each position" in cli("profile", "diff", "a", "b").err
    places[1].snapshot.write_text(json.dumps({**documents[1], "quality": None}))
    found = cli("profile", "diff", "a", "b", "--format", "json").json
    assert found["quality"] is None and found["cautions"][-1]["code"] == "quality unknown"


def test_what_was_measured_three_times_is_compared_by_its_measurements() -> None:
    for name, compact in (("full", False), ("compact", True)):
        for _ in range(3):
            profile("rollout", {**TINY, "compact_prompts": compact}, ProfileTerms(name=name, steps=2))
    found = diff_profiles("full", "compact")
    assert found.compared.ratio.method == "Welch t on logarithms of processes" and not found.cautions
    assert diff_profiles("full@1", "compact@1").cautions[0]["code"] == "measured apart"


def test_the_trainer_is_measured_without_what_was_played_before_the_clock() -> None:
    found = [
        profile("trainer", {**TINY, "kl_weight": weight}, ProfileTerms(name="t", steps=2)).document
        for weight in (0.0, 0.1)
    ]
    assert found[0]["tokens"]["forwarded"] == found[1]["tokens"]["forwarded"] > 0
    for document in found:
        adds_up(document)
        assert document["lanes"]["training"]["idle_ms"] == pytest.approx(0, abs=1e-3)
        assert document["inference"] is None and document["cache"] is None


def test_different_work_is_not_compared() -> None:
    profile("rollout", TINY, ProfileTerms(name="a", steps=1))
    profile("rollout", TINY, ProfileTerms(name="b", steps=1, seed=7))
    profile("trainer", TINY, ProfileTerms(name="c", steps=1))
    with pytest.raises(UserError, match="did not do the same work"):
        diff_profiles("a", "b")
    with pytest.raises(UserError, match="a rollout profile"):
        diff_profiles("a", "c")


def test_a_name_that_is_taken_gets_a_number_and_nothing_is_lost(cli: Cli) -> None:
    for _ in range(2):
        profile("rollout", TINY, ProfileTerms(name="my profile", steps=1, warmup=False))
    assert cli("profile", "show", "my profile").code == 0
    assert "my profile/1/" in cli("profile", "show", "my profile@1").out
    assert "has no number 7" in cli("profile", "show", "my profile@7").err


def test_a_check_that_does_not_hold_ends_with_3_and_says_what_it_saw(cli: Cli) -> None:
    profile("e2e", TINY, ProfileTerms(name="x", steps=1))
    assert cli("profile", "check", "x", "policy_lag_steps.max<=max_policy_lag_steps").code == 0
    told = cli("profile", "check", "x", "policy_lag_steps.max>3", "steps==1")
    assert told.code == 3 and "✗ policy_lag_steps.max>3" in told.out and "✓ steps==1" in told.out
    rows = cli("profile", "check", "x", "steps==1", "--format", "json").json["checks"]
    assert rows[0]["expression"] == "steps==1" and rows[0]["holds"]
    unknown = cli("profile", "check", "x", "policy_lag.max<3")
    assert unknown.code == 1 and "policy_lag_steps" in unknown.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "nothing"], 1, "there are no profiles in this store yet"),
        (["show", "broken.json"], 1, "it is not JSON"),
        (["show", "other.json"], 1, "not a profile snapshot"),
        (["diff", "a", "b"], 1, "there are no profiles"),
        (["check", "x"], 2, "Missing argument"),
        (["rollout", "--steps", "0"], 2, "0 is not in the range"),
        (["rollout", "--groups", "0"], 1, "groups"),
        (["rollout", "--profile-name", "a/b"], 1, "cannot be a folder name"),
        (["rollout", "--profile-name", "a@1"], 1, "cannot be named 'a@1'"),
        (["show", "half.json"], 1, "not a complete snapshot"),
        (["diff", "a", "b", "--level", "2"], 2, "2.0 is not in the range"),
        (["rollout", "--samples", "100000000"], 1, "samples"),
        (["trainer", "--game", "chess"], 1, "unknown game 'chess'"),
    ],
)
def test_what_cannot_be_profiled_is_one_clear_sentence(cli: Cli, words: list[str], code: int, said: str) -> None:
    Path("broken.json").write_text("{")
    Path("other.json").write_text("{}")
    Path("half.json").write_text('{"kind": "profile", "schema": 1}')
    told = cli("profile", *words)
    assert told.code == code and said in told.err
    assert "Traceback" not in told.err
