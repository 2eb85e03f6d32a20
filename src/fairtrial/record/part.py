"""The part that this process has in a run of a shared store; none where the store is a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairtrial.core.paths import RunPaths
from fairtrial.record.store import Store

if TYPE_CHECKING:
    from fairtrial.record.upload import Shipment


class Part:
    """A claim on a run, on top of the one on its directory, which the caller holds. It is brought up while it is made.

    Raises ClaimedElsewhere where another machine makes the run.
    """

    def __init__(
        self, store: Store, paths: RunPaths, should_stop: Callable[[], bool] = lambda: False
    ) -> None:  # fmt: skip
        self._store = store
        self._shipment: Shipment | None = None
        if store.url:
            from fairtrial.record.sharing import join

            self._shipment = join(store, paths, should_stop)

    def check(self) -> None:
        """Raises ClaimLost where another machine makes the run by now."""
        if self._shipment:
            self._shipment.lease.check()

    def checked(self, should_stop: Callable[[], bool]) -> Callable[[], bool]:
        if self._shipment is None:
            return should_stop

        def stop() -> bool:
            self.check()
            return should_stop()

        return stop

    def leave(self) -> None:
        """The work is over: wait for what is on its way, and say so where not all of it arrived."""
        if self._shipment is None:
            return
        from fairtrial.record.sharing import leave

        told = leave(self._store, self._shipment)
        self._shipment = None
        if told:
            sys.stderr.write(f"{told}\n")
