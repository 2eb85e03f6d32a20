"""analyze --plan: run exactly the registered analysis, and report every deviation from the plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairtrial.api.comparing.analysis import Analysis, ArmAccount, Followed, Question
from fairtrial.api.comparing.analyze import analyze_run_set
from fairtrial.api.comparing.gather import RunSet, from_study
from fairtrial.api.comparing.shown_comparisons import record_analysis
from fairtrial.api.evidence.artifact import store_of_registration
from fairtrial.api.evidence.preregister import archived_runs, excludable, registered_question
from fairtrial.api.running.recording import recorded
from fairtrial.api.running.registered import with_label
from fairtrial.core.conditions import check
from fairtrial.core.errors import CheckFailed, UserError
from fairtrial.core.paths import ProjectPaths, RegistrationPaths
from fairtrial.core.runs import Run, Status
from fairtrial.core.traces import Trace
from fairtrial.record.environment import changed_files
from fairtrial.record.interim_looks import read_interim_looks
from fairtrial.record.series import unspell
from fairtrial.record.store import Store, open_store
from fairtrial.record.study_cache import read_study
from fairtrial.research.archive import is_bundle
from fairtrial.research.command_log import read_command_log, removed_runs
from fairtrial.research.deviations import (
    Deviation,
    LocalEvidence,
    RecordedRun,
    StudyRecord,
    find_deviations,
    find_local_deviations,
    unchecked,
)
from fairtrial.research.ledger import read_ledger
from fairtrial.research.registration import Registration
from fairtrial.research.verify import verify_registration

ADDITIONAL = frozenset({"certify", "power", "ttest"})
"""Outputs that may be added to a registered analysis without changing it."""
EXPLORATORY = "exploratory: beyond the plan"


@dataclass(frozen=True)
class RegisteredResult:
    """The registered analysis and, separately, the analysis asked for beyond it. Neither is recorded as a look yet."""

    analysis: Analysis
    followed: Followed
    beyond: Analysis | None


@recorded("analyze")
def analyze_by_plan(
    plan: str | os.PathLike[str],
    *,
    asked: Mapping[str, Any] | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Analysis:
    """Run the registered analysis on the registered runs.

    `asked` holds what the caller wants differently, by the names of `Question`, `control` and `candidates`. This is
    analyzed separately and labeled exploratory.

    >>> fairtrial.analyze_by_plan("registrations/1.yaml")  # doctest: +SKIP
    """
    registration = _intact(Path(plan))
    place = open_store(store or store_of_registration(registration.path), str(registration.study))
    computed = compute_preregistered(registration, place, asked)
    analysis = record_analysis(computed.analysis, place, registered=True)
    beyond = record_analysis(computed.beyond, place) if computed.beyond else None
    return replace(
        analysis,
        plan=computed.followed,
        comparisons=[with_label(each, computed.followed.sentence) for each in analysis.comparisons],
        exploratory=beyond
        and replace(
            beyond,
            comparisons=[with_label(each, EXPLORATORY) for each in beyond.comparisons],
            secondary=[with_label(each, EXPLORATORY) for each in beyond.secondary],
        ),
    )


def analyze_registered_runs(path: Path, store: Store) -> RegisteredResult:
    """Run the registered analysis with only the deviations that the runs show, as anyone with the bundle can.

    Records nothing.
    """
    return compute_preregistered(_intact(path), store, by_runs_alone=True)


def compute_preregistered(
    registration: Registration, place: Store, asked: Mapping[str, Any] | None = None, *, by_runs_alone: bool = False
) -> RegisteredResult:
    """Analyze what was registered, and what is asked beyond it. Records nothing."""
    study = str(registration.study)
    interim_looks = read_interim_looks(place, study)
    planned = registration.plan["analysis"]
    additional = {name: value for name, value in (asked or {}).items() if name in ADDITIONAL}
    question = replace(registered_question(planned), **additional)
    everything = from_study(place, study, question.metric_query)
    every = [each.run for each in read_study(place, study)]
    runs = {run.name: run for run in every if run.attempt == 1}
    used, excluded = _registered_runs(registration, everything, runs)
    analysis = analyze_run_set(used, planned["control"], planned["candidates"], question, place)
    other = _other(planned, asked or {})
    deviations = find_deviations(registration, _study_record(registration, analysis, every, interim_looks))
    deviations += _damaged(every)
    deviations += [] if by_runs_alone else local_deviations(registration, place)
    deviations += _asked(planned, other)
    followed = Followed(
        registration.sha256, str(registration.path), bool(registration.late), deviations, unchecked(registration)
    )
    analysis = replace(analysis, arms=[_with_reasons(arm, excluded, runs) for arm in analysis.arms])
    beyond = _beyond(planned, other, everything, question, study, place) if other else None
    return RegisteredResult(analysis, followed, beyond)


def _damaged(runs: Sequence[Run]) -> list[Deviation]:
    """Return a deviation for each run whose files are damaged."""
    return [
        Deviation("damaged run", f"{run.name} is damaged and not used: {run.reason}")
        for run in runs
        if run.status is Status.DAMAGED
    ]


def _intact(path: Path) -> Registration:
    if is_bundle(path):
        raise UserError(
            f"{path} is a bundle, not a registration", hint="Name a registration in its folder registrations/."
        )
    checked = verify_registration(path)
    if not checked.intact or checked.registration is None:
        raise CheckFailed(f"the registration is {checked.sentence}", hint=f"See: fairtrial research verify {path}")
    if checked.registration.is_text_only:
        raise UserError(
            f"{path.name} is text only: it registers no study and no analysis that could be run",
            hint="Analyze the study by its name; the result is exploratory.",
        )
    return checked.registration


def _registered_runs(
    registration: Registration, run_set: RunSet, runs: Mapping[str, Run]
) -> tuple[RunSet, dict[str, str]]:
    """Select the registered arms and seeds, without runs that registered rules exclude; return those with the rule.

    An excluded run still counts as planned: its pair is incomplete, and is counted as such.
    """
    seeds = [str(seed) for seed in registration.seeds]
    names, registered = list(registration.plan["study"]["arms"]), set(seeds)
    arms = {name: [t for t in run_set.arms.get(name, ()) if t.seed in registered] for name in names}
    rules = registration.plan["exclusions"]
    out = _excluded([trace for traces in arms.values() for trace in traces], runs, rules)
    kept = {name: [trace for trace in traces if trace.run not in out] for name, traces in arms.items()}
    return replace(run_set, arms=kept, planned=dict.fromkeys(names, seeds)), out


def _with_reasons(arm: ArmAccount, excluded: Mapping[str, str], runs: Mapping[str, Run]) -> ArmAccount:
    """State the rule as the reason for runs that were started but excluded by a registered rule."""
    own = {str(runs[name].seed): name for name in excluded if runs[name].variant == arm.variant}
    messages = [
        {**each, "run": own[seed], "reason": f"excluded by the registered rule '{excluded[own[seed]]}'"}
        if (seed := str(each["seed"])) in own
        else each
        for each in arm.left_out
    ]
    return replace(arm, left_out=messages)


def _excluded(traces: Sequence[Trace], runs: Mapping[str, Run], rules: Sequence[str]) -> dict[str, str]:
    """Map each excluded run to the rule that excludes it. Raise UserError if a rule can be evaluated for no run."""
    excluded: dict[str, str] = {}
    for rule in rules:
        errors = []
        for trace in traces:
            try:
                if check(rule, _facts(runs[trace.run])).holds:
                    excluded.setdefault(trace.run, rule)
            except UserError as error:  # this run never logged the value in the rule
                errors.append(error)
        if errors and len(errors) == len(traces):
            raise UserError(f"the registered rule '{rule}' cannot be applied: {errors[0].message}")
    return excluded


def _facts(run: Run) -> dict[str, Any]:
    metadata = run.metadata
    return excludable(
        {
            **metadata,
            "status": run.status.value,
            "wall_s": metadata.timings.wall_s,
            "parameters": metadata.resources.parameters,
            "final": {name: float(unspell(value)) for name, value in run.final.items()},
        }
    )


def local_deviations(registration: Registration, store: Store) -> list[Deviation]:
    """Return the deviations that only the archive, the command log and git show. Reads no results."""
    study, root = str(registration.study), registration.path.absolute().parent.parent
    local_evidence = LocalEvidence(
        replaced=[name for name, _ in archived_runs(store, study)],
        removed=removed_runs(read_command_log(ProjectPaths(root).command_log), study),
        changed_files=lambda before, after: changed_files(root, before, after),
    )
    recorded = [each.run for each in read_study(store, study)]
    runs = [_recorded_run(run, None) for run in recorded if run.attempt == 1 and run.status is not Status.DAMAGED]
    return find_local_deviations(registration, runs, local_evidence)


def _study_record(
    registration: Registration, analysis: Analysis, runs: Sequence[Run], interim_looks: Sequence[Mapping[str, Any]]
) -> StudyRecord:
    left_out = {str(each["run"]): str(each["reason"]) for arm in analysis.arms for each in arm.left_out}
    amendment = read_ledger(RegistrationPaths(registration.path.absolute().parent)).amendment_of(registration.sha256)
    return StudyRecord(
        runs=[
            _recorded_run(run, left_out.get(run.name))
            for run in runs
            if run.attempt == 1 and run.status is not Status.DAMAGED
        ],
        interim_looks=interim_looks,
        repeated=[run.name for run in runs if run.attempt > 1],
        amended_by=amendment.registration if amendment else None,
    )


def _recorded_run(run: Run, left_out: str | None) -> RecordedRun:
    metadata, environment, timings = run.metadata, run.metadata.environment, run.metadata.timings
    return RecordedRun(
        run=run.name, variant=run.variant, seed=run.seed, identity=metadata.identity,
        data=metadata.data_sha256, commit=environment.git_commit,
        changes=environment.git_dirty_hash, versions=environment.versions or {},
        began=timings.created, ended=timings.ended,
        recipe_file=environment.recipe_file_sha256, left_out=left_out,
    )  # fmt: skip


def _other(planned: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked for now that differs from the registration."""
    registered = {**vars(Question()), **vars(registered_question(planned)), **planned}
    registered["summary"] = registered_question(planned).summary
    return {
        name: value
        for name, value in asked.items()
        if name not in ADDITIONAL and _plain(value) != _plain(registered.get(name))
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _asked(planned: Mapping[str, Any], other: Mapping[str, Any]) -> list[Deviation]:
    registered = {**planned, "summary": str(registered_question(planned).summary)}
    return [
        Deviation(
            "other metric" if name == "metrics" else "other analysis",
            f"asked for {name} {_shown(value)}, but {_shown(registered.get(name))} is registered; shown as exploratory",
        )
        for name, value in other.items()
    ]


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _beyond(
    planned: Mapping[str, Any],
    other: Mapping[str, Any],
    everything: RunSet,
    question: Question,
    study: str,
    store: Store,
) -> Analysis:
    """Analyze what was asked for, on all available runs."""
    arms = {"control": planned["control"], "candidates": planned["candidates"]}
    chosen = {**arms, **{name: value for name, value in other.items() if name in arms}}
    own = {name: value for name, value in other.items() if name not in arms}
    question = replace(question, **own)
    if "metrics" in own and "direction" not in own:
        question = replace(question, direction=None)
    if {"metrics", "direction", "adjust"} & own.keys():
        everything = from_study(store, study, question.metric_query)
    candidates = [name for name in chosen["candidates"] if name != chosen["control"]]
    return analyze_run_set(everything, chosen["control"], candidates, question, store)
