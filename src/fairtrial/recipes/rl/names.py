"""The names of environments: which are known, and what is missing for those that are not."""

from __future__ import annotations

import importlib.util
from typing import Any

from fairtrial.core.errors import unknown

CLASSIC = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1")
"""Tasks whose equations are known here: their velocities can be hidden, their initial states widened."""
ATARI = "ALE/"


def why_unknown(name: str) -> str | None:
    """What is wrong with the name of an environment, in one sentence; None where nothing is."""
    if name in CLASSIC or importlib.util.find_spec("gymnasium") is None:  # a missing package is refused elsewhere
        return None
    if name.startswith(ATARI) and importlib.util.find_spec("ale_py") is None:
        return f"{name} needs ale-py, which is not installed; install it with: pip install 'fairtrial[atari]'"
    registry = load_gymnasium().registry
    if name in registry:
        return None
    said = unknown("environment", name, registry)
    return said if "did you mean" in said else f"unknown environment '{name}'; gymnasium.registry lists all"


def load_gymnasium() -> Any:
    """Gymnasium, with the Atari games where they are installed."""
    import gymnasium

    if importlib.util.find_spec("ale_py") is not None:
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # it greets once per game
        gymnasium.register_envs(ale_py)
    return gymnasium
