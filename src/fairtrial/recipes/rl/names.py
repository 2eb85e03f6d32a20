"""Check environment names, and explain why an environment is unknown."""

from __future__ import annotations

import importlib.util
from typing import Any

from fairtrial.core.errors import unknown

CLASSIC = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1")
"""Tasks that `physics` implements. Only these support hidden velocities and a curriculum of initial states."""
ATARI = "ALE/"


def why_unknown(name: str) -> str | None:
    """Return why an environment name cannot be used, in one sentence, or None if it can."""
    if name in CLASSIC or importlib.util.find_spec("gymnasium") is None:  # missing packages are reported elsewhere
        return None
    if name.startswith(ATARI) and importlib.util.find_spec("ale_py") is None:
        return f"{name} needs ale-py, which is not installed; install it with: pip install 'fairtrial[atari]'"
    registry = load_gymnasium().registry
    if name in registry:
        return None
    said = unknown("environment", name, registry)
    return said if "did you mean" in said else f"unknown environment '{name}'; gymnasium.registry lists all of them"


def load_gymnasium() -> Any:
    """Import and return Gymnasium, with the Atari games registered if they are installed."""
    import gymnasium

    if importlib.util.find_spec("ale_py") is not None:
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # otherwise it prints a banner per game
        gymnasium.register_envs(ale_py)
    return gymnasium
