"""Operations on a shared store at a URL: initialize it, pull it, join a run, and push local results.

Each machine works in its mirror, which is a normal store. `Store` calls these functions if it has a URL.
"""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import (
    RESERVED_IN_STUDY,
    STUDY_PLAN,
    RunPaths,
    SharedPaths,
    StorePaths,
    number_of,
    shared_plan,
    shared_plans,
)
from fairtrial.core.private_files import require_own
from fairtrial.core.regular_files import read_regular
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import (
    DAMAGED,
    LARGEST_DOCUMENT_BYTES,
    UntrustedDocument,
    checked,
    collisions,
    parse_json,
    path_inside,
    why_unsafe,
)
from fairtrial.record.atomic import SyncLevel, replace_bytes, store_errors
from fairtrial.record.claims import Claim, ClaimedElsewhere, is_claimed
from fairtrial.record.leases import PLAIN, Lease, Objects, lease_renewer, lease_seconds, may_take_over
from fairtrial.record.metadata import load_metadata
from fairtrial.record.mirror import (
    Chosen,
    Refusals,
    Stand,
    Strict,
    bring,
    everything,
    inspect,
    needed_to_resume,
    nothing,
    set_aside,
)
from fairtrial.record.remote import Remote, Unreachable, open_remote
from fairtrial.record.remote_state import RemoteState, read_remote_state, write_remote_state
from fairtrial.record.upload import RunManifest, RunUpload, publish_run, resumed_upload, start_upload, uploader

if TYPE_CHECKING:
    from fairtrial.record.store import Store

AT_ONCE = 64
"""Number of runs whose files are downloaded in one batch."""
FRESH_S = 2.0
"""Seconds during which `pull_fresh` does not pull again."""
AWAY_S = 30.0
"""Seconds during which `pull_fresh` does not retry a server that did not respond."""
MOST_READS = 5
"""Maximum number of attempts to read a run whose files move each time."""
MOST_NAMED = 1000
"""Maximum number of refused runs to list by name; the rest are only counted."""
CLAIM_PATIENCE_S = 600.0
"""Seconds that a starting job retries a server that does not respond."""
Tell = Callable[[str], None]


# The mirror.


@dataclass(frozen=True)
class Mirror:
    """The store that a folder mirrors. `store` is the id of that store, or None if it is not initialized yet."""

    url: str
    id: str
    store: str | None


def read_mirror(paths: StorePaths) -> Mirror | None:
    from fairtrial.record.shared_schema import MirrorModel

    where = str(paths.mirror)
    try:
        mirror = checked(MirrorModel, parse_json(read_regular(paths.mirror), where=where), where=where)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UntrustedDocument:
        raise StoreError(f"{paths.mirror} is damaged", hint="Remove it; it will be created again.") from None
    return Mirror(mirror.url, mirror.id, mirror.store)


def reach(store: Store, *, writing: bool = False) -> tuple[Remote, Mirror]:
    """Return the remote store and its mirror. Nothing is written locally before the server has responded."""
    assert store.url is not None
    require_own(store.root, "the local copy of the store")
    remote = open_remote(store.url)
    known = read_mirror(store.paths)
    if known and known.store and not writing:
        return remote, known
    mark = remote.begin() if writing else remote.identity()
    if known and known.store not in (None, mark):
        raise StoreError(
            f"{store.root} mirrors a different store that used to be at {store.url}",
            hint=f"Move that folder away or set $FAIRTRIAL_MIRRORS; its runs can be read with --store {store.root}.",
        )
    mirror = Mirror(store.url, known.id if known else uuid.uuid4().hex, mark)
    if mirror != known:
        with store_errors(store.root):
            store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_bytes(store.paths.mirror, orjson.dumps(mirror.__dict__))
    return remote, mirror


# Download.


@dataclass(frozen=True)
class Synced:
    """The result of a synchronization. `left` are runs with local data that the store does not have yet.

    `refused` are runs and plans of the store that were not downloaded, with the reasons.
    """

    runs: int = 0
    received: int = 0
    pushed: int = 0
    left: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: Synced) -> Synced:
        return Synced(
            self.runs + other.runs,
            self.received + other.received,
            self.pushed + other.pushed,
            self.left + other.left,
            self.refused + other.refused,
        )


_pulled: dict[tuple[str, str], float] = {}
_away: dict[str, tuple[float, Unreachable]] = {}


def pull_fresh(store: Store, studies: Sequence[str] = ()) -> None:
    """Pull changes, unless this was done in the last FRESH_S seconds.

    For AWAY_S seconds after a failure, raise the same error without contacting the server. Otherwise, a caller that
    pulls once per run would wait for the timeout once per run.
    """
    key, place = (str(store.root), "\n".join(studies)), str(store.root)
    since, trouble = _away.get(place, (-AWAY_S, None))
    if trouble is not None and time.monotonic() - since < AWAY_S:
        raise trouble
    if time.monotonic() - _pulled.get(key, -FRESH_S) >= FRESH_S:
        try:
            pull(store, studies)
        except Unreachable as error:
            _away[place] = time.monotonic(), error
            raise
        _away.pop(place, None)
        _pulled[key] = time.monotonic()


def pull(
    store: Store, studies: Sequence[str] = (), checkpoints: Chosen = nothing, tell: Tell = lambda _: None
) -> Synced:
    """Download changes of the store, or of some of its studies, into the mirror.

    An invalid run is reported with the reason and does not stop the others.
    """
    remote, _ = reach(store)
    synced = Synced()
    for study in studies or [""]:
        objects = remote.list(study)
        refusals = Refusals()
        wanted = {}
        for names in _runs(store, study, objects):
            with refusals.of(_shown(names)):
                wanted[names] = _run_paths(store, names)
        _refuse_alike(store, wanted, refusals)
        waiting = []
        for stand in inspect(remote, wanted, objects, refusals=refusals):
            with refusals.of(stand.names.root):
                if _is_to_be_brought(store, stand, checkpoints):
                    waiting.append(stand)
        for start in range(0, len(waiting), AT_ONCE):
            some = waiting[start : start + AT_ONCE]
            if len(waiting) > AT_ONCE:
                tell(f"Downloading runs {start + 1} to {start + len(some)} of {len(waiting)} …")
            received = _bring_all(remote, some, checkpoints, refusals)
            synced += Synced(sum(stand.names.root not in refusals.why for stand in some), received)
        for each in sorted({name.partition("/")[0] for name in objects if "/" in name}):
            with refusals.of(f"the plan of {each if why_unsafe(each) is None else repr(each)}"):
                _bring_plan(store, remote, each, objects)
        synced += Synced(refused=tuple(sorted(refusals.why.items())))
    _tell_refused(remote, synced.refused)
    return synced


_reported: set[tuple[str, str, str]] = set()


def _tell_refused(remote: Remote, refused: Sequence[tuple[str, str]]) -> None:
    """Print what was refused, once per process. Commands that read this store continue without it."""
    new = [each for each in refused if (remote.url, *each) not in _reported]
    _reported.update((remote.url, *each) for each in new)
    lines = [f"Refused {name} of {remote.url}: {why}\n" for name, why in new[:MOST_NAMED]]
    if len(new) > MOST_NAMED:
        lines.append(f"Refused {len(new) - MOST_NAMED:,} more.\n")
    if lines:
        lines.append("Refused items were not written to this machine. Check who has write access to this store.\n")
        sys.stderr.write("".join(lines))


def _run_paths(store: Store, names: SharedPaths) -> RunPaths:
    """Return the paths of a run in the mirror. The names of the study and the run are untrusted."""
    study = path_inside(store.root, names.study, what="study")
    paths = RunPaths(path_inside(study, names.run, what="run", reserved=RESERVED_IN_STUDY))
    for own in (paths.lock, paths.taking_over, paths.remote_state):  # opened before any other file of the run
        path_inside(paths.root, own.name, what="run")
    return paths


def _shown(names: SharedPaths) -> str:
    """Return the name of a run for display, escaped if it is unsafe."""
    return names.root if why_unsafe(names.root) is None else repr(names.root)


def _refuse_alike(store: Store, wanted: dict[SharedPaths, RunPaths], refusals: Refusals) -> None:
    """Refuse runs whose names differ only in case if the file system ignores case. The run downloaded earlier stays."""
    upper = store.paths.mirror.with_name(store.paths.mirror.name.upper())
    if not upper.exists():
        return
    ordered = sorted(wanted, key=lambda names: (not wanted[names].remote_state.exists(), names.root))
    clashing = set(collisions(names.root for names in ordered))
    for names in [names for names in wanted if names.root in clashing]:
        refusals.note(names.root, "the name of another run differs only in case, which this file system ignores")
        del wanted[names]


def _bring_all(remote: Remote, stands: Sequence[Stand], checkpoints: Chosen, refusals: Refusals) -> int:
    """Download runs, and retry those that ended in the meantime, because their files then have different names."""
    size = 0
    for _ in range(MOST_READS):
        brought = bring(remote, stands, checkpoints, refusals=refusals)
        size += brought.size
        stands = [again for stand in brought.moved for again in _inspect(remote, stand.names, stand.paths, refusals)]
        if not stands:
            return size
    for stand in stands:
        if stand.top and not stand.top.is_claim:
            refusals.incomplete(stand.names, _incomplete(remote, stand.names))
    return size


def _incomplete(remote: Remote, names: SharedPaths) -> StoreError:
    return StoreError(
        f"{names.root} is incomplete in {remote.url}",
        hint="Run 'fairtrial runs sync' on the machine that executed it, or execute it again with --replace.",
    )


def _runs(store: Store, study: str, objects: Iterable[str]) -> set[SharedPaths]:
    """Return all runs in the store or in the mirror."""
    there = {tuple(name.split("/", 2)[:2]) for name in objects if name.count("/") > 1}
    here = {(name, entry.name) for name, entry in store.directories(study or None)}
    return {SharedPaths(*pair) for pair in there | here if not any(map(_is_hidden, pair))}


def _is_hidden(part: str) -> bool:
    """Return whether a name belongs to a hidden folder of Fairtrial or another program, not to a run."""
    return part.startswith(".") and why_unsafe(part) is None


def _is_to_be_brought(store: Store, stand: Stand, checkpoints: Chosen) -> bool:
    """Return whether a run has changed in the store. If it was taken over or removed there, archive the local copy."""
    if is_claimed(stand.paths):
        return False
    if stand.remote_state.is_ahead and not stand.is_overtaken:
        return False
    known = stand.before
    vanished = stand.source is None and known is not None and stand.paths.metadata.exists()
    unknown = (
        known is None and stand.paths.remote_state.exists() and stand.paths.metadata.exists()
    )  # the recorded state is damaged
    if stand.is_overtaken or vanished or unknown:
        _set_aside(store, stand)
    if stand.source is None:
        return False
    if known is None or stand.source != PLAIN or known.source != PLAIN or known.is_ahead:
        return True
    if any(map(checkpoints, known.absent)):
        return True
    tags = {name.removeprefix(f"{stand.names.root}/"): entry.tag for name, entry in stand.objects.items()}
    plain = {name: tag for name, tag in tags.items() if not name.startswith(".")}
    return any(known.tags.get(name) != tag for name, tag in plain.items() if name not in known.absent)


def _set_aside(store: Store, stand: Stand) -> None:
    try:
        claim = Claim(stand.paths)
    except ClaimedElsewhere:
        return
    set_aside(stand.paths, store.paths.archive(stand.names.study))
    claim.release()
    stand.remote_state = RemoteState(
        pulse=stand.remote_state.pulse, seen=stand.remote_state.seen, lease_s=stand.remote_state.lease_s
    )
    stand.before = None


def fetch(store: Store, study: str, run: str, checkpoints: Chosen = everything) -> None:
    """Download a run with the chosen checkpoints, unless they are already in the mirror."""
    names = SharedPaths(study, run)
    paths = _run_paths(store, names)
    known = read_remote_state(paths)
    is_here = known and not any(map(checkpoints, known.absent)) and (known.mine or known.source == PLAIN)
    if is_here or (known and known.is_ahead):
        return
    remote, _ = reach(store)
    _bring_all(remote, _inspect(remote, names, paths), checkpoints, Strict())


def _inspect(remote: Remote, names: SharedPaths, paths: RunPaths, refusals: Refusals | None = None) -> list[Stand]:
    """Return the current state of one run. Without `refusals`, its problems are raised as errors."""
    return inspect(remote, {names: paths}, remote.list(names.root), closely=True, refusals=refusals or Strict())


# Executing a run.


def join(store: Store, paths: RunPaths, should_stop: Callable[[], bool] = lambda: False) -> RunUpload | None:
    """Claim a run in the store and download its files. Return None if it already has a result.

    The caller holds the local directory of the run. Raises ClaimedElsewhere if another machine is executing it. Retries
    for CLAIM_PATIENCE_S if the server does not respond.
    """
    deadline, pause, reads = time.monotonic() + CLAIM_PATIENCE_S, 0.5, 0
    while True:
        try:
            return _join(store, paths)
        except Unreachable:
            if time.monotonic() > deadline or should_stop():
                raise
            time.sleep(pause)
            pause = min(2 * pause, 10.0)
        except FileNotFoundError:  # the run ended meanwhile, and its files moved to their plain names
            reads += 1
            if reads == MOST_READS:
                remote, _ = reach(store)
                raise _incomplete(remote, SharedPaths(paths.root.parent.name, paths.root.name)) from None
            time.sleep(pause)


def _join(store: Store, paths: RunPaths) -> RunUpload | None:
    remote, mirror = reach(store, writing=read_mirror(store.paths) is None)
    names = SharedPaths(paths.root.parent.name, paths.root.name)
    [stand] = _inspect(remote, names, paths)
    if stand.top and stand.top.is_claim and not may_take_over(stand.top, mirror.id, stand.remote_state):
        write_remote_state(paths, stand.remote_state)
        raise ClaimedElsewhere(f"{store.url}/{names.root}")
    if stand.is_overtaken:
        set_aside(paths, store.paths.archive(names.study))
        stand.remote_state, stand.before = RemoteState(), None
    has_ended = stand.top is None or not stand.top.is_claim
    if stand.remote_state.is_ahead:
        if _is_result(paths) or has_ended:
            _push_run(remote, mirror, stand)
            return None if _is_result(paths) else _join(store, paths)
    elif has_ended and stand.source:
        if bring(remote, [stand], held=True, refusals=Strict()).moved:
            raise FileNotFoundError(names.root)  # its files moved while they were read: retry
        if stand.top and stand.top.publish and stand.source != PLAIN:  # publishing must finish before a new claim
            _push_run(remote, mirror, replace(stand, remote_state=read_remote_state(paths) or RemoteState()))
            return _join(store, paths)
        if _is_result(paths):
            return None
    lease = Lease.take(remote, names, mirror.id, after=stand.top.token if stand.top else 0, prior=stand.source)
    if lease is None:
        raise ClaimedElsewhere(f"{store.url}/{names.root}")
    if stand.source and not stand.remote_state.is_ahead:
        try:
            _bring_to_resume(remote, stand)
        except BaseException:
            lease_renewer().remove(lease)  # let the unused lease expire, so that others can take over
            raise
    return start_upload(lease, paths, stand.manifest)


def _bring_to_resume(remote: Remote, stand: Stand) -> None:
    """Download what the previous holder wrote. It may still be running and write while this process reads."""
    for _ in range(MOST_READS):
        [now] = _inspect(remote, stand.names, stand.paths)
        stand.objects, stand.remote_state = now.objects, read_remote_state(stand.paths) or RemoteState()
        chosen: Chosen = everything  # plain files exist nowhere else and will be replaced
        if stand.source != PLAIN:
            manifest = RunManifest.read(remote, stand.names, stand.objects, int(stand.source or 0))
            chosen = needed_to_resume(manifest.files)
        if not bring(remote, [stand], chosen, held=True, refusals=Strict()).moved:
            return
    raise _incomplete(remote, stand.names)


def _is_result(paths: RunPaths) -> bool:
    metadata = load_metadata(paths)
    return metadata is not None and Status(metadata.status).is_result


def leave(store: Store, upload: RunUpload) -> str | None:
    """Finish the upload of a run. Return a message for the user if it is incomplete, else None."""
    try:
        if uploader().finish(upload):
            return _left_behind(upload)
    finally:
        lease_renewer().remove(upload.lease)
    if upload.lease.lost:
        return f"{upload.names.root} was taken over by another machine; the local recording was set aside."
    why = f" ({upload.trouble.message})" if upload.trouble else ""
    return (
        f"{upload.names.root} is recorded on this machine but not yet complete in {store.url}{why}. "
        f"Push it with: fairtrial runs sync --store {store.url}"
    )


def _left_behind(upload: RunUpload) -> str | None:
    """Return a message about files whose names other machines would refuse, or None."""
    if not upload.unnameable:
        return None
    names = ", ".join(map(repr, upload.unnameable[:5]))
    return f"{upload.names.root}: files were not uploaded, because other machines would refuse their names: {names}"


# Upload.


def push(store: Store, studies: Sequence[str] = (), tell: Tell = lambda _: None) -> Synced:
    """Upload runs of this machine whose process was killed or could not reach the store.

    Also publish ended runs under their plain names if a process was killed before it did so.
    """
    remote, mirror = reach(store)
    done = Synced()
    for study in studies or store.studies():
        for entry in [entry for _, entry in store.directories(study)]:
            paths = store.paths.run(study, entry.name)
            known = read_remote_state(paths)
            if known is None or (not known.is_ahead and known.source in (PLAIN, "")):
                continue
            try:
                claim = Claim(paths)
            except ClaimedElsewhere:
                continue
            try:
                [stand] = _inspect(remote, SharedPaths(study, entry.name), paths)
                if known.is_ahead:
                    tell(f"Pushing {stand.names.root} …")
                with contextlib.suppress(FileNotFoundError):  # another machine completed it first
                    done += _push_run(remote, mirror, stand)
            finally:
                claim.release()
    return done


def left_here(store: Store, studies: Sequence[str] = ()) -> list[str]:
    """Return runs with local data that the store does not have, excluding those in progress."""
    left = []
    for name in studies or store.studies():
        for study, entry in store.directories(name):
            paths = store.paths.run(study, entry.name)
            known = read_remote_state(paths)
            if known and known.is_ahead and paths.metadata.exists() and not is_claimed(paths):
                left.append(f"{study}/{entry.name}")
    return left


def _push_run(remote: Remote, mirror: Mirror, stand: Stand) -> Synced:
    """Complete the upload of a run that its process did not finish. The caller holds its directory."""
    known, top = stand.remote_state, stand.top
    if top and not top.is_claim and top.publish and stand.source not in (PLAIN, None):
        manifest = RunManifest.read(remote, stand.names, stand.objects, int(stand.source or 0))
        tags = publish_run(remote, stand.names, manifest, stand.paths)
        write_remote_state(
            stand.paths, replace(known, source=PLAIN, tags=tags, closed=known.mine, pulse="", lease_s=0.0)
        )
        return Synced(pushed=1)
    if not known.is_ahead or stand.is_overtaken:
        return Synced()
    if top and not top.is_claim and top.of == known.token:  # killed after ending its claim, before recording that
        source = PLAIN if top.publish else str(known.token)
        write_remote_state(stand.paths, replace(known, source=source, closed=True))
        return Synced()
    lease = Lease(remote, stand.names, known.token, mirror.id, lease_seconds())
    upload = resumed_upload(lease, stand.paths, known.absent, _sent_before(remote, stand, known.token))
    lease_renewer().add(lease)
    try:
        upload.close()
    finally:
        lease_renewer().remove(lease)
    return Synced(pushed=int(upload.arrived))


def _sent_before(remote: Remote, stand: Stand, token: int) -> RunManifest | None:
    """Return the manifest of what a claim has uploaded, or None if there is none."""
    if stand.names.manifest(token) not in stand.objects:
        return None
    return RunManifest.read(remote, stand.names, stand.objects, token)


def push_file(store: Store, study: str, run: str, name: str) -> None:
    """Upload the current content of a file of an ended run that grew locally."""
    remote, _ = reach(store)
    names = SharedPaths(study, run)
    paths = _run_paths(store, names)
    known = read_remote_state(paths)
    if known is None or known.source != PLAIN:
        return
    remote.upload(path_inside(paths.root, name, what=names.root), names.plain(name))
    entry = remote.list(names.root).get(names.plain(name))
    write_remote_state(paths, replace(known, tags={**known.tags, name: entry.tag if entry else ""}))


# Plans and removal of runs.


def _bring_plan(store: Store, remote: Remote, study: str, objects: Objects) -> None:
    if _is_hidden(study):
        return
    number = _newest_plan(study, objects)
    name = shared_plan(study, number) if number else f"{study}/{STUDY_PLAN}"
    if name not in objects:
        return
    path = path_inside(path_inside(store.root, study, what="study"), STUDY_PLAN, what="plan")
    if objects[name].size > LARGEST_DOCUMENT_BYTES:
        raise UntrustedDocument(f"its size of {objects[name].size:,} bytes is too large", hint=DAMAGED)
    content = remote.read(name)
    if number:
        plan = _parse_plan(content, study)
        content = orjson.dumps(plan, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    else:
        _check_plan(parse_json(content, where="it"), study)
    if not path.exists() or read_regular(path) != content:
        with store_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, content, sync=SyncLevel.FILE)


def _newest_plan(study: str, objects: Iterable[str]) -> int:
    """Return the number of the newest plan, or 0 if there is none. Objects with other names are ignored."""
    return max((number_of(name) or 0 for name in objects if name.startswith(f"{shared_plans(study)}/")), default=0)


def _parse_plan(content: bytes, study: str) -> dict[str, Any]:
    from fairtrial.record.shared_schema import PlanObjectModel

    return _check_plan(checked(PlanObjectModel, parse_json(content, where="it"), where="it").plan, study)


def _check_plan(plan: Any, study: str) -> dict[str, Any]:
    """Return a plan unchanged after checking the types of the fields that other code uses."""
    from fairtrial.record.shared_schema import SharedPlanModel

    shared_plan = checked(SharedPlanModel, plan, where="it")
    if shared_plan.study not in (None, study):
        raise UntrustedDocument(f"it is the plan of the study {shared_plan.study!r}", hint=DAMAGED)
    return dict(plan)


def share_plan(store: Store, study: str, merge: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Publish a plan as the newest of its study. `merge` combines it with the newest plan in the store."""
    remote, _ = reach(store)
    while True:
        number = _newest_plan(study, remote.list(shared_plans(study)))
        newest = _parse_plan(remote.read(shared_plan(study, number)), study) if number else {}
        plan = merge(newest)
        if plan == newest:
            return
        if remote.create(shared_plan(study, number + 1), {"plan": plan}):
            path = store.paths.study_plan(study)
            remote.write({f"{study}/{path.name}": read_regular(path)})
            return


def remove(store: Store, paths: RunPaths, archive: str | None = None) -> None:
    """Remove or archive a run in the store. The caller holds the local directory.

    Raises ClaimedElsewhere if another machine is executing the run.
    """
    remote, mirror = reach(store)
    names = SharedPaths(paths.root.parent.name, paths.root.name)
    [stand] = _inspect(remote, names, paths)
    if stand.top is None and not stand.objects:
        return
    if stand.top and stand.top.is_claim and not may_take_over(stand.top, mirror.id, stand.remote_state):
        raise ClaimedElsewhere(f"{store.url}/{names.root}")
    lease = Lease.take(remote, names, mirror.id, after=stand.top.token if stand.top else 0, prior=stand.source)
    if lease is None:
        raise ClaimedElsewhere(f"{store.url}/{names.root}")
    doomed = [name for name in stand.objects if not name.startswith(f"{names.claims}/")]
    if archive:
        skip = len(names.root) + 1
        kept = [(name, f"{names.study}/{archive}/{name[skip:]}") for name in doomed if not name[skip:].startswith(".")]
        remote.copy(kept)
    remote.delete(doomed)
    lease.end("gone")
