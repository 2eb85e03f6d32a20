"""The only place that spells a file name of the store.

<store>/<study>/<run-id>/metadata.json, metrics.jsonl, …      run-id = <variant>.seed<seed>
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from fairtrial.core.errors import UserError

STORE_VARIABLE = "FAIRTRIAL_STORE"
JOIN_VARIABLE = "FAIRTRIAL_RUN_DIR"
"""Names the run directory to a program that a job started, so that it can join the run."""

ADHOC_STUDY = "adhoc"
NEEDS_STUDY = "teachers"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+=,@-]*")
LONGEST_NAME = 120


def default_store(given: str | os.PathLike[str] | None = None) -> Path:
    """`--store`, else $FAIRTRIAL_STORE, else ./runs."""
    return Path(given or os.environ.get(STORE_VARIABLE) or "runs").expanduser().absolute()


def store_words(given: str | os.PathLike[str] | None) -> str:
    """What a suggested command must say about its store: nothing where it is the usual one."""
    return "" if default_store(given) == default_store() else f" --store {shlex.quote(str(given))}"


def check_name(kind: str, name: str) -> str:
    """A study or variant name becomes a folder: say clearly when it cannot."""
    if not _NAME.fullmatch(name) or name.endswith(" ") or len(name) > LONGEST_NAME:
        raise UserError(
            f"{kind} name {name!r} cannot be a folder name",
            hint="Use A–Z, a–z, digits, spaces and . _ + = , @ -, beginning with a letter or digit, "
            f"at most {LONGEST_NAME} characters.",
        )
    return name


def run_id(variant: str, seed: int, attempt: int = 1) -> str:
    again = f".again{attempt}" if attempt > 1 else ""
    return f"{variant}.seed{seed}{again}"


@dataclass(frozen=True)
class RunPaths:
    """The files of one run directory."""

    root: Path

    @property
    def metadata(self) -> Path:
        return self.root / "metadata.json"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def columns(self) -> Path:
        return self.root / "metrics.parquet"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def delivered(self) -> Path:
        """How far `events` was brought to a receiver; only where there is one."""
        return self.root / "delivered.json"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    @property
    def taking_over(self) -> Path:
        """Held while a claim that is known to be lost is taken over."""
        return self.root / ".taking-over"

    @property
    def pulse(self) -> Path:
        """A sign of life that the process of a run renews every few seconds."""
        return self.root / ".pulse"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def best(self) -> Path:
        return self.checkpoints / "best.pt"

    @property
    def last(self) -> Path:
        return self.checkpoints / "last.pt"

    def step(self, step: int) -> Path:
        return self.checkpoints / f"step-{step}.pt"

    @property
    def adapters(self) -> Path:
        """Policy versions, each a folder that `peft` can read."""
        return self.root / "adapters"


SUBMITTED = "submitit"
"""The folder beside a study's errands where submitit keeps what it hands to Slurm."""


@dataclass(frozen=True)
class ErrandNames:
    """The notes of one errand; they lie side by side with those of others, so that one look shows them all."""

    errand: str

    @property
    def task(self) -> str:
        return f"{self.errand}.errand.json"

    @property
    def started(self) -> str:
        return f"{self.errand}.started.json"

    @property
    def done(self) -> str:
        return f"{self.errand}.done.json"

    @property
    def stop(self) -> str:
        return f"{self.errand}.stop.json"

    def claim(self, cell: int) -> str:
        """Under which token the job holds a cell."""
        return f"{self.errand}.claim-{cell}.json"

    def answer(self, cell: int) -> str:
        return f"{self.errand}.answer-{cell}.json"

    @staticmethod
    def errand_of(name: str) -> str | None:
        """The errand that a note belongs to."""
        errand, dot, rest = name.partition(".")
        return errand if dot and errand and rest.endswith("json") else None


@dataclass(frozen=True)
class ProfilePaths:
    """The files of one snapshot of a profile."""

    root: Path

    @property
    def snapshot(self) -> Path:
        return self.root / "snapshot.json"

    @property
    def trace(self) -> Path:
        return self.root / "trace"

    @property
    def lanes(self) -> Path:
        return self.trace / "lanes.json"


@dataclass(frozen=True)
class StorePaths:
    """The layout of a store."""

    root: Path

    def study(self, study: str) -> Path:
        return self.root / study

    def study_plan(self, study: str) -> Path:
        return self.root / study / "study.json"

    def launching(self, study: str) -> Path:
        """Held by every launcher that is at work on the study."""
        return self.root / study / ".launching"

    def launcher(self, study: str) -> Path:
        """What a launcher must remember to find its tasks again."""
        return self.root / study / ".launcher"

    def launch_log(self, study: str) -> Path:
        """What launchers that were left to themselves have said."""
        return self.root / study / "launch.log"

    def looks(self, study: str) -> Path:
        return self.root / study / "looks.jsonl"

    def run(self, study: str, run: str) -> RunPaths:
        return RunPaths(self.root / study / run)

    def archive(self, study: str) -> Path:
        return self.root / study / ".archive"

    @property
    def profiles(self) -> Path:
        return self.root / ".profiles"

    @property
    def cache(self) -> Path:
        return self.root / ".cache"

    def series_cache(self, study: str) -> Path:
        return self.root / ".cache" / "series" / f"{study}.arrow"

    @property
    def index(self) -> Path:
        return self.root / ".cache" / "index.json"
