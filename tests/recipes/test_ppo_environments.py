"""Environments in rows move as gymnasium's do, and come back where they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy
import pytest

from fairtrial.core.training import LoopEvents, RunContext
from fairtrial.recipes.rl.experience import Moments, advantages
from fairtrial.recipes.rl.physics import PHYSICS
from fairtrial.recipes.rl.vector_env import PhysicsVectorEnv
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.recipes.test_ppo import make, setting, steps_of

__all__ = ["setting"]


@pytest.mark.parametrize("name", PHYSICS)
def test_a_row_moves_as_the_environment_of_gymnasium_does(name: str) -> None:
    physics, draw, count = PHYSICS[name](), numpy.random.default_rng(3), 5
    environments: list[Any] = [gymnasium.make(name).unwrapped for _ in range(count)]
    for number, environment in enumerate(environments):
        environment.reset(seed=number)
    state = numpy.stack([numpy.array(each.state, float) for each in environments], 1)[:, None]
    seen = numpy.empty((1, count, *physics.space.observation), numpy.float32)
    for _ in range(150):
        actions = _actions(physics.space, draw, count)
        state, rewards, ended = physics.advance(state, actions)
        physics.observe(state, seen)
        for row, environment in enumerate(environments):
            expected, reward, terminated, *_ = environment.step(actions[0, row])
            numpy.testing.assert_allclose(state[:, 0, row], environment.state, rtol=0, atol=1e-12)
            numpy.testing.assert_allclose(seen[0, row], expected, rtol=0, atol=1e-6)
            assert rewards[0, row] == pytest.approx(reward, abs=1e-9)  # gymnasium squares a torque in single precision
            assert ended[0, row] == terminated
            if terminated:
                environment.reset()
                state[:, 0, row] = environment.state


def _actions(space: Any, draw: numpy.random.Generator, count: int) -> Any:
    if space.is_discrete:
        return draw.integers(space.actions, size=(1, count))
    return draw.uniform(2 * space.low, 2 * space.high, (1, count, space.actions)).astype(numpy.float32)


@pytest.mark.parametrize("name", PHYSICS)
def test_episodes_are_cut_off_where_gymnasium_cuts_them(name: str) -> None:
    assert PHYSICS[name]().limit == gymnasium.spec(name).max_episode_steps


def test_initial_states_lie_where_those_of_gymnasium_do() -> None:
    for name, high in (("CartPole-v1", 0.05), ("Acrobot-v1", 0.1), ("Pendulum-v1", numpy.pi)):
        states = PHYSICS[name]().start(numpy.random.default_rng(1), 4000, 1.0)
        assert 0.99 * high < numpy.abs(states[0]).max() <= high
        narrow = PHYSICS[name]().start(numpy.random.default_rng(1), 4000, 0.1)
        numpy.testing.assert_allclose(narrow, states / 10, atol=1e-8)


def test_a_run_draws_its_own_episodes() -> None:
    def rows(seed: int) -> PhysicsVectorEnv:
        made = PhysicsVectorEnv(PHYSICS["CartPole-v1"](), 3)
        made.begin([numpy.random.default_rng(seed)], [1.0])
        made.restart()
        return made

    together = rows(1).join([rows(2)])
    together.begin([numpy.random.default_rng(seed) for seed in (5, 6)], [1.0, 1.0])
    alone = rows(2)
    alone.begin([numpy.random.default_rng(6)], [1.0])
    for _ in range(60):
        together.step(numpy.ones((2, 3), int))
        alone.step(numpy.ones((1, 3), int))
    assert together.states[:, 1].tobytes() == alone.states[:, 0].tobytes()
    assert (together.ages < 60).all(), "no episode ended"


def test_velocities_can_be_hidden() -> None:
    for name, kept in (("CartPole-v1", 2), ("Acrobot-v1", 4), ("Pendulum-v1", 2)):
        assert PhysicsVectorEnv(PHYSICS[name](), 1, hide_velocity=True).space.observation == (kept,)


def test_advantages_are_those_of_the_definition() -> None:
    draw = numpy.random.default_rng(1)
    rewards, values = draw.normal(size=(2, 9, 3)), draw.normal(size=(2, 10, 3))
    going_on = (draw.random((2, 9, 3)) > 0.3).astype(float)
    discount, trace = numpy.array([0.9, 0.99]), numpy.array([0.8, 1.0])
    found = advantages(rewards, values, going_on, discount, trace)
    for run in range(2):
        for row in range(3):
            for step in range(9):
                total, weight = 0.0, 1.0
                for later in range(step, 9):
                    ahead = discount[run] * values[run, later + 1, row] * going_on[run, later, row]
                    total += weight * (rewards[run, later, row] + ahead - values[run, later, row])
                    weight *= discount[run] * trace[run] * going_on[run, later, row]
                assert found[run, step, row] == pytest.approx(total)


def test_running_moments_are_those_of_all_values() -> None:
    draw, moments = numpy.random.default_rng(1), Moments((2,))
    batches = [draw.normal(3, 2, (count, 2)) for count in (5, 40, 1)]
    for batch in batches:
        moments.see(batch)
    whole = numpy.concatenate(batches)
    numpy.testing.assert_allclose(moments.mean, whole.mean(0))
    numpy.testing.assert_allclose(moments.variance, whole.var(0))


class Drifting(gymnasium.Env):  # type: ignore[type-arg]
    """Never twice the same, whatever the seed."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    made = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._next(), {}

    def step(self, action: Any) -> Any:
        return self._next(), 1.0, False, False, {}

    def _next(self) -> Any:
        Drifting.made += 1
        return numpy.array([numpy.sin(Drifting.made)], numpy.float32)


@pytest.mark.parametrize("architecture", ["mlp", "gru"])
def test_an_environment_that_cannot_be_repeated_says_so_and_begins_again(
    setting: RunContext, architecture: str
) -> None:
    gymnasium.register("Drifting-v0", Drifting)
    try:
        run = make(setting, env="Drifting-v0", episode_limit=50, architecture=architecture)
        run.step(1, LoopEvents())
        run.load_state(run.state())
        run.step(2, LoopEvents())
        told = run.rows._context  # type: ignore[attr-defined]
        assert [caution["code"] for caution in told.cautions] == ["episodes restarted"]
        assert told.lineage == {"episodes_restarted": 4}
        assert run.returns.tolist() == [[24.0] * 4], "returns of lost episodes were kept"
    finally:
        del gymnasium.registry["Drifting-v0"]


@pytest.mark.slow
def test_a_game_is_played_learnt_and_resumed(setting: RunContext) -> None:
    pytest.importorskip("ale_py")
    options: dict[str, Any] = {
        "env": "ALE/Breakout-v5", "envs": 1, "rollout": 4, "epochs": 1, "episode_limit": 6, "width": 8,
        "eval_episodes": 1, "report_episodes": 1,
    }  # fmt: skip
    run = make(setting, **options)
    assert run.rows.space.observation == (4, 84, 84)
    assert run.rows.space.actions == 4
    run.step(1, LoopEvents())
    saved, expected = run.state(), steps_of(run, 2, 3)
    run.load_state(saved)
    assert steps_of(run, 2, 3) == expected
    assert run.evaluate("report")["length_mean"] == 6


# What cannot be trained is refused before the first run.


class Odd(gymnasium.Env[Any, Any]):
    """Seen as a dictionary, acted on by switches."""

    observation_space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)})
    action_space = gymnasium.spaces.MultiBinary(3)


@pytest.mark.parametrize(
    "words", [("train", "ppo"), ("launch", "ppo", "--base-run-name", "s"), ("launch", "ppo", "--dry-run")]
)
def test_spaces_that_ppo_cannot_take_are_refused_before_the_first_run(
    words: tuple[str, ...], cli: Callable[..., Answer], store: Store
) -> None:
    gymnasium.register("Odd-v0", entry_point=Odd)
    try:
        told = cli(*words, "--env", "Odd-v0")
    finally:
        del gymnasium.registry["Odd-v0"]
    assert told.code == 1
    assert "env: the observations of Odd-v0 are Dict(" in told.err
    assert "env: the actions of Odd-v0 are MultiBinary(3)" in told.err
    assert "ppo supports Box observations (numbers), and actions that are Discrete (one choice)" in told.err
    assert not list(store.studies())


def test_all_variants_that_cannot_be_trained_are_named_at_once(cli: Callable[..., Answer], store: Store) -> None:
    variants = ("a:env=FrozenLake-v1", "b:best_metric=eval_accuracy", "c:architecture=gru,minibatches=3,rollout=3")
    told = cli("launch", "ppo", *(word for each in variants for word in ("--variant", each)))
    assert told.code == 1 and not list(store.studies())
    for line in (
        "variant 'a': env: the observations of FrozenLake-v1 are Discrete(16)",
        "variant 'b': best_metric: ppo does not evaluate 'eval_accuracy'",
        "variant 'c': minibatches: 3 does not divide the 8 environments",
    ):
        assert line in told.err


def test_an_environment_that_does_not_exist_is_refused(cli: Callable[..., Answer], store: Store) -> None:
    told = cli("launch", "ppo", "--env", "Nowhere-v1", "--seeds", "1,")
    assert told.code == 1 and "unknown environment 'Nowhere-v1'" in told.err and not list(store.studies())


@pytest.mark.parametrize(
    ("recipe", "names"),
    [
        ("classify", "eval_accuracy, eval_loss"),
        ("distill", "eval_accuracy, eval_loss"),
        ("finetune", "eval_accuracy, eval_loss"),
        ("grpo", "eval_return_mean, eval_return_sd"),
        ("ppo", "eval_return_mean, eval_length_mean, eval_return_sd, eval_human_normalized_score"),
        ("fake", "eval_accuracy"),
    ],
)
def test_a_best_metric_that_a_recipe_cannot_give_is_refused_with_those_it_can(
    recipe: str, names: str, cli: Callable[..., Answer], store: Store
) -> None:
    told = cli("train", recipe, "--best-metric", "eval_nonsense", "--best-mode", "max")
    assert told.code == 1 and f"best_metric: {recipe} does not evaluate 'eval_nonsense'" in told.err
    assert f"{recipe} evaluates {names}." in told.err and not list(store.studies())
