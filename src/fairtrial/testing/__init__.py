"""Contract checks for plug-in authors, for recipes, launchers, games, readers, statistics, charts and formats.

Each check is a function that raises AssertionError with the violated rule. Fairtrial's own tests run the checks on
everything that is registered.
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
