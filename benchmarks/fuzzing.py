"""What the program does with 20,000 inputs that nobody would want to type: no trace, no hang, no gigabyte."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fuzz.__main__ import INPUTS, SEED, run_campaign

from benchmarks.figures import Figure, at_least, exactly

TITLE = "fuzzed inputs"


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001 — cases have folders of their own
    campaign = run_campaign(INPUTS, SEED, workers=os.cpu_count() or 1)
    kept = campaign.tallies["corpus"].inputs
    made = campaign.inputs - kept
    return [
        Figure("inputs made from the seed", made, "inputs", goal=at_least(INPUTS), note=f"seed {SEED}"),
        Figure("kept inputs, replayed", kept, "inputs"),
        Figure("tracebacks", campaign.count("traceback"), "inputs", goal=exactly(0)),
        Figure("hangs above 10 s", campaign.count("hang"), "inputs", goal=exactly(0)),
        Figure("processes above 1 GB", campaign.count("memory"), "inputs", goal=exactly(0)),
        Figure("undocumented exit codes", campaign.count("exit code"), "inputs", goal=exactly(0)),
        Figure("valid inputs without their recorded result", campaign.count("result"), "inputs", goal=exactly(0)),
        Figure("kept inputs that still fail", len(campaign.open_defects), "inputs", goal=exactly(0)),
        Figure("slowest input", max(tally.slowest_s for tally in campaign.tallies.values()), "s"),
        Figure("largest process", max(tally.peak_bytes for tally in campaign.tallies.values()) / 1e6, "MB"),
        Figure("time for all, wall", campaign.seconds, "s"),
    ]
