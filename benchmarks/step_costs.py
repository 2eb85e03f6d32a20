"""What a step costs: what timing it adds, and whether bench finds in real time what is known to be there.

Intervals and error rates are simulated in the tests on a virtual clock, and repeated here for the record.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy

from benchmarks.figures import Figure, at_least, at_most, estimated, less_than, within
from benchmarks.measure import median_interval
from benchmarks.simulated import correlated, covered, false_alarms, noise_scales_covered
from fairtrial import Bench, BenchTerms, bench
from fairtrial.api.benchmarking.self_check import self_check
from fairtrial.core.training import LoopEvents
from fairtrial.probe.phases import PhaseTimer, event_seconds
from fairtrial.stats.timing import LEAST

TITLE = "Step costs"
PHASES = ("data", "forward", "backward", "optimizer")
STEP_S = 0.001
BLOCK = 20
ROUNDS = 400


def measure(folder: Path) -> list[Figure]:
    store = folder / "store"
    return [
        *_timer(),
        *_floor(),
        *_known_phases(store),
        *_accumulation(store),
        *_followed(store),
        *_coverage(),
        *_alarms(),
        _noise_scale(),
    ]


def _work(seconds: float) -> tuple[numpy.ndarray, int]:
    """Arithmetic that takes about so long on this machine: an array, and how often to go over it."""
    values = numpy.ones(1000)
    start = time.perf_counter()
    for _ in range(2000):
        numpy.tanh(values)
    once = (time.perf_counter() - start) / 2000
    return values, max(1, round(seconds / once))


def _timer() -> list[Figure]:
    """Blocks of a millisecond step with and without the timer, in turns, by CPU time of the thread."""
    values, count = _work(STEP_S / len(PHASES))
    timer = PhaseTimer()
    sides = {"bare": LoopEvents(), "timed": LoopEvents([timer]), "bare again": LoopEvents()}

    def block(watch: LoopEvents) -> float:
        start = time.thread_time()
        for number in range(BLOCK):
            for name in PHASES:
                with watch.phase(name):
                    for _ in range(count):
                        numpy.tanh(values)
            watch.tell("step_ended", number)
        return (time.thread_time() - start) / BLOCK

    order = list(sides)
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(ROUNDS):
        for name in order[number % 3 :] + order[: number % 3]:
            taken[name].append(block(sides[name]))
    bare, timed, again = (numpy.array(taken[name]) for name in order)
    event = event_seconds(20_000)
    events = 2 * len(PHASES) + 1
    return [
        estimated("step without a timer", median_interval(1000 * bare), "ms"),
        Figure("timer, one event", 1e6 * event, "µs"),
        Figure(
            "timer, by its events in a 1 ms step", 100 * events * event / STEP_S, "%", goal=less_than(1),
            note=f"{events} events: four phases and the end of the step",
        ),
        estimated("timed step / bare step", median_interval(timed / bare), "×", goal=less_than(1.01)),
        estimated("noise floor, bare step / bare step", median_interval(again / bare), "×"),
    ]  # fmt: skip


def _floor() -> list[Figure]:
    found = self_check()
    detected = found.detectable_percent[8]
    return [
        Figure("A/A, 95 % of rounds within ±", found.round_percent, "%"),
        Figure("A/A, smallest slowdown seen in 8 rounds", detected, "%"),
        Figure("A/A, false alarms", float(found.alarms), f"of {found.comparisons}", goal=at_most(2)),
        Figure("A/A, change of speed between halves", found.drift_percent, "%"),
    ]


def _known_phases(store: Path) -> list[Figure]:
    """Sleeps of known length, and a stall of 50 ms while every twentieth batch is loaded."""
    options = {"steps": 2000, "data_time": 0.002, "step_time": 0.004, "backward_time": 0.004, "optimizer_time": 0.002}
    found = bench(
        "fake", {**options, "stall_time": 0.05, "stall_every": 20},
        BenchTerms(batches=600, warmup=0, trials=False, monitor=True, store=store),
    )  # fmt: skip
    rows = {row["phase"]: row for row in found.phase_rows()}
    window = found.breakdown.window if found.breakdown else 0.0
    slow = [each for each in found.steady if each.seconds > 0.05]
    return [
        Figure("known phases, p99 with a stall in 5 % of steps", _ms(found, 0.99), "ms", goal=at_least(62)),
        Figure("known phases, p50", _ms(found, 0.5), "ms", goal=within(12, 1.5)),
        Figure("known phases, data per step", rows["data"]["ms_per_step"], "ms", goal=within(4.5, 0.6)),
        Figure("known phases, backward per step", rows["backward"]["ms_per_step"], "ms", goal=within(4, 0.5)),
        Figure(
            "steps with a stall, of which in the data phase",
            100 * sum(each.phases["data"] for each in slow) / sum(each.seconds for each in slow), "%",
            goal=at_least(80), note="52 of 62 ms",
        ),
        Figure(
            "phases and residual, less the window", 1e9 * (sum(r["seconds"] for r in rows.values()) - window), "ns",
            goal=within(0, 1000),
        ),
    ]  # fmt: skip


def _ms(found: Bench, share: float) -> float | None:
    value = found.quantile(share).value
    return None if value is None else 1000 * value


def _accumulation(store: Path) -> list[Figure]:
    options = {"steps": 500, "accumulate": 4, "backward_time": 0.002, "optimizer_time": 0.008}
    found = bench("fake", options, BenchTerms(batches=100, warmup=0, trials=False, store=store))
    per_batch = {row["phase"]: row["ms_per_batch"] for row in found.phase_rows()}
    return [
        Figure("K = 4, optimizer per batch", per_batch["optimizer"], "ms", goal=within(2, 0.3), note="8 ms / 4"),
        Figure("K = 4, backward per batch", per_batch["backward"], "ms", goal=within(2, 0.3)),
    ]


def _followed(store: Path) -> list[Figure]:
    """Suggestions of bench, taken: what was predicted, and what it gave."""
    cases: dict[str, tuple[str, dict[str, Any], str]] = {
        "load ahead, fake": ("fake", {"steps": 3000, "data_time": 0.004, "step_time": 0.004}, "loader_workers"),
        "larger batch, classify mlp": ("classify", {"batch_size": 50}, "batch_size"),
    }
    figures = []
    for name, (recipe, options, option) in cases.items():
        terms = BenchTerms(batches=400, store=store)
        before = bench(recipe, options, terms)
        chosen = next((each for each in before.suggestions if option in each.change), None)
        if chosen is None:
            figures.append(Figure(f"suggestion, {name}", None, "×", goal=at_least(1.05), note="nothing was suggested"))
            continue
        after = bench(recipe, {**options, **chosen.change}, terms)
        got = (after.throughput.value or 0) / (before.throughput.value or 1)
        gain = chosen.gain
        figures += [
            Figure(f"suggestion, {name}: predicted", gain.value, "×", gain.low, gain.high, gain.n),
            Figure(f"suggestion, {name}: taken", got, "×", goal=at_least(1.05)),
        ]
    return figures


def _coverage() -> list[Figure]:
    """Of all intervals, also of those from fewer than ten effective steps, which bench does not show."""
    figures = []
    for steps in (200, 1000):
        for phi in (0.0, 0.3, 0.6, 0.9):
            hit, effective = covered(correlated(phi, steps, 2000, seed=11))
            told = effective >= LEAST
            note = None if told.all() else f"of the {told.mean():.0%} that are shown: {hit[told].mean():.1%}"
            name = f"mean of AR(1) steps, φ = {phi:g}, n = {steps}: covered"
            figures.append(Figure(name, 100 * float(hit.mean()), "%", goal=within(95, 2), note=note))
    return figures


def _alarms() -> list[Figure]:
    return [
        Figure(
            f"A/A sessions, φ = {phi:g}: alarms", float(false_alarms(phi, 200, 200, (21, 22))), "of 200",
            goal=at_most(18),
        )
        for phi in (0.0, 0.3, 0.6, 0.9)
    ]  # fmt: skip


def _noise_scale() -> Figure:
    """True value 4096, b = 32, K = 8, 10,000 dimensions, 50 measurements, from their exact distribution."""
    repeats = 500
    hits = noise_scales_covered(repeats, seed=31)
    return Figure("noise scale: covered", 100 * hits / repeats, "%", samples=repeats, goal=within(95, 2))
