"""From planned jobs to finished runs: what is missing of a plan is run, needs first."""

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
    """Run what is missing of a plan, needs first; returns the runs that were missing, as they ended."""
    missing = plan.missing(retry_failed=policy.retry_failed)
    needs = plan.missing_needs(missing)
    with contextlib.ExitStack() as exit_stack:
        for study in {job.spec.study for job in missing}:
            exit_stack.enter_context(launching(store.paths, study))
        if needs:
            _run(needs, store, launcher, policy)
        require_needs(plan, missing, store)
        runs = _run(missing, store, launcher, policy)
    # What killed jobs, or jobs that could not reach a shared store, have left on this machine.
    left = store.push(sorted({job.spec.study for job in (*missing, *needs)}))
    if left:
        policy.tell(
            f"{counted(len(left), 'run')} of this machine did not reach {store.url} completely; nothing is lost. "
            f"Push them with: fairtrial runs sync --store {shlex.quote(store.address)}"
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
    """How runs that other machines made have ended; what was pulled a moment ago may be older than that."""
    if not store.url:
        return
    from fairtrial.record.sharing import pull

    try:
        pull(store, studies)
    except StoreError as error:
        policy.tell(
            f"{error.message}. What other machines have recorded is there; bring it with: "
            f"fairtrial runs sync --store {shlex.quote(store.address)}"
        )
