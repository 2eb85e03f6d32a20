"""The execution policy, which is passed from the command line to the schedule."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairtrial.launch.job_plan import JobPlan
    from fairtrial.launch.schedule import ScheduledRun

Watcher = Callable[[Sequence["ScheduledRun"]], None]
LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class ExecutionPolicy:
    """How to execute runs: the settings of this launch, as opposed to those of the study.

    >>> fairtrial.ExecutionPolicy(jobs=2, retries=1).jobs
    2
    """

    on: str = LOCAL
    settings: Mapping[str, Any] = field(default_factory=dict)
    jobs: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    memory_gb: float | None = None
    lost_after: float | None = None
    hung_after: float | None = None
    timeout: float | None = None
    retries: int = 0
    retry_failed: bool = False
    replace_old: bool = False
    strict: bool = False
    stack: bool = False
    plan: str | os.PathLike[str] | None = None
    """The registration of the study; None: the one in the current project, if there is one."""
    watch: Watcher = lambda _: None
    ready: Callable[[JobPlan], None] = lambda _: None
    tell: Callable[[str], None] = lambda _: None
