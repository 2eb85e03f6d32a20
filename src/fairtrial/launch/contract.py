"""What every launcher guarantees.

`submit` hands over a task, which is one cell or several that share a process, and returns at once; `poll` gives each
submitted cell's exit exactly once; `has_started` says whether the process of a cell is there; `stop` asks that
process to save and leave, or kills it, also one that has not started yet; `forget` gives a cell up whose place no
longer answers: it may live on there, and nothing that it says is passed on any more. `adopt` finds what an earlier
launcher of these cells left running and watches it from now on. `close` leaves nothing behind that only this launcher
would end.

A launcher never decides what to run, never retries and never reads the store: `schedule.py` does the first two and its
caller the third. A launcher's module is a plug-in: it declares SUMMARY, REQUIRES (packages), EXTRA, its own Options,
and `open_launcher(order)`. `check(order)` and `describe(order, runs)`, which write nothing, may be there too.
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
    """A cell that came back. No outcome: its process ended without a word.

    `lost` says why, where it was not the run that ended but the place it ran at: a machine that is gone, a time limit
    of the cluster, a pre-emption. Such a cell goes on elsewhere, and its old process may still be alive.
    """

    key: str
    code: int
    outcome: Outcome | None
    lost: str | None = None


@dataclass(frozen=True)
class ResourceRequest:
    """What one run needs. None: what the launcher gives by itself."""

    cpus: int | None = None
    gpus: int | None = None
    memory_gb: float | None = None


class EngineOptions(BaseModel):
    """Settings of one launcher, given as `--with key=value`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class LaunchRequest:
    """All that a launcher is opened with. `store` is what other machines find the store by; `home` is a folder of
    the study for what a launcher must remember."""

    study: str
    store: str
    home: str
    options: EngineOptions
    cells: int = 1
    jobs: int | None = None
    resources: ResourceRequest = field(default_factory=ResourceRequest)
    usable_gpus: int | None = 0
    """How many cards one run can make use of; None where only the person who wrote its program knows."""
    devices: Sequence[str] = ()
    environment: Sequence[str] = ()
    """Variables of this process that jobs must have, wherever they run."""
    preload: Sequence[str] = ()
    fresh: bool = False
    tell: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Described:
    """What a launch would do, as the module of a launcher tells it: for people, and as a document."""

    text: str
    document: Mapping[str, Any]
    remarks: Sequence[str] = ()


class Launcher(Protocol):
    """Runs tasks somewhere. `slots` is how many at once; one that has a queue of its own takes all."""

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
