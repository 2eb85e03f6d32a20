"""research bundle: pack everything needed to check a project into an RO-Crate that can be verified on its own.

choose runs → stage their published files → compute the headline numbers from that copy → describe → pack
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from fairtrial.api.comparing.analysis import Analysis
from fairtrial.api.comparing.analyze import analyze_unseen
from fairtrial.api.comparing.plots import main_chart, write_plots
from fairtrial.api.evidence.artifact import Project, file_in, load_project
from fairtrial.api.evidence.bundle_report import report_text
from fairtrial.api.evidence.claims import (
    BY_THE_AUTHOR,
    TOLERANCE,
    plan_claims_and_looks,
    recorded_claims,
    study_claims,
)
from fairtrial.api.evidence.preregistered_analysis import local_deviations
from fairtrial.core.canonical import file_hash
from fairtrial.core.errors import CheckFailed, FairtrialError, UserError, unknown
from fairtrial.core.formatting import counted
from fairtrial.core.paths import BundlePaths, RegistrationPaths, RunPaths, signing_key
from fairtrial.core.regular_files import read_regular
from fairtrial.core.run_metadata import RunMetadata
from fairtrial.core.runs import Run, Status
from fairtrial.core.untrusted import collisions, path_inside, why_unsafe
from fairtrial.record.interim_looks import InterimLook
from fairtrial.record.metadata import SEALED
from fairtrial.record.recorded import with_series
from fairtrial.record.store import Store, open_store
from fairtrial.record.store_location import StoreLocation
from fairtrial.record.studies import without_checksum
from fairtrial.report.documents import as_json
from fairtrial.research.archive import ProgressCallback, quiet, under_another_name, write_zip
from fairtrial.research.artifact import not_stated
from fairtrial.research.citation import cff, with_gaps
from fairtrial.research.command_log import COMMAND, added_files, read_command_log
from fairtrial.research.crate import CratedRun, crate_document
from fairtrial.research.credentials import refuse_credentials
from fairtrial.research.keys import load_signer
from fairtrial.research.manifest import BundleManifest, ExcludedFiles
from fairtrial.research.notebook import notebook
from fairtrial.research.registration import read_registration
from fairtrial.research.scrub import RULES, Scrubber, absolute_paths
from fairtrial.research.signature import sign_manifest
from fairtrial.version import __version__

INSIDE = BundlePaths(PurePosixPath())
NOT_OF_A_PLACE = ("hostname", "executable", "command_line")
"""Recorded environment facts that identify one machine or user, instead of the kind of machine and code."""
CHECKPOINTS, COLUMNS, LOGS, ARCHIVED, CHARTS = "checkpoints", "columnar copies", "logs", "archived runs", "charts"
WHY = {
    CHECKPOINTS: "large; --checkpoints includes best.pt of every run",
    COLUMNS: "derived from metrics.jsonl, which is included",
    LOGS: "job output was not written for publication",
    ARCHIVED: "replaced by other runs",
    CHARTS: "need fairtrial[charts], which is not installed, or were not requested",
}
FEW_COMPARISONS = 2
"""With more comparisons, one chart shows all of them; separate charts would be dozens."""


@dataclass(frozen=True)
class BundleTerms:
    """What goes into a bundle. Without names of studies, all studies of the store.

    >>> fairtrial.BundleTerms(studies=["demo"], charts=False).studies
    ['demo']
    """

    studies: Sequence[str] = ()
    checkpoints: bool = False
    charts: bool = True
    store: StoreLocation = None
    force: bool = False
    allow: Sequence[str] = ()
    """Files of the bundle, or `kind:KIND`, that may contain something that looks like a credential."""
    tell: Callable[[str], None] = lambda _: None
    watch: ProgressCallback = quiet


@dataclass(frozen=True)
class Bundled:
    """A bundle that was written, or would be in a dry run. `path` is None for a dry run.

    >>> fairtrial.bundle("project/artifact.yaml", dry_run=True).files  # doctest: +SKIP
    """

    path: Path | None
    studies: Sequence[str]
    runs: int
    files: int
    bytes: int
    packed_bytes: int | None
    excluded: Sequence[Mapping[str, Any]]
    signer: str | None
    sha256: str
    stale: Sequence[str] = ()
    paths_told: Sequence[str] = ()
    not_stated: Sequence[str] = ()
    """What artifact.yaml does not state, one sentence each."""

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "path": None if self.path is None else str(self.path)}


@dataclass
class BundleStaging:
    """A bundle under construction: its files by name, copied and scrubbed, or referenced in place if they are large."""

    folder: Path
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    sources: dict[str, Path] = field(default_factory=dict)
    left_out: dict[str, tuple[list[str], int]] = field(default_factory=dict)
    paths_told: set[str] = field(default_factory=set)

    def put(self, name: PurePosixPath | str, content: bytes) -> None:
        target = path_inside(self.folder, str(name), what="bundle")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        self.files[str(name)] = len(content), hashlib.sha256(content).hexdigest()
        self.sources[str(name)] = target

    def put_text(self, name: PurePosixPath | str, content: bytes) -> None:
        """Put a file, and note the absolute paths in it, which the user may want to review before publishing."""
        self.paths_told |= absolute_paths(content)
        self.put(name, content)

    def link(self, name: PurePosixPath | str, path: Path) -> None:
        self.files[str(name)] = path.stat().st_size, file_hash(path)
        self.sources[str(name)] = path

    def leave(self, what: str, name: str, size: int) -> None:
        names, total = self.left_out.get(what, ([], 0))
        names.append(name)
        self.left_out[what] = names, total + size

    @property
    def excluded(self) -> list[Mapping[str, Any]]:
        return [
            ExcludedFiles(what, WHY[what], names, size).to_dict()
            for what, (names, size) in sorted(self.left_out.items())
        ]


def bundle(
    artifact: str | os.PathLike[str] | None = None,
    *,
    zipped: bool = True,
    output: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    terms: BundleTerms | None = None,
) -> Bundled:
    """Make the bundle of a project: a zip, or a folder with the same content. The same state gives the same bytes.

    >>> fairtrial.bundle("project/artifact.yaml", zipped=True).path  # doctest: +SKIP
    """
    terms = terms or BundleTerms()
    project = load_project(artifact)
    target = _target(project, output, zipped=zipped)
    if not dry_run:
        _refuse_existing(target, zipped=zipped, force=terms.force)
    store = open_store(terms.store or project.store)
    runs = _chosen(store, terms.studies)
    with tempfile.TemporaryDirectory(prefix="fairtrial-bundle-") as folder:
        stage = BundleStaging(Path(folder))
        stale = _fill(stage, project, store, runs, terms)
        bundled = _summary(stage, runs, _describe(stage, project, runs), stale)
        bundled = replace(bundled, not_stated=not_stated(project.artifact))
        _refuse_unpackable(stage)
        refuse_credentials(stage.sources, terms.allow, terms.tell)
        _report(bundled, terms)
        if dry_run:
            return bundled
        if zipped:
            write_zip(target, stage.sources, terms.watch)
        else:
            _write_folder(target, stage.sources, terms.watch)
    packed = target.stat().st_size if zipped else bundled.bytes
    return Bundled(**{**vars(bundled), "path": target, "packed_bytes": packed})


def _target(project: Project, output: str | os.PathLike[str] | None, *, zipped: bool) -> Path:
    usual = f"{project.artifact.id}-{project.artifact.version}".replace("/", "-").replace(" ", "-")
    return Path(output).absolute() if output else project.paths.root / (f"{usual}.zip" if zipped else usual)


def _refuse_existing(target: Path, *, zipped: bool, force: bool) -> None:
    if not target.parent.is_dir():
        raise UserError(f"cannot write {target}: no such folder", hint="Choose another --output.")
    if target.exists() and not (force and zipped and target.is_file()):
        hint = "Overwrite it with --force, or choose another --output." if zipped else "Choose another --output."
        raise UserError(f"{target} already exists", hint=hint)


def _refuse_unpackable(stage: BundleStaging) -> None:
    """Reject names that cannot be unpacked everywhere, such as two that differ only in case."""
    names = sorted(stage.files)
    problems = [f"{name!r} {why}" for name in names if (why := why_unsafe(name))]
    problems += [f"{name!r} and another name differ only in case" for name in collisions(names)]
    if problems:
        problems = [f"{each}, so it cannot be bundled" for each in problems]
        raise UserError(problems[0], problems=problems[1:], hint="Rename it, or leave its study out with --study.")


def _chosen(store: Store, studies: Sequence[str]) -> list[Run]:
    """Return the runs of these studies, or of all; raise UserError if one is still running."""
    known = store.studies()
    problems = [unknown("study", name, known) for name in studies if name not in known]
    if problems:
        raise UserError(problems[0], problems=problems[1:], hint=f"Store: {store.address}")
    runs = [
        run
        for study in studies or known
        for _, entry in sorted(store.directories(study), key=lambda each: each[1].name)
        if (run := store.look_at(study, entry.name))
    ]
    if not runs:
        raise UserError(f"there are no runs to bundle in {store.address}", hint="Launch a study first.")
    _refuse_damaged(runs)
    running = [run.name for run in runs if run.status is Status.RUNNING]
    if running:
        raise UserError(
            f"{running[0]} is still running" + (f", and so are {len(running) - 1} more" if len(running) > 1 else ""),
            hint="Wait for it, or name the studies to bundle with --study.",
        )
    return runs


def _refuse_damaged(runs: Sequence[Run]) -> None:
    """Reject damaged runs: nobody could check that the numbers follow from them."""
    damaged = [run for each in runs if (run := with_series(each)[0]).status is Status.DAMAGED]
    if damaged:
        messages = [f"run {run.name} is damaged: {run.reason}" for run in damaged]
        raise CheckFailed(
            messages[0],
            problems=messages[1:],
            hint="Repair it: fairtrial doctor --damage --repair. Or remove it from the store with 'fairtrial runs rm', "
            "which a registered analysis then reports, or bundle other studies with --study.",
        )


def _fill(stage: BundleStaging, project: Project, store: Store, runs: Sequence[Run], terms: BundleTerms) -> list[str]:
    """Stage everything except the crate and the manifest; return the recorded results that no longer hold."""
    hosts = {run.metadata.environment.hostname or "" for run in runs}
    names = {name for run in runs for name in (run.study, run.variant, run.metadata.recipe)}
    stage.paths_told |= hosts & names
    scrubber = Scrubber.of(project=project.paths.root, store=store.root, home=Path.home(), hosts=hosts - names)
    studies = sorted({run.study for run in runs})
    for run in runs:
        _stage_run(stage, store, run, scrubber, terms)
    for study in studies:
        _stage_study(stage, store, study, scrubber)
    command_log = _stage_project(stage, project, runs, scrubber)
    stage.put(INSIDE.environment, _environments(runs))
    copy = Store(stage.folder / INSIDE.store)
    by_study = {study: study_claims(copy, study) for study in studies}
    recorded, stale = recorded_claims(copy, command_log, studies)
    planned, interim_looks = _planned(project, store, copy, studies)
    analyses = {study: _analysis(copy, study, project, interim_looks.get(study, ())) for study in studies}
    claims = {"studies": by_study, "registered": planned, "results": recorded}
    stage.put(INSIDE.claims, as_json(claims).encode())
    for study, analysis in analyses.items():
        if analysis is not None:
            stage.put(INSIDE.analysis(study), scrubber.text(as_json(analysis.to_dict()).encode()))
            _stage_charts(stage, study, analysis, terms)
    stage.put(INSIDE.notebook, notebook(project.artifact, claims, runs=str(INSIDE.store), tolerance=TOLERANCE))
    text = report_text(project.artifact, claims, analyses)
    stage.put(INSIDE.report, scrubber.text(text.encode()))
    return stale


def _planned(
    project: Project, store: Store, copy: Store, studies: Sequence[str]
) -> tuple[dict[str, Any], dict[str, list[InterimLook]]]:
    """Return the registered analysis and its deviations for every registration whose runs are bundled.

    Numbers, and deviations that runs show, come from the copy. Deviations that only this machine can show are reported
    by the author. Also return, by study, the interim looks that reading these numbers amounts to, because any other
    analysis in the bundle comes after them.
    """
    by_registration: dict[str, Any] = {}
    interim_looks: dict[str, list[InterimLook]] = {}
    for path in sorted(project.paths.registrations.root.glob("*.json")):
        with contextlib.suppress(FairtrialError):
            registration = read_registration(path)
            if registration.study in studies:
                staged = RegistrationPaths(copy.root.parent / INSIDE.registrations).registration(registration.sha256)
                by_author = [each.to_dict() for each in local_deviations(registration, store)]
                claims, shown = plan_claims_and_looks(copy, staged)
                interim_looks.setdefault(str(registration.study), []).extend(shown)
                by_registration[registration.sha256] = {**claims, BY_THE_AUTHOR: by_author}
    return by_registration, interim_looks


def _stage_run(stage: BundleStaging, store: Store, run: Run, scrubber: Scrubber, terms: BundleTerms) -> None:
    """Stage series unchanged, and metadata and events without machine details; list all other files as left out."""
    if terms.checkpoints:
        store.fetch(run.study, run.id, steps=False)
    paths, place = run.paths, INSIDE.store / run.study / run.id
    # Scrubbing changes the events, so the seal of the run would no longer match them.
    bundled = RunMetadata.of({key: value for key, value in run.metadata.items() if key != SEALED})
    stage.put_text(place / paths.metadata.name, scrubber.metadata(bundled))
    for path in (paths.metrics, paths.events):
        if path.is_file():
            content = read_regular(path)
            stage.put(place / path.name, content if path == paths.metrics else scrubber.text(content))
    for path in _others(paths):
        name = place / path.relative_to(paths.root).as_posix()
        if terms.checkpoints and path == paths.best:
            stage.link(name, path)
        else:
            stage.leave(_kind(paths, path), str(name), path.stat().st_size)


def _others(paths: RunPaths) -> list[Path]:
    """Return the files of a run that are not bundled by default. Hidden files are not part of the run."""
    own = {paths.metadata, paths.metrics, paths.events, paths.delivered}
    every = (
        Path(folder) / name for folder, _, names in os.walk(paths.root) for name in names if not name.startswith(".")
    )
    return sorted(path for path in every if path not in own and not path.is_symlink())


def _kind(paths: RunPaths, path: Path) -> str:
    return COLUMNS if path == paths.columns else LOGS if path == paths.log else CHECKPOINTS


def _stage_study(stage: BundleStaging, store: Store, study: str, scrubber: Scrubber) -> None:
    for path in (store.paths.study_plan(study), store.paths.interim_looks(study)):
        if path.is_file():
            content = read_regular(path) if path.suffix == ".jsonl" else without_checksum(read_regular(path))
            stage.put_text(INSIDE.store / study / path.name, scrubber.text(content))
    for path in _others_of_study(store, study):
        stage.leave(LOGS, f"{INSIDE.store}/{study}/{path.name}", path.stat().st_size)
    archive = store.paths.archive(study)
    for folder in sorted(archive.iterdir()) if archive.is_dir() else ():
        stage.leave(ARCHIVED, f"{INSIDE.store}/{study}/{archive.name}/{folder.name}", _size_of(folder))


def _others_of_study(store: Store, study: str) -> list[Path]:
    """Return files next to the runs of a study that are not bundled, such as the log of a detached launcher."""
    own = {store.paths.study_plan(study), store.paths.interim_looks(study)}
    candidates = (
        path for path in store.paths.study(study).iterdir() if path.is_file() and not path.name.startswith(".")
    )
    return sorted(path for path in candidates if path not in own)


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _stage_project(
    stage: BundleStaging, project: Project, runs: Sequence[Run], scrubber: Scrubber
) -> list[dict[str, Any]]:
    """Stage files that the user wrote unchanged, and the command log scrubbed; return the command log."""
    paths = project.paths
    stage.put(paths.artifact.name, read_regular(paths.artifact))
    written = read_regular(paths.citation) if paths.citation.is_file() else b""
    if written.decode(errors="replace") in ("", *with_gaps(project.artifact)):
        written = cff(project.artifact).encode()
    stage.put(paths.citation.name, written)
    command_log = read_command_log(paths.command_log)
    if command_log:
        lines = b"".join(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in command_log)
        stage.put_text(paths.command_log.name, scrubber.text(lines))
    folder = paths.registrations.root
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_file() and not path.name.startswith("."):
            stage.put_text(INSIDE.registrations / path.name, read_regular(path))
    _stage_added(stage, project, command_log)
    for path in _named(project, command_log, runs):
        name = INSIDE.files / file_in(project, path)
        if str(name) not in stage.files:
            stage.put_text(name, read_regular(path))
    return command_log


def _stage_added(stage: BundleStaging, project: Project, command_log: Sequence[Mapping[str, Any]]) -> None:
    problems = []
    for name, sha256 in sorted(added_files(command_log).items()):
        path = path_inside(project.paths.root, name, what=project.paths.command_log.name)
        if not path.is_file():
            problems.append(f"{name} was added to the artifact but no longer exists")
        elif file_hash(path) != sha256:
            problems.append(f"{name} has changed since it was added to the artifact")
        else:
            stage.link(INSIDE.files / file_in(project, path), path)
    if problems:
        raise UserError(
            problems[0],
            problems=problems[1:],
            hint="Add it again: fairtrial research add FILE. Or drop it: fairtrial research remove FILE.",
        )


def _named(project: Project, command_log: Sequence[Mapping[str, Any]], runs: Sequence[Run]) -> list[Path]:
    """Return study files and recipes inside the project that commands named or runs were made from."""
    words = {
        (entry.get("folder", "."), word)
        for entry in command_log
        if entry["kind"] == COMMAND
        for word in entry["command"]
    }
    given = [project.paths.root / folder / word for folder, word in words if word.endswith((".yaml", ".yml"))]
    given += [Path(file) for file in {run.metadata.recipe_file for run in runs} if file]
    files = []
    for path in given:
        with contextlib.suppress(UserError, OSError):
            if path.is_file() and path.resolve() != project.paths.artifact.resolve() and file_in(project, path):
                files.append(path)
    return sorted(set(files))


def _environments(runs: Sequence[Run]) -> bytes:
    """Return the environments of the runs, each different one once. Machines are counted, not named."""
    facts = [
        {key: value for key, value in run.metadata.environment.items() if key not in NOT_OF_A_PLACE} for run in runs
    ]
    counts = Counter(orjson.dumps(each, option=orjson.OPT_SORT_KEYS) for each in facts)
    machines = {run.metadata.environment.hostname for run in runs}
    places = [{"runs": count, **orjson.loads(each)} for each, count in sorted(counts.items())]
    return as_json({"machines": len(machines), "environments": places}).encode()


def _analysis(store: Store, study: str, project: Project, interim_looks: Sequence[InterimLook]) -> Analysis | None:
    """Return the full analysis; None if the study has nothing to compare."""
    try:
        return analyze_unseen(study, store, project.paths.root.resolve(), interim_looks)
    except UserError:
        return None


def _stage_charts(stage: BundleStaging, study: str, analysis: Analysis, terms: BundleTerms) -> None:
    folder = stage.folder / INSIDE.charts(study)
    if terms.charts:
        with contextlib.suppress(FairtrialError):  # nothing to draw, or no chart library
            folder.mkdir(parents=True)
            if len(analysis.comparisons) <= FEW_COMPARISONS:
                written = write_plots(analysis, folder)
            else:
                written = [folder / "forest.png"]
                main_chart(analysis, written[0])
            for path in written:
                stage.link(INSIDE.charts(study) / path.name, path)
            return
    stage.leave(CHARTS, str(INSIDE.charts(study)), 0)


def _describe(stage: BundleStaging, project: Project, runs: Sequence[Run]) -> BundleManifest:
    """Stage the crate over all files, the manifest over those and the crate, and the signature over the manifest."""
    crated = [
        CratedRun(run.study, run.id, run.status.value, run.metadata.timings.created, run.metadata.timings.ended)
        for run in runs
    ]
    stage.put(INSIDE.crate, crate_document(project.artifact, stage.files, crated, version=__version__))
    about = {
        "id": project.artifact.id,
        "version": project.artifact.version,
        "runs": len(runs),
        "studies": sorted({run.study for run in runs}),
    }
    signer = load_signer() if signing_key().exists() else None
    key = signer.public if signer else None
    manifest = BundleManifest(dict(stage.files), stage.excluded, RULES, f"fairtrial {__version__}", about, key)
    stage.put(INSIDE.manifest, manifest.render())
    if signer:
        stage.put(INSIDE.signature, sign_manifest(manifest.sha256, signer))
    return manifest


def _summary(stage: BundleStaging, runs: Sequence[Run], manifest: BundleManifest, stale: Sequence[str]) -> Bundled:
    size = sum(each for each, _ in stage.files.values())
    studies = sorted({run.study for run in runs})
    return Bundled(
        None, studies, len(runs), len(stage.files), size, None, stage.excluded, manifest.signer,
        manifest.sha256, list(stale), sorted(stage.paths_told, key=lambda message: (message.startswith("/"), message)),
    )  # fmt: skip


def _report(bundled: Bundled, terms: BundleTerms) -> None:
    """Report the size and what is left out, before anything is written."""
    terms.tell(
        f"{counted(bundled.runs, 'run')} of {counted(len(bundled.studies), 'study')}: "
        f"{counted(bundled.files, 'file')}, {bundled.bytes / 1e6:,.1f} MB before packing."
    )
    for each in bundled.excluded:
        first = each["names"][0] + (f" and {each['files'] - 1:,} more" if each["files"] > 1 else "")
        size = f", {each['bytes'] / 1e6:,.1f} MB" if each["bytes"] else ""
        terms.tell(f"Left out: {each['what']} ({first}{size}): {each['why']}.")
    for message in bundled.stale:
        terms.tell(f"Not a headline number: {message}, because its runs have changed since it was recorded.")
    for gap in bundled.not_stated:
        terms.tell(gap)
    if bundled.paths_told:
        shown = ", ".join(bundled.paths_told[:3]) + (" …" if len(bundled.paths_told) > 3 else "")
        terms.tell(f"It still contains local paths or host names: {shown}. Review them before you publish.")


def _write_folder(target: Path, sources: Mapping[str, Path], on_progress: ProgressCallback) -> None:
    total, done = sum(path.stat().st_size for path in sources.values()), 0
    with under_another_name(target) as unfinished:
        for name, path in sorted(sources.items()):
            place = path_inside(unfinished, name, what="bundle")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            done += path.stat().st_size
            on_progress(done, total)
