"""Check before training whether environment and policy fit together, without importing torch."""

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
    "ppo supports Box observations (numbers), and actions that are Discrete (one choice) or a one-dimensional Box with "
    "finite bounds (a vector of numbers)."
)


def make_environment(name: str) -> Any:
    gymnasium = load_gymnasium()
    options = {"obs_type": "grayscale"} if name.startswith(ATARI) else {}
    try:
        return gymnasium.make(name, disable_env_checker=True, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtra(f"environment '{name}' needs a package that is not installed: {error}") from None
    except gymnasium.error.Error as error:
        raise InvalidOptions(f"env: cannot create {name}: {error}") from None


def read_space(name: str, environment: Any) -> Space:
    """Return the observation and action space of an environment, or raise InvalidOptions if ppo does not support it."""
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
    """Return the kind of policy for the space: image observations need a convolutional network."""
    if len(space.observation) == 1:
        return options.architecture
    if options.architecture != "mlp":
        raise InvalidOptions(
            f"architecture: {options.env} has image observations, which a {options.architecture} does not support",
            hint="Omit --architecture: images are processed by a small convolutional network.",
        )
    return "cnn"


def check_policy(options: Options, kind: str) -> None:
    if kind != "mlp" and options.envs % options.minibatches:
        raise InvalidOptions(
            f"minibatches: {options.minibatches} does not divide the {options.envs} environments",
            hint=f"A {kind} learns from whole environments: set --envs to a multiple of --minibatches.",
        )
