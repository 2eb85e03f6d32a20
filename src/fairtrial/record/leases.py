"""Leases on runs of a shared store: the process with the newest claim may execute a run while it sends heartbeats.

The claims of a run are a chain of objects, `.claims/00000001.json` and so on. Each is created with create-if-absent,
and its number is a fencing token. Creating the next object ends a claim: its holder creates `end`, a process that takes
over creates `claim`, and a process that removed the run creates `gone`. A store needs to support only create-if-absent;
no object of the chain is ever replaced. A process that lost its claim can still write below its own token, which is no
longer read.

A holder rewrites its heartbeat object. The age of a heartbeat is measured by the server's clock alone, or else by the
observer's own clock: the clocks of two machines are never compared.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import orjson

from fairtrial.core.paths import SharedPaths, number_of
from fairtrial.core.untrusted import DAMAGED, UntrustedDocument, checked, parse_json
from fairtrial.record.claims import ClaimLost
from fairtrial.record.remote import ObjectEntry, Remote
from fairtrial.record.remote_state import RemoteState

LEASE_VARIABLE = "FAIRTRIAL_LEASE"
LEASE_S = 120.0
"""Seconds without a heartbeat after which a claim may be taken over."""
LONGEST_LEASE_S = 30 * 86400.0
"""The longest lease that a claim may have: with an unlimited one, a claim could never be taken over."""
RENEWALS_PER_LEASE = 8
"""Number of heartbeats per lease duration."""
SOON_S, LONGEST_WAIT_S = 0.2, 2.0
LARGEST_CLAIM = 1 << 16
Objects = Mapping[str, ObjectEntry]


def lease_seconds() -> float:
    return min(float(os.environ.get(LEASE_VARIABLE) or LEASE_S), LONGEST_LEASE_S)


@dataclass(frozen=True)
class Link:
    """One object of the chain.

    `prior` is where the files of the run were when it was claimed: a token, `plain` or None. An `end` contains the
    number of the claim that it ends (`of`), the status of the run, and whether its files are copied to their plain
    names (`publish`).
    """

    kind: str
    token: int
    host: str = ""
    pid: int = 0
    mirror: str = ""
    lease_s: float = 0.0
    prior: str | None = None
    of: int = 0
    status: str | None = None
    publish: bool = False
    at: float = 0.0

    @property
    def is_claim(self) -> bool:
        return self.kind == "claim"


def top_token(names: SharedPaths, objects: Objects) -> int:
    """Return the number of the newest claim, or 0. Objects whose names do not match are ignored."""
    return max((number_of(name) or 0 for name in objects if name.startswith(f"{names.claims}/")), default=0)


def parse_link(content: bytes, token: int) -> Link:
    """Parse the claim with this number. Raises UntrustedDocument if it does not match the schema."""
    from fairtrial.record.shared_schema import LinkModel

    where = f"claim {token}"
    link = checked(LinkModel, parse_json(content, where=where), where=where)
    if link.token != token:
        raise UntrustedDocument(f"{where} contains the number {link.token}", hint=DAMAGED)
    if link.kind != "claim" and not 0 < link.of < token:
        raise UntrustedDocument(f"{where} ends claim {link.of}, which does not precede it", hint=DAMAGED)
    return Link(**link.model_dump())


def read_link(remote: Remote, names: SharedPaths, objects: Objects, token: int) -> Link:
    """Read the claim with this number from the store."""
    name = names.claim(token)
    if name not in objects:
        raise UntrustedDocument(f"claim {token} is missing", hint=DAMAGED)
    refuse_large(names, objects, [name], LARGEST_CLAIM)
    return parse_link(remote.read(name), token)


def refuse_large(names: SharedPaths, objects: Objects, wanted: Iterable[str], most: int) -> None:
    """Raise UntrustedDocument if an object is larger than `most` bytes, before it is read."""
    for name in wanted:
        if name in objects and objects[name].size > most:
            shown = name.removeprefix(f"{names.root}/")
            raise UntrustedDocument(
                f"{shown} has {objects[name].size:,} bytes, more than the allowed {most:,}", hint=DAMAGED
            )


def read_top(remote: Remote, names: SharedPaths, objects: Objects) -> Link | None:
    token = top_token(names, objects)
    return read_link(remote, names, objects, token) if token else None


PLAIN = "plain"


def where_it_stands(remote: Remote, names: SharedPaths, objects: Objects, top: Link | None) -> str | None:
    """Return where the files of the run are: `plain`, or the token that they are below; None if there are none."""
    plain = PLAIN if names.metadata in objects else None
    if top is None or top.kind == "gone":
        return plain if top is None else None
    token = top.token if top.is_claim else top.of
    if names.manifest(token) in objects:
        return str(token)
    if not top.is_claim and top.publish:
        return plain
    prior = top.prior if top.is_claim else read_link(remote, names, objects, top.of).prior
    return prior if prior not in (None, PLAIN) and names.manifest(int(prior or 0)) in objects else plain


def note_heartbeat(
    names: SharedPaths, objects: Objects, top: Link, known: RemoteState, server_clock: Callable[[], float | None]
) -> RemoteState:
    """Return the state that this machine knows, updated with the latest heartbeat of a claim."""
    heartbeat = objects.get(names.heartbeat(top.token)) or objects[names.claim(top.token)]
    tag = f"{top.token} {heartbeat.tag} {heartbeat.modified}"
    if tag == known.pulse:
        return known
    seen, server = time.time(), server_clock() if heartbeat.modified is not None else None
    if server is not None and heartbeat.modified is not None:
        seen -= max(0.0, server - heartbeat.modified)  # its age, by the server's clock alone
    return replace(known, pulse=tag, seen=seen, lease_s=top.lease_s)


class Lease:
    """A claim of this process on a run of a shared store."""

    def __init__(self, remote: Remote, names: SharedPaths, token: int, mirror: str, lease_s: float) -> None:
        self.remote, self.names, self.token = remote, names, token
        self._mirror, self._lease_s = mirror, lease_s
        self._renewed_at = 0.0
        self._renewals = 0
        self.lost = False

    @classmethod
    def take(cls, remote: Remote, names: SharedPaths, mirror: str, *, after: int, prior: str | None) -> Lease | None:
        """Create the next claim. Return None if another process was faster."""
        lease_s = lease_seconds()
        link = Link("claim", after + 1, socket.gethostname(), os.getpid(), mirror, lease_s, prior, at=time.time())
        if not remote.create(names.claim(link.token), asdict(link)):
            return None
        lease = cls(remote, names, link.token, mirror, lease_s)
        lease_renewer().add(lease)
        return lease

    def check(self) -> None:
        if self.lost:
            raise ClaimLost(
                f"run {self.names.root} was taken over by another machine, because heartbeats of this one were missing",
                hint="The local recording is kept; the other machine continues the run.",
            )

    @property
    def renewal_due(self) -> float:
        return self._renewed_at + self._lease_s / RENEWALS_PER_LEASE

    def renew(self) -> None:
        """Write a heartbeat and check whether another process has taken over."""
        now = time.monotonic()
        self._renewals += 1
        self.remote.write({self.names.heartbeat(self.token): orjson.dumps({"beat": self._renewals, "at": time.time()})})
        self._renewed_at = now
        self.lost = self.remote.exists(self.names.claim(self.token + 1))

    def end(self, kind: str, *, status: str | None = None, publish: bool = False) -> bool:
        """End the claim and record the status of the run. Return False if the claim was already lost."""
        link = Link(
            kind, self.token + 1, socket.gethostname(), os.getpid(), self._mirror, of=self.token, status=status,
            publish=publish, at=time.time(),
        )  # fmt: skip
        if not self.lost and not self.remote.create(self.names.claim(link.token), asdict(link)):
            self.lost = True
        lease_renewer().remove(self)
        return not self.lost


class LeaseRenewer:
    """Renews all leases of this process in its own thread.

    A transfer of a large file can take minutes, and the claim must not expire meanwhile.
    """

    def __init__(self) -> None:
        self._leases: list[Lease] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()

    def add(self, lease: Lease) -> None:
        with self._guard:
            self._leases.append(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew_regularly, daemon=True, name="fairtrial leases")
                self._thread.start()
        self._wake.set()

    def remove(self, lease: Lease) -> None:
        with self._guard:
            self._leases = [each for each in self._leases if each is not lease]

    def _renew_regularly(self) -> None:
        while True:
            with self._guard:
                leases = self._leases = [each for each in self._leases if not each.lost]
                if not leases:
                    self._thread = None
                    return
            for lease in leases:
                if lease.renewal_due <= time.monotonic():
                    with contextlib.suppress(Exception):  # any failure is retried soon
                        lease.renew()
            nearest = min(each.renewal_due for each in leases) - time.monotonic()
            self._wake.wait(min(max(nearest, SOON_S), LONGEST_WAIT_S))
            self._wake.clear()


_hearts: dict[int, LeaseRenewer] = {}


def lease_renewer() -> LeaseRenewer:
    """Return the renewer of this process. A forked child needs its own, because threads do not survive a fork."""
    return _hearts.setdefault(os.getpid(), LeaseRenewer())


def may_take_over(top: Link, mirror: str, known: RemoteState) -> bool:
    """Return whether a claim may be taken over.

    The caller holds the lock of the run in its mirror. If the claim is from this mirror and machine, its process is
    therefore gone. Any other claim must have expired.
    """
    return (top.mirror == mirror and top.host == socket.gethostname()) or not known.is_alive
