"""The part that this process has in a run of a shared store; none where the store is a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairtrial.record.claims import Claim
from fairtrial.record.store import Store

if TYPE_CHECKING:
    from fairtrial.record.upload import RunUpload


class RemoteRunSession:
    """A claim on a run in the shared store, on top of the one on its directory, which the caller holds.

    What is recorded is brought there while it is made, and no write passes once the claim is lost. Raises
    ClaimedElsewhere where another machine makes the run.
    """

    def __init__(self, store: Store, claim: Claim, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self._upload: RunUpload | None = None
        if store.url:
            from fairtrial.record.sharing import join

            self._upload = join(store, claim.paths, should_stop)
            claim.fence.also = self.check

    def check(self) -> None:
        """Raises ClaimLost where another machine makes the run by now."""
        if self._upload:
            self._upload.lease.check()

    def leave(self) -> None:
        """The work is over: wait for what is on its way, and say so where not all of it arrived."""
        if self._upload is None:
            return
        from fairtrial.record.sharing import leave

        message = leave(self._store, self._upload)
        self._upload = None
        if message:
            sys.stderr.write(f"{message}\n")
