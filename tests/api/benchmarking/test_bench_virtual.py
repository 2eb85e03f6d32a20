"""bench on a virtual clock: what the fake recipe is told to take is what is found, exactly."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial import BenchTerms, bench, bench_variants
from fairtrial.api.benchmarking.baselines import compare_with, read_baseline, require_comparable, save_baseline
from fairtrial.api.benchmarking.bench import Bench, ImpossibleFigure
from fairtrial.core.errors import CheckFailed, InvalidOptions, UserError
from fairtrial.record.store import Store
from fairtrial.stats.speed import Speed
from tests.own_recipe import PLAIN
from tests.virtual import VirtualTime

PHASES = {
    "data_time": 0.002,
    "transfer_time": 0.001,
    "step_time": 0.004,
    "backward_time": 0.006,
    "optimizer_time": 0.003,
}
EXACT = {"rel": 0, "abs": 1e-9}


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    clock = VirtualTime()
    monkeypatch.setattr("fairtrial.recipes.fake.sleep", clock.passes)
    return clock


@pytest.fixture
def measure(time: VirtualTime, store: Store) -> Callable[..., Bench]:
    def measured(options: dict[str, Any], **terms: Any) -> Bench:
        given = {"batches": 100, "trials": False, **terms}
        return bench("fake", {"steps": 1000, **options}, BenchTerms(store=store.root, clock=time, **given))

    return measured


def per_step(found: Bench, column: str = "ms_per_step") -> dict[str, float]:
    return {row["phase"]: row[column] for row in found.phase_rows()}


def test_known_phases_are_found(measure: Callable[..., Bench]) -> None:
    found = measure(PHASES, warmup=0)
    wanted = {"data": 2, "transfer": 1, "forward": 4, "backward": 6, "optimizer": 3, "logging": 0, "residual": 0}
    assert per_step(found) == pytest.approx(wanted, **EXACT)
    assert found.breakdown is not None and found.breakdown.window == pytest.approx(1.6, **EXACT)
    assert found.quantile(0.99).value == pytest.approx(0.016, **EXACT)


def test_accumulation_shares_an_update_among_its_batches(measure: Callable[..., Bench]) -> None:
    found = measure({**PHASES, "accumulate": 4, "batch_size": 10}, warmup=0)
    assert per_step(found)["optimizer"] == pytest.approx(3, **EXACT)
    assert per_step(found, "ms_per_batch")["optimizer"] == pytest.approx(0.75, **EXACT)
    assert per_step(found, "ms_per_batch")["backward"] == pytest.approx(6, **EXACT)
    assert found.examples == 40 and found.to_dict()["steps"]["batches_per_step"] == 4


def test_a_stall_in_one_step_of_twenty_is_in_p99_and_belongs_to_data(measure: Callable[..., Bench]) -> None:
    found = measure({**PHASES, "stall_time": 0.05, "stall_every": 20}, warmup=0, batches=1000, sample_ratio=None)
    assert found.quantile(0.99).value == pytest.approx(0.066, **EXACT)
    assert found.quantile(0.5).value == pytest.approx(0.016, **EXACT)
    assert per_step(found)["data"] == pytest.approx(2 + 50 / 20, **EXACT)
    assert per_step(found)["forward"] == pytest.approx(4, **EXACT)


def test_an_observer_that_is_slow_to_stop_does_not_count(
    measure: Callable[..., Bench], time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairtrial.probe.monitor import ResourceMonitor

    stop = ResourceMonitor.stop

    def slowly(self: ResourceMonitor) -> None:
        time.passes(0.5)
        stop(self)

    monkeypatch.setattr(ResourceMonitor, "stop", slowly)
    found = measure(PHASES, warmup=0, monitor=True)
    assert found.breakdown is not None and found.breakdown.window == pytest.approx(1.6, **EXACT)
    assert found.monitored is not None and found.monitored.wall_s == pytest.approx(1.6, **EXACT)


def test_evaluation_is_apart_from_steps(measure: Callable[..., Bench], time: VirtualTime, monkeypatch: Any) -> None:
    from fairtrial.recipes.fake import Fake

    evaluate = Fake.evaluate

    def slowly(self: Fake, split: Any) -> Any:
        time.passes(0.25)
        return evaluate(self, split)

    monkeypatch.setattr(Fake, "evaluate", slowly)
    found = measure({**PHASES, "eval_every": 10}, warmup=0, validation=True)
    assert found.times.mean().value == pytest.approx(0.016, **EXACT)
    assert found.breakdown is not None and found.breakdown.phases["evaluation"] == pytest.approx(9 * 0.25, **EXACT)


class Follow:
    """Measures as it is, takes the suggestion, and measures again."""

    def __init__(self, store: Store, time: VirtualTime) -> None:
        self.store, self.time = store, time

    def __call__(self, recipe: str, options: dict[str, Any], name: str) -> tuple[Bench, Bench, Any]:
        terms = BenchTerms(batches=100, store=self.store.root, clock=self.time)
        before = bench(recipe, options, terms)
        [found] = [each for each in before.suggestions if name in each.change]
        after = bench(recipe, {**options, **found.change}, terms)
        return before, after, found


def gained(before: Bench, after: Bench) -> float:
    assert before.throughput.value is not None and after.throughput.value is not None
    return after.throughput.value / before.throughput.value


def test_loading_ahead_is_suggested_and_helps_as_predicted(store: Store, time: VirtualTime) -> None:
    given = {"steps": 1000, "data_time": 0.009, "step_time": 0.004, "batch_size": 1}
    before, after, found = Follow(store, time)("fake", given, "loader_workers")
    assert found.change == {"loader_workers": 3} and found.gain.value == pytest.approx(13 / 4, **EXACT)
    assert gained(before, after) == pytest.approx(found.gain.value, rel=0.02)
    assert not [each for each in after.suggestions if "loader_workers" in each.change], "there is nothing left to gain"
    assert "waited for data 69 %" in found.evidence


def test_a_larger_batch_is_suggested_and_helps_as_predicted(store: Store, time: VirtualTime) -> None:
    given = {"steps": 1000, "step_time": 0.01, "example_time": 0.0001, "batch_size": 10}
    before, after, found = Follow(store, time)("fake", given, "batch_size")
    assert found.change == {"batch_size": 20} and gained(before, after) == pytest.approx(found.gain.value, rel=1e-6)
    assert found.gain.value == pytest.approx(2 * 0.011 / 0.012, rel=1e-9)


TIMED = """
from tests.api.benchmarking.test_bench_virtual import clock, sleep

REQUIRES = ("torch",)

class Options(TorchOptions):
    kills_above: int = option(10**9, "Batch size that ends the process.", role=Role.TRAINING)
    needs_much_above: int = option(10**9, "Batch size that needs more memory than there is.", role=Role.TRAINING)
    batch_size: int = option(4, "Examples.", role=Role.TRAINING)
    device_time: float = option(0.0, "Time per example on a device of its own.", role=Role.TRAINING)
    stacks: bool = option(False, "Whether runs stack.", role=Role.TRAINING)

class Own(Plain):
    busy_until = 0.0

    def synchronize(self):
        sleep(max(0.0, self.busy_until - clock()))

    @property
    def examples_per_step(self):
        return self.options.batch_size

    def step(self, step, watch):
        import os, signal, torch
        if self.options.batch_size > self.options.kills_above:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.options.batch_size > self.options.needs_much_above:
            torch.empty(10**16)
        if self.options.device_time:
            self.busy_until = max(self.busy_until, watch.clock()) + self.options.device_time * self.options.batch_size
            return {"loss": 1.0 / step}
        with watch.phase("forward"):
            sleep(0.002 + 0.008 / torch.get_num_threads() + 0.00001 * self.options.batch_size)
        return {"loss": 1.0 / step}

class Together:
    def __init__(self, runs):
        self.runs = runs

    def step(self, due, watch):
        sleep(0.012)
        return {member: {"loss": 1.0} for member in due}

def stack_key(options):
    return "one" if options.stacks else None

def stack(runs):
    return Together(runs)
"""


@pytest.fixture
def timed(tmp_path: Path, time: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> str:
    """A recipe of the user's whose time is virtual."""
    path = tmp_path / "timed.py"
    path.write_text(PLAIN + TIMED)
    monkeypatch.setitem(globals(), "sleep", time.passes)
    monkeypatch.setitem(globals(), "clock", time)
    return str(path)


def test_threads_are_suggested_and_help_as_predicted(
    store: Store, time: VirtualTime, timed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    before, after, found = Follow(store, time)(timed, {}, "threads")
    assert found.change == {"threads": 2} and gained(before, after) == pytest.approx(found.gain.value, rel=1e-6)
    assert not [each for each in after.suggestions if "threads" in each.change]


def test_a_stack_is_suggested_where_it_helps(store: Store, time: VirtualTime, timed: str) -> None:
    terms = BenchTerms(batches=60, store=store.root, clock=time)
    found = [each for each in bench(timed, {"stacks": True}, terms).suggestions if "stack" in each.what]
    assert found[0].gain.value == pytest.approx(8 * 0.01004 / 0.012, rel=1e-6)
    assert not [each for each in bench(timed, {}, terms).suggestions if "stack" in each.what]


def test_nothing_is_suggested_that_gains_nothing(measure: Callable[..., Bench]) -> None:
    found = measure({"example_time": 0.001, "batch_size": 10}, trials=True)
    assert found.suggestions == []


def test_batch_sizes_have_a_knee(measure: Callable[..., Bench]) -> None:
    found = measure({"step_time": 0.01, "example_time": 0.0001}, batch_sizes=[50, 400, 100]).sizes
    assert found is not None and [row.size for row in found.rows] == [50, 100, 400]
    assert found.knee is not None and found.knee.knee.value == pytest.approx(100, rel=1e-9)
    assert [row.step_s for row in found.rows] == pytest.approx([0.015, 0.02, 0.05], rel=1e-9)
    assert {row.size * row.steps for row in found.rows} == {800}, "every size sees as many examples"
    assert found.fastest is not None and found.fastest.size == 400 and "knee" in found.to_dict()


def test_sizes_that_memory_does_not_allow_are_survived(store: Store, time: VirtualTime, timed: str) -> None:
    terms = BenchTerms(batches=20, store=store.root, clock=time, trials=False, batch_sizes=[4, 64, 512])
    found = bench(timed, {"kills_above": 256, "needs_much_above": 32}, terms)
    assert found.sizes is not None
    good, much, killed = found.sizes.rows
    assert good.reason is None and good.throughput is not None
    assert much.out_of_memory and killed.out_of_memory and "the kernel killed" in str(killed.reason)
    assert sum(caution["code"] == "size not measured" for caution in found.cautions) == 2
    assert list(store.root.glob(".bench*")) == [], "what the process that died had made is gone too"


def test_variants_are_timed_in_turns(time: VirtualTime, store: Store) -> None:
    time_each = {"plain": {"step_time": 0.01}, "quick": {"step_time": 0.008}}
    terms = BenchTerms(batches=100, store=store.root, clock=time)
    found = bench_variants("fake", time_each, {"steps": 1000}, terms)
    assert found.compared.verdict is Speed.FASTER and found.compared.ratio.value == pytest.approx(0.8, rel=1e-9)
    assert found.unit == "step" and len(found.rows()) == 8
    again = bench_variants("fake", {"a": {"step_time": 0.01}, "b": {"step_time": 0.0101}}, {"steps": 1000}, terms)
    assert again.compared.verdict is Speed.EQUIVALENT
    sizes = {"small": {"batch_size": 1, "step_time": 0.01}, "large": {"batch_size": 4, "step_time": 0.02}}
    per_example = bench_variants("fake", sizes, {"steps": 1000}, terms)
    assert per_example.unit == "example" and per_example.compared.ratio.value == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"checkpoint_every": 1}, "checkpoint_every: not valid in bench"),
        ({"eval_every": 1}, "bench does not evaluate by default"),
    ],
)
def test_variants_get_no_option_that_bench_does_not_take(
    time: VirtualTime, store: Store, changes: dict[str, Any], told: str
) -> None:
    terms = BenchTerms(batches=100, store=store.root, clock=time)
    with pytest.raises(UserError, match=told):
        bench_variants("fake", {"a": {}, "b": changes}, {"steps": 1000}, terms)


def test_a_variant_with_few_steps_goes_on_for_as_long_as_it_is_timed(time: VirtualTime, store: Store) -> None:
    pair = {"a": {"step_time": 0.01}, "b": {"step_time": 0.01, "steps": 3}}
    found = bench_variants("fake", pair, {"steps": 1000}, BenchTerms(batches=100, store=store.root, clock=time))
    assert found.compared.ratio.value == pytest.approx(1, rel=1e-9)


def test_each_variant_computes_with_its_own_threads(store: Store, time: VirtualTime, timed: str) -> None:
    terms = BenchTerms(batches=100, store=store.root, clock=time)
    found = bench_variants(timed, {"one": {"threads": 1}, "two": {"threads": 2}}, {}, terms)
    assert found.compared.ratio.value == pytest.approx(0.00604 / 0.01004, rel=1e-6)


def test_a_device_that_works_behind_the_back_is_waited_for_in_turns_too(
    store: Store, time: VirtualTime, timed: str
) -> None:
    terms = BenchTerms(batches=100, store=store.root, clock=time, batch_sizes=[10, 20], trials=False)
    found = bench(timed, {"device_time": 0.001}, terms)
    assert found.sizes is not None and found.sizes.knee is not None
    assert [row.step_s for row in found.sizes.rows] == pytest.approx([0.01, 0.02], rel=1e-6)
    assert found.times.mean().value == pytest.approx(0.004, rel=1e-6)
    pair = {"small": {"batch_size": 10}, "large": {"batch_size": 30}}
    turns = bench_variants(timed, pair, {"device_time": 0.001}, terms)
    assert turns.compared.ratio.value == pytest.approx(1, rel=1e-6), "per example they are equal"


def test_accumulated_examples_count_in_the_rates_of_sizes(measure: Callable[..., Bench]) -> None:
    found = measure({"step_time": 0.01, "accumulate": 4}, batch_sizes=[10, 20]).sizes
    assert found is not None and found.rows[0].throughput is not None
    assert found.rows[0].throughput.value == pytest.approx(40 / 0.04, rel=1e-9)


def test_a_size_that_is_refused_does_not_prolong_the_others(store: Store, time: VirtualTime, timed: str) -> None:
    terms = BenchTerms(batches=20, store=store.root, clock=time, trials=False, batch_sizes=[4, 10**9])
    found = bench(timed, {"needs_much_above": 100}, terms).sizes
    assert found is not None and found.rows[1].out_of_memory and found.rows[0].steps < 100


def test_threads_do_not_keep_sizes_from_being_tried(with_data: Store) -> None:
    """A process that forks leaves its threads behind: what is tried there has one."""
    terms = BenchTerms(batches=20, store=with_data.root, batch_sizes=[100, 200], trials=False)
    found = bench("classify", {"labels": 400, "threads": 2}, terms)
    assert found.sizes is not None and all(row.reason is None for row in found.sizes.rows)


def test_stalls_that_loaders_cannot_hide_bring_no_suggestion(measure: Callable[..., Bench]) -> None:
    found = measure({"stall_time": 0.02, "stall_every": 4, "step_time": 0.001}, trials=True)
    assert not [each for each in found.suggestions if "loader_workers" in each.change]


def test_a_drift_is_the_same_for_both_sides(time: VirtualTime, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairtrial.recipes.fake.sleep", lambda seconds: time.passes(seconds * (1 + time.now)))
    pair = {"a": {"step_time": 0.001}, "b": {"step_time": 0.001, "label": "b"}}
    found = bench_variants("fake", pair, {"steps": 1000}, BenchTerms(batches=160, store=store.root, clock=time))
    assert found.compared.ratio.value == pytest.approx(1, abs=0.002)


def test_a_baseline_is_kept_and_compared(measure: Callable[..., Bench], tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    save_baseline(measure(PHASES), path)
    same = compare_with(read_baseline(path), measure(PHASES))
    assert same.compared.verdict is Speed.EQUIVALENT and not same.regressed
    with pytest.raises(InvalidOptions, match=r"configuration: step_time 0.004 → 0.005"):
        require_comparable(read_baseline(path), "fake", {"steps": 1000, **PHASES, "step_time": 0.005}, BenchTerms())
    require_comparable(read_baseline(path), "fake", {"steps": 1000, **PHASES}, BenchTerms())


def test_a_baseline_keeps_the_commit_and_both_are_shown(
    measure: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        return subprocess.run(["git", *who, *words], cwd=repository, check=True, capture_output=True, text=True).stdout

    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    path, code = tmp_path / "base.json", repository / "code.py"
    git("init", "-q")
    code.write_text("1")
    git("add", "code.py")
    git("commit", "-qm", "one")
    first = git("rev-parse", "HEAD").strip()
    found = measure(PHASES)
    save_baseline(found, path)
    assert json.loads(path.read_text())["code"] == {"git_commit": first, "git_dirty": False}
    code.write_text("2")
    against = compare_with(read_baseline(path), found)
    assert [str(each) for each in against.code] == [first[:8], f"{first[:8]} with uncommitted changes"]
    git("commit", "-qam", "two")
    told = compare_with(read_baseline(path), found).to_dict()["code"]
    assert told == {
        "then": {"git_commit": first, "git_dirty": False},
        "now": {"git_commit": git("rev-parse", "HEAD").strip(), "git_dirty": False},
    }
    kept = json.loads(path.read_text())
    del kept["code"]
    path.write_text(json.dumps(kept))
    assert str(read_baseline(path).code) == "unknown", "a file of an earlier version is still read"


def test_a_slower_measurement_is_a_regression(
    measure: Callable[..., Bench], time: VirtualTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "base.json"
    save_baseline(measure(PHASES), path)
    monkeypatch.setattr("fairtrial.recipes.fake.sleep", lambda seconds: time.passes(1.2 * seconds))
    found = compare_with(read_baseline(path), measure(PHASES))
    assert found.regressed and found.compared.ratio.value == pytest.approx(1.2, rel=1e-6)
    assert {caution["code"] for caution in found.cautions} == {"two sessions"}


def test_another_machine_is_refused(measure: Callable[..., Bench], tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    save_baseline(measure(PHASES), path)
    path.write_text(path.read_text().replace('"cpu_count": ', '"cpu_count": 9'))
    with pytest.raises(InvalidOptions, match="machine: cpu_count"):
        require_comparable(read_baseline(path), "fake", {"steps": 1000, **PHASES}, BenchTerms())


def test_what_differs_between_processes_is_in_the_interval(measure: Callable[..., Bench], tmp_path: Path) -> None:
    """Within each process time stands still, and yet they differ: that alone must not be called a regression."""
    path = tmp_path / "base.json"
    save_baseline(measure(PHASES), path, [0.014, 0.019, 0.017, 0.015])
    slower = compare_with(read_baseline(path), measure(PHASES), further=[0.018, 0.02, 0.016, 0.017])
    assert slower.compared.verdict is Speed.INCONCLUSIVE and slower.compared.ratio.n == 5
    surely = compare_with(read_baseline(path), measure(PHASES), further=[0.028, 0.031, 0.029, 0.03])
    assert surely.compared.ratio.value is not None and surely.compared.ratio.value > 1.4


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not a bench baseline"),
        ('{"kind": "fairtrial bench", "schema": 99}', "another version of bench"),
        ('{"kind": "fairtrial bench", "schema": 1}', "is damaged"),
    ],
)
def test_what_is_no_baseline_is_refused(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(content)
    with pytest.raises(UserError, match=told):
        read_baseline(path)


def test_too_few_steps_are_not_kept(measure: Callable[..., Bench], tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match="too few steady steps"):
        save_baseline(measure(PHASES, batches=5), tmp_path / "base.json")
    assert not (tmp_path / "base.json").exists()


def test_more_arithmetic_than_the_device_can_do_is_an_error(
    with_data: Store, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clock() -> float:
        time.passes(1e-9)  # steps that take nanoseconds cannot be
        return time.now

    monkeypatch.setattr("fairtrial.probe.calibration.REPEATS", 3)
    with pytest.raises(ImpossibleFigure, match="the calibrated peak of this device"):
        bench(
            "classify", {"labels": 200, "batch_size": 50}, BenchTerms(store=with_data.root, clock=clock, trials=False)
        )
