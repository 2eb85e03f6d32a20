"""Every launcher keeps the shipped contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.runs import Outcome
from fairtrial.core.specs import Job
from fairtrial.jobs.run_session import run_cell
from fairtrial.launch.contract import Launcher
from fairtrial.launch.inline import InlineLauncher
from fairtrial.launch.local import LocalLauncher
from fairtrial.record.claims import ClaimedElsewhere
from fairtrial.testing import LAUNCHER_CHECKS, PROCESS_CHECKS


def perform(request: Mapping[str, Any]) -> Outcome | None:
    try:
        return run_cell(Job.from_dict(request))
    except ClaimedElsewhere:
        return None


LAUNCHERS: dict[str, Callable[[], Launcher]] = {
    "inline": lambda: InlineLauncher(perform),
    "local": lambda: LocalLauncher(2, ["fake"]),
    "local, fresh": lambda: LocalLauncher(2, [], fresh=True),
}


@pytest.mark.parametrize("make", LAUNCHERS.values(), ids=LAUNCHERS)
@pytest.mark.parametrize("check", LAUNCHER_CHECKS, ids=lambda check: check.__name__)
def test_launchers_keep_their_contract(
    check: Callable[..., None], make: Callable[[], Launcher], tmp_path: Path
) -> None:
    check(make, tmp_path / "store")


@pytest.mark.parametrize("make", [LAUNCHERS["local"]], ids=["local"])
@pytest.mark.parametrize("check", PROCESS_CHECKS, ids=lambda check: check.__name__)
def test_launchers_with_processes_keep_the_rest_of_it(
    check: Callable[..., None], make: Callable[[], Launcher], tmp_path: Path
) -> None:
    check(make, tmp_path / "store")
