"""Do the reference documents' command lines run as they stand, and how long do they take?

Every line of `tests/documents` is run from scratch, each in a process of its own. It is ok if it has the documented
exit code, prints the documented fields and writes the documented files. All have their full size, except for launches
of ppo: fifteen seeds of a transformer take hours on two cores, so these have fewer steps, and say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.documents.desk import Answer, Desk
from tests.documents.places import PLACES
from tests.documents.records import Item
from tests.documents.table import ITEMS, SCRIPTS

from benchmarks.figures import Figure, Goal, exactly
from fairtrial.core.paths import KEY_VARIABLE

TITLE = "Documented command lines"
LONGEST_NOTE = 200
LINES = [item for item in ITEMS if item.line]


def measure(folder: Path, items: Sequence[Item] = LINES) -> list[Figure]:
    os.environ[KEY_VARIABLE] = str(folder / "key.pem")  # nobody's own key signs what is only tried
    desk = Desk(folder, PLACES, in_a_process, shorten=takes_hours, scripts=SCRIPTS)
    lines = [timed(desk, item) for item in items]
    failed = sum(not figure.met for figure in lines)
    return [
        Figure("documented lines", len(lines), "lines"),
        Figure("documented lines that do not work", failed, "lines", goal=exactly(0)),
        *lines,
    ]


def takes_hours(typed: str) -> bool:
    return typed.startswith("launch ppo")


def timed(desk: Desk, item: Item) -> Figure:
    """How long the line took; the goal is met where everything is as the table says."""
    assert item.line
    desk.folder(item.line.at)  # what has to lie there is not part of the time
    begun = time.perf_counter()
    problem = ""
    try:
        item.check(desk)
    except AssertionError as error:
        problem = str(error)[:LONGEST_NOTE] or "failed"
    seconds = time.perf_counter() - begun
    goal = Goal("ok", lambda _: not problem)
    shortened = f"run with {item.line.add}" if item.line.add and desk.shorten(item.line.typed) else None
    note = problem or "; ".join(filter(None, [item.differs, shortened])) or None
    return Figure(f"{item.document}, {item.section}: {item.ours}", seconds, "s", goal=goal, note=note)


def in_a_process(words: Sequence[str]) -> Answer:
    done = subprocess.run([sys.executable, "-m", "fairtrial", *words], capture_output=True, text=True, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)
