"""The session of this process on a run of a shared store. It does nothing if the store is a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairtrial.record.claims import Claim
from fairtrial.record.store import Store

if TYPE_CHECKING:
    from fairtrial.record.upload import RunUpload


class RemoteRunSession:
    """A claim on a run in the shared store, in addition to the caller's claim on its local directory.

    The recording is uploaded while the run is in progress. Writes fail once the claim is lost. Raises ClaimedElsewhere
    if another machine is executing the run.
    """

    def __init__(self, store: Store, claim: Claim, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self._upload: RunUpload | None = None
        if store.url:
            from fairtrial.record.sharing import join

            self._upload = join(store, claim.paths, should_stop)
            claim.fence.also = self.check

    def check(self) -> None:
        """Raise ClaimLost if another machine has taken over the run."""
        if self._upload:
            self._upload.lease.check()

    def leave(self) -> None:
        """Wait for the upload to finish, and print a message if it is incomplete."""
        if self._upload is None:
            return
        from fairtrial.record.sharing import leave

        message = leave(self._store, self._upload)
        self._upload = None
        if message:
            sys.stderr.write(f"{message}\n")
