"""Run the missing jobs of a plan, dependencies first."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence

from fairtrial.api.running.planning import require_needs
from fairtrial.api.running.run_monitor import StoreRunMonitor
from fairtrial.core.errors import StoreError
from fairtrial.core.formatting import counted
from fairtrial.core.specs import Job
from fairtrial.launch.contract import Launcher
from fairtrial.launch.job_plan import JobPlan
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.launch.schedule import Schedule, ScheduledRun
from fairtrial.record.claims import launching
from fairtrial.record.store import Store


def complete(plan: JobPlan, store: Store, launcher: Launcher, policy: ExecutionPolicy) -> list[ScheduledRun]:
    """Run the missing jobs of a plan, dependencies first, and return them as scheduled runs with their outcomes."""
    missing = plan.missing(retry_failed=policy.retry_failed)
    needs = plan.missing_needs(missing)
    with contextlib.ExitStack() as exit_stack:
        for study in {job.spec.study for job in missing}:
            exit_stack.enter_context(launching(store.paths, study))
        if needs:
            _run(needs, store, launcher, policy)
        require_needs(plan, missing, store)
        runs = _run(missing, store, launcher, policy)
    # Upload what killed jobs, or jobs that could not reach the shared store, left on this machine.
    left = store.push(sorted({job.spec.study for job in (*missing, *needs)}))
    if left:
        policy.tell(
            f"{counted(len(left), 'run')} on this machine could not be fully uploaded to {store.url}; nothing is lost. "
            f"Upload with: fairtrial runs sync --store {shlex.quote(store.address)}"
        )
    return runs


def _run(jobs: Sequence[Job], store: Store, launcher: Launcher, policy: ExecutionPolicy) -> list[ScheduledRun]:
    schedule = Schedule(jobs, launcher, StoreRunMonitor(store), policy)
    schedule.run()
    _pull_results(store, sorted({job.spec.study for job in jobs}), policy)
    policy.watch(schedule.runs)
    if schedule.interrupted:
        raise KeyboardInterrupt
    return schedule.runs


def _pull_results(store: Store, studies: Sequence[str], policy: ExecutionPolicy) -> None:
    """Pull the final state of runs from other machines: the last poll may be older than their end."""
    if not store.url:
        return
    from fairtrial.record.sharing import pull

    try:
        pull(store, studies)
    except StoreError as error:
        policy.tell(
            f"{error.message}. The records of other machines are still in the store. Fetch them with: "
            f"fairtrial runs sync --store {shlex.quote(store.address)}"
        )
