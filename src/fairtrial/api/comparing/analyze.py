"""analyze: control against candidate, from recorded runs or from anyone's table, to a verdict."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairtrial.api.comparing.adjust import (
    adjust_comparisons_for,
    refuse_over_tasks,
    set_baseline_apart,
    with_planned_covariate,
)
from fairtrial.api.comparing.analysis import Analysis, Question
from fairtrial.api.comparing.context import account_of, fairness_of, in_context, shared_cautions
from fairtrial.api.comparing.gather import (
    RunSet,
    choose_arms,
    files_of,
    from_pairs,
    from_runs,
    from_study,
    from_table,
    since,
)  # fmt: skip
from fairtrial.api.comparing.numbers import (
    RunScores,
    lay_out_seeds,
    logging_cautions,
    losses_of,
    number_runs,
    unpaired_samples,
)
from fairtrial.api.comparing.over_tasks import over_tasks
from fairtrial.api.comparing.published_claims import analyze_summary_table
from fairtrial.api.comparing.shown_comparisons import with_looks
from fairtrial.api.comparing.target import against_target, choose_candidates, refuse_without_effect
from fairtrial.api.running.registered import not_by_plan
from fairtrial.api.running.study_metric import rule_of_study
from fairtrial.core.directions import GIVE_FLAG
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison
from fairtrial.core.printed import SummaryOptions
from fairtrial.record.store import Store, open_store
from fairtrial.record.tables import Columns, read_table
from fairtrial.stats.certificate import Certificate, certify
from fairtrial.stats.compare import RESAMPLES, ComparisonConfig, compare, keep_finite
from fairtrial.stats.families import (
    adjust_comparisons,
    check_adjustment,
    compare_family,
    default_adjustment,
    stepwise,
)
from fairtrial.stats.power import detectable_from, pooled_freedom, seeds_for, welch_error
from fairtrial.stats.samples import Array, canonical
from fairtrial.stats.summaries import SummaryRule, Window, describe
from fairtrial.stats.times import compare_times


def analyze(
    studies: str | Sequence[str] = (),
    *,
    control: str | None = None,
    candidate: str | Sequence[str] | None = None,
    pairs: Sequence[Mapping[str, Any]] | None = None,
    control_run_ids: Sequence[str] = (),
    candidate_run_ids: Sequence[str] = (),
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    columns: Columns | None = None,
    question: Question | None = None,
    store: str | os.PathLike[str] | None = None,
    summary_table: SummaryOptions | None = None,
) -> Analysis:
    """Did the candidate do better than the control? On a study, chosen runs, pairs, or files from elsewhere.

    A file may also be a table of means, as papers print them; `summary_table` says what such a table leaves open.
    """
    question = question or Question()
    names = [studies] if isinstance(studies, str) else list(studies)
    candidates = [candidate] if isinstance(candidate, str) else list(candidate or [])
    place = open_store(store)
    given = {
        "a study": bool(names), "--pairs": pairs is not None, "run ids": bool(control_run_ids or candidate_run_ids),
        "--from": source is not None,
    }  # fmt: skip
    chosen = [what for what, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} cannot be combined", hint="Give one source of runs.")
    if question.target is not None:
        refuse_without_effect(question, control, paired_by_hand=pairs is not None)
    if source is not None:
        table = read_table(files_of(source), columns or Columns())
        published = analyze_summary_table(table, control, candidates, question, summary_table)
        if published is not None:
            return published
        gathered = from_table(table, question.wanted)
    elif pairs is not None:
        gathered = from_pairs(place, pairs, question.wanted)
    elif control_run_ids or candidate_run_ids:
        gathered = from_runs(place, _run_ids(control_run_ids, candidate_run_ids, question), question.wanted)
    elif names:
        gathered = _of_studies(place, names, question)
        question = as_planned(question, gathered.plan)
    else:
        gathered = from_runs(place, _variants(control, candidates, question), question.wanted)
    return not_by_plan(analyze_gathered(gathered, control, candidates, question, place), gathered)


def analyze_gathered(
    gathered: RunSet, control: str | None, candidates: Sequence[str], question: Question, store: Store, *,
    registered: bool = False,
) -> Analysis:  # fmt: skip
    """The same for runs that are at hand. `registered`: the question was fixed before the runs."""
    if question.target is not None:
        return _analyse(choose_candidates(gathered, candidates), "", question, store, registered=registered)
    gathered = set_baseline_apart(gathered, question, (control, *candidates))
    return _analyse(*choose_arms(gathered, control, candidates), question, store, registered=registered)


def _run_ids(control: Sequence[str], candidate: Sequence[str], question: Question) -> dict[str, Sequence[str]]:
    if question.target is not None:
        if control:
            raise UserError("--control-run-ids does not apply with --target", hint="Give --candidate-run-ids alone.")
        return {"candidate": candidate}
    if not control or not candidate:
        raise UserError("both --control-run-ids and --candidate-run-ids are needed")
    return {"control": control, "candidate": candidate}


def _variants(control: str | None, candidates: Sequence[str], question: Question) -> dict[str, Sequence[str]]:
    if question.target is not None and candidates:
        return {name: [name] for name in candidates}
    if not control or not candidates:
        raise UserError(
            "nothing to analyse",
            hint="Name a study, --control STUDY:VARIANT and --candidate STUDY:VARIANT, runs, or --from FILE.",
        )
    return {name: [name] for name in (control, *candidates)}


def _of_studies(store: Store, names: Sequence[str], question: Question) -> RunSet:
    """One study, or several that are tasks of the same variants."""
    gathered = [from_study(store, name, question.wanted) for name in names]
    first = gathered[0]
    if len(gathered) == 1:
        return first
    if not question.tasks:
        raise UserError(f"{len(names)} studies were given", hint="With --tasks each of them is taken as a task.")
    shared = [arm for arm in first.arms if all(arm in each.arms for each in gathered)]
    if len(shared) < 2:
        raise UserError("the studies share fewer than two variants")
    merged = {
        arm: [replace(trace, task=each.source) for each in gathered for trace in each.arms[arm]] for arm in shared
    }
    ways = {each.direction for each in gathered} if question.direction is None else set()
    if len(ways) > 1:
        raise UserError(f"the studies differ in which way {first.metric} is good", hint=GIVE_FLAG)
    studies = [study for each in gathered for study in each.studies]
    return replace(first, arms=merged, planned={}, source=", ".join(names), studies=studies)


def as_planned(question: Question, plan: Mapping[str, Any] | None) -> Question:
    """What the study decided on, where the person did not say otherwise now."""
    if not plan:
        return question
    return replace(
        with_planned_covariate(question, plan.get("adjust")),
        alpha=question.alpha if question.alpha is not None else plan.get("alpha"),
        sesoi=question.sesoi if question.sesoi is not None else plan.get("sesoi"),
        summary=question.summary or rule_of_study(plan.get("summary") or {}),
    )


@dataclass(frozen=True)
class JudgedArms:
    """The numbers of all runs and what they say about the arms; nothing but the series and the question enters it."""

    rule: SummaryRule
    terms: ComparisonConfig
    numbers: RunScores
    windows: Mapping[str, Window | None]
    comparisons: Sequence[Comparison]


def judge_arms(gathered: RunSet, control: str, question: Question) -> JudgedArms:
    """One number per run, and every other arm against the control."""
    rule = (question.summary or SummaryRule()).check()
    terms = _terms(gathered, rule, question)
    numbers, windows = number_runs(gathered, gathered.metric, gathered.direction, rule)
    found = _compare(gathered, numbers, control, terms, question)
    return JudgedArms(rule, terms, numbers, windows, adjust_comparisons_for(found, gathered, numbers, terms, question))


def _analyse(gathered: RunSet, control: str, question: Question, store: Store, *, registered: bool) -> Analysis:
    if question.since is not None:
        gathered = since(gathered, float(store.find(question.since).metadata["timings"]["created"]))
    _check_tasks(gathered, question)
    if question.target is not None:
        return against_target(gathered, question, store, registered=registered)
    if question.tasks:
        refuse_over_tasks(question)
        rule = (question.summary or SummaryRule()).check()
        terms = _terms(gathered, rule, question)
        return over_tasks(gathered, control, rule, terms, question, store, registered=registered)
    judged = judge_arms(gathered, control, question)
    rule, terms, numbers, comparisons = judged.rule, judged.terms, judged.numbers, judged.comparisons
    _refuse_for_families(comparisons, question)
    fairness = {name: fairness_of(gathered, control, name) for name in gathered.arms if name != control}
    label, asked = rule.label(gathered.metric), question.asked(gathered.metric, str(rule))
    in_place = [in_context(found, gathered, fairness[found.candidate]) for found in comparisons]
    shown = with_looks(in_place, gathered, asked, store, registered=registered)
    return Analysis(
        source=gathered.source, metric=gathered.metric, direction=gathered.direction,
        direction_source=gathered.direction_source,
        summary=describe(rule, judged.windows), control=control,
        arms=[account_of(gathered, name, numbers[name]) for name in gathered.arms],
        comparisons=[replace(found, metric=label) for found in shown],
        fairness=fairness,
        cautions=[
            *shared_cautions(gathered, numbers, judged.windows, paired=terms.paired), *logging_cautions(gathered, rule)
        ],
        secondary=_secondary(gathered, control, rule, terms, question, store),
        certificate=_certificate(numbers, control, comparisons[0], terms, question) if question.certify else None,
        power=_power(comparisons[0], terms) if question.power else None,
        curves=gathered.arms, resampling_seed=question.seed,
    )  # fmt: skip


def _terms(gathered: RunSet, rule: SummaryRule, question: Question) -> ComparisonConfig:
    terms = ComparisonConfig(
        paired=_is_paired(gathered, question), alpha=0.05 if question.alpha is None else question.alpha,
        side=question.side, sesoi=question.sesoi, method=question.method or "t",
        direction=rule.direction(gathered.direction), resamples=question.resamples or RESAMPLES,
        failure_value=question.failure_value, beside=_beside(question),
    ).check()  # fmt: skip
    if question.family is not None:
        check_adjustment(question.family, terms)
    return terms


def _beside(question: Question) -> str | None:
    """Resamples without a method: the bootstrap is shown next to the default method."""
    return "bca" if question.resamples is not None and question.method is None and not question.tasks else None


def _refuse_for_families(found: Sequence[Comparison], question: Question) -> None:
    """What is about one interval cannot be shown for several at once."""
    asked = {"--certify": question.certify, "--power.enabled": question.power, "--ttest.enabled": question.ttest}
    given = [option for option, is_given in asked.items() if is_given]
    censored = any("horizon" in each.tests for each in found)
    if given and (len(found) > 1 or censored):
        why = "some runs never reached the threshold" if censored else f"there are {len(found)} comparisons"
        raise UserError(f"{given[0]} is for one comparison of numbers; {why}", hint="Choose one with --candidate.")


def _check_tasks(gathered: RunSet, question: Question) -> None:
    tasks = {trace.task for traces in gathered.arms.values() for trace in traces}
    if len(tasks) > 1 and not question.tasks:
        raise UserError(f"these runs cover {len(tasks)} tasks", hint="Add --tasks to judge them together.")
    if question.tasks and tasks == {None}:
        raise UserError("--tasks: nothing says which task a run was on", hint="Name its column with --task-column.")


def _is_paired(gathered: RunSet, question: Question) -> bool:
    """Paired when the seeds match one to one. Decided by the plan and the seeds, never by the values."""
    if question.unpaired:
        return False
    if gathered.paired_by_hand:
        return True
    if any(trace.seed is None for traces in gathered.arms.values() for trace in traces):
        return False
    planned = [sorted(gathered.planned_seeds(name)) for name in gathered.arms]
    return all(seeds == planned[0] for seeds in planned)


def _compare(
    gathered: RunSet, numbers: RunScores, control: str, terms: ComparisonConfig, question: Question
) -> list[Comparison]:
    others = [name for name in numbers if name != control]
    if any(number.censored for arm in numbers.values() for number in arm.values()):
        if question.method == "t" or terms.beside is not None:
            what = "t to judge" if question.method == "t" else "a bootstrap to resample"
            raise UserError(f"some runs never reached the threshold, so there is no mean for {what}")
        return _compare_times(numbers, control, others, terms, question)
    if len(others) == 1:
        arms = lay_out_seeds(numbers).complete() if terms.paired else unpaired_samples(numbers)
        lost, names = losses_of(gathered, numbers, control, others[0]), (control, others[0])
        found = compare(arms[control], arms[others[0]], terms, names=names, seed=question.seed, losses=lost)
        return [_with_t(found, arms, terms) if question.ttest else found]
    adjustment = question.family or default_adjustment(terms)
    ordered = {name: numbers[name] for name in (control, *others)}
    losses = {name: losses_of(gathered, numbers, control, name) for name in others}
    if not terms.paired:
        samples = unpaired_samples(ordered)
        return compare_family(samples, control, terms, adjustment, seed=question.seed, losses=losses)
    layout = lay_out_seeds(ordered)
    return compare_family(
        layout.arms, control, terms, adjustment, seed=question.seed, losses=losses, ended=layout.ended
    )  # fmt: skip


def _compare_times(
    numbers: RunScores, control: str, others: Sequence[str], terms: ComparisonConfig, question: Question
) -> list[Comparison]:
    """Some runs never arrived: lost runs are ranked with them, and p is adjusted where there are several arms."""
    horizons = [n.horizon for arm in numbers.values() for n in arm.values() if n.horizon is not None]
    arms = {
        name: np.array([math.inf if n.value is None else n.value for n in arm.values()])
        for name, arm in numbers.items()
    }
    reach, threshold = min(horizons), question.summary.threshold if question.summary else None

    def again(index: int, alpha: float) -> Comparison:
        own, names = replace(terms, alpha=alpha), (control, others[index])
        return compare_times(arms[control], arms[others[index]], reach, own, names=names, threshold=threshold)

    return adjust_comparisons(again, len(others), stepwise(question.family), terms.alpha)


def _with_t(found: Comparison, arms: Mapping[str, Array], terms: ComparisonConfig) -> Comparison:
    """Student's t beside another method."""
    if found.p_value is None:
        return found
    kept = keep_finite(arms[found.control], arms[found.candidate], paired=terms.paired)
    inference = replace(terms, method="t").infer(canonical(*kept, paired=terms.paired), 0)
    told = {**inference.detail, "p_value": inference.p_value(terms.on_difference()), "method": inference.method}
    return replace(found, tests={**found.tests, "ttest": told})


def _secondary(
    gathered: RunSet, control: str, rule: SummaryRule, terms: ComparisonConfig, question: Question, store: Store
) -> list[Comparison]:
    """Further metrics, each by itself: shown beside the verdict, which is about the first metric alone."""
    found = []
    for metric in list(gathered.directions)[1:]:
        direction = gathered.direction_of(metric)
        own = replace(terms, direction=rule.direction(direction), sesoi=None)
        numbers, _ = number_runs(gathered, metric, direction, rule)
        compared = _compare(gathered, numbers, control, own, question)
        with_looks(compared, gathered, question.asked(metric, str(rule)), store)  # on view, and labelled already
        found += [replace(each, metric=rule.label(metric), label="secondary metric") for each in compared]
    return found


def _certificate(
    numbers: RunScores, control: str, found: Comparison, terms: ComparisonConfig, question: Question
) -> Certificate:
    compared = {name: numbers[name] for name in (control, found.candidate)}
    arms = lay_out_seeds(compared).complete() if terms.paired else unpaired_samples(compared)
    kept = keep_finite(arms[control], arms[found.candidate], paired=terms.paired)
    return certify(*kept, terms, seed=question.seed)


def _power(found: Comparison, terms: ComparisonConfig) -> dict[str, Any] | None:
    """What this design detects, and what it would take to detect the smallest difference of interest."""
    if found.effect.samples is None and found.sd_control is None:
        return None
    runs = min(found.n_control, found.n_candidate)
    if runs < 2:
        return None
    if found.pairing == "paired" and found.effect.samples:
        sd, freedom = float(np.std(np.asarray(found.effect.samples), ddof=1)), float(runs - 1)
        error = sd / math.sqrt(runs), freedom
    else:
        variances = [(found.sd_control or 0) ** 2, (found.sd_candidate or 0) ** 2]
        counts = [found.n_control, found.n_candidate]
        sd, freedom = math.sqrt(sum(variances) / 2), pooled_freedom(variances, [n - 1 for n in counts])
        error = welch_error(variances, counts)
    rows = []
    for power in (0.8, 0.9, 0.95):
        design = replace(terms.design, power=power)
        needed = seeds_for(terms.sesoi / sd, design, freedom) if terms.sesoi and sd else None
        rows.append({"power": power, "detectable": detectable_from(*error, design), "seeds_for_sesoi": needed})
    return {"sd": sd, "freedom": freedom, "n": runs, "sesoi": terms.sesoi, "rows": rows}
