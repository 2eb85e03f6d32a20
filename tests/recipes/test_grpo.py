"""The grpo recipe: it learns, plays the same whoever plays and whatever is cached, and resumes exactly."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from fairtrial import evaluate, train
from fairtrial.core.errors import FairtrialError, Interrupted, InvalidOptions
from fairtrial.core.options import parse_options
from fairtrial.core.streams import Streams
from fairtrial.core.training import LoopEvents, RunContext
from fairtrial.recipes import grpo
from fairtrial.recipes.lm import rollout_workers as crew
from fairtrial.recipes.lm.rollouts import _advantages, samples_of
from fairtrial.recipes.lm.run import GrpoRun
from fairtrial.recipes.lm.types import OrderDecision, Rollout, Trajectory
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from tests.harness import series_of

SMALL = {
    "steps": 6, "groups": 2, "samples": 3, "horizon": 2, "compact_prompts": True, "rank": 4, "eval_episodes": 3,
    "report_episodes": 3, "episode_decisions": 4,
}  # fmt: skip


def make(store: Store, name: str = "v", seed: int = 1, own: Mapping[str, int] | None = None, **options: Any) -> GrpoRun:
    parsed = parse_options(grpo.Options, {**SMALL, **options}, where="grpo")
    return GrpoRun(parsed, RunContext(Streams(seed, own=own or {}), "v", store.paths.run("s", name), store.cache))


def to_the_bit(metrics: Mapping[str, Any]) -> dict[str, str]:
    return {name: float(value).hex() for name, value in metrics.items()}


def steps_of(run: GrpoRun, first: int, last: int) -> list[dict[str, str]]:
    return [to_the_bit(run.step(step, LoopEvents())) for step in range(first, last + 1)]


def bits_of(rollout: Rollout) -> list[tuple[object, ...]]:
    """Every order with its likelihoods, and what it was worth."""
    return [
        (each.completion.tokens, each.completion.policy.tobytes(), each.completion.behaviour.tobytes(), each.reward)
        for each in rollout.decisions
    ]


def test_a_short_training_plays_better_than_no_training(with_data: Store) -> None:
    options = {
        "steps": 12,
        "groups": 8,
        "samples": 8,
        "horizon": 4,
        "rank": 16,
        "report_episodes": 60,
        "episode_decisions": 8,
    }
    run = make(with_data, **options)
    before = run.evaluate("report")["return_mean"]
    returns = [run.step(step, LoopEvents())["return_mean"] for step in range(1, 13)]
    assert run.evaluate("report")["return_mean"] > before + 0.5
    assert fmean(returns[-4:]) > fmean(returns[:4])


@pytest.mark.parametrize("change", [{"use_state_cache": True}, {"use_prefix_cache": False}], ids=["states", "prefixes"])
def test_caches_on_and_off_give_identical_bits(with_data: Store, change: dict[str, Any]) -> None:
    options = {"compact_prompts": False, "groups": 3, "opening_decisions": 6}
    plain, changed = make(with_data, "a", **options), make(with_data, "b", **options, **change)
    for step in (1, 2):
        first, second = plain.play(step, LoopEvents(), version=0), changed.play(step, LoopEvents(), version=0)
        assert bits_of(first) == bits_of(second)
    hits = [
        {name: each.parts[0].counters[name] > 0 for name in ("state_hits", "prefix_hits")} for each in (first, second)
    ]
    changed_hits = "state_hits" if "use_state_cache" in change else "prefix_hits"
    assert hits[1] == hits[0] | {changed_hits: not hits[0][changed_hits]}


def test_starting_positions_are_replaced_when_the_policy_has_grown_older(with_data: Store) -> None:
    run = make(with_data, state_age=3, use_state_cache=True, groups=1)
    opened = [run.player.start_positions.position(version, 0) for version in range(7)]
    assert opened[0] == opened[2] != opened[3] == opened[5] != opened[6]
    assert run.player.start_positions.counters() == {"state_hits": 4, "state_misses": 3, "state_expired": 2}


def test_samples_of_a_group_are_held_against_each_other(with_data: Store) -> None:
    """And lie together by group, turn and prompt, each with the advantage of its own trajectory."""
    rollout = make(with_data, groups=3, samples=4).play(1, LoopEvents())
    wanted: dict[tuple[Any, ...], list[tuple[tuple[int, ...], float]]] = {}
    for group in range(3):
        mine = [each for each in rollout.trajectories if each.group == group]
        totals = np.array([each.total for each in mine])
        spread = totals.std() if totals.std() > 1e-9 else 1.0
        for each, advantage in zip(mine, (totals - totals.mean()) / spread, strict=True):
            for turn, decision in enumerate(each.decisions):
                pack = wanted.setdefault((group, turn, decision.prompt), [])
                pack.append((decision.completion.tokens, float(advantage)))
    samples = samples_of(rollout)
    assert len(samples) == len(rollout.decisions) == 3 * 4 * 2
    left = iter(samples)
    for (_, _, prompt), pack in sorted(wanted.items()):
        given = list(itertools.islice(left, len(pack)))
        assert {sample.prompt for sample in given} == {prompt}, "samples of one prompt do not lie together"
        assert sorted((sample.completion.tokens, sample.advantage) for sample in given) == sorted(pack)
    assert any(sample.advantage for sample in samples) and all(sample.reference is not None for sample in samples)


@pytest.mark.parametrize("size", [2, 3, 6, 7])
def test_samples_that_did_equally_well_have_no_advantage(size: int) -> None:
    """Also where rewards were added in another order, which changes the last digit of a sum."""
    rewards = [0.1, -0.1, 1.0, 0.25, -0.5, 0.7]
    trajectories = [
        Trajectory(
            0,
            number,
            [OrderDecision((1,), None, None, "p", reward) for reward in rewards[number % 6 :] + rewards[: number % 6]],
        )  # type: ignore[arg-type]
        for number in range(size)
    ]
    assert _advantages(trajectories) == [0.0] * size
    odd = Trajectory(0, size, [OrderDecision((1,), None, None, "p", 9.0)])  # type: ignore[arg-type]
    assert _advantages([*trajectories, odd])[-1] > 1


@pytest.mark.parametrize("compact", [True, False])
def test_tokens_put_together_are_those_of_the_whole_prompt(with_data: Store, compact: bool) -> None:
    """The rules are tokenized once and put before the rest; reading the whole text anew gives the same."""
    run = make(with_data, compact_prompts=compact)
    tokenizer = run.vocabulary.load()
    for seed in range(40):
        position = run.player.game.open(seed)
        request = run.player.request(position, 0)
        text = position.prompt(compact=compact)
        assert request.prompt == tokenizer.encode(text) and tokenizer.decode(request.prompt) == text
        assert tokenizer.decode(request.prompt[: request.prefix]) == run.player.game.rules(compact=compact)


def test_a_group_of_one_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidOptions, match="samples: must be 2 or more"):
        parse_options(grpo.Options, {"samples": 1}, where="grpo")


def test_options_that_reach_nothing_are_named() -> None:
    options = parse_options(grpo.Options, {"method": "full", "rank": 2, "workers": 3, "policy_lag": 2}, where="grpo")
    assert [each["text"].split()[0] for each in grpo.cautions_of(options)] == ["rank", "policy_lag", "workers"]
    deep = parse_options(grpo.Options, {"buffer_depth": 3, "policy_lag": 2}, where="grpo")
    assert grpo.cautions_of(deep)[0]["text"].startswith("buffer_depth 3 acts like 2: ")
    buffered = {"rank": 2, "workers": 3, "policy_lag": 2, "buffer_depth": 2}
    assert not grpo.cautions_of(parse_options(grpo.Options, buffered, where="grpo"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"game": "chess"}, "unknown game 'chess'"),
        ({"game": "./nowhere.py"}, "nowhere.py"),
        ({"model": "nowhere"}, "neither 'tiny' nor a folder"),
        ({"horizon": 0}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        parse_options(grpo.Options, options, where="grpo")
    assert said in str([caught.value.message, *caught.value.problems])


def test_a_buffer_changes_nothing_but_who_plays_and_how_old_rollouts_are(with_data: Store) -> None:
    """One process or two, resumed in between or not: by appointment, to the bit."""
    options = {"buffer_depth": 2, "policy_lag": 2, "groups": 4, "batch_groups": 2}
    one = make(with_data, "one", **options)
    told = steps_of(one, 1, 3)
    saved = one.state()
    told += steps_of(one, 4, 6)
    final = to_the_bit(one.evaluate("report"))
    one.close()
    assert [float.fromhex(each["policy_lag"]) for each in told] == [0, 1, 2, 2, 2, 2]
    two = make(with_data, "two", workers=2, **options)
    two.load_state(saved)
    assert steps_of(two, 4, 6) == told[3:]
    assert to_the_bit(two.evaluate("report")) == final
    two.close()


def test_without_lag_a_buffer_gives_what_playing_in_turns_gives(with_data: Store) -> None:
    alone, buffered = make(with_data, "alone"), make(with_data, "buffered", buffer_depth=1, policy_lag=0)
    assert steps_of(alone, 1, 3) == steps_of(buffered, 1, 3)
    buffered.close()


def test_a_stream_with_a_seed_of_its_own_has_it_in_other_processes_too(with_data: Store) -> None:
    own = {"env": 5}
    alone, buffered = (make(with_data, f"own{depth}", own=own, buffer_depth=depth, policy_lag=0) for depth in (0, 1))
    found = steps_of(alone, 1, 2)
    assert found == steps_of(buffered, 1, 2) != steps_of(make(with_data, "plain"), 1, 2)
    buffered.close()


GAME = """
REQUIRES, EXTRA = (), None

class Position:
    phase, over = "only", False

    def __init__(self, number):
        self.number = number

    def legal(self):
        return ("yes", "no")

    def prompt(self, *, compact):
        return f"rules {self.number}"

    def play(self, order):
        if self.number >= 5:
            raise RuntimeError("the board fell over")
        return Position(self.number + 1), float(order == "yes")

    def snapshot(self):
        return {"number": self.number}

class Game:
    phases, decisions = ("only",), 9

    def rules(self, *, compact):
        return "rules "

    def open(self, seed):
        return Position(0)

    def restore(self, snapshot):
        return Position(snapshot["number"])

def make():
    return Game()
"""


def test_a_game_that_fails_in_another_process_fails_the_run_with_its_words(with_data: Store, tmp_path: Path) -> None:
    (tmp_path / "game.py").write_text(GAME)
    run = make(with_data, game=str(tmp_path / "game.py"), horizon=8, buffer_depth=1, opening_decisions=0)
    with pytest.raises(FairtrialError, match="the board fell over"):
        run.step(1, LoopEvents())
    run.close()


@pytest.mark.parametrize("when", ["busy", "idle"])
def test_a_player_that_is_killed_interrupts_the_run_and_says_how(with_data: Store, when: str) -> None:
    run = make(with_data, buffer_depth=1, steps=100)
    first = run.take(1, LoopEvents())
    if when == "idle":
        run.learn(first.rollout, LoopEvents())
        run.take(2, LoopEvents())
    os.kill(first.rollout.parts[0].player, signal.SIGKILL)
    with pytest.raises(Interrupted, match="was killed by SIGKILL"):
        for step in range(2, 100):
            run.step(step, LoopEvents())
    run.close()


DEAF = "import signal, sys\nif sys.argv[0].endswith('crew.py'): signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def test_a_player_that_does_not_want_to_end_is_ended(
    with_data: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "WAIT_S", 0.2)
    (tmp_path / "deaf.py").write_text(DEAF + GAME)
    run = make(with_data, game=str(tmp_path / "deaf.py"), horizon=1, buffer_depth=1, opening_decisions=0)
    player = run.take(1, LoopEvents()).rollout.parts[0].player
    run.close()
    with pytest.raises(ProcessLookupError):
        os.kill(player, 0)


def test_steps_can_be_taken_back_and_depend_on_the_state_alone(with_data: Store) -> None:
    """What `bench` does to try learning rates: the first batches, each from the same weights."""
    for options in ({}, {"buffer_depth": 1, "policy_lag": 0}):
        run = make(with_data, "back", **options)
        kept, losses = run.state(), []
        for step in (1, 2):
            losses.append(run.step(step, LoopEvents())["loss"])
            run.load_state(kept)
        assert len(losses) == 2 and run.version == 0
        run.close()


def test_a_game_of_ones_own_is_part_of_what_a_run_is(with_data: Store, tmp_path: Path) -> None:
    path = tmp_path / "game.py"
    path.write_text(GAME)
    options = parse_options(grpo.Options, {"game": str(path)}, where="grpo")
    before = grpo.data(options, with_data.cache)
    path.write_text(GAME.replace("fell over", "fell"))
    after = grpo.data(options, with_data.cache)
    assert before is not None and after is not None and before.sha256 != after.sha256


def test_what_happened_is_told_and_evaluating_writes_nothing(with_data: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairtrial.recipes.lm.run.DEVICE_STATS_EVERY_S", 1e9)
    done = train("grpo", {**SMALL, "steps": 2, "log_every": 1}, seed=1, study="s", variant="v", store=with_data.root)
    paths = with_data.paths.run("s", "v.seed1")
    events = [row["event"] for row in read_lines(paths.events).rows]
    assert events.count("rollout_complete") == events.count("training_step") == 2
    assert events.count("inference_response") == 2 * 2 * 3 * 2
    [stats] = [row for row in read_lines(paths.events).rows if row["event"] == "device_stats"]
    assert stats["step"] == 1 and bool(stats.get("devices")) != bool(stats.get("unavailable"))
    overlaps = [row["overlap_s"] for row in read_lines(paths.events).rows if row["event"] == "rollout_complete"]
    assert overlaps == [0, 0], "who plays in turns does not play meanwhile"
    assert sorted(each.name for each in paths.adapters.iterdir()) == ["version-2"]
    written = {path: path.stat().st_mtime_ns for path in paths.adapters.rglob("*")}
    [found] = evaluate(["s/v.seed1"], checkpoint="last", store=with_data.root).runs
    assert found.metrics["eval_return_mean"] == done.run.final["report_return_mean"]
    assert {path: path.stat().st_mtime_ns for path in paths.adapters.rglob("*")} == written
    assert series_of(with_data)["train_policy_lag"] == [(1, "0x0.0p+0"), (2, "0x0.0p+0")]


def test_diplomacy_is_trained_from_end_to_end(with_data: Store) -> None:
    pytest.importorskip("diplomacy")
    run = make(with_data, game="diplomacy", groups=1, samples=2, horizon=3, opening_decisions=2)
    told = run.step(1, LoopEvents())
    assert told["generated_tokens"] > 6 and run.version == 1
    assert len(run.evaluate_episodes("report", 1, 1)) == 1
