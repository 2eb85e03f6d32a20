"""Contract suites for people who write plug-ins: what every recipe, launcher and game must keep.

Each check is a plain function that raises AssertionError with the rule that was broken. Fairtrial's own tests
run them over everything that is registered.
"""

from fairtrial.testing.game_contract import GAME_CHECKS, GameCase
from fairtrial.testing.launcher_contract import LAUNCHER_CHECKS, PROCESS_CHECKS
from fairtrial.testing.recipe_contract import RECIPE_CHECKS, RecipeCase

__all__ = ["GAME_CHECKS", "LAUNCHER_CHECKS", "PROCESS_CHECKS", "RECIPE_CHECKS", "GameCase", "RecipeCase"]
