"""Is a damaged run ever taken for a whole one, and does it stop the others? Damages a store 500 times, in every way.

`tests/damage_campaign.py` has the ways: files that are cut off, emptied, removed, swapped between runs, with bits
flipped, with values of wrong types. After each, every command is held against what it says about the whole store.
"""

from __future__ import annotations

from pathlib import Path

from tests.damage_campaign import campaign

from benchmarks.figures import Figure, at_least, exactly

TITLE = "Damaged run directories"
CASES = 500
LAUNCHING = 20
"""Every so many cases the study is also launched again, evaluated and priced."""


def measure(folder: Path) -> list[Figure]:
    found = campaign(folder, CASES, launching=LAUNCHING)
    return [
        Figure("damaged stores", found.cases, "stores", goal=at_least(500)),
        Figure("kinds of damage", len(found.kinds), "kinds", note="by file and by way"),
        Figure("answers of commands", found.answers, "answers"),
        Figure("answers as for the whole store", found.equal, "answers"),
        Figure("answers that name the damage", found.named, "answers"),
        Figure("silently wrong answers", len(found.wrong), "answers", goal=exactly(0)),
        Figure("answers that stop, or change, other runs", len(found.stopped), "answers", goal=exactly(0)),
        Figure("tracebacks", len(found.crashed), "answers", goal=exactly(0)),
        Figure("damage that doctor --damage did not find", len(found.unfound), "stores", goal=exactly(0)),
    ]
