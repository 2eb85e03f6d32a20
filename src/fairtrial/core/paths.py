"""The only module that defines file names: of stores, projects and bundles.

<store>/<study>/<run-id>/metadata.json, metrics.jsonl, …      run-id = <variant>.seed<seed>
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from fairtrial.core.errors import UserError

JOIN_VARIABLE = "FAIRTRIAL_RUN_DIR"
"""Environment variable that passes the run directory to a program started by a job, so that it can join the run."""
TOKEN_VARIABLE = "FAIRTRIAL_RUN_TOKEN"  # noqa: S105 — not a secret
"""Environment variable with the token of the job's claim: a joined program writes only while the claim is valid."""

ARCHIVE = ".archive"
ADHOC_STUDY = "adhoc"
DEPENDENCIES_STUDY = "teachers"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+=,@-]*")
LONGEST_NAME = 120


ARTIFACT = "artifact.yaml"
STUDY_PLAN = "study.json"


@dataclass(frozen=True)
class ProjectPaths:
    """The files of a project, whose root contains an `artifact.yaml`."""

    root: Path

    @property
    def artifact(self) -> Path:
        return self.root / ARTIFACT

    @property
    def citation(self) -> Path:
        return self.root / "CITATION.cff"

    @property
    def command_log(self) -> Path:
        """Append-only log of the commands run in the project and of the files added to the artifact."""
        return self.root / "artifact.journal.jsonl"

    @property
    def registrations(self) -> RegistrationPaths:
        return RegistrationPaths(self.root / "registrations")


def check_name(kind: str, name: str) -> str:
    """Return the name of a study or variant; raise a UserError if it is not a valid folder name."""
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


def short_id(study: str, run: str) -> str:
    """Return eight hexadecimal digits that name a run of a store: short to type, and without anything to quote."""

    import hashlib  # not needed to start the command line

    return hashlib.sha256(f"{study}/{run}".encode()).hexdigest()[:SHORT_ID]


SHORT_ID = 8
FEWEST_DIGITS = 4
"""Fewest digits of a short id that name a run."""


def may_be_short_id(text: str) -> bool:
    return FEWEST_DIGITS <= len(text) <= SHORT_ID and all(digit in "0123456789abcdef" for digit in text)


_RUN_ID = re.compile(r"(?P<variant>.+)\.seed(?P<seed>0|[1-9]\d{0,18})(?:\.again(?P<attempt>[1-9]\d{0,8}))?")


def parts_of_run_id(name: str) -> tuple[str, int, int] | None:
    """Return variant, seed and attempt from the name of a run's folder; None for any other name."""
    match = _RUN_ID.fullmatch(name)
    return (match["variant"], int(match["seed"]), int(match["attempt"] or 1)) if match else None


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
        """How much of `events` was delivered to a receiver; exists only if there is a receiver."""
        return self.root / "delivered.json"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    @property
    def taking_over(self) -> Path:
        """Lock that is held while a claim whose holder is lost is taken over."""
        return self.root / ".taking-over"

    @property
    def heartbeat(self) -> Path:
        """Heartbeat file that the process of a run renews every few seconds."""
        return self.root / ".pulse"

    @property
    def remote_state(self) -> Path:
        """What this machine knows about the run in the shared store; exists only in a mirror."""
        return self.root / ".shared.json"

    @property
    def staged(self) -> Path:
        """A second name (link) for a file while this process uploads it to the shared store."""
        return self.root / f".upload-{os.getpid()}.tmp"

    @property
    def appended(self) -> tuple[Path, ...]:
        """The append-only files."""
        return self.metrics, self.events, self.log

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
        return self.checkpoints / f"step-{step:d}.pt"

    def top(self, step: int) -> Path:
        """One of the top checkpoints other than the best."""
        return self.checkpoints / f"top-{step:d}.pt"

    @property
    def adapters(self) -> Path:
        """Policy versions, each a directory that `peft` can load."""
        return self.root / "adapters"

    def adapter(self, version: int) -> Path:
        return self.adapters / f"version-{version:d}"


SUBMITTED = "submitit"
"""The folder next to a study's remote jobs where submitit stores the files for Slurm."""


@dataclass(frozen=True)
class RemoteJobFiles:
    """The files of one remote job in a mailbox. All jobs share one folder, so that one listing returns every file.

    The names of files that a job writes contain the `attempt_id` of its start, so two starts never write the same file.
    """

    name: str

    @property
    def task(self) -> str:
        return f"{self.name}.errand.json"

    @property
    def started(self) -> str:
        return f"{self.name}.started.json"

    def done(self, start: str) -> str:
        return f"{self.name}.done.{start}.json"

    @property
    def stop(self) -> str:
        return f"{self.name}.stop.json"

    def claim(self, cell: int, start: str) -> str:
        """The file with the token of the job's claim on a cell."""
        return f"{self.name}.claim-{cell}.{start}.json"

    def is_claim(self, name: str, cell: int) -> bool:
        return name.startswith(f"{self.name}.claim-{cell}.")

    def answer(self, cell: int, start: str) -> str:
        return f"{self.name}.answer-{cell}.{start}.json"

    @staticmethod
    def is_outcome(name: str) -> bool:
        """Return whether a file records how a run or a job ended."""
        return name.partition(".")[2].startswith(("answer-", "done."))

    @staticmethod
    def job_of(name: str) -> str | None:
        """Return the remote job that a file belongs to, or None."""
        job, dot, rest = name.partition(".")
        return job if dot and job and rest.endswith("json") else None


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
    def timeline(self) -> Path:
        return self.trace / "lanes.json"


def _part(name: str) -> str:
    """Return a valid name of one folder. Names may come from untrusted files, so they must not leave the store."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise UserError(f"{name!r} cannot be the name of a study or of a run")
    return name


@dataclass(frozen=True)
class StorePaths:
    """The layout of a store."""

    root: Path

    def study(self, study: str) -> Path:
        return self.root / _part(study)

    def study_plan(self, study: str) -> Path:
        return self.root / _part(study) / STUDY_PLAN

    def launching(self, study: str) -> Path:
        """Lock that every launcher holds while it works on the study."""
        return self.root / _part(study) / ".launching"

    def launcher(self, study: str) -> Path:
        """State that a launcher needs to find its jobs again."""
        return self.root / _part(study) / ".launcher"

    def launch_log(self, study: str) -> Path:
        """Output of launchers that run in the background."""
        return self.root / _part(study) / "launch.log"

    def interim_looks(self, study: str) -> Path:
        return self.root / _part(study) / "looks.jsonl"

    def interim_looks_seal(self, study: str) -> Path:
        """Length and checksum of the looks, so that a lost one is detected."""
        return self.root / _part(study) / ".looks.seal.json"

    def run(self, study: str, run: str) -> RunPaths:
        return RunPaths(self.root / _part(study) / _part(run))

    def archive(self, study: str) -> Path:
        return self.root / _part(study) / ARCHIVE

    @property
    def mirror(self) -> Path:
        """Names the shared store that this folder mirrors; an ordinary store does not have this file."""
        return self.root / ".mirror.json"

    @property
    def profiles(self) -> Path:
        return self.root / ".profiles"

    @property
    def cache(self) -> Path:
        return self.root / ".cache"

    @property
    def series_caches(self) -> Path:
        return self.cache / "series"

    def series_cache(self, study: str) -> Path:
        return self.series_caches / f"{_part(study)}.arrow"

    @property
    def index(self) -> Path:
        return self.root / ".cache" / "index.json"


@dataclass(frozen=True)
class SharedPaths:
    """The names of the objects of one run in a shared store, relative to the root of the store."""

    study: str
    run: str

    @property
    def root(self) -> str:
        return f"{self.study}/{self.run}"

    @property
    def metadata(self) -> str:
        return self.plain("metadata.json")

    def plain(self, name: str) -> str:
        """A file of an ended run, with the same name as in a run directory."""
        return f"{self.root}/{name}"

    @property
    def claims(self) -> str:
        return f"{self.root}/.claims"

    def claim(self, token: int) -> str:
        return f"{self.claims}/{token:08d}.json"

    @property
    def live(self) -> str:
        return f"{self.root}/.live"

    def heartbeat(self, token: int) -> str:
        return f"{self.live}/{token:08d}/pulse.json"

    def manifest(self, token: int) -> str:
        return f"{self.live}/{token:08d}/manifest.json"

    def segment(self, token: int, file: str, offset: int) -> str:
        return f"{self.live}/{token:08d}/{file}/{offset:015d}"

    def blob(self, token: int, sha256: str) -> str:
        return f"{self.live}/{token:08d}/files/{sha256}"

    def token_of(self, name: str) -> int | None:
        """Return the token of the claim that an object belongs to; None if it is not part of a live run."""
        below = name.removeprefix(f"{self.live}/")
        return None if below == name else _number(below.partition("/")[0], TOKEN_DIGITS)

    def offset_of(self, token: int, file: str, name: str) -> int | None:
        """Return the offset at which a segment of a file begins; None if the object is not a segment of it."""
        below = name.removeprefix(f"{self.live}/{token:08d}/{file}/")
        return None if below == name else _number(below, OFFSET_DIGITS)


AnyPath = TypeVar("AnyPath", Path, PurePosixPath)


@dataclass(frozen=True)
class BundlePaths(Generic[AnyPath]):
    """The files of a research bundle, as paths in a folder or names in an archive."""

    root: AnyPath

    @property
    def crate(self) -> AnyPath:
        return self.root / "ro-crate-metadata.json"

    @property
    def manifest(self) -> AnyPath:
        return self.root / "manifest.json"

    @property
    def signature(self) -> AnyPath:
        """Signature of the manifest, which covers all other files; the only file that the manifest does not list."""
        return self.root / "manifest.signature.json"

    @property
    def environment(self) -> AnyPath:
        return self.root / "environment.json"

    @property
    def claims(self) -> AnyPath:
        return self.root / "report" / "headlines.json"

    @property
    def report(self) -> AnyPath:
        return self.root / "report" / "report.md"

    @property
    def notebook(self) -> AnyPath:
        return self.root / "analysis.ipynb"

    def analysis(self, study: str) -> AnyPath:
        return self.root / "report" / _part(study) / "analysis.json"

    def charts(self, study: str) -> AnyPath:
        return self.root / "charts" / _part(study)

    @property
    def store(self) -> AnyPath:
        return self.root / "runs"

    @property
    def registrations(self) -> AnyPath:
        return self.root / "registrations"

    @property
    def files(self) -> AnyPath:
        """Project files that belong in none of the other folders, with their names relative to the project."""
        return self.root / "project"


KEY_VARIABLE = "FAIRTRIAL_KEY"


def signing_key() -> Path:
    """Return the path of the key that signs registrations: $FAIRTRIAL_KEY, or the default in the user's settings."""
    return Path(os.environ.get(KEY_VARIABLE) or "~/.config/fairtrial/signing-key.pem").expanduser().absolute()


def public_key(key: Path) -> Path:
    """Return the path of the public half of a signing key."""
    return key.with_suffix(".pub")


@dataclass(frozen=True)
class RegistrationPaths:
    """The folder of a project's registrations."""

    root: Path

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.jsonl"

    def registration(self, sha256: str) -> Path:
        return self.root / f"{sha256}.json"

    def anchor(self, sha256: str) -> Path:
        """The text to publish elsewhere."""
        return self.root / f"{sha256}.anchor.txt"


NOT_CODE = tuple(
    f"**/{name}"
    for name in (
        ARTIFACT,
        "artifact.journal.jsonl",
        "CITATION.cff",
        "registrations/ledger.jsonl",
        "registrations/*.anchor.txt",
        f"registrations/{'[0-9a-f]' * 64}.json",
    )
)
"""Files that Fairtrial writes into a project, as git globs: they do not affect what a run computes."""

SHARED_MARKER = ".fairtrial.json"
"""Name of the file that marks and identifies a shared store."""


def shared_plans(study: str) -> str:
    return f"{study}/.plans"


def shared_plan(study: str, number: int) -> str:
    return f"{shared_plans(study)}/{number:08d}.json"


def number_of(name: str) -> int | None:
    """Return the number in the name of a claim or a plan; None for any other name, which Fairtrial never writes."""
    last = name.rpartition("/")[2]
    return _number(last.removesuffix(".json"), TOKEN_DIGITS) if last.endswith(".json") else None


TOKEN_DIGITS, OFFSET_DIGITS = 8, 15


def _number(text: str, digits: int) -> int | None:
    """Parse a zero-padded number; None unless it has exactly the format that Fairtrial writes."""
    if not text.isascii() or not text.isdigit() or not digits <= len(text) <= OFFSET_DIGITS:
        return None
    return int(text) if len(text) == digits or not text.startswith("0") else None


RESERVED_IN_STUDY = frozenset({STUDY_PLAN, "looks.jsonl", "launch.log"})
"""Names of files in a study's folder, which therefore cannot be names of runs."""


def is_url(place: str) -> bool:
    return "://" in place
