"""Every caution that Fairtrial can give, each with its remedy.

A caution never stops anything. A run or a finding carries the codes of those it rests on; the text is
looked up here, so that the same thing is said with the same words everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Caution:
    """A closed kind of warning. `text` and `remedy` may hold `{fields}` that the place of use fills."""

    code: str
    text: str
    remedy: str

    def fill(self, **fields: Any) -> dict[str, str]:
        return {
            "code": self.code,
            "text": self.text.format(**fields),
            "remedy": self.remedy.format(**fields),
        }


SYNTHETIC = Caution(
    "synthetic",
    "The recipe '{recipe}' makes its numbers up: they say nothing about any training.",
    "Use it for tests and plug-ins only.",
)
ONE_TEACHER = Caution(
    "one teacher",
    "All students learn from one teacher ({teacher}): differences do not cover variation between teachers.",
    "Repeat the study with another --teacher-seed.",
)
FEWER_LABELS = Caution(
    "fewer labels",
    "The teacher saw {teacher_labels} labels, the student {student_labels}: part of a gain may come from that.",
    "Give the student all labels with --labels 0.",
)
INERT_OPTION = Caution(
    "inert option",
    "{option} has no effect here: {why}.",
    "Leave it out, or choose a strategy that uses it.",
)
SEED_NOT_PASSED = Caution(
    "seed not passed",
    "No argument of the program holds {{seed}}: unless it asks fairtrial.run() for it, all seeds are the same run.",
    "Put {{seed}} among the arguments.",
)
SHARED_FILE = Caution(
    "shared file",
    "All runs write their metrics to {file}, so they took turns.",
    "Put {{run_dir}} or {{seed}} into --metrics to run them side by side.",
)
DIRTY_TREE = Caution(
    "dirty tree",
    "The working tree had uncommitted changes: the commit alone does not reproduce these runs.",
    "Commit first, or launch with --strict to refuse this.",
)
OTHER_COMMIT = Caution(
    "other commit",
    "{count} finished run(s) were kept that were made at commit {then}, not {now}.",
    "Repeat them with --replace if the code between matters.",
)
TORN_LINE = Caution(
    "torn line",
    "The last line of {file} was cut off when the run was killed; it was ignored.",
    "Nothing to do: no completed line is lost, and a resumed run writes it again.",
)
FEW_SEEDS = Caution(
    "few seeds",
    "{n} seeds per variant: means of so few runs move a lot.",
    "Launch again with more --seeds; finished cells are kept.",
)
FINAL_PARTIAL = Caution(
    "incomplete arms",
    "The variants do not have the same finished seeds; only the {n} shared ones are compared.",
    "Launch again to fill missing cells, with --retry-failed for failed ones; diverged ones are results.",
)
NEVER_JUDGED = Caution(
    "no best checkpoint",
    "The metric that selects the best checkpoint, {metric}, was never evaluated; logged: {logged}.",
    "Name one of those as the best metric.",
)
METRIC_NOT_LOGGED = Caution(
    "metric not logged",
    "No run logged the metric {wanted}; the table shows {shown} instead.",
    "Name a metric that is logged; 'fairtrial runs show' lists them.",
)
NOT_FINITE = Caution(
    "not finite",
    "{count} completed run(s) ended with a value of {metric} that is not finite; they are not in the means.",
    "Look at them: a NaN is a result, not a gap.",
)

ALL = {caution.code: caution for caution in list(globals().values()) if isinstance(caution, Caution)}
