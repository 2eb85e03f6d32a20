"""Who may make a run of a shared store: the one who created the newest claim, for as long as it gives signs of life.

The claims of a run are a chain of objects, `.claims/00000001.json` and so on, each created only where none was. Their
number is a fencing token. A claim is left by creating the next one: `end` by its holder, `claim` by somebody who takes
over, `gone` by somebody who removed the run. Creating is all that a store has to offer for this, and nothing is ever
replaced. Whoever is overtaken can go on writing below its own token, where nobody looks.

A holder rewrites its pulse. Whether one still beats is told by the server's clock alone, or else by the observer's own:
the clocks of two machines are never compared.
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
"""A claim without a sign of life for so long may be taken over."""
LONGEST_LEASE_S = 30 * 86400.0
"""A claim that names a longer time is refused: nobody could ever take it over."""
RENEWALS_PER_LEASE = 8
"""Signs of life within that time."""
SOON_S, LONGEST_WAIT_S = 0.2, 2.0
LARGEST_CLAIM = 1 << 16
Objects = Mapping[str, ObjectEntry]


def lease_seconds() -> float:
    return min(float(os.environ.get(LEASE_VARIABLE) or LEASE_S), LONGEST_LEASE_S)


@dataclass(frozen=True)
class Link:
    """One object of the chain. `prior`: where the run stood when it was claimed; a token, or `plain`, or nothing.

    An `end` names the claim that it is the end `of`, how the run stands, and whether its files get their plain names.
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
    """The number of the newest claim. Objects with other names than claims have are not claims."""
    return max((number_of(name) or 0 for name in objects if name.startswith(f"{names.claims}/")), default=0)


def parse_link(content: bytes, token: int) -> Link:
    """The claim with this number. Refuses what does not have the form of one."""
    from fairtrial.record.shared_schema import LinkModel

    where = f"claim {token}"
    link = checked(LinkModel, parse_json(content, where=where), where=where)
    if link.token != token:
        raise UntrustedDocument(f"{where} says that it is claim {link.token}", hint=DAMAGED)
    if link.kind != "claim" and not 0 < link.of < token:
        raise UntrustedDocument(f"{where} is the end of claim {link.of}, which does not come before it", hint=DAMAGED)
    return Link(**link.model_dump())


def read_link(remote: Remote, names: SharedPaths, objects: Objects, token: int) -> Link:
    """The same, from the store."""
    name = names.claim(token)
    if name not in objects:
        raise UntrustedDocument(f"claim {token} is missing", hint=DAMAGED)
    refuse_large(names, objects, [name], LARGEST_CLAIM)
    return parse_link(remote.read(name), token)


def refuse_large(names: SharedPaths, objects: Objects, wanted: Iterable[str], most: int) -> None:
    """Refuse objects that are larger than what they should be, before they are read."""
    for name in wanted:
        if name in objects and objects[name].size > most:
            shown = name.removeprefix(f"{names.root}/")
            raise UntrustedDocument(
                f"{shown} has {objects[name].size:,} bytes, more than the {most:,} that it may have", hint=DAMAGED
            )


def read_top(remote: Remote, names: SharedPaths, objects: Objects) -> Link | None:
    token = top_token(names, objects)
    return read_link(remote, names, objects, token) if token else None


PLAIN = "plain"


def where_it_stands(remote: Remote, names: SharedPaths, objects: Objects, top: Link | None) -> str | None:
    """Where the files of the run are: `plain`, or below a token; None where there are none."""
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
    """What this machine now knows about the life of a claim."""
    heartbeat = objects.get(names.heartbeat(top.token)) or objects[names.claim(top.token)]
    tag = f"{top.token} {heartbeat.tag} {heartbeat.modified}"
    if tag == known.pulse:
        return known
    seen, server = time.time(), server_clock() if heartbeat.modified is not None else None
    if server is not None and heartbeat.modified is not None:
        seen -= max(0.0, server - heartbeat.modified)  # its age, by the server's clock alone
    return replace(known, pulse=tag, seen=seen, lease_s=top.lease_s)


class Lease:
    """The claim of this process on a run of a shared store."""

    def __init__(self, remote: Remote, names: SharedPaths, token: int, mirror: str, lease_s: float) -> None:
        self.remote, self.names, self.token = remote, names, token
        self._mirror, self._lease_s = mirror, lease_s
        self._renewed_at = 0.0
        self._renewals = 0
        self.lost = False

    @classmethod
    def take(cls, remote: Remote, names: SharedPaths, mirror: str, *, after: int, prior: str | None) -> Lease | None:
        """Create the next claim; None where somebody else was quicker."""
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
                f"run {self.names.root} was taken over by another machine, because this one could not be heard",
                hint="What was recorded here is kept; the other machine goes on.",
            )

    @property
    def renewal_due(self) -> float:
        return self._renewed_at + self._lease_s / RENEWALS_PER_LEASE

    def renew(self) -> None:
        """Give a sign of life, and see whether somebody has taken over."""
        now = time.monotonic()
        self._renewals += 1
        self.remote.write({self.names.heartbeat(self.token): orjson.dumps({"beat": self._renewals, "at": time.time()})})
        self._renewed_at = now
        self.lost = self.remote.exists(self.names.claim(self.token + 1))

    def end(self, kind: str, *, status: str | None = None, publish: bool = False) -> bool:
        """Leave the claim, and say how the run stands; False where it was lost before."""
        link = Link(
            kind, self.token + 1, socket.gethostname(), os.getpid(), self._mirror, of=self.token, status=status,
            publish=publish, at=time.time(),
        )  # fmt: skip
        if not self.lost and not self.remote.create(self.names.claim(link.token), asdict(link)):
            self.lost = True
        lease_renewer().remove(self)
        return not self.lost


class LeaseRenewer:
    """Gives the signs of life of all leases of this process, with a thread of its own.

    Whoever sends a large file, or waits for one, is busy for minutes: the claim must not be lost meanwhile.
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
                    with contextlib.suppress(Exception):  # whatever it is, the next sign of life is tried soon
                        lease.renew()
            nearest = min(each.renewal_due for each in leases) - time.monotonic()
            self._wake.wait(min(max(nearest, SOON_S), LONGEST_WAIT_S))
            self._wake.clear()


_hearts: dict[int, LeaseRenewer] = {}


def lease_renewer() -> LeaseRenewer:
    """One per process: threads do not survive a fork."""
    return _hearts.setdefault(os.getpid(), LeaseRenewer())


def may_take_over(top: Link, mirror: str, known: RemoteState) -> bool:
    """Whether a claim is no longer held. The caller holds the lock of the run in its mirror, so that a claim of this
    very mirror and machine is one whose process is gone."""
    return (top.mirror == mirror and top.host == socket.gethostname()) or not known.is_alive
