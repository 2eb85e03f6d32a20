"""Whoever may write to a bucket must not be able to write to the machines that read it."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from fairtrial.core.errors import StoreError
from fairtrial.core.runs import Status
from fairtrial.record import mirror, sharing
from fairtrial.record.remote import open_remote
from fairtrial.record.store import Store
from tests.conftest import Answer, Moto
from tests.harness import make, series_of
from tests.record.hostile_bucket import CONTENT, SHA256, Hostile, Template, hostile_names, hostile_runs

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
    """Without the checksum, which an attacker can leave out."""
    return re.sub(r',\s*"checksum": "[0-9a-f]{8}"', "", store.paths.run("s", run).metadata.read_text())


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
    readable = sorted(row["run"] for row in answer.json["runs"] if row["status"] != "damaged")  # as planted links are
    assert readable == ["good.seed1", "good.seed2", "live.seed1"]
    for run in ("good.seed1", "good.seed2"):
        assert series_of(there, run=run) == series_of(here, run=run)
        there.fetch("s", run)
        for path in here.paths.run("s", run).checkpoints.glob("[!.]*"):
            assert (there.paths.run("s", run).checkpoints / path.name).read_bytes() == path.read_bytes()
    assert there.paths.run("s", "live.seed1").metrics.read_bytes() == lines
    written = [path for path in (there.root / "hostile").rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in written if not path.name.startswith(".")], "not even a part of them was written"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A run that has ended, as its objects lie in a bucket."""
    store = Store(tmp_path_factory.mktemp("good"))
    make(store, "fake", variant="good", **FAKE)
    root = store.paths.run("s", "good.seed1").root
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {f"s/good.seed1/{path.relative_to(root)}": path.read_bytes() for path in files}


@pytest.fixture
def there(url: str, good: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store in which others have put one good run, as this machine has it: with nothing in its mirror yet."""
    put(url, good)
    monkeypatch.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "there"))
    return Store.at(url)


def test_names_of_objects_lead_nowhere_and_are_all_named(
    url: str, there: Store, good: dict[str, bytes], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = list(hostile_names(good["s/good.seed1/metadata.json"].decode()))
    attack(url, there.root, runs)
    listed = open_remote(url).list()
    assert not [name for run in runs for name in run.objects if name not in listed], "the server has taken all of them"
    before = surroundings(tmp_path)
    answer = read_elsewhere(url, cli, tmp_path, monkeypatch)
    assert surroundings(tmp_path) == before and answer.code == 0, answer.err
    assert_named(answer.err, runs)
    assert [row["run"] for row in answer.json["runs"]] == ["good.seed1"]


def live_run(name: str, **settings: Any) -> Hostile:
    """A run that is right but for what `settings` say."""
    run = Template(name, '{"status": "running"}')
    for key, value in settings.items():
        setattr(run, key, value)
    return Hostile(run.name, "", "", run.objects(), run.links)


@pytest.mark.parametrize("absolute", [True, False])
def test_a_manifest_cannot_write_outside_of_the_mirror(
    url: str, there: Store, cli: Cli, tmp_path: Path, absolute: bool
) -> None:
    """B19: whoever may write to the bucket could run code on every machine that reads it."""
    target = tmp_path / "outside" / "evil.sh"
    run = Template("s/evil.seed1", metadata_with("s", "evil.seed1"))
    run.put(str(target) if absolute else "../../../../outside/evil.sh")
    blob = f"s/evil.seed1/.live/00000001/files/{SHA256}"
    attack(url, there.root, [Hostile(run.name, "", "", {**run.objects(), blob: CONTENT})])
    before = surroundings(tmp_path)
    answer = cli("runs", "sync", "--store", url, "--checkpoints", "--format", "json")
    assert not target.exists() and surroundings(tmp_path) == before
    assert answer.code == 0, answer.err
    assert [each["name"] for each in answer.json["refused"]] == ["s/evil.seed1"] and answer.json["runs"] == 1
    assert "Refused s/evil.seed1 of" in answer.err


def metadata_with(study: str, run: str) -> str:
    return json.dumps({"status": "running", "study": study, "run_id": run})


@pytest.mark.parametrize(
    "link",
    ["links", "links/v.seed1", "links/v.seed1/checkpoints", "links/v.seed1/log.txt", "links/v.seed1/.taking-over"],
)
def test_a_link_in_the_mirror_is_not_followed(url: str, there: Store, cli: Cli, tmp_path: Path, link: str) -> None:
    run = live_run("links/v.seed1", more={f"links/v.seed1/.live/00000001/files/{SHA256}": CONTENT})
    plan = {"links/study.json": b'{"study": "links", "seeds": [], "variants": {}}'}
    target = tmp_path / "outside" / {"log.txt": "canary", ".taking-over": "new"}.get(Path(link).name, "target0")
    attack(url, there.root, [Hostile(run.name, "", "", {**run.objects, **plan}, {link: target})])
    before = surroundings(tmp_path)
    answer = cli("runs", "sync", "--store", url, "--checkpoints")
    assert surroundings(tmp_path) == before and answer.code == 0, answer.err
    assert "leads through the symbolic link" in answer.err and there.run("s", "good.seed1") is not None


def test_content_that_is_not_what_the_manifest_says_is_never_put_in_place(
    url: str, there: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a checkpoint, which is downloaded, and of a small file, which is read with others."""
    blob = f".live/00000001/files/{SHA256}"
    large = live_run("s/large.seed1", more={f"s/large.seed1/{blob}": b"WEIGHTS"})
    small = Template("s/small.seed1", "{}")
    small.put("small.txt")
    small.more[f"s/small.seed1/{blob}"] = b"WEIGHTS"
    attack(url, there.root, [large, Hostile(small.name, "", "", small.objects())])
    found = sharing.pull(there, (), mirror.everything)
    told = "the content of '{}' does not have the size and SHA-256 listed in the manifest"
    assert found.refused == (
        ("s/large.seed1", told.format("checkpoints/best.pt")),
        ("s/small.seed1", told.format("small.txt")),
    )
    assert not there.paths.run("s", "large.seed1").best.exists()
    assert not (there.paths.run("s", "small.seed1").root / "small.txt").exists()
    assert there.run("s", "good.seed1") is not None and "Refused s/large.seed1" in capfd.readouterr().err
    with pytest.raises(StoreError, match=r"s/large\.seed1 cannot be used: the content of"):
        there.fetch("s", "large.seed1")


LIMITS = {
    "LARGEST_CLAIM": ("s/v.seed1", "claims/00000001.json has"),
    "LARGEST_DOCUMENT_BYTES": ("s/v.seed1", "manifest.json has"),
    "LARGEST_SEGMENT": ("s/v.seed1", "metrics.jsonl/000000000000000 has"),
    "LARGEST_DOCUMENT_BYTES ": ("s/good.seed1", "metadata.json has"),
    "MOST_FILES": ("s/good.seed1", "files, more than"),
    "LARGEST_RUN": ("s/good.seed1", "TB, more than allowed"),
}


def test_what_is_too_large_is_not_read(url: str, there: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtrial.record import shared_schema

    lines = b'{"step": 1, "loss": 1.0}\n'
    live = Template("s/v.seed1", "{}")
    live.manifest["appended"]["metrics.jsonl"] = len(lines)
    live.more["s/v.seed1/.live/00000001/metrics.jsonl/000000000000000"] = lines
    attack(url, there.root, [Hostile(live.name, "", "", live.objects())])
    for number, (limit, (run, why)) in enumerate(LIMITS.items()):
        with monkeypatch.context() as patch:
            patch.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "there" / str(number)))
            patch.setattr(shared_schema if limit in ("MOST_FILES", "LARGEST_RUN") else mirror, limit.strip(), 1)
            found = dict(sharing.pull(Store.at(url)).refused)
        assert why in found[run], found
    assert sharing.pull(there).refused == ()


PLANS = {
    "a/.plans/00000001.json": (b"[]", "must be a valid dictionary"),
    "b/.plans/00000001.json": (b'{"plan": 5}', "plan: must be"),
    "c/.plans/00000001.json": (b'{"plan": {"study": "other"}}', "it is the plan of the study 'other'"),
    "d/.plans/00000001.json": (b'{"plan": {"seeds": 5}}', "seeds: must be a valid list"),
    "e/study.json": (b'{"variants": []}', "variants: must be a valid dictionary"),
    "f/study.json": (b"not JSON", "is not valid JSON"),
    "g/study.json": (b'{"seeds": [1, "2"]}', "seeds.1: must be a valid integer"),
}


def test_a_plan_of_another_form_is_refused_and_stops_nothing(url: str, there: Store) -> None:
    put(url, {name: content for name, (content, _) in PLANS.items()})
    put(url, {"s/.plans/00000001.json": b'{"plan": {"study": "s", "seeds": [1], "variants": {"good": {}}}}'})
    found = dict(sharing.pull(there).refused)
    for name, (_, why) in PLANS.items():
        assert why in found.pop(f"the plan of {name[0]}")
        assert not there.paths.study_plan(name[0]).exists()
    assert found == {} and there.paths.study_plan("s").exists() and there.run("s", "good.seed1") is not None


def test_a_plan_that_is_too_large_is_not_read(url: str, there: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(url, {"s/study.json": b'{"study": "s"}'})
    monkeypatch.setattr(sharing, "LARGEST_DOCUMENT_BYTES", 5)
    assert sharing.pull(there).refused == (("the plan of s", "its size of 14 bytes is too large"),)


@pytest.mark.usefixtures("there")
def test_a_marker_that_is_too_large_or_no_marker_is_refused(
    url: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, content in (("a", b"[]"), ("b", b'{"id": 5}'), ("c", b'{"id": "x", "more": "%s"}' % (b"x" * 70_000))):
        open_remote(url).write({".fairtrial.json": content})
        monkeypatch.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "there" / folder))
        answer = cli("runs", "list", "--store", url)
        assert answer.code == 1 and "is damaged" in answer.err


def test_a_run_of_which_nothing_is_known_any_more_is_set_aside_and_not_overwritten(there: Store) -> None:
    """What a machine knows of its run is lost: perhaps it has what the store does not have."""
    sharing.pull(there)
    paths = there.paths.run("s", "good.seed1")
    with paths.metrics.open("ab") as file:
        file.write(b'{"step": 99, "loss": 0.5}\n')
    paths.remote_state.write_bytes(b"")
    sharing.pull(there)
    kept = [path.read_bytes() for path in there.paths.archive("s").rglob("metrics.jsonl")]
    assert len(kept) == 1 and kept[0].endswith(b'{"step": 99, "loss": 0.5}\n')
    assert not paths.metrics.read_bytes().endswith(b'{"step": 99, "loss": 0.5}\n')


def test_where_capitals_are_not_told_apart_a_run_keeps_its_folder(url: str, there: Store) -> None:
    """A file system that ignores capitals shows the mirror's own file under both names."""
    sharing.pull(there)
    other = Template("s/GOOD.seed1", "{}")
    put(url, other.objects())
    there.paths.mirror.with_name(".MIRROR.JSON").write_bytes(there.paths.mirror.read_bytes())
    found = sharing.pull(there)
    assert [name for name, _ in found.refused] == ["s/GOOD.seed1"] and "differs only in case" in found.refused[0][1]


def test_a_name_that_the_file_system_cannot_use_stops_nothing(url: str, there: Store) -> None:
    run = live_run("s/a.seed1", more={f"s/a.seed1/.live/00000001/files/{SHA256}": CONTENT})
    attack(url, there.root, [run])
    (there.root / "s" / "a.seed1").mkdir(parents=True)
    (there.root / "s" / "a.seed1" / "checkpoints").write_text("a file where a folder is needed")
    found = sharing.pull(there, (), mirror.everything)
    assert [name for name, _ in found.refused] == ["s/a.seed1"] and there.run("s", "good.seed1") is not None


def test_files_whose_names_others_would_refuse_stay_here_and_the_run_goes_up(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import fairtrial

    with fairtrial.run(seed=1, study="s", variant="v", store=url) as run:
        for name in ("fine.txt", "a\\b.txt", "Fine.txt"):
            (Store.at(url).paths.run("s", "v.seed1").root / name).write_text(name)
        run.log(1, loss=1.0)
    told = capfd.readouterr().err
    assert "files were not uploaded, because other machines would refuse their names: 'a\\\\b.txt', 'fine.txt'" in told
    monkeypatch.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "there"))
    there = Store.at(url)
    assert sharing.pull(there).refused == () and there.run("s", "v.seed1") is not None
    assert [path.name for path in there.paths.run("s", "v.seed1").root.glob("*.txt")] == ["Fine.txt"]


def test_code_that_came_with_a_run_is_never_run(
    url: str, there: Store, good: dict[str, bytes], cli: Cli, tmp_path: Path
) -> None:
    """A run names the file of its recipe, and an analysis loads it to know the roles of the options."""
    ran = tmp_path / "outside" / "ran"
    place = there.paths.run("t", "a.seed1").root / "evil.py"
    metadata = json.loads(good["s/good.seed1/metadata.json"])
    del metadata["checksum"]  # whoever can write the bucket can leave it out
    for variant, seed in itertools.product("ab", (1, 2)):
        names = {"study": "t", "variant": variant, "run_id": f"{variant}.seed{seed}", "seed": seed}
        changed = json.dumps({**metadata, **names, "recipe_file": str(place)}).encode()
        files = {"metadata.json": changed, "metrics.jsonl": good["s/good.seed1/metrics.jsonl"],
                 "evil.py": f"open({str(ran)!r}, 'w')\n".encode()}  # fmt: skip
        put(url, {f"t/{variant}.seed{seed}/{name}": content for name, content in files.items()})
    answer = cli("analyze", "t", "--store", url)
    assert place.is_file() and answer.code == 0, answer.err
    assert not ran.exists()
    told = cli("evaluate", "t/a.seed1", "--store", url)
    assert told.code == 1 and "is in the mirror of a shared store" in told.err, told.err
    assert not ran.exists()
