"""What a machine knows about a run in a shared store, stored next to the files of the run in the mirror."""

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
    """The relation between the files of a run in the mirror and in the shared store.

    `mine`: this machine wrote the files under `token`. `closed`: the upload is complete. `tags` are the tags of the
    downloaded objects, and `absent` are the files that were not downloaded, both by name. `seen` is the time of the
    last change of the heartbeat (`pulse`), by the clock of this machine.
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
        """Whether this machine has data that the store does not have yet."""
        return self.mine and not self.closed

    @property
    def is_alive(self) -> bool:
        """Whether another machine has sent a heartbeat within its lease."""
        return self.lease_s > 0 and time.time() - self.seen < self.lease_s


def read_remote_state(paths: RunPaths) -> RemoteState | None:
    """Return the recorded state of a run, or None if the file is missing or damaged."""
    try:
        content = read_regular(paths.remote_state)
    except (FileNotFoundError, NotADirectoryError):
        return None
    from fairtrial.record.shared_schema import RemoteStateModel  # imports pydantic, which listing runs rarely needs

    try:
        state = checked(RemoteStateModel, parse_json_fast(content, where=DESCRIPTION), where=DESCRIPTION)
    except UntrustedDocument:
        return None
    return RemoteState(**state.model_dump())


def write_remote_state(paths: RunPaths, state: RemoteState) -> None:
    if read_remote_state(paths) != state:
        with store_errors(paths.root):
            paths.root.mkdir(parents=True, exist_ok=True)
        # The state of other machines' runs can be determined again; that our data are not uploaded is known only here.
        sync = SyncLevel.FILE if state.mine else SyncLevel.NOTHING
        replace_bytes(paths.remote_state, orjson.dumps(asdict(state)), sync=sync)


def is_made_elsewhere(paths: RunPaths) -> bool:
    """Return whether another machine is executing this run, as far as this machine knows."""
    state = read_remote_state(paths)
    return state is not None and state.is_alive
