"""Build a PPO run: its environments and its policy."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import torch

from fairtrial.plugins import RunContext
from fairtrial.recipes.rl.actions import Actions, actions_of
from fairtrial.recipes.rl.gymnasium_envs import GymnasiumVectorEnv
from fairtrial.recipes.rl.modules import NETS, NetAgentState, make_net
from fairtrial.recipes.rl.perceptron import PerceptronAgentState, StackedPpoRun, initial_rows, make_layout
from fairtrial.recipes.rl.physics import PHYSICS, Space
from fairtrial.recipes.rl.run import PpoRun
from fairtrial.recipes.rl.spaces import check_policy, policy_kind
from fairtrial.recipes.rl.vector_env import PhysicsVectorEnv, VectorEnv

if TYPE_CHECKING:
    from fairtrial.recipes.ppo import Options

WIDTHS = {"mlp": 64, "gru": 36, "transformer": 20, "cnn": 128}
"""Default widths. Those of mlp, gru and transformer give similar parameter counts."""
HEADS = 4


def build_run(options: Options, context: RunContext) -> PpoRun:
    make_env = functools.partial(_make_env, options, context)
    space = make_env(1).space
    kind = policy_kind(options, space)
    width = choose_width(options, kind, space)
    if kind == "mlp":
        return StackedPpoRun(options, context, make_env, lambda rows: _perceptron(rows, width, options, context))
    check_policy(options, kind)
    return PpoRun(options, context, make_env, lambda rows: _net(rows, kind, width, options, context))


def _make_env(options: Options, context: RunContext, count: int) -> VectorEnv:
    if options.env in PHYSICS:
        return PhysicsVectorEnv(
            PHYSICS[options.env](), count, hide_velocity=options.hide_velocity, limit=options.episode_limit
        )
    return GymnasiumVectorEnv(options.env, count, context, limit=options.episode_limit)


def _perceptron(rows: VectorEnv, width: int, options: Options, context: RunContext) -> PerceptronAgentState:
    layout = make_layout(rows.space, width, actions_of(rows.space))
    return PerceptronAgentState(layout, initial_rows(layout, context.streams).to(options.device))


def _net(rows: VectorEnv, kind: str, width: int, options: Options, context: RunContext) -> NetAgentState:
    net = make_net(kind, rows.space, width, actions_of(rows.space), context.streams)
    return NetAgentState(net.to(options.device), options.envs)


def choose_width(options: Options, kind: str, space: Space) -> int:
    """Return the width from the options, or the width whose parameter count is closest to the requested one."""
    if not options.parameters:
        return options.width or WIDTHS[kind]
    wanted, last = options.parameters, 0
    step = HEADS if kind == "transformer" else 1
    for width in itertools.count(step, step):
        count = count_parameters(kind, space, width)
        if count >= wanted:
            before = width - step
            return before if before and wanted - last < count - wanted else width
        last = count
    raise AssertionError("unreachable: the parameter count grows with the width")


def count_parameters(kind: str, space: Space, width: int) -> int:
    actions: Actions = actions_of(space)
    if kind == "mlp":
        sizes = {name: place.size for name, place in make_layout(space, width, actions).places.items()}
        acting = sum(sizes.values())
        return 2 * acting - sizes.get("log_deviation", 0) - (space.actions - 1) * (width + 1)
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in NETS[kind](space, width, actions).parameters())
