"""Monitors the runs of a store from the launcher's machine while they are in progress."""

from __future__ import annotations

import contextlib
import time

from fairtrial.core.errors import FairtrialError, StoreError
from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Outcome, Status
from fairtrial.core.specs import Job
from fairtrial.launch.schedule import Heartbeat
from fairtrial.record.claims import Claim, ClaimedElsewhere, is_claimed, token_of
from fairtrial.record.heartbeat import read_heartbeat
from fairtrial.record.metadata import DamagedRun, load_metadata, write_metadata
from fairtrial.record.recorder import saved_checkpoints
from fairtrial.record.remote_state import read_remote_state
from fairtrial.record.series import last_step
from fairtrial.record.store import Store


class StoreRunMonitor:
    """Implements the schedule's `RunMonitor` on top of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def status(self, job: Job) -> Outcome | None:
        spec = job.spec
        with contextlib.suppress(StoreError):  # a shared store that is unreachable now is polled again later
            self._store.pull(spec.study)
        run = self._store.look_at(spec.study, spec.run_id)
        if run and run.status is Status.DAMAGED:
            return Outcome(Status.FAILED, f"damaged: {run.reason}", already_done=True)
        if run and run.metadata.fingerprint != spec.fingerprint:
            return Outcome(Status.FAILED, "another launcher ran this cell with different options")
        return Outcome(run.status, run.reason, already_done=True) if run else None

    def mark_ended(self, job: Job, status: Status, reason: str) -> None:
        """Record the status of a run whose process could not: it was killed, or did not exit in time."""
        paths = self._paths(job)
        try:
            claim = Claim(paths)
        except (ClaimedElsewhere, FairtrialError):  # a live process records its own end; an unwritable run stays as is
            return
        try:
            metadata = load_metadata(paths)
            if metadata is not None and not Status(metadata.status).is_result:
                write_metadata(paths, metadata.replace(status=status.value, reason=reason))
        except DamagedRun:  # leave the files for repair; the other runs continue
            return
        finally:
            claim.release()

    def heartbeat(self, job: Job) -> Heartbeat | None:
        """Return the latest heartbeat, from the process on this machine or through the shared store."""
        paths = self._paths(job)
        recorded = read_heartbeat(paths)
        if not self._store.url or is_claimed(paths):
            return Heartbeat(f"{recorded.at}", recorded.step, recorded.saved, recorded.token) if recorded else None
        try:
            self._store.pull(job.spec.study)
        except StoreError:
            # While the store is unreachable, no run may count as lost: each failed read returns a new heartbeat.
            return Heartbeat(f"out of reach at {time.monotonic()}", 0, 0)
        state = read_remote_state(paths)
        if state is None or not state.pulse:
            return None
        saved = max(saved_checkpoints(paths), default=0)
        return Heartbeat(state.pulse, last_step(paths.metrics) or 0, saved)

    def claim_token(self, job: Job) -> int | None:
        return token_of(self._paths(job))

    def _paths(self, job: Job) -> RunPaths:
        return self._store.paths.run(job.spec.study, job.spec.run_id)
