"""A store at a URL: every cell is claimed once, nothing is lost when the server is away, and no run notices."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.errors import StoreError
from fairtrial.core.paths import SharedPaths
from fairtrial.core.runs import Status
from fairtrial.jobs.run_session import run_cell, run_stack
from fairtrial.record import remote as remotes
from fairtrial.record import sharing, upload
from fairtrial.record.claims import ClaimedElsewhere
from fairtrial.record.leases import Lease, read_top
from fairtrial.record.mirror import Growth
from fairtrial.record.remote import Remote, Unreachable, open_remote
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from fairtrial.record.studies import load_plan, save_plan
from tests.conftest import Answer, Moto, start
from tests.harness import eventually, fill_up, forked, make, request_for, series_of, wait

Cli = Callable[..., Answer]
FAKE: dict[str, Any] = {"steps": 40, "eval_every": 10, "log_every": 1, "checkpoint_every": 10, "jitter": 0.1}
WORDS = [part for name, value in FAKE.items() for part in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture
def url(moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store that this test has alone, with its server and credentials in the environment, as a person has them."""
    for name, value in moto.surroundings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "here"))
    monkeypatch.setattr(sharing, "FRESH_S", 0.0)
    return f"s3://{moto.bucket()}/team"


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of another machine: it has a mirror of its own."""
    return {"FAIRTRIAL_MIRRORS": str(tmp_path / "there")}


def at(url: str, mirrors: Path | str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store as another machine has it, brought up to date."""
    with monkeypatch.context() as other:
        other.setenv("FAIRTRIAL_MIRRORS", str(mirrors))
        store = Store.at(url)
    store.pull()
    return store


def names_below(url: str, run: str = "s/v.seed1") -> list[str]:
    """The objects of a run, by the names that they have in its folder."""
    return sorted(name.removeprefix(f"{run}/") for name in open_remote(url).list(run))


def claims(url: str, run: str = "s/v.seed1") -> list[str]:
    remote = open_remote(url)
    return [json.loads(remote.read(name))["kind"] for name in sorted(remote.list(f"{run}/.claims"))]


def train(url: str, *words: str, **settings: Any) -> subprocess.Popen[str]:
    common = ("train", "fake", *WORDS, "--seed", "1", "--study", "s", "--variant", "v", "--store", url)
    return start(*common, *words, **settings)


def steps_logged(store: Store) -> int:
    return len(read_lines(store.paths.run("s", "v.seed1").metrics).rows)


def test_a_run_ends_as_an_ordinary_folder_that_any_machine_can_read(
    url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.at(url)
    assert make(here, "fake", **FAKE).status is Status.COMPLETED
    make(store, "fake", **FAKE)
    plain = store.paths.run("s", "v.seed1").root
    expected = {str(p.relative_to(plain)) for p in plain.rglob("*") if p.is_file() and not p.name.startswith(".")}
    found = names_below(url)
    assert set(found) == {*expected, ".claims/00000001.json", ".claims/00000002.json"}
    other = at(url, tmp_path / "there", monkeypatch)
    run = other.run("s", "v.seed1")
    assert run is not None and run.status is Status.COMPLETED
    assert series_of(other) == series_of(store)
    assert run.metadata["best_checkpoint_step"] is not None, "a checkpoint that was not brought is still there"
    assert not run.paths.best.exists()
    other.fetch("s", "v.seed1")
    assert run.paths.best.read_bytes() == here.paths.run("s", "v.seed1").best.read_bytes()
    assert make(other, "fake", **FAKE).already_done


def test_of_many_who_claim_a_cell_at_once_one_gets_it(url: str) -> None:
    remote, names = Remote(url), SharedPaths("s", "v.seed1")
    ready, taken = threading.Barrier(8), []

    def claim(number: int) -> None:
        ready.wait()
        taken.append(Lease.take(remote, names, f"machine {number}", after=0, prior=None))

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([lease for lease in taken if lease]) == 1


def test_two_launchers_on_two_machines_make_each_cell_once(url: str, elsewhere: dict[str, str]) -> None:
    words = ("launch", "fake", "--variant", "a:effect=0", "--variant", "b:effect=0.1", "--seeds", "2", "--steps", "20")
    common = (*words, "--base-run-name", "s", "--store", url, "--format", "json", "--quiet", "--jobs", "1")
    both = [start(*common), start(*common, env=elsewhere)]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in both]
    assert [len(answer["runs"]) for answer in answers] == [4, 4], "both see the whole study"
    made = [set(answer["made"]) for answer in answers]
    assert not made[0] & made[1] and len(made[0] | made[1]) == 4
    for name in made[0] | made[1]:
        assert claims(url, name) == ["claim", "end"]
    assert answers[0]["arms"] == answers[1]["arms"]


def test_a_server_that_is_away_delays_the_upload_and_nothing_else(
    moto: Moto, url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.at(url)
    process = train(url, "--step-time", "0.02")
    eventually(lambda: steps_logged(here) > 5, what="the first steps")
    with moto.out_of_reach():
        paths = here.paths.run("s", "v.seed1")
        eventually(lambda: '"completed"' in paths.metadata.read_text(), what="the end of the training")
        assert process.poll() is None, "it waits for what is on its way"
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    make(store, "fake", **FAKE)
    other = at(url, tmp_path / "there", monkeypatch)
    assert series_of(other) == series_of(store) and ".live" not in " ".join(names_below(url))


def test_what_could_not_be_brought_in_time_is_pushed_later(
    moto: Moto, url: str, store: Store, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.at(url)
    process = train(url, "--step-time", "0.02", env={"FAIRTRIAL_PATIENCE": "0.2"})
    eventually(lambda: steps_logged(here) > 5, what="the first steps")
    with moto.out_of_reach():
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"fairtrial runs sync --store {url}" in told
    assert claims(url) == ["claim"]
    synced = cli("runs", "sync", "--store", url, "--format", "json")
    assert synced.code == 0 and synced.json["pushed"] == 1 and synced.json["left"] == [], synced.err
    make(store, "fake", **FAKE)
    assert series_of(at(url, tmp_path / "there", monkeypatch)) == series_of(store)
    assert claims(url) == ["claim", "end"]


def test_a_frozen_machine_is_overtaken_and_can_change_nothing_when_it_wakes(
    url: str, store: Store, elsewhere: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTRIAL_LEASE", "2")
    here = Store.at(url)
    frozen = train(url, "--step-time", "0.1")
    live = SharedPaths("s", "v.seed1").manifest(1)

    def checkpoint_is_there() -> bool:
        found = open_remote(url).list("s/v.seed1")
        return live in found and "step-10.pt" in open_remote(url).read(live).decode()

    eventually(checkpoint_is_there, what="the first checkpoint in the shared store")
    frozen.send_signal(signal.SIGSTOP)
    words = ("launch", "fake", "--variant", "v:effect=0", "--seeds", "1,", *WORDS, "--step-time", "0.1")
    taking_over = start(*words, "--base-run-name", "s", "--store", url, "--format", "json", env=elsewhere)
    _, told = taking_over.communicate(timeout=90)
    assert taking_over.returncode == 0, told
    before = {name: entry.tag for name, entry in open_remote(url).list("s/v.seed1").items()}
    frozen.send_signal(signal.SIGCONT)
    _, words_of_frozen = frozen.communicate(timeout=60)
    assert frozen.returncode == 4 and "taken over by another machine" in words_of_frozen
    after = {n: e.tag for n, e in open_remote(url).list("s/v.seed1").items() if "/.live/" not in n}
    assert after == before, "whoever was overtaken writes where nobody looks"
    make(store, "fake", **FAKE)
    here.pull()
    assert series_of(here) == series_of(store)
    run = here.run("s", "v.seed1")
    assert run is not None and [each["step"] >= 10 for each in run.metadata["lineage"]["resumed"]] == [True]
    assert {"checkpoints/step-10.pt", "checkpoints/step-40.pt"} <= set(names_below(url))
    assert claims(url) == ["claim", "claim", "end"]
    assert list(here.paths.archive("s").iterdir()), "what the frozen machine had recorded is kept aside"


@pytest.mark.parametrize("moment", ["publish_run", "write_remote_state"])
def test_a_kill_after_the_end_leaves_a_run_that_others_complete(
    url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    job = request_for(Store.at(url), "fake", **FAKE)

    def killed() -> None:
        kept = getattr(upload, moment)

        def die_at_the_end(*arguments: Any) -> Any:
            if moment == "publish_run" or arguments[1].closed:
                os.kill(os.getpid(), signal.SIGKILL)
            return kept(*arguments)

        setattr(upload, moment, die_at_the_end)
        run_cell(job)

    assert wait(forked(killed)) == -signal.SIGKILL
    make(store, "fake", **FAKE)
    other = at(url, tmp_path / "there", monkeypatch)
    run = other.run("s", "v.seed1")
    assert run is not None and run.status is Status.COMPLETED and series_of(other) == series_of(store)
    assert other.push() == []
    assert "metadata.json" in names_below(url) and not [name for name in names_below(url) if name.startswith(".live")]
    assert Store.at(url).push() == [], "the one who was killed finds it done"
    assert series_of(at(url, tmp_path / "third", monkeypatch)) == series_of(store)
    assert run_cell(job).already_done


def test_a_run_that_ends_while_another_machine_looks_at_it_is_not_made_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.at(url)
    job = request_for(here, "fake", **FAKE)

    def end_without_plain_names() -> None:
        upload.publish_run = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        run_cell(job)

    assert wait(forked(end_without_plain_names)) == -signal.SIGKILL
    read_many = Remote.read_many

    def read_too_late(self: Remote, names: Any) -> dict[str, bytes]:
        wanted = list(names)
        if any(name.endswith("manifest.json") for name in wanted):
            monkeypatch.setattr(Remote, "read_many", read_many)
            assert here.push() == [] and not [name for name in names_below(url) if name.startswith(".live")]
        return read_many(self, wanted)

    monkeypatch.setattr(Remote, "read_many", read_too_late)
    with monkeypatch.context() as machine:
        machine.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "there"))
        assert run_cell(job).already_done
    assert claims(url) == ["claim", "end"]


def test_a_killed_run_is_resumed_at_once_by_its_own_machine(url: str, store: Store) -> None:
    here = Store.at(url)
    process = train(url, "--step-time", "0.05")
    eventually(lambda: here.paths.run("s", "v.seed1").step(10).exists(), what="the first checkpoint")
    process.kill()
    process.communicate()
    again = train(url, "--step-time", "0.05")
    _, told = again.communicate(timeout=60)
    assert again.returncode == 0, told
    make(store, "fake", **FAKE)
    assert series_of(here) == series_of(store)
    assert claims(url) == ["claim", "claim", "end"]


def test_a_killed_run_that_is_pushed_is_whole_for_everybody(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segments were cut by the one who made it, and are cut otherwise by the one who pushes the rest."""
    monkeypatch.setattr(upload, "POLL_S", 0.1)
    monkeypatch.setattr(upload, "MOST_BYTES", 500)
    here = Store.at(url)
    paths = here.paths.run("s", "v.seed1")
    slow = {**FAKE, "steps": 400, "step_time": 0.005, "checkpoint_every": 100}
    killed = forked(lambda: run_cell(request_for(here, "fake", **slow)))
    eventually(lambda: steps_logged(here) > 150 and steps_logged(at(url, tmp_path / "there", monkeypatch)) > 50)
    os.kill(killed, signal.SIGKILL)
    wait(killed)
    assert steps_logged(at(url, tmp_path / "there", monkeypatch)) <= steps_logged(here)
    if len(claims(url)) == 1:  # or it was pushed already by one who looked
        assert sharing.push(here).pushed == 1
    for machine in ("there", "fresh"):
        other = at(url, tmp_path / machine, monkeypatch)
        assert other.paths.run("s", "v.seed1").metrics.read_bytes() == paths.metrics.read_bytes(), machine
        assert other.paths.run("s", "v.seed1").events.read_bytes() == paths.events.read_bytes(), machine


@pytest.mark.parametrize("have", [0, 3, 4, 9, 10])
def test_segments_may_overlap_and_what_comes_after_a_gap_is_left(have: int) -> None:
    whole = b"0123456789"
    contents = {"a": whole[:4], "b": whole[:8], "c": whole[4:6], "d": whole[8:]}
    segments = [(0, "a"), (0, "b"), (4, "c"), (8, "d")]
    assert whole[:have] + Growth(have, 10, segments).put_together(contents) == whole
    assert Growth(0, 10, [(0, "a"), (8, "d")]).put_together(contents) == whole[:4]
    assert Growth(0, 6, segments).put_together(contents) == whole[:6]


def test_a_run_that_is_not_whole_there_is_not_gone_on_with(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.at(url)
    with monkeypatch.context() as patch:
        patch.setattr(upload, "publish_run", lambda *_: {})  # killed before the files got their plain names
        make(here, "fake", **{**FAKE, "fail_at": 30})
    remote = open_remote(url)
    remote.delete([name for name in remote.list("s/v.seed1") if "/metrics.jsonl/" in name])
    monkeypatch.setattr(sharing, "MOST_READS", 2)
    other = at(url, tmp_path / "there", monkeypatch)
    assert "Refused s/v.seed1" in (told := capfd.readouterr().err) and "it is incomplete" in told
    assert other.run("s", "v.seed1") is None
    with pytest.raises(StoreError, match=r"s/v\.seed1 is incomplete in"):
        other.fetch("s", "v.seed1")


def test_a_claim_is_kept_while_a_large_file_is_sent(
    url: str, elsewhere: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending takes twice as long as a claim lasts without a heartbeat.

    On a busy machine the thread that sends heartbeats may get no core for so long. Only then is a longer lease tried.
    """
    monkeypatch.setattr(upload, "MOST_BYTES", 600)  # less than a checkpoint has
    monkeypatch.setattr(upload, "POLL_S", 0.1)
    for lease_s in (3, 12, 48):
        longest_gap = gap_between_heartbeats(f"{url}/lease-{lease_s}", elsewhere, monkeypatch, lease_s)
        if longest_gap < lease_s / 2:
            assert claims(f"{url}/lease-{lease_s}") == ["claim", "end"]
            return
    pytest.fail("no heartbeat for half of a lease, however long the lease")


def gap_between_heartbeats(
    url: str, elsewhere: dict[str, str], monkeypatch: pytest.MonkeyPatch, lease_s: float
) -> float:
    """Make a run whose first upload takes two leases, while another machine tries to join it all the time.

    Returns a whole lease if the other machine joined only after the run had ended.
    """
    heartbeats, sending, sent = [time.monotonic()], threading.Event(), threading.Event()
    upload_file, renew = Remote.upload, Lease.renew

    def upload_slowly(*arguments: Any) -> None:
        if not sending.is_set():
            sending.set()
            time.sleep(2 * lease_s)
            sent.set()
        upload_file(*arguments)

    def renew_and_note(lease: Lease) -> None:
        renew(lease)
        heartbeats.append(time.monotonic())

    given_away, joined_late, refusals = False, False, 0
    with monkeypatch.context() as patch:
        patch.setenv("FAIRTRIAL_LEASE", str(lease_s))
        patch.setattr(Remote, "upload", upload_slowly)
        patch.setattr(Lease, "renew", renew_and_note)
        made = threading.Thread(target=lambda: make(Store.at(url), "fake", **FAKE, step_time=0.1))
        made.start()
        sending.wait()
        with monkeypatch.context() as other:
            other.setenv("FAIRTRIAL_MIRRORS", elsewhere["FAIRTRIAL_MIRRORS"])
            there = Store.at(url)
            while not sent.is_set() and not given_away:
                try:
                    sharing.join(there, there.paths.run("s", "v.seed1"))
                    joined_late = sent.is_set()  # the run may have ended meanwhile, which says nothing about its claim
                    given_away = not joined_late
                except ClaimedElsewhere:
                    refusals += 1
                time.sleep(lease_s / 10)
        made.join()
    longest_gap = max(later - earlier for earlier, later in itertools.pairwise(heartbeats))
    assert refusals, "the other machine never asked"
    assert not given_away or longest_gap > lease_s / 2, "the claim was given away despite its heartbeats"
    return lease_s if joined_late else longest_gap


def test_a_server_that_is_away_is_not_asked_again_for_every_run(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, asked = Store.at(url), []

    def away(*_: Any) -> None:
        asked.append(1)
        raise Unreachable("nobody answers")

    make(here, "fake", **FAKE)
    with monkeypatch.context() as patch:
        patch.setattr(Remote, "list", away)
        for _ in range(5):
            with pytest.raises(Unreachable):
                here.pull("s")
    assert len(asked) == 1
    monkeypatch.setattr(sharing, "AWAY_S", 0.0)
    here.pull("s")


def test_an_answer_that_was_lost_does_not_lose_the_claim(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote(url)
    pipe_file = remote._files.pipe_file

    def twice(*arguments: Any, **settings: Any) -> None:
        pipe_file(*arguments, **settings)
        pipe_file(*arguments, **settings)

    monkeypatch.setattr(remote._files, "pipe_file", twice)
    assert Lease.take(remote, SharedPaths("s", "v.seed1"), "m", after=0, prior=None)


def test_a_failed_run_is_tried_again_by_another_machine(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.at(url)
    assert make(here, "fake", **FAKE, fail_at=25).status is Status.FAILED
    other = at(url, tmp_path / "there", monkeypatch)
    with monkeypatch.context() as machine:
        machine.setenv("FAIRTRIAL_MIRRORS", str(tmp_path / "there"))
        assert make(other, "fake", **FAKE, fail_at=25).status is Status.FAILED
    here.pull()
    run = here.run("s", "v.seed1")
    assert run is not None and [each["step"] for each in run.metadata["lineage"]["resumed"]] == [20]
    assert claims(url) == ["claim", "end", "claim", "end"]


def test_runs_that_share_a_process_are_all_brought(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    here = Store.at(url)
    small = {"model": "mlp", "data": "digits", "steps": 6, "eval_every": 3, "checkpoint_every": 3}
    jobs = [request_for(here, "classify", seed=seed, **small) for seed in (1, 2, 3)]
    told: dict[str, Any] = {}
    run_stack(jobs, lambda spec, code, outcome: told.update({spec.run_id: (code, outcome and outcome.status)}))
    assert set(told.values()) == {(0, Status.COMPLETED)}
    other = at(url, tmp_path / "there", monkeypatch)
    for seed in (1, 2, 3):
        assert series_of(other, run=f"v.seed{seed}") == series_of(here, run=f"v.seed{seed}")


def test_what_is_removed_or_replaced_is_so_for_everybody(
    url: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Store.at(url)
    make(here, "fake", seed=1, **FAKE)
    make(here, "fake", seed=2, **FAKE)
    other = at(url, tmp_path / "there", monkeypatch)
    assert cli("runs", "rm", "v.seed1", "--yes", "--store", url).code == 0
    other.pull()
    assert [entry.name for _, entry in other.directories() if (Path(entry.path) / "metadata.json").exists()] == [
        "v.seed2"
    ]
    again = ("train", "fake", *WORDS, "--study", "s", "--variant", "v", "--store", url, "--quiet")
    replaced = cli(*again, "--seed", "2", "--noise", "0.5", "--replace")
    assert replaced.code == 0, replaced.err
    assert [n for n in open_remote(url).list("s/.archive") if n.endswith("/metadata.json")]
    assert claims(url, "s/v.seed2") == ["claim", "end", "claim", "gone", "claim", "end"]
    assert cli(*again, "--seed", "1", "--noise", "0.5").code == 0, "a removed cell can be made again"


def test_two_machines_extend_one_study(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, other = Store.at(url), at(url, tmp_path / "there", monkeypatch)
    here.check_writable()
    save_plan(here, {"study": "s", "seeds": [1, 2], "variants": {"a": {}}})
    save_plan(other, {"study": "s", "seeds": [3], "variants": {"b": {}}})
    here.pull()
    for store in (here, other, at(url, tmp_path / "third", monkeypatch)):
        plan = load_plan(store, "s")
        assert plan is not None and plan["seeds"] == [1, 2, 3] and set(plan["variants"]) == {"a", "b"}


def test_a_run_that_is_being_made_elsewhere_is_seen_as_running(
    url: str, elsewhere: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = train(url, "--step-time", "0.2", env=elsewhere)
    try:

        def listed() -> Any:
            return cli("runs", "list", "--store", url, "--format", "json").json["runs"]

        eventually(lambda: [row["status"] for row in listed()] == ["running"], what="a run that goes on elsewhere")
        refused = cli("runs", "rm", "v.seed1", "--yes", "--store", url)
        assert refused.code == 1 and "in progress on another machine" in refused.err
    finally:
        process.kill()
        process.communicate()
    top = read_top(open_remote(url), SharedPaths("s", "v.seed1"), open_remote(url).list("s/v.seed1"))
    assert top is not None and top.is_claim


def test_a_script_records_into_a_shared_store(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import fairtrial\n"
        f"with fairtrial.run(seed=1, study='s', variant='v', store={url!r}) as run:\n"
        "    for step in range(5):\n        run.log(step, loss=1.0 / (step + 1))\n"
        "    run.save(4, {'weights': [1.0]})\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=60)
    assert len(series_of(at(url, tmp_path / "there", monkeypatch))["loss"]) == 5
    assert claims(url) == ["claim", "end"]


def test_runs_sync_makes_an_ordinary_store(url: str, cli: Cli, tmp_path: Path) -> None:
    make(Store.at(url), "fake", **FAKE)
    folder = tmp_path / "copy"
    answer = cli("runs", "sync", "--store", url, "--to", str(folder), "--checkpoints", "--format", "json")
    assert answer.code == 0, answer.err
    assert series_of(Store(folder)) == series_of(Store.at(url))
    assert Store.at(folder).url is None and Store(folder).paths.run("s", "v.seed1").best.exists()
    wrong = cli("runs", "sync", "nothing", "--store", url)
    assert wrong.code == 1 and "study" in wrong.err
    assert cli("runs", "sync", "--store", str(folder)).code == 1


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://no-such-bucket/x", "the bucket 'no-such-bucket' does not exist"),
        ("s3://Bad_Bucket!/x", "is not a valid bucket name"),
        ("s3://", "is not a valid store URL"),
        ("nonsense://place/x", "nonsense:// is not supported for stores"),
        ("memory://x", "memory:// cannot be a store"),
        ("s3://key:secret@bucket/x", "must not contain a user, password"),
        ("http://127.0.0.1:1/x", "http:// is not supported for stores"),
        ("ftp://127.0.0.1/x", "ftp:// is not supported for stores"),
    ],
)
def test_an_address_that_cannot_be_a_store_is_one_sentence_and_a_hint(
    url: str, cli: Cli, tmp_path: Path, address: str, said: str
) -> None:
    answer = cli("launch", "fake", "--seeds", "1", "--base-run-name", "s", "--store", address)
    assert answer.code == 1 and said in answer.err and "Hint" in answer.err
    assert "Traceback" not in answer.err and not (tmp_path / "here").exists()


def test_an_unreachable_store_is_said_before_anything_is_written(
    url: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    remotes._open.cache_clear()
    for words in (("launch", "fake", "--seeds", "1"), ("runs", "list"), ("runs", "sync")):
        answer = cli(*words, "--store", url)
        assert answer.code == 1 and f"{url} cannot be reached" in answer.err and "$AWS_ENDPOINT_URL" in answer.err
    assert not (tmp_path / "here").exists()
    remotes._open.cache_clear()


def test_missing_credentials_and_packages_are_said(url: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    remotes._open.cache_clear()
    answer = cli("runs", "list", "--store", url)
    assert answer.code == 1 and "no credentials for" in answer.err and "$AWS_PROFILE" in answer.err
    remotes._open.cache_clear()
    monkeypatch.setattr(remotes.importlib.util, "find_spec", lambda _: None)
    answer = cli("runs", "list", "--store", url)
    assert answer.code == 1 and "pip install 'fairtrial[s3]'" in answer.err
    remotes._open.cache_clear()


def test_a_server_that_creates_over_what_is_there_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote(url)
    pipe_file = remote._files.pipe_file
    monkeypatch.setattr(remote._files, "pipe_file", lambda path, data, mode: pipe_file(path, data))
    with pytest.raises(remotes.StoreError, match="two machines could execute the same run"):
        remote.begin()


def test_a_file_url_is_a_path(cli: Cli, tmp_path: Path) -> None:
    answer = cli("train", "fake", "--steps", "5", "--store", f"file://{tmp_path}/plain", "--format", "json")
    assert answer.code == 0 and Store(tmp_path / "plain").studies() == ["adhoc"]
    assert f"Store: {tmp_path}/plain" in answer.err


def test_a_full_disk_below_the_mirror_is_told_and_gone_on_from(
    cli: Cli, url: str, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTRIAL_MIRRORS", str(small_disk))
    line = ("train", "fake", "--steps", "3000", "--log-every", "1", "--checkpoint-every", "100", "--variant", "v")
    cli("runs", "list", "--store", url)
    ballast = fill_up(small_disk, leave=60_000)
    answer = cli(*line, "--store", url)
    assert answer.code in (1, 4) and "the disk is full" in answer.err and "Traceback" not in answer.err, answer.err
    ballast.unlink()
    assert cli(*line, "--store", url).code == 0
    assert cli(*line, "--store", str(tmp_path / "roomy")).code == 0
    ours, reference = at(url, tmp_path / "there", monkeypatch), Store(tmp_path / "roomy")
    assert series_of(ours, "adhoc", "v.seed1072") == series_of(reference, "adhoc", "v.seed1072")
