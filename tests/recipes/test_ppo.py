"""The ppo recipe: it learns, a run is the same in any company, and resuming is exact with any policy and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy
import pytest
import torch

from fairtrial.core.errors import InvalidOptions, UserError
from fairtrial.core.options import parse_options
from fairtrial.core.streams import Streams
from fairtrial.core.training import LoopEvents, Observer, RunContext
from fairtrial.recipes import ppo
from fairtrial.recipes.rl.building import build_run, choose_width, count_parameters
from fairtrial.recipes.rl.perceptron import Perceptron
from fairtrial.recipes.rl.physics import Space
from fairtrial.recipes.rl.run import PpoRun, losses
from fairtrial.record.store import Store

SMALL = {"rollout": 24, "envs": 4, "epochs": 2, "eval_episodes": 3, "report_episodes": 4}
CONTINUOUS = {"env": "Pendulum-v1", "normalize_observations": True, "normalize_rewards": True, "episode_limit": 30}
HIDDEN = {"env": "Acrobot-v1", "hide_velocity": True, "entropy_weight": 0.01, "minibatches": 2}
Told = list[dict[str, str]]


@pytest.fixture
def setting(tmp_path: Path) -> RunContext:
    store = Store(tmp_path)
    return RunContext(Streams(1), "v", store.paths.run("s", "v.seed1"), store.cache)


def make(context: RunContext, seed: int = 1, **options: Any) -> PpoRun:
    parsed = parse_options(ppo.Options, {"steps": 40, **SMALL, **options}, where="ppo")
    return build_run(parsed, RunContext(Streams(seed), "v", context.run, context.cache))


def follow(runs: Sequence[PpoRun], lengths: Sequence[int]) -> list[Told]:
    """What each run of a stack tells of its steps, to the bit."""
    stack, told = ppo.stack(runs), [[] for _ in runs]
    for step in range(1, max(lengths) + 1):
        due = {member: step for member, length in enumerate(lengths) if step <= length}
        for member, metrics in stack.step(due, LoopEvents()).items():
            told[member].append(to_the_bit(metrics))
    return told


def to_the_bit(metrics: Mapping[str, Any]) -> dict[str, str]:
    return {name: float(value).hex() for name, value in metrics.items()}


def steps_of(run: PpoRun, first: int, last: int) -> Told:
    return [to_the_bit(run.step(step, LoopEvents())) for step in range(first, last + 1)]


@pytest.mark.slow
def test_a_short_training_learns_to_balance(setting: RunContext) -> None:
    run = make(setting, steps=30, envs=8, rollout=32, epochs=20, report_episodes=20)
    before = run.evaluate("report")["return_mean"]
    for step in range(1, 31):
        metrics = run.step(step, LoopEvents())
    assert before < 60 < 150 < run.evaluate("report")["return_mean"]
    assert metrics["env_steps"] == 30 * 256 and metrics["updates"] == 600
    assert all(numpy.isfinite(float(value)) for value in metrics.values())


@pytest.mark.parametrize(
    "options",
    [{}, {"minibatches": 3}, {"width": 33, "envs": 3, "rollout": 37}, CONTINUOUS, HIDDEN],
    ids=["plain", "minibatches", "odd shapes", "numbers", "hidden"],
)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_run_is_the_same_in_any_company(setting: RunContext, options: dict[str, Any], size: int) -> None:
    """Members differ in seed and rates, and leave at different steps."""
    lengths = [6, 3, 6, 2, 5][:size]
    changes = [{"seed": 1 + n, "learning_rate": 1e-3 * (1 + n), "gamma": 0.9 + n / 100} for n in range(size)]
    together = follow([make(setting, **options, **change) for change in changes], lengths)
    for number in {0, size - 1}:
        alone = make(setting, **options, **changes[number])
        assert together[number] == steps_of(alone, 1, lengths[number])


def test_a_run_that_diverges_does_not_disturb_the_others(setting: RunContext) -> None:
    bad = make(setting, learning_rate=1e30, **CONTINUOUS)
    together = follow([make(setting), make(setting, seed=2)], [4, 4])
    assert together[0] == steps_of(make(setting), 1, 4)
    numbers, _ = follow([make(setting, **CONTINUOUS), bad], [4, 4])
    assert numbers == steps_of(make(setting, **CONTINUOUS), 1, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"architecture": "gru", "hide_velocity": True, "minibatches": 2},
        {"architecture": "transformer", "hide_velocity": True},
        CONTINUOUS,
        {"architecture": "gru", **CONTINUOUS},
        {"env": "MountainCarContinuous-v0", "episode_limit": 30},
        {"env": "MountainCar-v0", "episode_limit": 40, "architecture": "gru"},
        {"curriculum": "widening", "episode_limit": 10},
    ],
    ids=str,
)
def test_a_run_goes_on_as_if_it_had_not_been_stopped(setting: RunContext, options: dict[str, Any]) -> None:
    whole = make(setting, **options)
    told = steps_of(whole, 1, 3)
    saved, expected = whole.state(), steps_of(whole, 4, 6)
    for step, resumed in ((3, make(setting, **options)), (3, whole)):
        resumed.load_state(saved)
        assert steps_of(resumed, step + 1, 6) == expected
    assert steps_of(make(setting, **options), 1, 3) == told
    assert set(_leaves(saved)) <= {torch.Tensor, int, float, str, list}


def _leaves(value: Any) -> list[type]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in _leaves(item)]
    return [type(value)]


def test_phases_are_rollout_advantage_and_update(setting: RunContext) -> None:
    class Names(Observer):
        seen: ClassVar[list[str]] = []

        def phase_started(self, name: str, now: float) -> None:
            self.seen.append(name)

    make(setting).step(1, LoopEvents([Names()]))
    assert Names.seen == ["rollout", "advantage", "update"]


@pytest.mark.parametrize("options", [{"entropy_weight": 0.05}, {**CONTINUOUS, "entropy_weight": 0.05}], ids=str)
def test_gradients_are_those_of_autograd(setting: RunContext, options: dict[str, Any]) -> None:
    """After one epoch of updates, so that some actions are beyond the clip."""
    run = make(setting, learning_rate=0.02, max_grad_norm=1e9, clip=0.02, **options)
    run.step(1, LoopEvents())
    policy, batch = run.stack.engine.policy, run.stack.engine._batch
    assert isinstance(policy, Perceptron)
    rows = policy.values.detach().clone().requires_grad_()
    outputs, values = _forward(policy, rows, batch.obs[0])
    scale = policy.layout.view(rows[:, 0], "log_deviation")[0] if policy.actions.parameters else None
    log, entropies = policy.actions.likelihood(outputs, batch.actions[0], scale)
    told = losses(run.options, log, entropies, values, batch.old[0], batch.advantages[0], batch.value_targets[0])
    told["loss"].backward()
    assert told["clip_fraction"] > 0
    for actions, wanted, weigh in policy._batches(batch, [2]):
        policy._pull(*policy._two(policy.tower.forward(policy._x)), actions, wanted, weigh)
        policy.tower.backward(policy._pulled)
        break
    assert rows.grad is not None
    torch.testing.assert_close(policy.gradients, rows.grad, rtol=1e-3, atol=1e-5)


def _forward(policy: Perceptron, rows: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The two networks of one run, written down again in terms of autograd."""
    found = []
    for network in range(2):
        hidden = x
        for layer in ("first", "second", "output"):
            weight, bias = (policy.layout.view(rows[:, network], f"{layer}.{part}")[0] for part in ("weight", "bias"))
            hidden = hidden @ weight.T + bias
            hidden = hidden if layer == "output" else torch.tanh(hidden)
        found.append(hidden)
    return found[0], found[1][:, 0]


@pytest.mark.parametrize("architecture", ["mlp", "gru", "transformer"])
def test_what_is_cut_off_is_valued_and_what_ends_is_not(setting: RunContext, architecture: str) -> None:
    """With lambda 0, what is wanted of a value is the reward and the discounted value of what was seen next."""
    run = make(setting, architecture=architecture, episode_limit=7, gae_lambda=0.0, learning_rate=1e-9)
    run.step(1, LoopEvents())
    engine = run.stack.engine
    wanted = engine._batch.value_targets.view(24, 4).numpy()
    cuts = [(step, moved) for step, moved in engine._cut if moved.truncated.any()]
    assert cuts
    for step, moved in cuts:
        value = engine.policy.value_after(step, torch.from_numpy(moved.final)).numpy()
        where = moved.truncated[0]
        numpy.testing.assert_allclose(wanted[step][where], 1 + 0.98 * value[0][where], rtol=1e-4)


def test_evaluation_is_on_episodes_of_its_own(setting: RunContext) -> None:
    run = make(setting)
    run.step(1, LoopEvents())
    before = run.state()
    chosen, reported = run.evaluate("eval"), run.evaluate("report")
    assert len(run.episode_returns) == 4
    assert set(reported) == {"return_mean", "return_sd", "length_mean"} and chosen != reported
    assert run.evaluate_episodes("report", 4, 0) == run.episode_returns != run.evaluate_episodes("report", 4, 1)
    assert len(run.evaluate_episodes("eval", 7, 3)) == 7
    other = make(setting, seed=2)
    other.load_state(before)
    assert other.evaluate_episodes("report", 4, 0) != run.episode_returns, "runs share their episodes"
    assert steps_of(run, 2, 3) == steps_of_loaded(setting, before)


def steps_of_loaded(context: RunContext, state: Mapping[str, Any]) -> Told:
    fresh = make(context)
    fresh.load_state(state)
    return steps_of(fresh, 2, 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"env": "CartPol-v1"}, "did you mean 'CartPole-v1'"),
        ({"env": "Nowhere"}, "unknown environment 'Nowhere'"),
        ({"env": "MountainCar-v0", "hide_velocity": True}, "hide_velocity: not available for MountainCar-v0"),
        ({"env": "MountainCar-v0", "curriculum": "widening"}, "curriculum: not available for MountainCar-v0"),
        ({"env": "Blackjack-v1"}, "the observations of Blackjack-v1 are Tuple"),
        ({"report_episodes": 0}, "report_episodes: must be greater than or equal to 1"),
        ({"rollout": 1, "envs": 1}, "at least two examples"),
        ({"minibatches": 7}, "does not divide the 96 examples"),
        ({"architecture": "gru", "minibatches": 3}, "does not divide the 4 environments"),
        ({"architecture": "transformer", "width": 33}, "multiple of 4"),
        ({"width": 8, "parameters": 900}, "either a width or a number of parameters"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(
    setting: RunContext, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOptions) as raised:
        make(setting, **options)
    assert said in str(raised.value)


def test_an_action_space_that_is_not_known_is_refused(setting: RunContext) -> None:
    import gymnasium

    class Odd(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.MultiDiscrete([2, 2])

    gymnasium.register("Odd-v0", Odd)
    try:
        with pytest.raises(UserError, match=r"the actions of Odd-v0 are MultiDiscrete") as raised:
            make(setting, env="Odd-v0")
    finally:
        del gymnasium.registry["Odd-v0"]
    assert "Discrete (one choice) or a one-dimensional Box" in (raised.value.hint or "")


def test_a_game_without_its_package_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ale_py" else find(name))
    with pytest.raises(InvalidOptions, match=r"fairtrial\[atari\]"):
        parse_options(ppo.Options, {"env": "ALE/Breakout-v5"}, where="ppo")


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_widths_can_be_chosen_by_the_number_of_parameters(setting: RunContext, kind: str) -> None:
    space = Space((2,), 2)
    options = parse_options(ppo.Options, {"parameters": 9000}, where="ppo")
    counts = {name: count_parameters(name, space, choose_width(options, name, space)) for name in ("mlp", kind)}
    assert all(abs(count / 9000 - 1) < 0.2 for count in counts.values())
    run = make(setting, architecture=kind, parameters=9000, hide_velocity=True)
    assert sum(each.numel() for each in run.tensor_groups()["parameters"]) == counts[kind]
    mlp = make(setting, parameters=9000, hide_velocity=True)
    assert sum(each.numel() for each in mlp.tensor_groups()["parameters"]) == counts["mlp"]


def test_runs_of_one_shape_share_a_stack() -> None:
    key = ppo.stack_key(ppo.Options())
    assert key and key == ppo.stack_key(ppo.Options(learning_rate=0.1, gamma=0.5, steps=7))
    assert key != ppo.stack_key(ppo.Options(width=32)) and key != ppo.stack_key(ppo.Options(episode_limit=9))
    for alone in ({"architecture": "gru"}, {"env": "MountainCar-v0"}, {"threads": 2}):
        assert ppo.stack_key(ppo.Options.model_validate(alone)) is None


def test_the_curriculum_widens_until_half_time() -> None:
    options = ppo.Options(curriculum="widening", steps=100)
    assert [options.spread_at(step) for step in (0, 25, 50, 99)] == pytest.approx([0.1, 0.55, 1.0, 1.0])
