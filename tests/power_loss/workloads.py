"""One piece of work for each file format, what it tells somebody is done, and what must hold after a power cut.

A check raises AssertionError where something that was told is gone or something loads wrong. It then goes on with the
work as a person would, by the same commands, and compares the outcome with that of work that was left alone.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairtrial.core.canonical import file_hash
from fairtrial.core.errors import FairtrialError
from fairtrial.core.paths import ProjectPaths, RunPaths, SharedPaths
from fairtrial.core.runs import Status
from fairtrial.core.specs import RunSpec
from fairtrial.record.cache import StoreCache
from fairtrial.record.checkpoints import read_checkpoint
from fairtrial.record.claims import Claim, token_of
from fairtrial.record.index import list_rows
from fairtrial.record.interim_looks import read_interim_looks, record_interim_look
from fairtrial.record.metadata import load_run, new_metadata
from fairtrial.record.mirror import Stand, Strict, bring, everything
from fairtrial.record.recorder import Recorder
from fairtrial.record.remote import ObjectEntry
from fairtrial.record.remote_state import RemoteState, read_remote_state, write_remote_state
from fairtrial.record.series import read_lines, read_series
from fairtrial.record.store import Store
from fairtrial.record.studies import load_plan, save_plan
from fairtrial.record.study_cache import read_study
from fairtrial.record.top_checkpoints import list_top_checkpoints
from fairtrial.record.upload import RunManifest
from tests.power_loss.recording import Recording
from tests.power_loss.states import State, crash_states

Tell = Callable[..., None]
Told = Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Workload:
    """`prepare` makes what is on the disk already, `work` is recorded, `check` is done for every crash state."""

    work: Callable[[Path, Tell], None]
    check: Callable[[Path, Told], None]
    prepare: Callable[[Path], None] = lambda _: None


@dataclass
class Tally:
    """What a campaign over one format found."""

    states: int = 0
    told: int = 0
    wrong: list[str] = field(default_factory=list)


@functools.cache
def recorded(name: str) -> Recording:
    """The operations of a workload; its folder is gone by then."""
    with scratch() as root:
        WORKLOADS[name].prepare(root)
        recording = Recording(root)
        with recording.active():
            WORKLOADS[name].work(root, recording.tell)
        return recording


def campaign(name: str, *, samples: int, stride: int = 1, seed: int = 1, most_wrong: int = 1000) -> Tally:
    """Make crash states of a workload real, one after the other, and check each."""
    tally = Tally()
    for state in crash_states(recorded(name), samples=samples, seed=seed, stride=stride):
        if len(tally.wrong) >= most_wrong:
            break
        tally.states += 1
        tally.told += bool(state.told)
        why = violation(name, state)
        if why is not None:
            tally.wrong.append(f"{name}, after operation {state.cut} ({state.how}): {why}")
    return tally


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one, on a disk that nobody waits for: the cut has been, and the next is none."""
    sync = os.fsync
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="power-", dir=memory) as folder:
        os.fsync = lambda descriptor: None  # type: ignore[assignment]
        try:
            yield Path(folder)
        finally:
            os.fsync = sync


def violation(name: str, state: State) -> str | None:
    """What a crash state breaks, or None."""
    with scratch() as root:
        state.write(root)
        try:
            WORKLOADS[name].check(root, state.told)
        except AssertionError as error:
            return str(error).split("\n")[0] or "assertion failed"
        except (FairtrialError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"
    return None


def last_of(told: Told, kind: str) -> Any:
    return next((what[1] for what in reversed(told) if what[0] == kind), None)


# A run: metrics, events, metadata, all kinds of checkpoints, locks.

STEPS = 11
SPEC = RunSpec(recipe="fake", options={"keep_best": 2}, identity={"a": 1}, seed=1, study="s", variant="v")


def run_paths(root: Path) -> RunPaths:
    return Store(root / "store").paths.run("s", "v.seed1")


def begun(paths: RunPaths, seed: int = 1, *, over: int | None = None) -> Recorder:
    metadata = new_metadata(replace(SPEC, seed=seed), {}, synthetic=True)
    metadata.update(metric="accuracy", direction="max", best_metric_name="accuracy", best_metric_mode="max")
    return Recorder.create(paths, metadata, Claim(paths, takeover_token=over))


def accuracy(step: int) -> float:
    return {3: 0.5, 5: 0.4, 6: 0.7, 9: 0.6}.get(step, 0.01 * step)


def train(recorder: Recorder, tell: Tell, *, until: int = STEPS, save_last: bool = True) -> None:
    saved = recorder.resume()
    if saved is not None:
        tell("resumed", saved.step)
    step, weight = (saved.step, saved.state["weight"]) if saved else (0, [0.0] * 60)
    while step < until:
        step += 1
        weight = [w / 3 + 1 / (step + at) for at, w in enumerate(weight)]
        recorder.log(step, loss=sum(weight), other=weight[0])
        if step % 3 == 0 and recorder.evaluated(step, {"accuracy": accuracy(step)}, {"weight": weight}):
            tell("best", step)
        if step % 2 == 0 and (save_last or step < until):
            recorder.save(step, {"weight": weight})
            tell("saved", step)


def make_run(root: Path, tell: Tell) -> None:
    """An attempt that is cut short, and one that goes on from its checkpoint to the end."""
    Store(root / "store").check_writable()
    recorder = begun(run_paths(root))
    tell("begun", token_of(recorder.paths))
    train(recorder, tell, until=5)
    recorder.release()
    finish_run(root, tell)


def return_to_best(root: Path, tell: Tell) -> None:
    """The first attempt has a new best after its last checkpoint; the second one goes back to the best before."""
    Store(root / "store").check_writable()
    recorder = begun(run_paths(root))
    train(recorder, tell, until=6, save_last=False)
    recorder.release()
    finish_run(root, tell)


def run_with_copies(root: Path, tell: Tell) -> None:
    """The same on a file system without hard links."""
    link, os.link = os.link, _no_links
    try:
        make_run(root, tell)
    finally:
        os.link = link


def _no_links(*_: Any, **__: Any) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def finish_run(root: Path, tell: Tell = lambda *_: None, *, over: int | None = None) -> None:
    paths = run_paths(root)
    run = load_run(paths)
    if run is not None and run.status is Status.COMPLETED:
        return
    recorder = begun(paths, over=over)
    tell("begun", token_of(paths))
    train(recorder, tell)
    recorder.finish(Status.COMPLETED)
    tell("ended", True)


def outcome_of(root: Path) -> tuple[Any, ...]:
    """All that a run says when it is over, except for times."""
    run = load_run(run_paths(root))
    assert run is not None and run.status is Status.COMPLETED, "the run is not completed"
    metadata, paths = run.metadata, run.paths
    series = {name: [(int(s), float(v).hex()) for s, v in zip(*found, strict=True)]
              for name, found in read_series(paths).items()}  # fmt: skip
    best = read_checkpoint(paths.best, sha256=metadata["best_checkpoint_sha256"])
    top = [
        (kept.step, read_checkpoint(kept.path, sha256=kept.sha256).state) for kept in list_top_checkpoints(paths, "max")
    ]
    last = read_checkpoint(paths.last)
    return series, metadata["final"], best.step, dict(best.state), metadata["best_metric_value"], top, last.step


@functools.cache
def undisturbed() -> tuple[Any, ...]:
    with scratch() as root:
        finish_run(root)
        return outcome_of(root)


def check_run(root: Path, told: Told) -> None:
    paths = run_paths(root)
    run = load_run(paths)
    resumed = max((at for at, what in enumerate(told) if what[0] == "begun"), default=0)
    saved, best = last_of(told, "saved"), last_of(told[resumed:], "best")
    if run is not None and run.status is Status.COMPLETED:
        assert outcome_of(root) == undisturbed(), "the run says it is completed, with other results"
    assert not last_of(told, "ended") or (run is not None and run.status is Status.COMPLETED), "the end is lost"
    if last_of(told, "ended"):
        assert read_lines(paths.events).rows[-1]["event"] == "run_ended", "the last event is lost"
    assert run is not None or last_of(told, "begun") is None, "the run is lost"
    if run is not None and (found := run.metadata["best_checkpoint_step"]) is not None:
        kept = read_checkpoint(paths.best, sha256=run.metadata["best_checkpoint_sha256"])
        assert kept.step == found, "best.pt is not the one that the metadata name"
    assert best is None or (run is not None and (run.metadata["best_checkpoint_step"] or 0) >= best), "the best is lost"
    notes: list[tuple[Any, ...]] = []
    finish_run(root, lambda *what: notes.append(what))
    if notes:
        token = last_of(told, "begun")
        assert token is None or notes[0][1] > token, "a token was given twice"
        assert saved is None or last_of(notes[:2], "resumed") is not None, "no checkpoint is left"
        assert saved is None or last_of(notes[:2], "resumed") >= saved, "the newest checkpoint is lost"
    assert outcome_of(root) == undisturbed(), "the resumed run has other results"


def take_over(root: Path, tell: Tell) -> None:
    """A machine that is taken for dead has a checkpoint; another one takes its run over and goes on."""
    Store(root / "store").check_writable()
    frozen = begun(run_paths(root))
    tell("begun", token_of(frozen.paths))
    train(frozen, tell, until=5)
    finish_run(root, tell, over=token_of(frozen.paths))
    frozen._claim.let_go()  # type: ignore[union-attr]


def archive_and_repeat(root: Path, tell: Tell) -> None:
    """A run is archived, and another one takes its name."""
    store = Store(root / "store")
    store.archive(run_paths(root))
    tell("archived", True)
    finish_run(root, tell)


def check_archive(root: Path, told: Told) -> None:
    archived = list((root / "store" / "s" / ".archive").glob("v.seed1.*"))
    here = load_run(run_paths(root))
    found = [load_run(RunPaths(path)) for path in archived]
    whole = [run for run in found if run is not None and run.status is Status.COMPLETED]
    if last_of(told, "archived"):
        assert whole, "the archived run is lost"
    else:
        assert whole or (here is not None and here.status is Status.COMPLETED), "the run is in neither place"
    check_run(root, [what for what in told if what[0] != "archived"])


# The cache.

KEY = {"name": "numbers"}


def make_entry(folder: Path) -> dict[str, Any]:
    (folder / "inner").mkdir()
    (folder / "inner" / "x.bin").write_bytes(bytes(range(256)) * 40)
    (folder / "y.bin").write_bytes(b"label" * 200)
    return {"sha256": "of the values"}


def fill_cache(root: Path, tell: Tell) -> None:
    StoreCache(root / ".cache", _quiet).entry("data", KEY, make_entry)
    tell("cached", True)


def check_cache(root: Path, told: Told) -> None:
    from fairtrial.record.cache import damaged_entries

    makings: list[int] = []

    def counted(folder: Path) -> dict[str, Any]:
        makings.append(1)
        return make_entry(folder)

    entry = StoreCache(root / ".cache", _quiet).entry("data", KEY, counted, _is_whole)
    assert _is_whole(entry.folder, entry.manifest), "the entry has other content"
    assert not (last_of(told, "cached") and makings), "the entry is lost"
    assert all(not damage.remade for damage in damaged_entries(root / ".cache")), "damage is left"


def _is_whole(folder: Path, _manifest: Any) -> bool:
    expected = {"inner/x.bin": bytes(range(256)) * 40, "y.bin": b"label" * 200}
    return all((folder / n).is_file() and (folder / n).read_bytes() == content for n, content in expected.items())


def earlier_cache(root: Path) -> None:
    """An entry as earlier versions made it."""
    import orjson

    entry = StoreCache(root / ".cache", _quiet).entry("data", KEY, make_entry)
    manifest = {name: value for name, value in entry.manifest.items() if name in ("sha256", "key")}
    (entry.folder / "manifest.json").write_bytes(orjson.dumps(manifest))


def upgrade_cache(root: Path, tell: Tell) -> None:
    StoreCache(root / ".cache", _quiet).entry("data", KEY, make_entry, _is_whole)
    tell("cached", True)


def damaged_cache(root: Path) -> None:
    entry = StoreCache(root / ".cache", _quiet).entry("data", KEY, make_entry)
    (entry.folder / "y.bin").write_bytes(bytes(1000))


def check_replaced_cache(root: Path, told: Told) -> None:
    check_cache(root, told)
    kept = list((root / ".cache" / "data").glob("*.damaged-*/y.bin"))
    assert kept or not last_of(told, "cached"), "what was set aside is lost"


def _quiet(_line: str) -> None:
    pass


# The index, and the series of a study.


def made_runs(root: Path) -> None:
    for seed in (1, 2):
        _ended_run(root, seed)


def _ended_run(root: Path, seed: int) -> None:
    paths = Store(root / "store").paths.run("s", f"v.seed{seed}")
    if (run := load_run(paths)) is not None and run.status is Status.COMPLETED:
        return
    recorder = begun(paths, seed)
    recorder.resume()
    for step in range(1, 40):
        recorder.log(step, loss=seed / step)
    recorder.finish(Status.COMPLETED)


def list_and_add(root: Path, tell: Tell) -> None:
    store = Store(root / "store")
    for seed in (2, 3, 4):
        _ended_run(root, seed)
        tell("ended", seed)
        list_rows(store)
        read_study(store, "s")


def check_lists(root: Path, told: Told) -> None:
    store = Store(root / "store")
    ended = last_of(told, "ended") or 2
    rows = {row["run"]: row for row in list_rows(store) if row["status"] == "completed"}
    assert rows.keys() >= {f"v.seed{seed}" for seed in range(1, ended + 1)}, "an ended run is not listed"
    assert all(row["final"]["loss"] == int(name[6:]) / 39 for name, row in rows.items()), "a row is wrong"
    damaged = {found.run.path.name for found in read_study(store, "s") if found.run.status is Status.DAMAGED}
    assert not damaged & rows.keys(), "an ended run is damaged"
    if damaged:  # a run that was cut short says why it cannot be read, and is gone on with
        for seed in (1, 2, 3, 4):
            _ended_run(root, seed)
    studied = {found.run.path.name: found for found in read_study(store, "s")}
    truth = {name: load_run(store.paths.run("s", name)) for name in studied}
    for name, found in studied.items():
        assert found.run.status == truth[name].status, f"{name} is read with another status"  # type: ignore[union-attr]
        if found.run.status is Status.COMPLETED:
            values = list(map(float, found.series["loss"][1]))
            assert values == [int(name[6:]) / step for step in range(1, 40)], f"the series of {name} is wrong"
    assert studied.keys() >= rows.keys(), "a run is missing in its study"


# Plans and looks.


def plan_and_look(root: Path, tell: Tell) -> None:
    store = Store(root / "store")
    for count in (1, 2, 3):
        save_plan(store, {"study": "s", "seeds": [count], "variants": {f"v{count}": {}}})
        tell("planned", count)
        record_interim_look(store, "s", metric="loss", seeds={"a": list(map(str, range(count)))})
        tell("looked", count)


def check_plans(root: Path, told: Told) -> None:
    store = Store(root / "store")
    plan = load_plan(store, "s") or {"seeds": []}
    planned = last_of(told, "planned") or 0
    assert plan["seeds"][:planned] == list(range(1, planned + 1)), "a plan is lost"
    assert len(plan["seeds"]) <= planned + 1, "a plan has seeds that nobody planned"
    looks, looked = [row["n"] for row in read_interim_looks(store, "s")], last_of(told, "looked") or 0
    assert looks[:looked] == list(range(1, looked + 1)), "a look is lost"
    save_plan(store, {"study": "s", "seeds": [9], "variants": {}})
    assert record_interim_look(store, "s", metric="loss", seeds={"a": list(map(str, range(9)))})
    assert [row["n"] for row in read_interim_looks(store, "s")][-1] == 9, "a look was not written"


# Registrations and their ledger, the journal of a project, the key.


def register_twice(root: Path, tell: Tell) -> None:
    from fairtrial.research.command_log import note_file
    from fairtrial.research.keys import load_signer
    from fairtrial.research.register import register

    project, signer = ProjectPaths(root / "project"), load_signer(root / "home" / "keys" / "key.pem")
    first = register(project, _text_plan(), signer, anchor="file")
    tell("registered", (first.registration.sha256, signer.public))
    note_file(project, "first.txt", "0" * 64)
    tell("noted", 1)
    second = register(project, _text_plan(amends=first.registration.sha256), signer, anchor=None)
    tell("registered", (second.registration.sha256, signer.public))
    note_file(project, "second.txt", "0" * 64)
    tell("noted", 2)


def check_registrations(root: Path, told: Told) -> None:
    from fairtrial.research.command_log import added_files, note_file, read_command_log
    from fairtrial.research.keys import load_signer
    from fairtrial.research.ledger import read_ledger
    from fairtrial.research.register import register
    from fairtrial.research.registration import read_registration

    (root / "project").mkdir(exist_ok=True)
    project = ProjectPaths(root / "project")
    signer = load_signer(root / "home" / "keys" / "key.pem")
    for kind, what in told:
        if kind == "registered":
            assert signer.public == what[1], "the signing key is lost"
    later = register(project, _text_plan(hypothesis="Later."), signer, anchor=None)
    ledger = read_ledger(project.registrations)
    assert not ledger.problems, f"the ledger is damaged: {ledger.problems}"
    listed = [entry.registration for entry in ledger.plans()]
    for sha256 in [*(what[0] for kind, what in told if kind == "registered"), later.registration.sha256, *listed]:
        assert sha256 in listed, "a registration is not in the ledger"
        assert read_registration(project.registrations.registration(sha256)).sha256 == sha256
    anchored = [e for e in ledger.entries if not e.is_plan]
    assert all(project.registrations.anchor(e.registration).read_text().split()[-1] == e.registration for e in anchored)
    note_file(project, "later.txt", "1" * 64)
    files = added_files(read_command_log(project.command_log))
    expected = {"later.txt", *["first.txt", "second.txt"][: last_of(told, "noted") or 0]}
    assert files.keys() >= expected, "a line of the journal is lost"


def project_folder(root: Path) -> None:
    (root / "project").mkdir()
    (root / "home").mkdir()


def _text_plan(**changed: Any) -> dict[str, Any]:
    code: dict[str, Any] = {"git_commit": None, "git_dirty": None, "git_dirty_hash": None, "versions": {}}
    plan: dict[str, Any] = {
        "amends": None, "analysis": None, "artifact": {"id": "tea", "sha256": "0" * 64}, "basis": "text only",
        "code": code, "command": None, "exclusions": [], "hypothesis": "Milk first.", "late": [],
        "methods": "Eight cups.", "seeds": None, "stopping_rule": "fixed", "study": None,
    }  # fmt: skip
    return {**plan, **changed}


# The mirror of a shared store.


class Server:
    """The part of a remote store that bringing a run needs, in memory."""

    url = "memory://lab"

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects

    def read(self, name: str) -> bytes:
        return self.objects[name]

    def list(self) -> dict[str, ObjectEntry]:
        return {name: ObjectEntry(len(data), f"tag-{hash(data)}", None) for name, data in self.objects.items()}

    def read_many(self, names: Any) -> dict[str, bytes]:
        return {name: self.objects[name] for name in names if name in self.objects}

    def download(self, name: str, path: Path) -> None:
        path.write_bytes(self.objects[name])


@functools.cache
def shared_run(until: int) -> dict[str, bytes]:
    """The objects of a run that another machine has made, and of an earlier state of it."""
    with scratch() as root:
        recorder = begun(run_paths(root))
        train(recorder, lambda *_: None, until=until)
        recorder.finish(Status.COMPLETED if until == STEPS else Status.INTERRUPTED)
        run = run_paths(root).root
        return {
            f"s/v.seed1/{path.relative_to(run).as_posix()}": path.read_bytes()
            for path in sorted(run.rglob("*")) if path.is_file() and not path.name.startswith(".")
        }  # fmt: skip


TOKEN = 3
NAMES = SharedPaths("s", "v.seed1")


@functools.cache
def live_run(lines: int) -> dict[str, bytes]:
    """The objects of the same run while it is being made: so many of its lines have arrived."""
    plain = {name.removeprefix("s/v.seed1/"): content for name, content in shared_run(STEPS).items()}
    grown = {name: b"".join(plain.pop(name).splitlines(keepends=True)[:lines]) for name in GROWING}
    metadata = plain.pop("metadata.json").replace(b'"completed"', b'"running"')
    files = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "token": TOKEN}
        for name, content in plain.items() if name != "metrics.parquet"
    }  # fmt: skip
    manifest = RunManifest(TOKEN, metadata.decode(), {name: len(content) for name, content in grown.items()}, files)
    blobs = {NAMES.blob(TOKEN, facts["sha256"]): plain[name] for name, facts in files.items()}  # type: ignore[arg-type]
    segments = {NAMES.segment(TOKEN, name, 0): content for name, content in grown.items()}
    return {NAMES.manifest(TOKEN): manifest.to_bytes(), **blobs, **segments}


GROWING = ("metrics.jsonl", "events.jsonl")


def _bring(root: Path, objects: dict[str, bytes]) -> None:
    server, paths = Server(objects), run_paths(root)
    before = read_remote_state(paths)
    source = str(TOKEN) if NAMES.manifest(TOKEN) in objects else "plain"
    stand = Stand(NAMES, paths, server.list(), None, source, before or RemoteState(), before)
    assert not bring(server, [stand], everything, refusals=Strict()).moved  # type: ignore[arg-type]


def bring_plain(root: Path, tell: Tell) -> None:
    for until in (4, STEPS):
        _bring(root, shared_run(until))
        tell("brought", until)


def check_mirror(root: Path, told: Told) -> None:
    """What is believed to be here is not brought again, so it must be here."""
    _bring(root, shared_run(STEPS))
    here = run_paths(root).root
    for name, content in shared_run(STEPS).items():
        assert (here / name.removeprefix("s/v.seed1/")).read_bytes() == content, f"{name} is not what the server has"


def bring_live(root: Path, tell: Tell) -> None:
    for lines in (5, 9, 14):
        _bring(root, live_run(lines))
        tell("brought", lines)


def check_live_mirror(root: Path, told: Told) -> None:
    _bring(root, live_run(14))
    paths = run_paths(root)
    manifest = RunManifest.from_bytes(live_run(14)[NAMES.manifest(TOKEN)], TOKEN)
    assert paths.metadata.read_bytes() == manifest.metadata.encode(), "the metadata are not those of the server"
    for name in GROWING:
        assert (paths.root / name).read_bytes() == live_run(14)[NAMES.segment(TOKEN, name, 0)], f"{name} is wrong"
    for name, facts in manifest.files.items():
        assert file_hash(paths.root / name) == facts["sha256"], f"{name} is not what the server has"


def make_shared_run(root: Path, tell: Tell) -> None:
    """This machine makes a run of a shared store: that it is ahead of the store is as durable as what it saves."""
    paths = run_paths(root)
    Store(root / "store").check_writable()
    claim = Claim(paths)
    write_remote_state(paths, RemoteState(token=7, mine=True))
    metadata = new_metadata(SPEC, {}, synthetic=True)
    metadata.update(metric="accuracy", direction="max", best_metric_name="accuracy", best_metric_mode="max")
    recorder = Recorder.create(paths, metadata, claim)
    train(recorder, tell, until=4)
    recorder.release()
    write_remote_state(paths, RemoteState(token=7, mine=True, source="7"))
    tell("sent", True)


def check_shared_run(root: Path, told: Told) -> None:
    known = read_remote_state(run_paths(root))
    if last_of(told, "saved") is not None:
        assert known is not None and known.is_ahead and known.token == 7, "nobody knows that something waits here"
    check_run(root, [what for what in told if what[0] != "begun"])


WORKLOADS = {
    "run": Workload(make_run, check_run),
    "take-over": Workload(take_over, check_run),
    "return to an earlier best": Workload(return_to_best, check_run),
    "run without hard links": Workload(run_with_copies, check_run),
    "archive": Workload(archive_and_repeat, check_archive, finish_run),
    "cache": Workload(fill_cache, check_cache),
    "cache of an earlier version": Workload(upgrade_cache, check_cache, earlier_cache),
    "damaged cache": Workload(upgrade_cache, check_replaced_cache, damaged_cache),
    "index and series": Workload(list_and_add, check_lists, made_runs),
    "plans and looks": Workload(plan_and_look, check_plans),
    "registrations": Workload(register_twice, check_registrations, project_folder),
    "mirror": Workload(bring_plain, check_mirror),
    "mirror of a run that is being made": Workload(bring_live, check_live_mirror),
    "shared run": Workload(make_shared_run, check_shared_run),
}
