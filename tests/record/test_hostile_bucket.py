"""Whoever may write to a bucket must not be able to write to the machines that read it."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from fairtrial.core.runs import Status
from fairtrial.record import sharing
from fairtrial.record.remote import open_remote
from fairtrial.record.store import Store
from tests.conftest import Answer, Moto
from tests.harness import make, series_of
from tests.record.hostile_bucket import Hostile, Template, hostile_names, hostile_runs

Cli = Callable[..., Answer]
FAKE = {"steps": 12, "eval_every": 4, "log_every": 1, "checkpoint_every": 4, "jitter": 0.1}
COUNT = 200


@pytest.fixture
def url(moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in moto.surroundings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "here"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sharing, "FRESH_S", 0.0)
    for folder in ("home", "outside/target0", "outside/target1", "outside/target2"):
        (tmp_path / folder).mkdir(parents=True)
    for canary in ("canary", "outside/canary", "outside/target0/canary", "home/.bashrc"):
        (tmp_path / canary).write_text("untouched")
    return f"s3://{moto.bucket()}/team"


def surroundings(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything around the mirrors: names, times and contents."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.partition("/")[0] not in ("here", "there"):
            facts = path.lstat()
            found[name] = facts.st_mtime_ns, facts.st_mode, path.read_bytes() if path.is_file() else b""
    return found


def metadata_of(store: Store, run: str = "good.seed1") -> str:
    return store.paths.run("s", run).metadata.read_text()


def attack(url: str, mirror: Path, runs: Iterable[Hostile]) -> None:
    """Put the objects of hostile runs into the bucket, and the links that belong to them into the mirror."""
    objects: dict[str, bytes] = {}
    for run in runs:
        objects |= run.objects
        for name, target in run.links.items():
            place = mirror / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)
    put(url, objects)


def put(url: str, objects: Mapping[str, bytes]) -> None:
    """As an attacker does: a client library would take dots out of the names."""
    server = http.client.HTTPConnection(urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc)
    for name, content in objects.items():
        server.request("PUT", quote(f"/{url.removeprefix('s3://')}/{name}"), content)
        answer = server.getresponse()
        assert answer.status == 200, (name, answer.read())
        answer.read()
    server.close()


def read_elsewhere(url: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """What a person on another machine sees."""
    monkeypatch.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "there"))
    return cli("runs", "list", "--store", url, "--format", "json")


def assert_named(err: str, runs: Iterable[Hostile]) -> None:
    """Every one is named with its reason, in a line of its own, and no strange character reaches the terminal."""
    lines = err.splitlines()
    for run in runs:
        shown = {f"Refused {run.name} of ", f"Refused {run.name!r} of "}
        named = [line for line in lines if line.startswith(tuple(shown))]
        assert len(named) == 1, (run.kind, run.name, named)
        assert run.says in named[0], (run.kind, named[0])
        assert named[0].isprintable(), (run.kind, named[0])


def test_two_hundred_hostile_manifests_touch_nothing_and_are_all_named(
    url: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.at(url)
    for seed in (1, 2):
        assert make(here, "fake", seed=seed, variant="good", **FAKE).status is Status.COMPLETED
    live = Template("s/live.seed1", metadata_of(here).replace('"good', '"live').replace('"completed"', '"running"'))
    lines = b"".join(b'{"step": %d, "loss": 1.0}\n' % step for step in range(5))
    live.manifest["appended"]["metrics.jsonl"] = len(lines)
    live.more = {"s/live.seed1/.live/00000001/metrics.jsonl/000000000000000": lines}
    strange = ("s/good.seed1/.claims/x.json", "s/good.seed1/.claims/00000003.json/y", "s/good.seed1/.live/abc/manifest.json",
               "s/live.seed1/.live/00000001/metrics.jsonl/not-a-number", "s/.plans/x.json", ".DS_Store")  # fmt: skip
    put(url, {**live.objects(), **dict.fromkeys(strange, b"garbage")})
    runs = list(hostile_runs(COUNT, metadata_of(here), tmp_path / "outside"))
    assert len(runs) == COUNT and len({run.kind for run in runs}) >= 20
    with monkeypatch.context() as other:
        other.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "there"))
        there = Store.at(url)
    attack(url, there.root, runs)

    before = surroundings(tmp_path)
    answer = read_elsewhere(url, cli, tmp_path, monkeypatch)

    assert surroundings(tmp_path) == before
    assert answer.code == 0, answer.err
    assert_named(answer.err, runs)
    readable = sorted(row["run"] for row in answer.json["runs"] if row["seed"] is not None)  # not the planted links
    assert readable == ["good.seed1", "good.seed2", "live.seed1"]
    for run in ("good.seed1", "good.seed2"):
        assert series_of(there, run=run) == series_of(here, run=run)
        there.fetch("s", run)
        for path in here.paths.run("s", run).checkpoints.glob("[!.]*"):
            assert (there.paths.run("s", run).checkpoints / path.name).read_bytes() == path.read_bytes()
    assert there.paths.run("s", "live.seed1").metrics.read_bytes() == lines
    written = [path for path in (there.root / "hostile").rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in written if not path.name.startswith(".")], "not even a part of them was written"


def test_names_of_objects_lead_nowhere_and_are_all_named(
    url: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.at(url)
    make(here, "fake", variant="good", **FAKE)
    runs = list(hostile_names(metadata_of(here)))
    attack(url, tmp_path / "there", runs)
    listed = open_remote(url).list()
    assert not [name for run in runs for name in run.objects if name not in listed], "the server has taken all of them"
    before = surroundings(tmp_path)
    answer = read_elsewhere(url, cli, tmp_path, monkeypatch)
    assert surroundings(tmp_path) == before and answer.code == 0, answer.err
    assert_named(answer.err, runs)
    assert [row["run"] for row in answer.json["runs"]] == ["good.seed1"]
