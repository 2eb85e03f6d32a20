"""What does a power cut leave? Replays thousands of crash states over every file format, and goes on from each.

The operations of a piece of work on its files are recorded once. Then states are made in which a power cut may have
left them: what was synced is there; of the rest, names and content may be missing, in any combination and order,
cut off at a block, or zeros. After each one it is checked that what somebody was told is there, that nothing loads
wrong, and that going on gives the same result as work that was left alone.
"""

from __future__ import annotations

from pathlib import Path

from tests.power_loss.workloads import WORKLOADS, campaign

from benchmarks.figures import Figure, at_least, exactly

TITLE = "Crash states after a power cut"
SAMPLES = {
    "run": 2, "take-over": 1, "return to an earlier best": 1, "run without hard links": 1, "index and series": 1,
    "mirror": 3, "shared run": 3,
}  # fmt: skip
MANY = 15
"""Samples after each operation of work that has few of them."""


def measure(_folder: Path) -> list[Figure]:
    found = {name: campaign(name, samples=SAMPLES.get(name, MANY)) for name in WORKLOADS}
    return [
        Figure("crash states", sum(tally.states for tally in found.values()), "states", goal=at_least(5000)),
        Figure("after something was acknowledged", sum(tally.told for tally in found.values()), "states"),
        *(Figure(f"states: {name}", tally.states, "states") for name, tally in found.items()),
        Figure(
            "violations",
            sum(len(tally.wrong) for tally in found.values()),
            "states",
            goal=exactly(0),
            note="lost, wrong, or not the same",
        ),
    ]
