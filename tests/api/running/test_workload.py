"""What a launch says before its first run: steps, frames, and a time that is measured or called unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.api.running.workload import PaceWatcher, Workload, workload_of
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Outcome, Status
from fairtrial.core.specs import Job, RunSpec
from fairtrial.core.training import StepSize
from fairtrial.launch.schedule import RunState, ScheduledRun
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import edit_metadata, make

HERE = {"hostname": "here", "cpu": "fast"}


def specs_of(recipe: str, seeds: int = 3, variant: str = "v", **options: object) -> list[RunSpec]:
    loaded = load_recipe(recipe)
    resolved = resolve(loaded, options, where="test")
    return [spec_of(loaded, resolved, study="new", variant=variant, seed=seed) for seed in range(seeds)]


def test_frames_are_counted_before_the_first_run(cli: Callable[..., Answer]) -> None:
    told = cli("launch", "ppo", "--steps", "4096", "--dry-run", "--format", "json")
    work = told.json["workload"]
    assert work["runs"] == 15 and work["steps"] == {"min": 4096, "max": 4096}
    assert work["step"] == [{"count": 256, "unit": "frames", "made_of": "8 envs × 32 rollout steps"}]
    assert work["total"] == {"count": 15 * 1_048_576, "unit": "frames"} and work["estimated_seconds"] is None
    assert "To do: 15 runs of 4,096 steps: 1,048,576 frames each." in told.err
    assert "A step is 256 frames (8 envs × 32 rollout steps). Total: 15,728,640 frames." in told.err
    assert "Time: unknown until the first run has completed some steps. Use --steps N to shorten it." in told.err


@pytest.mark.parametrize(
    ("recipe", "options", "size"),
    [
        ("classify", {"batch_size": 20}, StepSize(20, "examples")),
        ("distill", {"batch_size": 20, "accumulate": 3}, StepSize(60, "examples", "3 batches of 20")),
        ("finetune", {}, StepSize(50, "examples")),
        ("grpo", {"groups": 4, "samples": 2}, StepSize(8, "samples", "4 groups × 2 samples")),
        ("ppo", {"envs": 2, "rollout": 16}, StepSize(32, "frames", "2 envs × 16 rollout steps")),
    ],
)
def test_every_recipe_says_what_a_step_is(recipe: str, options: dict[str, int], size: StepSize) -> None:
    loaded = load_recipe(recipe)
    assert loaded.step_size(resolve(loaded, options, where="test")) == size


def test_variants_of_different_sizes_are_added_up(store: Store) -> None:
    specs = [*specs_of("ppo", 2, "a", steps=10), *specs_of("ppo", 1, "b", steps=5, rollout=64)]
    work = workload_of(specs, load_recipe("ppo"), store, HERE, at_once=2)
    assert work.units == 2 * 10 * 256 + 5 * 512
    assert work.lines()[0] == "To do: 3 runs of 5 to 10 steps. Total: 7,680 frames."


def test_a_program_has_no_steps_that_anybody_knows(store: Store) -> None:
    work = workload_of(specs_of("command", argv=["true", "{seed}"]), load_recipe("command"), store, HERE, at_once=2)
    assert work.lines() == ["To do: 3 runs.", "Time: unknown until the first run has ended."]


def test_nothing_to_do_needs_no_words() -> None:
    assert Workload(0, None).lines() == []


def finished(store: Store, seed: int, wall_s: float | None, host: str = "here", **options: object) -> None:
    make(store, "fake", study="old", seed=seed, **options)
    paths = store.paths.run("old", f"v.seed{seed}")
    timings = {"created": seed, "ended": None, "setup_s": 1.0, "wall_s": wall_s, "cpu_s": None, "stacked": 1}
    edit_metadata(paths, timings=timings, environment={"hostname": host, "cpu": "fast"})


def test_the_time_comes_from_finished_runs_of_these_options_on_this_machine(store: Store) -> None:
    for seed, wall_s in ((1, 9.0), (2, 19.0), (3, 29.0)):
        finished(store, seed, wall_s, steps=10)
    finished(store, 4, 9000.0, host="elsewhere", steps=10)
    work = workload_of(specs_of("fake", 6, steps=100), load_recipe("fake"), store, HERE, at_once=3)
    assert work.seconds == pytest.approx(6 * 200 / 3)  # the median run took 20 s for 10 steps
    assert "about 6.7 min, 3 at once, based on 3 finished runs with these options on this machine." in work.lines()[-1]


def test_a_study_takes_at_least_as_long_as_its_longest_run(store: Store) -> None:
    finished(store, 1, 9.0, steps=10)
    work = workload_of(specs_of("fake", 2, steps=10), load_recipe("fake"), store, HERE, at_once=8)
    assert work.seconds == pytest.approx(10.0)


@pytest.mark.parametrize("other", [{"effect": 0.5}, {"plateau": 0.3}])
def test_runs_of_other_options_tell_nothing(store: Store, other: dict[str, float]) -> None:
    finished(store, 1, 9.0, steps=10)
    specs = specs_of("fake", 2, steps=10, **other)
    assert workload_of(specs, load_recipe("fake"), store, HERE, at_once=2).seconds is None


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def scheduled(number: int, state: RunState, **fields: object) -> ScheduledRun:
    spec = specs_of("fake", number + 1, steps=1000)[number]
    return ScheduledRun(Job(spec, "unused"), state=state, **fields)  # type: ignore[arg-type]


def progress(store: Store, number: int, step: int, trained: float) -> None:
    path = store.paths.run("new", f"v.seed{number}").metrics
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"step": {step}, "_time": {trained}, "train_loss": 1.0}}\n')


def test_the_time_is_said_once_when_the_first_steps_tell_it(store: Store) -> None:
    clock, said = Clock(), list[str]()
    watcher = PaceWatcher(lambda _: None, said.append, store, " Use --steps N to shorten it.", clock=clock)
    runs = [
        scheduled(0, RunState.RUNNING),
        scheduled(1, RunState.RUNNING),
        scheduled(2, RunState.QUEUED),
        scheduled(3, RunState.QUEUED),
    ]
    watcher(runs)
    progress(store, 0, 10, 1.0)
    clock.now += 2
    watcher(runs)
    assert said == []  # a second of training is not enough
    progress(store, 0, 100, 10.0)
    progress(store, 1, 100, 10.0)
    clock.now += 8
    watcher(runs)
    assert said == ["Time: about 3.2 min to go, based on the first steps. Use --steps N to shorten it."]
    assert watcher.seconds == pytest.approx((2 * 0.9 + 2) * 100 / 2)
    clock.now += 60
    watcher(runs)
    assert len(said) == 1


def test_many_short_runs_tell_the_time_by_those_that_ended(store: Store) -> None:
    clock, said = Clock(), list[str]()
    watcher = PaceWatcher(lambda _: None, said.append, store, clock=clock)
    done = scheduled(0, RunState.ENDED, started=100.0, ended=104.0, outcome=Outcome(Status.COMPLETED))
    kept = scheduled(
        1, RunState.ENDED, started=100.0, ended=100.0, outcome=Outcome(Status.COMPLETED, already_done=True)
    )
    runs = [
        done,
        kept,
        scheduled(2, RunState.RUNNING, started=104.0),
        *(scheduled(n, RunState.QUEUED) for n in range(3, 8)),
    ]
    watcher(runs)
    clock.now = 104.0
    watcher(runs)
    assert watcher.seconds == pytest.approx(6 * 4.0)
    assert said == ["Time: about 24.0 s to go, based on the first run."]


def test_a_launch_keeps_its_workload_in_the_document(cli: Callable[..., Answer], store: Store, tmp_path: Path) -> None:
    words = ("launch", "fake", "--seeds", "2", "--steps", "5", "--base-run-name", "s", "--format", "json")
    told = cli(*words)
    assert told.json["workload"]["runs"] == 2 and told.json["workload"]["at_once"] in (1, 2)
    assert "To do: 2 runs of 5 steps." in told.err
    again = cli(*words)
    assert again.json["workload"]["runs"] == 0 and "To do" not in again.err
