"""Which environments and policies fit together: found out before anything is trained, without loading torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from fairtrial.core.errors import InvalidOptions, MissingExtra
from fairtrial.recipes.rl.names import ATARI, load_gymnasium
from fairtrial.recipes.rl.physics import Space

if TYPE_CHECKING:
    from fairtrial.recipes.ppo import Options

FRAMES = 4
SIDE = 84
TAKEN = (
    "ppo takes observations in a Box (numbers), and actions that are Discrete (one choice) or a Box of one dimension "
    "with finite limits (a row of numbers)."
)


def make_environment(name: str) -> Any:
    gymnasium = load_gymnasium()
    options = {"obs_type": "grayscale"} if name.startswith(ATARI) else {}
    try:
        return gymnasium.make(name, disable_env_checker=True, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtra(f"environment '{name}' needs a package that is not installed: {error}") from None
    except gymnasium.error.Error as error:
        raise InvalidOptions(f"env: {name} cannot be made: {error}") from None


def read_space(name: str, environment: Any) -> Space:
    """What a policy sees and does there; refuses what it cannot."""
    from gymnasium.spaces import Box, Discrete

    seen, done = environment.observation_space, environment.action_space
    bounded = isinstance(done, Box) and len(done.shape) == 1 and bool(numpy.isfinite([done.low, done.high]).all())
    problems = [] if isinstance(seen, Box) else [f"env: the observations of {name} are {seen}"]
    problems += [] if bounded or isinstance(done, Discrete) else [f"env: the actions of {name} are {done}"]
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:], hint=TAKEN)
    shape = (FRAMES, SIDE, SIDE) if name.startswith(ATARI) else (int(numpy.prod(seen.shape)),)
    if isinstance(done, Discrete):
        return Space(shape, int(done.n))
    return Space(shape, int(done.shape[0]), done.low.astype(numpy.float32), done.high.astype(numpy.float32))


def policy_kind(options: Options, space: Space) -> str:
    """The policy that is meant: what is seen as images goes through a convolutional network."""
    if len(space.observation) == 1:
        return options.architecture
    if options.architecture != "mlp":
        raise InvalidOptions(
            f"architecture: {options.env} is seen as images, which a {options.architecture} does not take",
            hint="Leave --architecture out: images go through a small convolutional network.",
        )
    return "cnn"


def check_policy(options: Options, kind: str) -> None:
    if kind != "mlp" and options.envs % options.minibatches:
        raise InvalidOptions(
            f"minibatches: {options.minibatches} does not divide the {options.envs} environments",
            hint=f"A {kind} learns from whole environments: choose --envs as a multiple of --minibatches.",
        )
