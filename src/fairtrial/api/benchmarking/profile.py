"""profile: measure where the time goes in reinforcement learning of a language model, in rollouts and in training.

build a grpo run → warm it up → rollouts, updates, or both → phases, throughput, lag, caches → snapshot and trace
"""

from __future__ import annotations

import datetime
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fairtrial.api.benchmarking.profile_figures import Played, ProfileMeasures, document_of
from fairtrial.api.running.planning import load_checked_recipe
from fairtrial.api.running.recording import recorded
from fairtrial.core.cautions import ONE_STEP
from fairtrial.core.errors import Interrupted, InvalidOptions, UserError
from fairtrial.core.options import parse_options
from fairtrial.core.paths import ProfilePaths, RunPaths
from fairtrial.core.results import Result
from fairtrial.core.specs import FIXED_SEEDS
from fairtrial.core.streams import Streams
from fairtrial.core.training import Clock, LoopEvents, RunContext
from fairtrial.probe.phases import PhaseTimer
from fairtrial.probe.timeline import Track, chrome_trace, spans_of, spans_of_steps
from fairtrial.recipes.grpo import PlayOptions, cautions_of
from fairtrial.recipes.lm.version_schedule import lag_of
from fairtrial.record.profiles import check_profile_name, new_profile, write_profile
from fairtrial.record.store import Store

if TYPE_CHECKING:
    from fairtrial.recipes.lm.run import GrpoRun

Mode = Literal["rollout", "trainer", "e2e"]
MODES: tuple[Mode, ...] = ("rollout", "trainer", "e2e")
STEPS = 10
WARM_UP = 2
SMOKE: Mapping[str, Any] = {"groups": 2, "samples": 2, "horizon": 1, "compact_prompts": True}
SMOKE_STEPS = 1
GENERATING = frozenset({"game", "tokenize", "generate", "reference"})
STOPPED = "Stopped. The measurement was discarded."
WAITING = frozenset({"wait"})
JUDGED_POSITIONS = 64
"""Positions on which legality and reward are recorded: enough to compare in pairs, few enough to add little time."""


@dataclass(frozen=True)
class ProfileTerms:
    """Settings of a measurement. The options of the game and the training are passed separately.

    >>> fairtrial.ProfileTerms(name="first", steps=5).steps
    5
    """

    name: str | None = None
    steps: int | None = None
    warmup: bool = True
    smoke: bool = False
    seed: int = FIXED_SEEDS[0]
    store: str | os.PathLike[str] | None = None
    show: Callable[[str, int, int], None] = lambda *_: None
    should_stop: Callable[[], bool] = lambda: False
    clock: Clock = time.perf_counter

    @property
    def measured(self) -> int:
        return (SMOKE_STEPS if self.smoke else STEPS) if self.steps is None else self.steps

    def left_out(self, options: PlayOptions) -> int:
        """Return the number of warm-up steps: until the policy lag has reached its final value, and at least two."""
        lag = lag_of(options.buffer_depth, options.policy_lag)
        return max(WARM_UP, lag + 1) if self.warmup and not self.smoke else 0


@dataclass(frozen=True, repr=False)
class Profile(Result):
    """A snapshot that was written, and its location.

    >>> fairtrial.profile("rollout", terms=fairtrial.ProfileTerms(name="first", smoke=True)).place  # doctest: +SKIP
    """

    document: Mapping[str, Any]
    place: ProfilePaths

    def to_dict(self) -> dict[str, Any]:
        return {**self.document, "snapshot": str(self.place.snapshot), "trace": str(self.place.trace)}


@recorded("profile")
def profile(mode: Mode, options: Mapping[str, Any] | None = None, terms: ProfileTerms | None = None) -> Profile:
    """Measure rollouts, updates on rollouts, or both together, and save the result under a name.

    >>> fairtrial.profile("rollout", terms=fairtrial.ProfileTerms(name="first", smoke=True))  # doctest: +SKIP
    """
    terms = terms or ProfileTerms()
    if mode not in MODES:
        raise UserError(f"unknown profile mode '{mode}'", hint=f"Choose from {', '.join(MODES)}.")
    name = check_profile_name(terms.name or mode)
    store = Store.at(terms.store)
    store.check_writable()
    chosen = _options(options or {}, terms)
    with _running(chosen, store, terms, scripted=mode == "rollout") as run:
        measured = _measure(mode, run, terms)
    tracks = _tracks(measured)
    facts = {"mode": mode, "seed": terms.seed, "name": name}
    document = document_of(measured, tracks, chosen, facts, _cautions(chosen, terms))
    document["created"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    place = new_profile(store.paths, name)
    write_profile(place, document, chrome_trace(tracks, facts))
    return Profile(document, place)


def _options(given: Mapping[str, Any], terms: ProfileTerms) -> PlayOptions:
    """Parse the options, with more steps than are measured, because workers that play ahead continue to the end."""
    load_checked_recipe("grpo")
    if terms.measured < 1 or "steps" in given:
        what = (
            f"steps must be at least 1, not {terms.measured}" if terms.measured < 1 else "set steps in the terms only"
        )
        raise InvalidOptions(what)
    quiet = {"checkpoint_every": 0, "eval_every": 0}
    chosen = parse_options(PlayOptions, {**(SMOKE if terms.smoke else {}), **given, **quiet}, where="profile")
    ahead = lag_of(chosen.buffer_depth, chosen.policy_lag)
    return chosen.model_copy(update={"steps": terms.left_out(chosen) + terms.measured + ahead})


@contextmanager
def _running(options: PlayOptions, store: Store, terms: ProfileTerms, *, scripted: bool) -> Iterator[GrpoRun]:
    """Open a run in a temporary folder, which is deleted afterwards."""
    from fairtrial.recipes.lm.run import GrpoRun

    with tempfile.TemporaryDirectory(prefix="fairtrial-profile-") as folder:
        own = options.stream_seed.given() if options.stream_seed else {}
        context = RunContext(Streams(terms.seed, own=own), "profile", RunPaths(Path(folder)), store.cache)
        with closing(GrpoRun(options, context, scripted=scripted)) as run:
            yield run


def _cautions(options: PlayOptions, terms: ProfileTerms) -> list[dict[str, str]]:
    return [*cautions_of(options), *([ONE_STEP.fill()] if terms.measured == 1 else [])]


def _measure(mode: Mode, run: GrpoRun, terms: ProfileTerms) -> ProfileMeasures:
    """Take all steps, and discard what was recorded during warm-up."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(run.options.threads)
    try:
        return _take_steps(mode, run, terms)
    finally:
        torch.set_num_threads(threads)


def _take_steps(mode: Mode, run: GrpoRun, terms: ProfileTerms) -> ProfileMeasures:
    first = terms.left_out(run.options)
    last = first + terms.measured
    take = {"rollout": _roll_out, "trainer": _train, "e2e": _both}[mode]

    def stretch(steps: range, events: LoopEvents) -> Iterator[Played]:
        events.tell("turn_started")
        for step in steps:
            if terms.should_stop():
                raise Interrupted(STOPPED)
            yield take(run, step, events)
            terms.show(mode if step > first else "warming up", step, last)

    for _ in stretch(range(1, first + 1), LoopEvents()):
        pass
    timer, before = PhaseTimer(), replace(run.learner.counters)
    buffered = mode == "e2e" and run.options.buffer_depth > 0
    if buffered:
        run.buffer.restart_depth_meter()
    played = list(stretch(range(first + 1, last + 1), LoopEvents([timer], terms.clock)))
    depths = run.buffer.depth_seconds() if buffered else None
    judged = run.player.judge(JUDGED_POSITIONS, 0) if mode == "rollout" else None
    return ProfileMeasures(
        mode, played, timer.notes, timer.steps, before, replace(run.learner.counters), depths, judged
    )


def _roll_out(run: GrpoRun, step: int, events: LoopEvents) -> Played:
    """Play with the initial weights (version 0); nothing is learned."""
    events.tell("turn_started")
    rollout = run.play(step, events, version=0)
    events.tell("step_ended", step)
    return Played(step, rollout)


def _train(run: GrpoRun, step: int, events: LoopEvents) -> Played:
    """Learn from a rollout that is played before the timed part of the step."""
    rollout = run.play(step, LoopEvents())
    events.tell("turn_started")
    run.learn(rollout, events)
    events.tell("step_ended", step)
    return Played(step, rollout, 0)


def _both(run: GrpoRun, step: int, events: LoopEvents) -> Played:
    taken = run.take(step, events)
    run.learn(taken.rollout, events)
    events.tell("step_ended", step)
    return Played(step, taken.rollout, taken.lag, taken.waited_s, taken.ready)


def _tracks(measured: ProfileMeasures) -> list[Track]:
    """Return one track for training and one per worker that plays; in a single process, split its spans by phase."""
    spans = spans_of_steps(measured.notes)
    if measured.mode != "e2e":
        return [Track("generation" if measured.plays else "training", spans)]
    remote = [part for each in measured.played for part in each.rollout.parts if part.notes]
    if not remote:
        playing = [span for span in spans if span.phase in GENERATING]
        learning = [span for span in spans if span.phase not in GENERATING]
        kept = {"generation": playing, "training": learning}
        return [Track(name, own, WAITING) for name, own in kept.items() if own]
    players = sorted({part.player for part in remote})
    tracks = [
        Track(
            f"generation {number}",
            [s for part in remote if part.player == player for s in spans_of(part.notes, part.begun, part.ended)],
        )
        for number, player in enumerate(players, 1)
    ]
    return [*tracks, Track("training", spans, WAITING)]
