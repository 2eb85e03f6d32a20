"""Deviations of a study from its registration. All deviations are listed, without judging them.

Bundles record the texts of deviations, and verification compares them literally: do not reword them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.formatting import counted, shown_moment
from fairtrial.research.registration import Registration

FIXED = "fixed"
"""The stopping rule that can be checked: no comparison before all registered runs are done."""
SHOWN = 3
SCRUBBED = ("~", ".", "runs")
"""Replacements in a bundle for the paths of home, project and store."""


@dataclass(frozen=True)
class Deviation:
    """One deviation from the registration, and the runs that it concerns."""

    kind: str
    text: str
    runs: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "runs": list(self.runs)}


@dataclass(frozen=True)
class RecordedRun:
    """A run of the registered study, as recorded. `left_out` is the reason why the analysis does not use it."""

    run: str
    variant: str
    seed: int
    identity: Mapping[str, Any]
    data: str | None
    commit: str | None
    changes: str | None
    versions: Mapping[str, Any]
    began: float
    ended: float | None = None
    recipe_file: str | None = None
    left_out: str | None = None


@dataclass(frozen=True)
class StudyRecord:
    """The recorded runs of a study. `runs` are first attempts; `repeated` are further attempts at the same cells.

    `amended_by`: the hash of the plan that replaced this one.
    """

    runs: Sequence[RecordedRun]
    interim_looks: Sequence[Mapping[str, Any]] = ()
    repeated: Sequence[str] = ()
    amended_by: str | None = None


@dataclass(frozen=True)
class LocalEvidence:
    """Facts about a study that only the author's machine has, in addition to its runs.

    `replaced` runs are in the archive; `removed` runs were deleted with a command. `changed_files` returns the files
    that differ between two commits, or None if that is unknown.
    """

    replaced: Sequence[str] = ()
    removed: Sequence[str] = ()
    changed_files: Callable[[str, str], list[str] | None] = lambda _before, _after: None


def find_deviations(registration: Registration, study_record: StudyRecord) -> list[Deviation]:
    """Return the deviations that the runs of a study show."""
    study = registration.plan["study"]
    arms = study["arms"]
    seeds = set(registration.seeds)
    planned = [run for run in study_record.runs if run.variant in arms and run.seed in seeds]
    deviations = [
        *_amended(study_record.amended_by),
        *_late(registration),
        *_arms(arms, study_record.runs),
        *_seeds(registration, study_record.runs),
        *_left_out(planned),
        *_listed_runs("repeated runs", "made again beside the run that counts, and not used", study_record.repeated),
        *_options(arms, planned),
        *_data(arms, planned),
        *_recipe_file(study["recipe_sha256"], planned),
        *_code(registration.plan["code"], planned),
        *_early(registration, planned),
    ]
    if registration.plan["stopping_rule"] == FIXED:
        deviations += _stopped_to_look(registration, planned, study_record.interim_looks)
    return deviations


def find_local_deviations(
    registration: Registration, runs: Sequence[RecordedRun], local_evidence: LocalEvidence
) -> list[Deviation]:
    """Return the deviations that the runs alone do not show."""
    arms, seeds = registration.plan["study"]["arms"], set(registration.seeds)
    planned = [run for run in runs if run.variant in arms and run.seed in seeds]
    return [
        *_listed_runs("replaced runs", "made, archived and made anew or not at all", local_evidence.replaced),
        *_listed_runs("removed runs", "deleted, and made anew or not at all", local_evidence.removed),
        *_commits(registration.plan["code"]["git_commit"], planned, local_evidence.changed_files),
    ]


def unchecked(registration: Registration) -> list[str]:
    """Return the parts of the registration that no program can check."""
    messages = []
    rule = registration.plan["stopping_rule"]
    if rule != FIXED:
        messages.append(f"The stopping rule is free text, which no program can check: {rule}")
    if registration.plan["code"]["git_commit"] is None:
        messages.append("No commit was registered, so it is unknown whether the code changed.")
    return messages


def _amended(by: str | None) -> Iterator[Deviation]:
    if by is not None:
        yield Deviation("amended plan", f"this plan was replaced by {by[:12]}")


def _late(registration: Registration) -> Iterator[Deviation]:
    if registration.late:
        runs = tuple(str(run["run"]) for run in registration.late)
        first = min(float(run["began"]) for run in registration.late)
        message = f"{counted(len(runs), 'run')} began before it, the first {shown_moment(first)}"
        yield Deviation("late registration", f"it was registered late: {message}", runs)


def _arms(arms: Mapping[str, Any], runs: Sequence[RecordedRun]) -> Iterator[Deviation]:
    there = dict.fromkeys(run.variant for run in runs)
    extra, missing = [name for name in there if name not in arms], [name for name in arms if name not in there]
    if extra:
        names = tuple(run.run for run in runs if run.variant in extra)
        yield Deviation("extra arms", f"not registered, and not used: {', '.join(extra)}", names)
    if missing:
        yield Deviation("missing arms", f"registered, and without a run: {', '.join(missing)}")


def _seeds(registration: Registration, runs: Sequence[RecordedRun]) -> Iterator[Deviation]:
    arms, seeds = registration.plan["study"]["arms"], registration.seeds
    registered = set(seeds)
    extra = [run for run in runs if run.variant in arms and run.seed not in registered]
    if extra:
        message = _listed(sorted({run.seed for run in extra}))
        yield Deviation("extra seeds", f"not registered, and not used: {message}", _names(extra))
    there = {(run.variant, run.seed) for run in runs}
    present = {run.variant for run in runs}
    for arm in arms:
        missing = [seed for seed in seeds if (arm, seed) not in there]
        if missing and arm in present:
            message = f"{len(missing)} of {len(seeds)} registered seeds of {arm} were not run: {_listed(missing)}"
            yield Deviation("missing seeds", message)


def _left_out(runs: Sequence[RecordedRun]) -> Iterator[Deviation]:
    out = [run for run in runs if run.left_out]
    if out:
        message = "; ".join(f"{run.run} ({run.left_out})" for run in out[:SHOWN]) + (" …" if len(out) > SHOWN else "")
        yield Deviation("excluded runs", f"registered runs without a number in the analysis: {message}", _names(out))


def _listed_runs(kind: str, what: str, runs: Sequence[str]) -> Iterator[Deviation]:
    if runs:
        yield Deviation(kind, f"{what}: {_listed(runs)}", tuple(runs))


def _options(arms: Mapping[str, Any], runs: Sequence[RecordedRun]) -> Iterator[Deviation]:
    for arm, planned in arms.items():
        own = [run for run in runs if run.variant == arm]
        changes: dict[str, list[RecordedRun]] = {}
        for run in own:
            for name in sorted({*planned["identity"], *run.identity}):
                before, now = planned["identity"].get(name), run.identity.get(name)
                if before != now and not _is_scrubbed(before, now):
                    changes.setdefault(f"{name} {before} → {now}", []).append(run)
        for message, changed in changes.items():
            yield Deviation("changed options", f"{arm}: {message} ({_of(changed, own)})", _names(changed))


def _is_scrubbed(before: Any, now: Any) -> bool:
    """Whether a path differs only because the bundle replaces the author's folders.

    A registration is signed, so its paths cannot be replaced.
    """
    if not isinstance(before, str) or not isinstance(now, str) or not before.startswith("/"):
        return False
    word, _, rest = now.partition("/")
    return word in SCRUBBED and (before.endswith(f"/{rest}") if rest else True)


def _data(arms: Mapping[str, Any], runs: Sequence[RecordedRun]) -> Iterator[Deviation]:
    for arm, planned in arms.items():
        own = [run for run in runs if run.variant == arm]
        sha256 = (planned["data"] or {}).get("sha256")
        other = [run for run in own if run.data != sha256]
        if other:
            message = f"{arm}: content {_short(sha256)} → {_short(other[0].data)} ({_of(other, own)})"
            yield Deviation("changed data", message, _names(other))


def _recipe_file(sha256: str | None, runs: Sequence[RecordedRun]) -> Iterator[Deviation]:
    """Compare the hash of the recipe's file, which may be outside the git repository."""
    for now, made in _grouped(runs, lambda run: run.recipe_file).items():
        if now != sha256:
            message = f"the file of the recipe {_short(sha256)} → {_short(now)} ({_of(made, runs)})"
            yield Deviation("changed code", message, _names(made))


def _commits(
    before: str | None, runs: Sequence[RecordedRun], changed_files: Callable[[str, str], list[str] | None]
) -> Iterator[Deviation]:
    for commit, made in _grouped(runs, lambda run: run.commit).items():
        message = _commit_words(before, commit, changed_files)
        if message:
            yield Deviation("changed code", f"{message} ({_of(made, runs)})", _names(made))


def _code(code: Mapping[str, Any], runs: Sequence[RecordedRun]) -> Iterator[Deviation]:
    in_git = [run for run in runs if run.commit is not None and code["git_commit"] is not None]
    for changes, made in _grouped(in_git, lambda run: run.changes).items():
        if changes != code["git_dirty_hash"]:
            message = f"uncommitted changes {_short(code['git_dirty_hash'])} → {_short(changes)}"
            yield Deviation("changed code", f"{message} ({_of(made, runs)})", _names(made))
    for package, version in sorted(code["versions"].items()):
        other = [run for run in runs if run.versions.get(package, version) != version]
        if other:
            now = _listed(sorted({str(run.versions[package] or "absent") for run in other}))
            message = f"{package} {version or 'absent'} → {now} ({_of(other, runs)})"
            yield Deviation("changed versions", message, _names(other))


def _commit_words(
    before: str | None, now: str | None, changed_files: Callable[[str, str], list[str] | None]
) -> str | None:
    if before == now or before is None:
        return None
    message = f"commit {_short(before)} → {_short(now)}"
    files = changed_files(before, now) if now else None
    if files is None:
        return f"{message}; what changed between them is not known here"
    return f"{message}; {counted(len(files), 'file')} changed: {_listed(files)}" if files else None


def _early(registration: Registration, runs: Sequence[RecordedRun]) -> Iterator[Deviation]:
    at, listed = float(registration.plan["time"]), registration.late_names
    early = sorted((run for run in runs if run.began < at and run.run not in listed), key=lambda run: run.began)
    if early:
        message = (
            f"{counted(len(early), 'run')} began before the registration ({shown_moment(at)}), by the author's clock"
        )
        yield Deviation("begun before registration", message, _names(early))


def _stopped_to_look(
    registration: Registration, runs: Sequence[RecordedRun], interim_looks: Iterable[Mapping[str, Any]]
) -> Iterator[Deviation]:
    """Find a comparison before all registered runs had ended. A run that ended without a value counts as ended."""
    wanted = {str(seed) for seed in registration.seeds}
    arms = registration.plan["study"]["arms"]
    for look in interim_looks:
        at = float(look["time"])
        ended = {(run.variant, str(run.seed)) for run in runs if run.ended is not None and run.ended <= at}
        there = {
            arm: {seed for seed in wanted if seed in seeds or (arm, seed) in ended}
            for arm, seeds in look["seeds"].items()
            if arm in arms
        }
        fewest = min(map(len, there.values()), default=len(wanted))
        if fewest < len(wanted):
            message = f"the arms were compared {shown_moment(at)} with {fewest} of {len(wanted)} seeds"
            yield Deviation("stopping rule", message)


def _grouped(runs: Sequence[RecordedRun], key: Callable[[RecordedRun], Any]) -> dict[Any, list[RecordedRun]]:
    recorded_runs: dict[Any, list[RecordedRun]] = {}
    for run in runs:
        recorded_runs.setdefault(key(run), []).append(run)
    return recorded_runs


def _names(runs: Iterable[RecordedRun]) -> tuple[str, ...]:
    return tuple(run.run for run in runs)


def _of(some: Sequence[RecordedRun], of: Sequence[RecordedRun]) -> str:
    return f"{len(some)} of {counted(len(of), 'run')}"


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values[:SHOWN])) + (f" and {len(values) - SHOWN} more" if len(values) > SHOWN else "")


def _short(sha256: str | None) -> str:
    return sha256[:8] if sha256 else "none"
