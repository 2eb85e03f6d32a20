"""preregister: fix the study, the analysis and the seeds before the first run. verify: check a registration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fairtrial.api.comparing.adjust import check_planned
from fairtrial.api.comparing.analysis import Question
from fairtrial.api.comparing.gather import MetricQuery
from fairtrial.api.evidence.artifact import load_project, store_of_registration
from fairtrial.api.running.planning import load_checked_recipe, plan_jobs
from fairtrial.api.running.registered import arms_of
from fairtrial.api.running.study_metric import rule_of_study
from fairtrial.core.canonical import file_hash
from fairtrial.core.conditions import check
from fairtrial.core.directions import settle
from fairtrial.core.errors import CheckFailed, UserError, unknown
from fairtrial.core.formatting import counted, shown_moment
from fairtrial.core.paths import RunPaths
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.secrets import redact_command
from fairtrial.core.specs import RunSpec, split_and_quantity
from fairtrial.plan.study import Study
from fairtrial.record.environment import git_state, machine
from fairtrial.record.index import all_rows
from fairtrial.record.metadata import load_run_or_damage
from fairtrial.record.store import Store, open_store
from fairtrial.research.anchors import KINDS
from fairtrial.research.deviations import FIXED
from fairtrial.research.keys import Trust, load_signer
from fairtrial.research.plan_schema import TEXT_ONLY
from fairtrial.research.register import Registered, register
from fairtrial.research.registration import NotARegistration, read_registration
from fairtrial.research.verify import Checked, RunStart, verify_registration
from fairtrial.stats.compare import RESAMPLES, ComparisonConfig
from fairtrial.stats.families import check_adjustment, default_adjustment
from fairtrial.stats.summaries import SummaryRule

__all__ = ["Intent", "Registered", "preregister", "verify"]


@dataclass(frozen=True)
class Intent:
    """What to register in addition to the texts: a study, its analysis, and its stopping rule.

    `command` is the command line that the study was made from, if any. `derive` is the number of seeds to derive from
    the registration; None: use the seeds of the study.

    >>> fairtrial.Intent(study="study.yaml", stopping_rule="15 seeds").stopping_rule
    '15 seeds'
    """

    study: Study | None = None
    command: str | None = None
    derive: int | None = None
    control: str | None = None
    candidates: Sequence[str] = ()
    question: Question = field(default_factory=Question)
    stopping_rule: str = FIXED
    exclusions: Sequence[str] = ()


def preregister(
    artifact: str | os.PathLike[str],
    *,
    hypothesis: str,
    methods: str,
    intent: Intent | None = None,
    anchor: str | None = None,
    amends: str | None = None,
    late: bool = False,
    store: str | os.PathLike[str] | None = None,
) -> Registered:
    """Write, hash, sign and list a registration. If results already exist, it must be marked as `late`.

    >>> fairtrial.preregister("project/artifact.yaml", hypothesis="B beats A", methods="t test")  # doctest: +SKIP
    """
    intent = intent or Intent()
    project = load_project(artifact)
    _check_words({"--hypothesis": hypothesis, "--methods": methods, "--stopping-rule": intent.stopping_rule})
    if anchor is not None and anchor not in KINDS:
        raise UserError(unknown("anchor", anchor, KINDS))
    signer = load_signer()
    executable = _executable(intent, open_store(store or project.store), late=late)
    plan = {
        "amends": amends,
        "artifact": {"id": project.artifact.id, "sha256": file_hash(project.paths.artifact)},
        "basis": TEXT_ONLY if intent.study is None else "command" if intent.command else "study",
        "code": {**git_state(project.paths.root), "versions": machine()["versions"]},
        "command": intent.command and redact_command(intent.command),
        "exclusions": list(intent.exclusions),
        "hypothesis": hypothesis,
        "methods": methods,
        "stopping_rule": intent.stopping_rule,
        **executable,
    }
    return register(project.paths, plan, signer, anchor=anchor)


def _check_words(texts: Mapping[str, str]) -> None:
    for option, text in texts.items():
        if not text.strip():
            raise UserError(f"{option} is empty", hint="Describe in words what you expect, or what you will do.")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UserError(f"{option} contains characters that are not valid text", hint="Write it in UTF-8.")


def _executable(intent: Intent, store: Store, *, late: bool) -> dict[str, Any]:
    """Return the part of the plan that a program can follow; its values are null for a text-only registration."""
    if intent.study is None:
        if intent.derive or intent.exclusions or intent.question != Question() or intent.control or intent.candidates:
            raise UserError("a planned analysis needs a study", hint="Add --study STUDY.yaml or --command '…'.")
        return {"study": None, "seeds": None, "analysis": None, "late": []}
    study, recipe = intent.study, load_checked_recipe(intent.study.recipe)
    store.check_writable()
    specs = [job.spec for job in plan_jobs(arms_of(study, recipe), store, {}).jobs]
    seeds = None if intent.derive else study.seed_list
    _check_derived(intent)
    before = sorted(_runs_before(store, study.study, specs, seeds or ()), key=lambda run: (run["began"], run["run"]))
    _refuse_late(study.study, before, late=late)
    _check_exclusions(intent.exclusions, specs[0])
    return {
        "study": {
            "name": study.study,
            "recipe": recipe.name,
            "recipe_sha256": file_hash(recipe.file) if recipe.file else None,
            "arms": {spec.variant: _arm(spec, study) for spec in specs},
        },
        "seeds": {
            "count": intent.derive or len(study.seed_list),
            "derived": intent.derive is not None,
            "listed": seeds,
            "given": study.seeds,
        },
        "analysis": _analysis(intent, study, recipe),
        "late": before,
    }


def _check_derived(intent: Intent) -> None:
    """Raise UserError if seeds are both derived from the registration and listed in the study."""
    assert intent.study is not None
    if intent.derive is not None and intent.derive < 1:
        raise UserError(f"--derive-seeds must be at least 1, not {intent.derive}")
    if intent.derive is not None and not isinstance(intent.study.seeds, int):
        raise UserError(
            "--derive-seeds: the study already lists its seeds", hint=f"Give a number there: seeds: {intent.derive}"
        )


def _arm(spec: RunSpec, study: Study) -> dict[str, Any]:
    return {
        "declared": study.variants[spec.variant],
        "options": dict(spec.options),
        "identity": dict(spec.identity),
        "data": dict(spec.data) or None,
    }


def _runs_before(store: Store, study: str, specs: Sequence[RunSpec], seeds: Iterable[int]) -> list[dict[str, Any]]:
    """Return the runs of the study, including archived ones, and runs of the same cells in other studies."""
    same = {replace(spec, seed=seed).fingerprint for spec in specs for seed in seeds}
    in_store = [
        {"run": f"{row['study']}/{row['run']}", "began": float(row["created"])}
        for row in all_rows(store)
        if row["study"] == study or row["fingerprint"] in same
    ]
    return in_store + [{"run": name, "began": began} for name, began in archived_runs(store, study)]


def archived_runs(store: Store, study: str) -> list[tuple[str, float]]:
    """Return the archived runs of a study, and when each began."""
    folder = store.paths.archive(study)
    archived_runs = []
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        run = load_run_or_damage(RunPaths(place))
        if run is not None:
            archived_runs.append((f"{study}/{folder.name}/{place.name}", run.metadata.timings.created))
    return archived_runs


def _refuse_late(study: str, before: Sequence[Mapping[str, Any]], *, late: bool) -> None:
    if before and not late:
        first = before[0]
        raise UserError(
            f"{counted(len(before), 'run')} of study '{study}' or its cells already began: {first['run']} on "
            f"{shown_moment(first['began'])}",
            hint="Register before the first run, or add --late, which permanently marks the registration as late.",
        )


def _check_exclusions(rules: Sequence[str], spec: RunSpec) -> None:
    """Check that each rule can be parsed. Any name of a final value is accepted: no run has defined one yet."""
    known = {**excludable({}), "options": dict(spec.options), "final": _NotKnownYet()}
    for rule in rules:
        try:
            check(rule, known)
        except UserError as error:
            raise UserError(f"--exclude: {error.message}", hint=error.hint) from None


class _NotKnownYet(dict[str, None]):
    """Values whose names are not known before there are runs: every name exists, with the value None."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __missing__(self, _name: str) -> None:
        return None


def excludable(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about a run that an exclusion rule can test."""
    names = ("status", "reason", "variant", "seed", "attempt", "wall_s", "parameters")
    return {**{name: run.get(name) for name in names}, "options": run.get("options", {}), "final": run.get("final", {})}


def _analysis(intent: Intent, study: Study, recipe: LoadedRecipe) -> dict[str, Any]:
    """Resolve every choice of the analysis, so that none is left for later."""
    asked, names = intent.question, list(study.variants)
    problems = [
        unknown("variant", name, names) for name in (intent.control, *intent.candidates) if name and name not in names
    ]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    control = intent.control or names[0]
    candidates = list(intent.candidates) or [name for name in names if name != control]
    metrics = list(asked.metrics) or ([study.metric] if study.metric else [])
    if not metrics and recipe.metric is None:
        raise UserError(f"recipe '{recipe.name}' has no default metric", hint="Pass --metric.")
    metrics = metrics or [recipe.metric.on("report")] if recipe.metric else metrics
    plain, stated = MetricQuery(metrics, asked.direction).among(())
    direction, *_ = [_direction(name, stated.get(name), study, recipe) for name in plain]  # raises if one is unknown
    metrics = [plain[0], *metrics[1:]]
    rule = (asked.summary or rule_of_study(study.summary.model_dump())).check()
    config = ComparisonConfig(
        paired=not asked.unpaired,
        alpha=study.alpha if asked.alpha is None else asked.alpha,
        side=asked.side,
        sesoi=study.sesoi if asked.sesoi is None else asked.sesoi,
        method=asked.method or "t",
        direction=direction,
        resamples=asked.resamples or RESAMPLES,
    ).check()
    if asked.family is not None:
        check_adjustment(asked.family, config)
    adjust = asked.adjust or study.adjust
    if adjust is not None:
        check_planned(adjust, config, names, [control, *candidates], intent.derive or len(study.seed_list))
    return {
        "control": control, "candidates": candidates, "metrics": metrics, "direction": direction,
        "summary": asdict(rule), "alpha": config.alpha, "side": config.side, "sesoi": config.sesoi,
        "method": config.method, "resamples": config.resamples, "unpaired": asked.unpaired,
        "family": asked.family or (default_adjustment(config) if len(candidates) > 1 else None), "seed": asked.seed,
        **({"adjust": adjust} if adjust else {}),
    }  # fmt: skip


def _direction(metric: str, stated: str | None, study: Study, recipe: LoadedRecipe) -> str:
    own, quantity = recipe.metric, split_and_quantity(metric)[1]
    judged = split_and_quantity(study.metric)[1] if study.metric else own.quantity if own else quantity
    return settle(
        metric,
        stated=stated or (study.direction if judged == quantity else None),
        recipe=own.direction if own and own.quantity == quantity else None,
    ).known(f"Give --direction max or min, or --metric {metric}:max or {metric}:min.")


def registered_question(analysis: Mapping[str, Any]) -> Question:
    """Build the registered question from the analysis section of a plan."""
    kept = {
        name: value for name, value in analysis.items() if name not in ("control", "candidates", "summary", "adjust")
    }
    summary = dict(analysis["summary"])
    summary["window"] = tuple(summary["window"]) if summary["window"] else None
    return Question(**kept, summary=SummaryRule(**summary), planned_adjust=analysis.get("adjust"))


def verify(
    registration: str | os.PathLike[str],
    *,
    trust: Trust = None,
    published: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Checked:
    """Check a registration: hash, signature, ledger, anchors, and that the runs in the store began after it."""
    path = Path(registration)
    runs = _run_starts(path, store)
    return verify_registration(path, trust=trust, runs=runs, published=Path(published) if published else None)


def _run_starts(path: Path, store: str | os.PathLike[str] | None) -> list[RunStart]:
    try:
        study = read_registration(path).study
    except (NotARegistration, CheckFailed):  # the checks report its errors
        return []
    if study is None:
        return []
    place = open_store(store or store_of_registration(path), study)
    recorded = [(f"{study}/{row['run']}", float(row["created"])) for row in all_rows(place, study)]
    return [RunStart(*each) for each in (*recorded, *archived_runs(place, study))]
