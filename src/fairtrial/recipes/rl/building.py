"""Puts a run together: environments, policy, and the refusals that come before any training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairtrial.core.training import Setting
from fairtrial.recipes.rl.actions import actions_of
from fairtrial.recipes.rl.perceptron import Brain, initial_rows, make_layout
from fairtrial.recipes.rl.physics import PHYSICS
from fairtrial.recipes.rl.rows import PhysicsRows, Rows
from fairtrial.recipes.rl.run import Run, StackedRun

if TYPE_CHECKING:
    from fairtrial.recipes.ppo import Options


def build_run(options: Options, setting: Setting) -> Run:
    physics = PHYSICS[options.env]()

    def make_rows(count: int) -> Rows:
        return PhysicsRows(physics, 1, count, hide_velocity=options.hide_velocity)

    def make_brain(rows: Rows) -> Brain:
        actions = actions_of(rows.space)
        layout = make_layout(rows.space, options.width or 64, actions)
        return Brain(layout, initial_rows(layout, setting.streams))

    return StackedRun(options, setting, make_rows, make_brain)
