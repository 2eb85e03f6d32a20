"""The planned jobs of a study, their dependencies, and the runs that the store already has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fairtrial.core.runs import Run, Status
from fairtrial.core.specs import Job


@dataclass(frozen=True)
class JobPlan:
    """The jobs of a study. `dependencies` and `existing` are keyed by the name of the run.

    `dependencies` are the jobs that others need, such as that of a teacher. `existing` has the runs of both kinds that
    were in the store when the plan was made.
    """

    jobs: Sequence[Job]
    dependencies: Mapping[str, Job] = field(default_factory=dict)
    existing: Mapping[str, Run] = field(default_factory=dict)

    def is_done(self, job: Job, *, retry_failed: bool) -> bool:
        run = self.existing.get(job.spec.name)
        if run is None:
            return False
        status = run.status
        if status is Status.DAMAGED:  # never overwrite what may be repaired; --replace archives it first
            return True
        return status.is_result or (status is Status.FAILED and not retry_failed)

    def missing(self, *, retry_failed: bool) -> list[Job]:
        return [job for job in self.jobs if not self.is_done(job, retry_failed=retry_failed)]

    def needs_of(self, job: Job) -> list[Job]:
        return [self.dependencies[f"{study}/{run}"] for study, run in job.needs.values()]

    def missing_needs(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that these jobs need and that still have to run, without duplicates."""
        needs = {need.spec.name: need for job in jobs for need in self.needs_of(job)}
        return [need for need in needs.values() if not self.is_done(need, retry_failed=True)]
