"""What a machine knows of a run in a shared store, kept beside the files of that run in its mirror."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from fairtrial.core.paths import RunPaths
from fairtrial.core.regular_files import read_regular
from fairtrial.core.untrusted import UntrustedDocument, checked, parse_json_fast
from fairtrial.record.atomic import SyncLevel, replace_bytes, store_errors

DESCRIPTION = "what is known of the run"


@dataclass(frozen=True)
class RemoteState:
    """How the files of a run in a mirror stand to the shared store.

    `mine`: this machine wrote them under `token`; `closed`: all of it has arrived. `tags` are those of the objects that
    were brought, `absent` the files that were left there, by name. `seen`: when the pulse was last seen to change, by
    the clock of this machine.
    """

    token: int = 0
    mine: bool = False
    closed: bool = False
    source: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pulse: str = ""
    seen: float = 0.0
    lease_s: float = 0.0

    @property
    def is_ahead(self) -> bool:
        """Whether something is here that is not there yet."""
        return self.mine and not self.closed

    @property
    def is_alive(self) -> bool:
        """Whether somebody elsewhere gave a sign of life not long ago."""
        return self.lease_s > 0 and time.time() - self.seen < self.lease_s


def read_remote_state(paths: RunPaths) -> RemoteState | None:
    """What is known of a run; None where nothing is, or where the file was damaged."""
    try:
        content = read_regular(paths.remote_state)
    except (FileNotFoundError, NotADirectoryError):
        return None
    from fairtrial.record.shared_schema import RemoteStateModel  # brings pydantic, which most who list runs do without

    try:
        state = checked(RemoteStateModel, parse_json_fast(content, where=DESCRIPTION), where=DESCRIPTION)
    except UntrustedDocument:
        return None
    return RemoteState(**state.model_dump())


def write_remote_state(paths: RunPaths, state: RemoteState) -> None:
    if read_remote_state(paths) != state:
        with store_errors(paths.root):
            paths.root.mkdir(parents=True, exist_ok=True)
        # Of a run of others it is found out again. That something of this machine is not there yet, nobody else knows.
        sync = SyncLevel.FILE if state.mine else SyncLevel.NOTHING
        replace_bytes(paths.remote_state, orjson.dumps(asdict(state)), sync=sync)


def is_made_elsewhere(paths: RunPaths) -> bool:
    """Whether another machine is making this run, as far as this one has heard."""
    state = read_remote_state(paths)
    return state is not None and state.is_alive
