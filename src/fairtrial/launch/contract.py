"""The launcher interface, and what every launcher guarantees.

`submit` hands over a task, which is one cell or several that share a process, and returns immediately. `poll` returns
each submitted cell's exit exactly once. `has_started` tells whether the process of a cell is running. `stop` asks that
process to save a checkpoint and exit, or kills it; it also works before the process has started. `forget` abandons a
cell whose process no longer responds: the process may still be running, but nothing that it reports is passed on.
`adopt` finds cells that an earlier launcher left running, and watches them from then on. `close` leaves nothing running
that only this launcher could stop.

A launcher never decides what to run, never retries, and never reads the store: `schedule.py` does the first two, and
its caller the third. A launcher's module is a plug-in. It declares SUMMARY, REQUIRES (packages), EXTRA, its own
Options, and `open_launcher(request)`. It may also have `check(request)` and `describe(request, runs)`, which write
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from fairtrial.core.deprecation import renamed
from fairtrial.core.runs import Outcome


@dataclass(frozen=True)
class Exit:
    """The end of a cell's process. `outcome` is None if the process exited without reporting one.

    `lost` is the reason if the run was cut off from outside: its machine disappeared, the cluster's time limit was
    reached, or the job was preempted. Such a cell is rescheduled, and its old process may still be alive.
    """

    key: str
    code: int
    outcome: Outcome | None
    lost: str | None = None


@dataclass(frozen=True)
class ResourceRequest:
    """The resources that one run needs. None: the launcher's default."""

    cpus: int | None = None
    gpus: int | None = None
    memory_gb: float | None = None


class EngineOptions(BaseModel):
    """Base class for the settings of a launcher, which users pass as `--with key=value`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class LaunchRequest:
    """Everything that a launcher is opened with.

    `store` is the path or URL of the store as other machines see it. `home` is a folder of the study in which the
    launcher can keep its state.
    """

    study: str
    store: str
    home: str
    options: EngineOptions
    cells: int = 1
    jobs: int | None = None
    resources: ResourceRequest = field(default_factory=ResourceRequest)
    usable_gpus: int | None = 0
    """Number of GPUs that one run can use; None if that is unknown, as for a user's program."""
    devices: Sequence[str] = ()
    environment: Sequence[str] = ()
    """Names of environment variables of this process that jobs need on every machine."""
    preload: Sequence[str] = ()
    fresh: bool = False
    tell: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Described:
    """A launcher's description of what a launch would do: as text for users, and as a JSON document."""

    text: str
    document: Mapping[str, Any]
    remarks: Sequence[str] = ()


class Launcher(Protocol):
    """Runs tasks somewhere. `slots` is the number of tasks at once; a launcher with its own queue accepts all."""

    @property
    def slots(self) -> int: ...

    def adopt(self, keys: Collection[str]) -> list[list[str]]: ...

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None: ...

    def poll(self, timeout: float) -> list[Exit]: ...

    def has_started(self, key: str) -> bool: ...

    def stop(self, key: str, *, kill: bool) -> None: ...

    def forget(self, key: str) -> None: ...

    def close(self) -> None: ...


__getattr__ = renamed(__name__, {"Order": "LaunchRequest", "Resources": "ResourceRequest"})
