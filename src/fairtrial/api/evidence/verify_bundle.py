"""research verify BUNDLE: check that every file matches the manifest, and that the runs give the claimed numbers.

read the archive → unpack it → hash every file → check registrations and order → recompute the headline numbers
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from fairtrial.api.evidence.claims import (
    BY_THE_AUTHOR,
    TOLERANCE,
    basis_of,
    count_numbers,
    differences,
    plan_claims,
    result_claims,
    study_claims,
)
from fairtrial.api.running.recomputing import FROM_SERIES
from fairtrial.core.canonical import file_hash
from fairtrial.core.errors import FairtrialError, UserError
from fairtrial.core.formatting import counted
from fairtrial.core.paths import BundlePaths, RegistrationPaths
from fairtrial.core.runs import Run
from fairtrial.core.untrusted import parse_json, path_inside, read_file
from fairtrial.record.store import Store
from fairtrial.research.anchors import is_named_in
from fairtrial.research.archive import ProgressCallback, changed_container, opened, quiet, unpack
from fairtrial.research.keys import Trust, read_trusted
from fairtrial.research.manifest import LARGEST, BundleManifest, compare_files, read_manifest
from fairtrial.research.registration import read_registration
from fairtrial.research.signature import signer_of
from fairtrial.research.verify import (
    Checked,
    RunStart,
    VerificationCheck,
    VerificationSummary,
    check_signer,
    spelled_keys,
    verify_registration,
)

Files = Mapping[str, tuple[int, str]]
INSIDE = BundlePaths(PurePosixPath())
MOST_NAMED = 20
MALFORMED = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, OSError)
"""Exceptions that reading and computing may raise on a file with arbitrary changes."""


@dataclass(frozen=True)
class CheckedBundle(VerificationSummary):
    """Results of the checks of a bundle, and of the registrations in it.

    >>> fairtrial.verify_bundle("bundle.zip").checks  # doctest: +SKIP
    """

    path: Path
    checks: Sequence[VerificationCheck]
    registrations: Sequence[Checked] = ()
    signer: str | None = None
    trusted: bool = False
    numbers: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path), "intact": self.intact, "result": self.sentence, "signer": self.signer,
            "trusted": self.trusted, "headline_numbers": self.numbers, "tolerance": TOLERANCE,
            "checks": [check.to_dict() for check in self.checks],
            "registrations": [each.to_dict() for each in self.registrations],
            "about": dict(self.about), "notes": list(self.notes),
        }  # fmt: skip


def verify_bundle(
    path: str | os.PathLike[str],
    *,
    trust: Trust = None,
    published: str | os.PathLike[str] | None = None,
    watch: ProgressCallback = quiet,
) -> CheckedBundle:
    """Check a bundle, zipped or unpacked. Mismatches become failed checks; what is not a bundle raises UserError.

    `trust`: public keys; the bundle, its registrations and their ledger must be signed with one of them. `published`:
    a copy of a registration's anchor that was kept elsewhere.

    >>> fairtrial.verify_bundle("bundle.zip").to_dict()  # doctest: +SKIP
    """
    path = Path(path)
    keys = read_trusted(trust)
    if not path.exists():
        raise UserError(f"no bundle {path}")
    with tempfile.TemporaryDirectory(prefix="fairtrial-verify-") as folder:
        files, container = (_from_folder if path.is_dir() else _from_zip)(path, Path(folder), watch)
        place = None if published is None else Path(published)
        return _check(path, BundlePaths(Path(folder)), files, container, keys, place)


def _from_zip(path: Path, folder: Path, on_progress: ProgressCallback) -> tuple[Files, list[str]]:
    with opened(path) as archive:
        return unpack(archive, folder, on_progress), changed_container(archive)


def _from_folder(path: Path, folder: Path, on_progress: ProgressCallback) -> tuple[Files, list[str]]:
    """Copy the folder and check the copy: reading a store may write a cache, and the original must not change."""
    names = sorted(_files_below(path))
    files: dict[str, tuple[int, str]] = {}
    for done, name in enumerate(names, 1):
        target = path_inside(folder, name, what=str(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path_inside(path, name, what=str(path)), target)
        files[name] = target.stat().st_size, file_hash(target)
        on_progress(done, len(names))
    return files, []


def _files_below(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        for name in [*folders, *names]:
            path = Path(folder) / name
            if path.is_symlink():
                raise UserError(f"{path} is a link", hint="Fairtrial bundles have no links, so nothing was read.")
        yield from ((Path(folder) / name).relative_to(root).as_posix() for name in names)


def _check(
    path: Path,
    paths: BundlePaths[Path],
    files: Files,
    container: Sequence[str],
    keys: frozenset[str] | None,
    published: Path | None,
) -> CheckedBundle:
    name = str(INSIDE.manifest)
    if name not in files:
        raise UserError(f"{path} is not a Fairtrial bundle: it has no {name}")
    manifest, problems = read_manifest(read_file(paths.manifest, most=LARGEST))
    checks = [_check_of("manifest", [f"{name} {each}" for each in problems], "it matches its own hash")]
    if manifest is None:
        return CheckedBundle(path, checks)
    listed = {each: known for each, known in files.items() if each not in (name, str(INSIDE.signature))}
    fine = f"{counted(len(listed), 'file')}, none changed, missing, added or renamed"
    checks.append(_check_of("files", compare_files(manifest.files, listed), fine))
    checks.append(_check_of("archive", container, "packed as Fairtrial packs it"))
    signed, signer = _signature(paths, manifest, keys)
    checks += signed
    runs, unreadable = _runs(Store(paths.store))
    checks.append(_check_of("runs", unreadable, f"{counted(len(runs), 'run')}, each in the folder with its name"))
    registered = _registrations(paths, runs, keys, published)
    checks += _published(registered, published)
    checks += [
        VerificationCheck(f"registration {each.path.stem[:12]}: {check.name}", check.ok, check.detail)
        for each in registered
        for check in each.checks
    ]
    claim_checks, numbers = _check_claims(paths, sorted({run.study for run in runs}))
    checks += claim_checks
    return CheckedBundle(
        path, checks, registered, signer, keys is not None and signer in keys, numbers, manifest.about,
        _notes(registered, signer),
    )  # fmt: skip


def _check_of(name: str, problems: Sequence[str], fine: str) -> VerificationCheck:
    if not problems:
        return VerificationCheck(name, True, fine)
    more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
    return VerificationCheck(name, False, "; ".join(problems[:MOST_NAMED]) + more)


def _signature(
    paths: BundlePaths[Path], manifest: BundleManifest, keys: frozenset[str] | None
) -> tuple[list[VerificationCheck], str | None]:
    """Check that the bundle is signed as the manifest says, and return the key that signed it."""
    name, named = paths.signature.name, manifest.signer
    if not paths.signature.is_file():
        if named:
            return [
                VerificationCheck("signature", False, f"{name} is missing: the manifest names key {named[:16]}…")
            ], None
        unsigned = VerificationCheck("signature", None, "the bundle is not signed")
        missing = (
            [VerificationCheck("signer", False, f"not signed with {spelled_keys(keys)}, which you trust")]
            if keys
            else []
        )
        return [unsigned, *missing], None
    signer = signer_of(read_file(paths.signature), manifest.sha256)
    if signer is None:
        return [VerificationCheck("signature", False, f"{name} does not match the manifest, or was changed")], None
    if signer != named:
        said = f"but the manifest names {named[:16]}…" if named else "but the manifest names no key"
        return [VerificationCheck("signature", False, f"{name} was made with key {signer[:16]}…, {said}")], None
    checks = [VerificationCheck("signature", True, f"the manifest is signed with key {signer[:16]}…")]
    return checks + ([check_signer(signer, keys)] if keys is not None else []), signer


def _runs(store: Store) -> tuple[list[Run], list[str]]:
    """Return every valid run of the bundle, and the problems of run folders that do not hold the run they name."""
    runs, problems = [], []
    for study, entry in store.directories():
        try:
            run = store.run(study, entry.name)
            if run is None:
                problems.append(f"{study}/{entry.name} has no metadata")
            elif (run.study, run.id) != (study, entry.name):
                problems.append(f"{study}/{entry.name} holds the run {run.name}")
            else:
                _run_start(run)  # raises if the run has no start time
                runs.append(run)
        except FairtrialError as error:
            problems.append(error.message.replace(str(store.root), str(INSIDE.store)))
        except MALFORMED as error:
            problems.append(f"{study}/{entry.name} does not describe a run: {type(error).__name__} {error}")
    return sorted(runs, key=lambda run: run.name), sorted(problems)


def _run_start(run: Run) -> RunStart:
    return RunStart(run.name, float(run.metadata.timings.created))


def _registrations(
    paths: BundlePaths[Path], runs: Sequence[Run], keys: frozenset[str] | None, published: Path | None
) -> list[Checked]:
    """Verify each registration, including against the start times of its study's runs in the bundle."""
    folder = paths.registrations
    run_starts = [_run_start(run) for run in runs]
    registrations = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        own = published if published and is_named_in(path.stem, published) else None
        registrations.append(verify_registration(path, trust=keys, runs=run_starts, published=own))
    return registrations


def _published(registered: Sequence[Checked], published: Path | None) -> list[VerificationCheck]:
    """Return a failed check if the anchor copy belongs to none of the registrations."""
    if published is None or any(is_named_in(each.path.stem, published) for each in registered):
        return []
    return [VerificationCheck("anchor", False, f"{published.name} contains the hash of no registration in the bundle")]


def _check_claims(paths: BundlePaths[Path], studies: Sequence[str]) -> tuple[list[VerificationCheck], int]:
    """Check the claimed numbers by recomputing each from the raw series; return the checks and how many numbers."""
    try:
        said = parse_json(read_file(paths.claims, most=LARGEST), where=str(INSIDE.claims))
        claimed, results, plans = dict(said["studies"]), list(said["results"]), dict(said["registered"])
    except (OSError, UserError, KeyError, TypeError, ValueError):
        return [VerificationCheck("headline numbers", False, f"{INSIDE.claims} is missing or invalid")], 0
    store, checks, numbers = Store(paths.store), [], 0
    for study in sorted({*claimed, *studies}):
        label = f"headline numbers of {study}"
        if study not in claimed or study not in studies:
            where = "headlines" if study in claimed else "runs"
            checks.append(VerificationCheck(label, False, f"study {study} is only in the {where}"))
            continue
        said_way = claimed[study].get("direction") if isinstance(claimed[study], dict) else None
        again = partial(study_claims, direction=said_way)
        checks.append(_same(label, claimed[study], _computed(again, store, study)))
        numbers += count_numbers(claimed[study])
    checks += _registered(paths, plans, studies)
    numbers += sum(map(count_numbers, plans.values()))
    for at, result in enumerate(results, 1):
        asked = result.get("asked") if isinstance(result, dict) else None
        if not isinstance(asked, dict) or not isinstance(asked.get("command"), str):
            checks.append(VerificationCheck(f"recorded result {at}", False, "it does not contain its question"))
            continue
        label = f"{asked['command']} of {asked.get('study')}"
        if asked.get("study") not in studies:
            checks.append(VerificationCheck(label, False, "its study is not in the bundle"))
            continue
        computed = _computed(result_claims, store, asked)
        checks.append(_same(label, result.get("numbers"), computed, basis_of(asked["command"])))
        numbers += count_numbers(result.get("numbers"))
    return checks, numbers


def _registered(paths: BundlePaths[Path], plans: Mapping[str, Any], studies: Sequence[str]) -> list[VerificationCheck]:
    """Check that the analysis of every registration whose study is bundled is claimed, with its deviations."""
    store, checks = Store(paths.store), []
    there = {path.stem: _study_of(path) for path in paths.registrations.glob("*.json")}
    wanted = {sha256 for sha256, study in there.items() if study in studies}
    for sha256 in sorted({*plans, *wanted}):
        label = f"registered analysis {sha256[:12]}"
        if sha256 not in there or sha256 not in plans:
            missing = (
                "its registration is not in the bundle" if sha256 in plans else "it is not in the headline numbers"
            )
            checks.append(VerificationCheck(label, False, missing))
            continue
        plan = RegistrationPaths(paths.registrations).registration(sha256)
        said = dict(plans[sha256]) if isinstance(plans[sha256], dict) else {}
        by_author = said.pop(BY_THE_AUTHOR, None)
        check = _same(label, said, _computed(plan_claims, store, plan))
        checks.append(replace(check, detail=f"{check.detail}; {_deviations_shown(said.get('deviations'), by_author)}"))
    return checks


def _study_of(path: Path) -> str | None:
    try:
        return read_registration(path).study
    except FairtrialError:  # its own checks report the error
        return None


def _deviations_shown(of_runs: Any, of_author: Any) -> str:
    by_runs, by_author = _kinds(of_runs), _kinds(of_author)
    if not by_runs and not by_author:
        return "no deviations stated"
    by_word = f", {len(by_author)} of them reported by the author" if by_author else ""
    kinds = [*by_runs, *by_author]
    return f"{counted(len(kinds), 'deviation')} stated{by_word}: {', '.join(dict.fromkeys(kinds))}"


def _kinds(deviations: Any) -> list[str]:
    """Return the kinds of deviations in a document that may have been changed arbitrarily."""
    listed = deviations if isinstance(deviations, list) else []
    return [str(each.get("kind")) for each in listed if isinstance(each, dict)]


def _computed(compute: Any, store: Store, about: Any) -> Any:
    """Recompute a claim. An error in files that were changed becomes a mismatch, not a crash."""
    try:
        return compute(store, about)
    except (FairtrialError, *MALFORMED) as error:
        return {"reason": f"{type(error).__name__}: {error}".replace(str(store.root), str(INSIDE.store))}


def _same(label: str, said: Any, recomputed: Any, basis: str = FROM_SERIES) -> VerificationCheck:
    problems = differences(said, recomputed)
    count = counted(count_numbers(said), "number")
    if problems or not isinstance(said, dict):
        return _check_of(label, problems or ["it is not a list of numbers"], "")
    if said.get("reason"):
        return VerificationCheck(label, None, f"there are no numbers: {said['reason']}")
    exact = not differences(said, recomputed, tolerance=0.0)
    how = "to the last bit" if exact else f"within a relative {TOLERANCE:g}, because other libraries round differently"
    return VerificationCheck(label, True, f"{count} recomputed from {basis}, equal {how}")


def _notes(registered: Sequence[Checked], signer: str | None) -> list[str]:
    notes = [f"Registration {each.path.stem[:12]}: {note}" for each in registered for note in each.notes]
    if not registered:
        notes.append("Nothing was registered: the bundle does not show what was planned before the runs.")
    if signer is None:
        notes.append("Without a signature, anyone could have remade this bundle with other numbers.")
    return notes
