"""Every event is declared in one place, and what runs really write fits the schema that is published."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import fairtrial
from fairtrial.core.errors import UserError
from fairtrial.core.events import NAMES, EventLine, check_event
from fairtrial.core.runs import EVALUATION, Status
from fairtrial.core.schema import EVENTS_SCHEMA
from fairtrial.core.training import RunContext
from fairtrial.jobs.run_session import run_cell
from fairtrial.probe.gpu import GpuReading, Gpus
from fairtrial.record.recorder import Recorder
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from fairtrial.record.top_checkpoints import DROPPED, KEPT
from tests.conftest import Answer
from tests.harness import make, request_for

ROOT = Path(__file__).parent.parent.parent
PUBLISHED = json.loads((ROOT / f"docs/schemas/events-{EVENTS_SCHEMA}.json").read_text())
BASE = {"schema": 1, "at": 1.0}
SHA = "0" * 64
LANGUAGE_MODEL: list[dict[str, Any]] = [
    {"event": "device_stats", "unavailable": "no NVIDIA driver responds"},
    {"event": "device_stats", "step": 3, "devices": [
        {"name": "A100", "load_percent": 0.0, "memory_bytes": 0, "memory_total_bytes": 80}]},
    {"event": "inference_response", "version": 0, "phase": "rollout", "queue_ms": None, "prefill_ms": 1.5,
     "decode_ms": 20.0, "prompt_tokens": 256, "completion_tokens": 0},
    {"event": "training_step", "step": 1, "version": 1, "lag": 0, "trained_tokens": 64, "forwarded_tokens": 320, "buffered": 1,
     "phases_ms": {"backward": 3.0}},
    {"event": "rollout_complete", "step": 1, "version": 0, "groups": 2, "samples": 8, "generated_tokens": 64,
     "seconds": 0.5, "overlap_s": 0.0, "reward_mean": None},
    {"event": "error", "where": "worker 3", "message": "it was started again"},
]  # fmt: skip


@pytest.fixture(scope="module")
def published() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)
    return jsonschema.Draft202012Validator(PUBLISHED)


def lines_below(store: Store) -> list[dict[str, Any]]:
    return [row for path in sorted(store.root.glob("*/*/events.jsonl")) for row in read_lines(path).rows]


def assert_declared(lines: list[dict[str, Any]], published: jsonschema.Draft202012Validator) -> set[str]:
    for line in lines:
        check_event(line)
        published.validate(line)
    return {line["event"] for line in lines}


def test_a_run_that_is_stopped_and_resumed_writes_declared_events(
    store: Store, published: jsonschema.Draft202012Validator
) -> None:
    job = request_for(store, "fake", steps=12, eval_every=2, checkpoint_every=3, keep_best=2, jitter=0.3)
    steps = iter(range(1, 100))
    assert run_cell(job, should_stop=lambda: next(steps) >= 6).status is Status.INTERRUPTED
    with store.paths.run("s", "v.seed1").events.open("ab") as file:
        file.write(b'{"schema":1,"event":"chec')
    run_cell(job)
    found = assert_declared(lines_below(store), published)
    assert found == {
        "run_started", "run_resumed", "torn_line_dropped", "rewound", "evaluated", "checkpoint_saved", "best_changed",
        "top_kept", "top_dropped", "run_ended",
    }  # fmt: skip


def test_a_run_that_fails_or_diverges_writes_declared_events(
    store: Store, published: jsonschema.Draft202012Validator
) -> None:
    make(store, "fake", steps=5, fail_at=2)
    make(store, "fake", seed=2, steps=20, diverge_at=10)
    statuses = {line["status"] for line in lines_below(store) if line["event"] == "run_ended"}
    assert statuses == {"failed", "diverged"} and assert_declared(lines_below(store), published)


def test_a_damaged_checkpoint_is_told_of_with_a_declared_event(
    store: Store, published: jsonschema.Draft202012Validator
) -> None:
    job = request_for(store, "fake", steps=12, checkpoint_every=3)
    steps = iter(range(1, 100))
    run_cell(job, should_stop=lambda: next(steps) >= 6)
    store.paths.run("s", "v.seed1").step(6).write_bytes(b"damaged")
    run_cell(job)
    assert "checkpoint_refused" in assert_declared(lines_below(store), published)


def test_trainings_with_torch_write_declared_events(
    with_data: Store, cli: Callable[..., Answer], published: jsonschema.Draft202012Validator
) -> None:
    make(with_data, "classify", steps=4, eval_every=2, checkpoint_every=2, model="linear", labels=100)
    make(with_data, "distill", study="d", steps=4, teacher_steps=3, teacher_width=4, labels=100)
    make(with_data, "ppo", study="p", steps=2, eval_every=1, checkpoint_every=1)
    assert cli("evaluate", "p/v.seed1").code == 0
    found = assert_declared(lines_below(with_data), published)
    assert {"episodes", "evaluation", "evaluated", "checkpoint_saved", "best_changed"} <= found


def test_a_program_of_ones_own_is_told_of_with_declared_events(
    store: Store, cli: Callable[..., Answer], published: jsonschema.Draft202012Validator
) -> None:
    told = cli("train", "command", "--", "sh", "-c", "true")
    assert told.code == 0, told.err
    assert {"program_started", "program_ended"} <= assert_declared(lines_below(store), published)


def test_a_script_may_write_events_of_its_own(store: Store, published: jsonschema.Draft202012Validator) -> None:
    with fairtrial.run(seed=1, study="s", variant="v") as run:
        run.event("coffee", cups=3, sorts=["black", None])
    lines = lines_below(store)
    for line in lines:
        published.validate(line)
        EventLine.model_validate(line)
    own = next(line for line in lines if line["event"] == "coffee")
    assert own["cups"] == 3
    with pytest.raises(UserError, match="unknown event 'coffee'"):
        check_event(own)


def test_the_open_form_has_no_room_for_names_that_are_taken(published: jsonschema.Draft202012Validator) -> None:
    for line in ({"event": "run_started", "cups": 3}, {"event": "rewound"}, {"event": ""}, {"cups": 3}):
        assert not published.is_valid({**BASE, **line})
    assert published.is_valid({**BASE, "event": "coffee", "cups": 3})
    assert not published.is_valid({"schema": 2, "at": 1.0, "event": "coffee"})


@pytest.mark.parametrize("line", LANGUAGE_MODEL, ids=lambda line: line["event"])
def test_events_of_playing_language_models_are_declared(
    line: Mapping[str, Any], published: jsonschema.Draft202012Validator
) -> None:
    check_event({**BASE, **line})
    published.validate({**BASE, **line})
    for name in [name for name in line if name not in ("event", "step")] + ["step"] * ("lag" in line):
        less = {key: value for key, value in line.items() if key != name}
        with pytest.raises(UserError, match="is not valid"):
            check_event({**BASE, **less})
        assert not published.is_valid({**BASE, **less})
    with pytest.raises(UserError, match="is not valid"):
        check_event({**BASE, **line, "more": 1})


def test_a_device_that_is_not_there_has_no_load(published: jsonschema.Draft202012Validator) -> None:
    """Unknown is a reason, never 0: both at once, or neither, is refused."""
    both = {"devices": LANGUAGE_MODEL[1]["devices"], "unavailable": "none"}
    for fields in ({}, both, {"devices": []}, {"unavailable": ""}, {"load_percent": 0}):
        line = {**BASE, "event": "device_stats", **fields}
        assert not published.is_valid(line), fields
        with pytest.raises(UserError):
            check_event(line)


def test_what_the_probe_finds_is_a_declared_event(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus()
    if gpus.unavailable:
        check_event({**BASE, "event": "device_stats", **gpus.stats()})
    gpus.unavailable = None
    monkeypatch.setattr(gpus, "read", lambda: [GpuReading("card", 12.5, 10, 20)])
    found = gpus.stats()
    check_event({**BASE, "event": "device_stats", **found})
    assert found["devices"][0]["load_percent"] == 12.5


def test_the_writer_refuses_an_undeclared_event_in_tests(store: Store) -> None:
    make(store, "fake", steps=3)
    recorder = Recorder.attach(store.paths.run("s", "v.seed1"))
    before = recorder.paths.events.read_bytes()
    with pytest.raises(UserError, match="did you mean 'evaluated'"):
        recorder.event("evaluate", step=1)
    with pytest.raises(UserError, match="'rewound' is not valid"):
        recorder.write_event("rewound", stepp=1)
    assert recorder.paths.events.read_bytes() == before
    recorder.release()


def written_names() -> Iterator[tuple[str, str]]:
    """The names that the source gives to `event(…)` and `tell(…)` of a run context or logger."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and _speaks(node.func):
                yield from ((path.name, name) for name in _names(node.args[0]))


def _speaks(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute):
        return False
    owner = ast.unparse(function.value)
    return function.attr in ("event", "_event", "write_event") or (
        function.attr == "tell" and owner.endswith("context")
    )


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.IfExp):
        return _names(node.body) + _names(node.orelse)
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    constants = {"EVALUATION": EVALUATION, "KEPT": KEPT, "DROPPED": DROPPED}
    return [constants[node.id]] if isinstance(node, ast.Name) and node.id in constants else []


@pytest.mark.slow
def test_every_name_in_the_source_is_declared() -> None:
    """Jobs in processes of their own are not watched by the other tests: their source is read."""
    found = list(written_names())
    assert len(found) >= 15
    assert not [each for each in found if each[1] not in NAMES]


def test_the_page_on_recording_names_every_event() -> None:
    page = (ROOT / "docs" / "record.md").read_text()
    assert not [name for name in NAMES if f"`{name}`" not in page]


RECIPE = """
from fairtrial.core.options import LoopOptions, Role, option
from fairtrial.core.specs import Metric

SUMMARY, REQUIRES, METRIC = "Tells.", (), Metric("accuracy", "max")


class Options(LoopOptions):
    steps: int = option(3, "Steps.", role=Role.TRAINING, ge=1)


class Tells:
    def __init__(self, setting):
        self.setting, self.done = setting, 0
        setting.tell("built")

    def step(self, step, watch):
        self.done = step
        self.setting.tell("stepped", step=step)
        self.setting.tell("device_stats", step=step)
        return {"loss": 1.0 / step}

    def evaluate(self, split):
        return {"accuracy": self.done / 10}

    def state(self):
        return {"done": self.done}

    def load_state(self, state):
        self.done = state["done"]

    def tensor_groups(self):
        return {}

    def flops_per_step(self):
        return 1


def build(options, setting):
    return Tells(setting)
"""


def test_a_recipe_tells_what_happened_and_nothing_that_was_taken_back(store: Store, tmp_path: Path) -> None:
    """The rehearsal that counts operations takes a step too; it is rolled back, and nobody hears of it."""
    (tmp_path / "teller.py").write_text(RECIPE)
    job = request_for(store, str(tmp_path / "teller.py"))
    run_cell(job)
    lines = lines_below(store)
    assert [line["step"] for line in lines if line["event"] == "stepped"] == [1, 2, 3]
    stats = [line for line in lines if line["event"] == "device_stats"]
    assert [line["step"] for line in stats] == [1, 2, 3] and not any(line["event"] == "built" for line in lines)
    for line in stats:
        check_event(line)


def test_a_setting_that_nobody_listens_to_takes_what_it_is_told(store: Store) -> None:
    context = RunContext(streams=None, variant="v", run=store.paths.run("s", "v.seed1"), cache=None)  # type: ignore[arg-type]
    context.tell("training_step", step=1)
    assert not store.root.exists()
