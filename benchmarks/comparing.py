"""A comparison over 1,000 runs of 1,000 points each, from the store, beside TensorBoard's event files.

Both sides read every curve, turn each into one number and compare the two arms; the peer's half is TensorBoard's own
reader and the same comparison. The runs are real directories made by the `fake` recipe. Imports are not charged; the
whole command, imports included, is shown beside it.
"""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.figures import NOISE, Figure, at_least, estimated, less_than, unavailable
from benchmarks.measure import (
    OURS,
    OURS_AGAIN,
    Spent,
    Unavailable,
    in_a_process,
    in_this_thread,
    interleave,
    median_interval,
    ratio_interval,
)
from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.analyze import analyze
from fairtrial.core.paths import StorePaths
from fairtrial.core.registry import load_recipe
from fairtrial.core.runs import Status
from fairtrial.core.specs import Job
from fairtrial.jobs.run_session import run_cell
from fairtrial.plan.cells import resolve, spec_of
from fairtrial.record.environment import git_state, machine
from fairtrial.stats.compare import compare_samples
from fairtrial.stats.summaries import SummaryRule

TITLE = "A comparison over 1,000 runs × 1,000 points"
SEEDS, POINTS, PROCESSES, ROUNDS, PEER_ROUNDS = 500, 1_000, 2, 9, 6
ARMS = {"base": 0.0, "new": 0.001}
STUDY, METRIC = "many", "train_loss"
GOAL_S, GOAL_RATIO = 0.5, 100
TENSORBOARD = "TensorBoard"


def measure(folder: Path) -> list[Figure]:
    store, events = folder / "store", folder / "events"
    _make_runs(store)
    ours = partial(in_this_thread, lambda: _ours(store))
    ours()
    alone = interleave({OURS: ours, OURS_AGAIN: ours, "first": partial(_first, ours, store)}, ROUNDS)
    whole = [in_a_process(_argv(store)) for _ in range(5)]
    return [
        estimated("from the store, wall", median_interval(s.wall for s in alone[OURS]), "s", less_than(GOAL_S)),
        estimated(
            "the first time, without the copy of the series, wall", median_interval(s.wall for s in alone["first"]), "s"
        ),
        estimated("from the store, CPU", median_interval(s.cpu for s in alone[OURS]), "s"),
        estimated("the whole command with imports, wall", median_interval(s.wall for s in whole), "s"),
        estimated(
            f"{NOISE}, CPU", ratio_interval([s.cpu for s in alone[OURS_AGAIN]], [s.cpu for s in alone[OURS]]), "×"
        ),
        *_beside_tensorboard(ours, events),
    ]


def _first(ours: partial[Spent], store: Path) -> Spent:
    """As if the study had never been read: every run directory is opened."""
    StorePaths(store).series_cache(STUDY).unlink(missing_ok=True)
    return ours()


def _question() -> Question:
    return Question(metrics=[METRIC], summary=SummaryRule(type="auc"))


def _ours(store: Path) -> None:
    analysis = analyze(STUDY, store=store, question=_question())
    if [arm.used for arm in analysis.arms] != [SEEDS, SEEDS]:
        raise RuntimeError("not every run was compared")


def _argv(store: Path) -> list[str]:
    program = str(Path(sys.executable).parent / "fairtrial")
    return [
        program,
        "analyze",
        STUDY,
        "--metric",
        METRIC,
        "--summary.type",
        "auc",
        "--format",
        "json",
        "--store",
        str(store),
    ]


def _make_runs(store: Path) -> None:
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        list(pool.map(_make_share, [store] * PROCESSES, [range(first, SEEDS, PROCESSES) for first in range(PROCESSES)]))


def _make_share(store: Path, seeds: range) -> None:
    recipe = load_recipe("fake")
    environment = {**git_state(Path.cwd()), **machine()}
    for variant, effect in ARMS.items():
        chosen = {"steps": POINTS, "log_every": 1, "eval_every": 0, "checkpoint_every": 0, "jitter": 0.01}
        options = resolve(recipe, {**chosen, "effect": effect, "label": variant}, where=STUDY)
        for seed in seeds:
            spec = spec_of(recipe, options, study=STUDY, variant=variant, seed=seed)
            outcome = run_cell(Job(spec, store, environment))
            if outcome.status is not Status.COMPLETED:
                raise RuntimeError(f"{spec.name}: {outcome.reason}")


def _beside_tensorboard(ours: partial[Spent], events: Path) -> list[Figure]:
    try:
        _write_events(events)
    except Unavailable as error:
        return unavailable({TENSORBOARD: str(error)}, "s")
    results = interleave({OURS: ours, TENSORBOARD: partial(in_this_thread, lambda: _theirs(events))}, PEER_ROUNDS)
    cpu = {name: [each.cpu for each in times] for name, times in results.items()}
    return [
        estimated(f"{TENSORBOARD} event files, CPU", median_interval(cpu[TENSORBOARD]), "s"),
        estimated(
            f"{TENSORBOARD} / fairtrial, CPU", ratio_interval(cpu[TENSORBOARD], cpu[OURS]), "×", at_least(GOAL_RATIO)
        ),
    ]


def _write_events(folder: Path) -> None:
    try:
        writer_module = importlib.import_module("torch.utils.tensorboard")
    except ImportError as error:
        raise Unavailable(str(error)) from None
    rng = np.random.default_rng(1)
    for arm in ARMS:
        for seed in range(SEEDS):
            writer = writer_module.SummaryWriter(str(folder / arm / str(seed)), max_queue=POINTS)
            for step, value in enumerate(rng.normal(size=POINTS).tolist(), 1):
                writer.add_scalar(METRIC, value, step)
            writer.close()


def _theirs(folder: Path) -> None:
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    sides = []
    for arm in ARMS:
        values = []
        for seed in range(SEEDS):
            events = reader.EventAccumulator(str(folder / arm / str(seed)), size_guidance={"scalars": 0})
            events.Reload()
            points = events.Scalars(METRIC)
            steps, heights = np.array([p.step for p in points]), np.array([p.value for p in points])
            values.append(float(np.trapezoid(heights, steps) / (steps[-1] - steps[0])))
        sides.append(values)
    compare_samples(sides[0], sides[1], paired=True)
