"""Events reach a receiver as they were written, whatever the receiver does, and no run notices."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.paths import RunPaths
from fairtrial.core.runs import Status
from fairtrial.core.training import Observer
from fairtrial.jobs.run_session import run_cell, run_stack
from fairtrial.record import otlp
from fairtrial.record import otlp_exporter as delivery
from fairtrial.record.metadata import load_metadata
from fairtrial.record.otlp_exporter import Delivered, OtlpExporter, read_delivered
from fairtrial.record.recorder import Recorder
from fairtrial.record.store import Store
from tests.harness import eventually, forked, make, request_for, series_of, wait
from tests.record.conftest import FAKE, lines_of, telemetry_of
from tests.record.receiver import Receiver, refuse, take, take_partly


def test_everything_arrives_exactly_as_in_the_file(store: Store, receiver: Receiver) -> None:
    assert make(store, "fake", **FAKE, otlp=receiver.address).status is Status.COMPLETED
    lines = lines_of(store)
    assert len(lines) > 8 and receiver.bodies == lines
    assert {path for path, _ in receiver.requests} == {"/v1/logs"}
    assert telemetry_of(store) == {
        "endpoint": receiver.address, "sent": len(lines), "dropped": 0, "retries": 0, "last_error": None,
    }  # fmt: skip


def test_a_record_says_when_what_and_of_which_run(store: Store, receiver: Receiver) -> None:
    make(store, "fake", **FAKE, otlp=receiver.address)
    created = load_metadata(store.paths.run("s", "v.seed1"))["timings"]["created"]  # type: ignore[index]
    for number, (record, line) in enumerate(zip(receiver.records, lines_of(store), strict=True), 1):
        assert record["name"] == line["event"] and record["nanoseconds"] == int(line["at"] * 1e9)
        assert record["attributes"] == {
            "fairtrial.id": f"s/v.seed1/{round(created * 1000)}/{number}", "fairtrial.line": number,
        }  # fmt: skip
    about = receiver.resources[0]
    assert about["service.name"] == "fairtrial"
    assert (about["fairtrial.study"], about["fairtrial.run_id"], about["fairtrial.seed"]) == ("s", "v.seed1", 1)


def test_every_kind_of_value_survives_the_way(store: Store, receiver: Receiver) -> None:
    """Null, falsy values, whole and broken numbers, nested ones; a whole number above 2^63 arrives as text."""
    odd = {"none": None, "no": False, "zero": 0, "real": 0.0, "text": "", "list": [], "map": {}, "small": -(2**63),
           "deep": {"a": [1, 1.0, None, {"b": "ü\n"}]}, "tiny": 5e-324, "word": "NaN"}  # fmt: skip
    content = json.dumps({"schema": 1, "event": "mine", "at": 1.5, **odd, "large": 2**64 - 1}).encode()
    source = otlp.EventSource("s", "r", "v", 1, "script", 2.0)
    assert otlp.send(receiver.address, otlp.encode(source, [otlp.Line(1, content)]), 5).rejected == 0
    body = receiver.bodies[0]
    assert body.pop("large") == str(2**64 - 1)
    assert body == {"schema": 1, "event": "mine", "at": 1.5, **odd}
    assert repr(body["real"]) == "0.0" and repr(body["zero"]) == "0" and body["no"] is False


def test_an_error_is_graver_than_other_events(receiver: Receiver) -> None:
    lines = [otlp.Line(n, json.dumps({"event": name, "at": 0.0}).encode()) for n, name in enumerate(("error", "x"), 1)]
    otlp.send(receiver.address, otlp.encode(otlp.EventSource("s", "r", "v", 1, "fake", 0.0), lines), 5)
    assert [record["severity"] for record in receiver.records] == [17, 9]


def test_a_receiver_that_comes_up_late_gets_all_of_it(store: Store) -> None:
    with Receiver() as unused:
        port = unused.port  # and now nobody listens there
    late: list[Receiver] = []

    class ComesUp(Observer):
        def step_ended(self, step: int, now: float) -> None:
            if step == FAKE["steps"]:
                eventually(lambda: failures, what="an attempt that fails")
                late.append(Receiver(port=port))

    failures: list[str] = []
    kept = otlp.NotDelivered.__init__

    def noted(self: Exception, *words: str) -> None:
        failures.append(words[0])
        kept(self, *words)

    otlp.NotDelivered.__init__ = noted  # type: ignore[method-assign]
    try:
        run_cell(request_for(store, "fake", **FAKE, otlp=f"http://127.0.0.1:{port}"), observers=[ComesUp()])
    finally:
        otlp.NotDelivered.__init__ = kept  # type: ignore[method-assign]
    with late[0] as receiver:
        assert receiver.bodies == lines_of(store)
        told = telemetry_of(store)
        assert told["dropped"] == 0 and told["retries"] >= 1 and "refused" in told["last_error"]


@pytest.mark.parametrize("how", ["fails", "hangs", "drops the line"])
def test_a_receiver_that_never_takes_anything_changes_no_number(
    tmp_path: Path, store: Store, impatient: None, how: str
) -> None:
    make(Store(tmp_path / "without"), "fake", **FAKE)
    answered = threading.Event()

    def hang(_: int) -> tuple[int, bytes]:
        answered.wait(60)
        return 500, b""

    def drop(_: int) -> tuple[int, bytes]:
        raise ConnectionResetError

    with Receiver({"fails": refuse(500), "hangs": hang, "drops the line": drop}[how]) as receiver:
        assert make(store, "fake", **FAKE, otlp=receiver.address).status is Status.COMPLETED
        answered.set()
    assert series_of(store) == series_of(Store(tmp_path / "without"))
    told = telemetry_of(store)
    assert told["sent"] == 0 and told["dropped"] == len(lines_of(store)) > 8
    assert how != "fails" or "HTTP 500" in told["last_error"]
    names = [[row["event"] for row in lines_of(each)] for each in (store, Store(tmp_path / "without"))]
    assert names[0] == names[1]


def test_the_thread_that_trains_never_waits_for_a_receiver(store: Store) -> None:
    """Nothing is answered before the last step is over: a training that waited for an answer would never get there."""
    over = threading.Event()
    waiting = threading.Event()

    class Says(Observer):
        def step_ended(self, step: int, now: float) -> None:
            if step == 1:
                assert waiting.wait(30), "nobody sends while the run goes on"

        def training_ended(self, now: float) -> None:
            over.set()

    def answer(number: int) -> tuple[int, bytes]:
        waiting.set()
        assert over.wait(30)
        return take(number)

    with Receiver(answer) as receiver:
        run_cell(request_for(store, "fake", **FAKE, otlp=receiver.address), observers=[Says()])
        assert receiver.bodies == lines_of(store)


def test_the_thread_that_trains_never_calls_what_sends(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While steps are taken, all that the sending side does is done by its own thread."""
    callers: dict[str, set[int]] = {}
    training = threading.Event()

    def watched(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def noted(*arguments: Any, **settings: Any) -> Any:
            if training.is_set():
                callers.setdefault(name, set()).add(threading.get_ident())
            return call(*arguments, **settings)

        monkeypatch.setattr(owner, name, noted)

    for owner in (OtlpExporter, delivery.Spool):
        for name, value in vars(owner).items():
            if callable(value):
                watched(owner, name)
    watched(delivery, "encode")

    class Marks(Observer):
        def training_started(self, first_step: int, steps: int, now: float) -> None:
            training.set()

        def step_ended(self, step: int, now: float) -> None:
            if step == 5:
                eventually(lambda: receiver.records and "next_batch" in callers)

        def training_ended(self, now: float) -> None:
            training.clear()

    run_cell(request_for(store, "fake", **FAKE, otlp=receiver.address), observers=[Marks()])
    assert callers and threading.get_ident() not in set().union(*callers.values())


@pytest.mark.parametrize("moment", [3, 7, 11])
def test_a_killed_run_that_is_resumed_delivers_the_rest(tmp_path: Path, receiver: Receiver, moment: int) -> None:
    store = Store(tmp_path / "killed")
    job = request_for(store, "fake", **FAKE, otlp=receiver.address)

    class Kills(Observer):
        def step_ended(self, step: int, now: float) -> None:
            if step == moment:
                eventually(lambda: read_delivered(request_paths).lines)
                os.kill(os.getpid(), signal.SIGKILL)

    request_paths = store.paths.run("s", "v.seed1")
    assert wait(forked(lambda: run_cell(job, observers=[Kills()]))) == -signal.SIGKILL
    before, taken = read_delivered(request_paths), len(receiver.records)
    assert 0 < before.lines <= taken  # the kill may have come between an answer and its note
    run_cell(job)
    lines = lines_of(store)
    by_id = {record["attributes"]["fairtrial.id"]: record["body"] for record in receiver.records}
    assert list(by_id.values()) == lines
    again = [record["attributes"]["fairtrial.line"] for record in receiver.records[taken:]]
    assert again == list(range(before.lines + 1, len(lines) + 1)), "what was noted as delivered is not sent again"
    assert telemetry_of(store)["sent"] == len(lines)


def test_what_an_attempt_could_not_deliver_the_next_one_does(store: Store, impatient: None) -> None:
    down = Receiver(refuse(503))
    job = request_for(store, "fake", **FAKE, otlp=down.address)
    with down:
        outcome = run_cell(job, should_stop=lambda: True)
        assert outcome.status is Status.INTERRUPTED
        told = telemetry_of(store)
        assert (told["sent"], told["dropped"]) == (0, len(lines_of(store)))
        down.behave = take
        run_cell(job)
        assert down.bodies == lines_of(store)
    assert telemetry_of(store)["dropped"] == 0


def test_a_kill_between_answer_and_note_sends_a_batch_again_under_the_same_ids(
    store: Store, receiver: Receiver
) -> None:
    make(store, "fake", **FAKE, otlp=receiver.address)
    first = {record["attributes"]["fairtrial.id"] for record in receiver.records}
    paths = store.paths.run("s", "v.seed1")
    paths.delivered.unlink()
    _deliver_again(paths, receiver)
    assert len(receiver.records) == 2 * len(first)
    assert {record["attributes"]["fairtrial.id"] for record in receiver.records} == first


def _deliver_again(paths: RunPaths, receiver: Receiver) -> None:
    recorder = Recorder.attach(paths)
    sender = OtlpExporter()
    sender.add(recorder, receiver.address)
    sender.settle()
    recorder.release()


def test_a_damaged_note_means_from_the_beginning(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    for content in (b"", b"{", b"[1]", b'{"offset": 1, "other": 2}'):
        paths.delivered.write_bytes(content)
        assert read_delivered(paths) == Delivered()


def test_a_run_that_replaces_another_has_other_ids(store: Store, receiver: Receiver) -> None:
    make(store, "fake", **FAKE, otlp=receiver.address)
    first = {record["attributes"]["fairtrial.id"] for record in receiver.records}
    store.archive(store.paths.run("s", "v.seed1"), "s")
    make(store, "fake", **FAKE, otlp=receiver.address)
    assert len({record["attributes"]["fairtrial.id"] for record in receiver.records}) == 2 * len(first)


@pytest.mark.parametrize("status", [400, 413])
def test_content_that_a_receiver_does_not_want_is_not_sent_again(store: Store, status: int) -> None:
    """One batch that it cannot read must not hold up all that come after."""
    with Receiver(lambda number: (status, b"") if number == 1 else take(number)) as receiver:
        make(store, "fake", **FAKE, otlp=receiver.address)
        lines, told = lines_of(store), telemetry_of(store)
        assert told["retries"] == 0 and f"HTTP {status}" in told["last_error"] and told["dropped"] >= 1
        assert receiver.bodies == lines[told["dropped"] :]
        assert told["sent"] + told["dropped"] == len(lines)


def test_records_that_a_receiver_threw_away_are_counted(store: Store) -> None:
    with Receiver(take_partly(1)) as receiver:
        make(store, "fake", **FAKE, otlp=receiver.address)
        told = telemetry_of(store)
        assert told["dropped"] == len(receiver.requests) and told["last_error"] == "too old"
        assert told["sent"] == len(lines_of(store)) - told["dropped"]


def test_large_files_go_in_several_requests(store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, "fake", **FAKE)
    monkeypatch.setattr(delivery, "MOST_LINES", 3)
    _deliver_again(store.paths.run("s", "v.seed1"), receiver)
    lines = lines_of(store)
    assert receiver.bodies == lines and len(receiver.requests) == -(-len(lines) // 3)
    monkeypatch.setattr(delivery, "MOST_LINES", 1000)
    monkeypatch.setattr(delivery, "MOST_BYTES", 1)  # each line is larger than that, and goes alone
    store.paths.run("s", "v.seed1").delivered.unlink()
    receiver.requests.clear()
    _deliver_again(store.paths.run("s", "v.seed1"), receiver)
    assert len(receiver.requests) == len(lines)


def test_an_unfinished_line_waits_until_it_is_whole(store: Store, receiver: Receiver) -> None:
    make(store, "fake", **FAKE)
    paths = store.paths.run("s", "v.seed1")
    recorder = Recorder.attach(paths)
    spool = delivery.Spool(recorder, receiver.address, otlp.send)
    with paths.events.open("ab") as file:
        file.write(b'{"schema":1,"event":"run_en')
    batch = spool.next_batch()
    assert batch is not None and len(batch.lines) == len(lines_of(store))
    assert all(json.loads(line.content) for line in batch.lines)
    recorder.release()


def test_runs_of_a_stack_share_one_thread_and_one_wait(with_data: Store, receiver: Receiver) -> None:
    store = with_data
    jobs = [request_for(store, "classify", seed=seed, steps=4, model="linear", labels=100, otlp=receiver.address)
                for seed in (1, 2, 3)]  # fmt: skip
    seen: set[str] = set()
    ended: list[int] = []

    def end(spec: Any, code: int, outcome: Any) -> None:
        ended.append(code)
        seen.update(thread.name for thread in threading.enumerate())
        assert sum(thread.name == "fairtrial-delivery" for thread in threading.enumerate()) <= 1

    run_stack(jobs, end)
    assert ended == [0, 0, 0] and "fairtrial-delivery" in seen
    by_run = {about["fairtrial.run_id"] for about in receiver.resources}
    assert by_run == {f"v.seed{seed}" for seed in (1, 2, 3)}
    assert all(telemetry_of(store, run)["dropped"] == 0 for run in by_run)
    sent = [record["attributes"]["fairtrial.id"] for record in receiver.records]
    assert len(sent) == len(set(sent)) == sum(len(lines_of(store, run)) for run in by_run)


def test_one_receiver_that_is_down_does_not_hold_up_another(store: Store, receiver: Receiver, impatient: None) -> None:
    for seed in (1, 2):
        make(store, "fake", **FAKE, seed=seed)
    recorders = [Recorder.attach(store.paths.run("s", f"v.seed{seed}")) for seed in (1, 2)]
    sender = OtlpExporter()
    with Receiver(refuse(503)) as down:
        for recorder, address in zip(recorders, (down.address, receiver.address), strict=True):
            sender.add(recorder, address)
        sender.settle()
    assert receiver.bodies == lines_of(store, "v.seed2")
    assert telemetry_of(store, "v.seed1")["sent"] == 0
    for recorder in recorders:
        recorder.release()


def test_an_answer_that_comes_after_the_end_counts_for_nothing(store: Store, impatient: None) -> None:
    """It was said that nothing arrived; a note behind that would make a resumed run skip it."""
    answered, noted = threading.Event(), threading.Event()

    def late(number: int) -> tuple[int, bytes]:
        answered.wait(30)
        return take(number)

    with Receiver(late) as receiver:
        make(store, "fake", **FAKE, otlp=receiver.address)
        thread = next((each for each in threading.enumerate() if each.name == "fairtrial-delivery"), None)
        assert thread is not None and not noted.is_set()
        answered.set()
        thread.join(30)
        assert not thread.is_alive() and receiver.records
    assert read_delivered(store.paths.run("s", "v.seed1")) == Delivered()
    assert telemetry_of(store)["sent"] == 0


def test_the_generators_of_the_process_are_left_alone(store: Store, impatient: None) -> None:
    random.seed(5)
    before = random.getstate()
    with Receiver(refuse(503)) as receiver:
        make(store, "fake", **FAKE, otlp=receiver.address)
    assert random.getstate() == before


def test_waiting_at_the_end_is_no_time_of_the_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is on disk before anything is waited for, and what it took does not grow by the waiting."""
    found: list[dict[str, Any]] = []
    settle = OtlpExporter.settle

    def look_first(self: OtlpExporter) -> None:
        found.append(json.loads(store.paths.run("s", "v.seed1").metadata.read_text()))
        settle(self)

    monkeypatch.setattr(OtlpExporter, "settle", look_first)
    with Receiver() as receiver:
        make(store, "fake", **FAKE, otlp=receiver.address)
    assert found[0]["status"] == "completed"
    assert found[0]["timings"] == load_metadata(store.paths.run("s", "v.seed1"))["timings"]  # type: ignore[index]
