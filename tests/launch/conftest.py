"""Launchers are tested with the processes that they start for a person."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _warm_job_servers() -> None:
    """No server is forked from one that has the imports loaded."""
