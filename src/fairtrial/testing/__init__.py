"""Contract suites for people who write plug-ins: what every recipe, launcher, game, reader, statistic, chart and format
must keep.

Each check is a plain function that raises AssertionError with the rule that was broken. Fairtrial's own tests
run them over everything that is registered.
"""

from fairtrial.testing.game_contract import GAME_CHECKS, GameCase
from fairtrial.testing.launcher_contract import LAUNCHER_CHECKS, PROCESS_CHECKS
from fairtrial.testing.plugin_contract import (
    check_adjustment,
    check_chart,
    check_format,
    check_method,
    check_reader,
    check_summary,
)
from fairtrial.testing.recipe_contract import RECIPE_CHECKS, RecipeCase

__all__ = [
    "GAME_CHECKS",
    "LAUNCHER_CHECKS",
    "PROCESS_CHECKS",
    "RECIPE_CHECKS",
    "GameCase",
    "RecipeCase",
    "check_adjustment",
    "check_chart",
    "check_format",
    "check_method",
    "check_reader",
    "check_summary",
]
