"""analyze: compare control and candidate, from recorded runs or an external table, and give a verdict."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fairtrial.api.comparing.adjust import (
    adjust_comparisons_for,
    refuse_over_tasks,
    set_baseline_apart,
    with_planned_covariate,
)
from fairtrial.api.comparing.analysis import Analysis, ComparisonsOnView, Question
from fairtrial.api.comparing.context import account_of, fairness_of, in_context, shared_cautions
from fairtrial.api.comparing.frames import in_python_words, is_frame, open_frame
from fairtrial.api.comparing.gather import (
    RunSet,
    choose_arms,
    files_of,
    from_pairs,
    from_runs,
    from_source,
    from_study,
    since,
)
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
from fairtrial.api.comparing.settings import AnalysisSettings, settle_settings
from fairtrial.api.comparing.shown_comparisons import comparisons_on_view, label_analysis, record_analysis
from fairtrial.api.comparing.target import against_target, choose_candidates, refuse_without_effect
from fairtrial.api.running.recording import recorded
from fairtrial.api.running.registered import label_unregistered
from fairtrial.api.running.study_metric import rule_of_study
from fairtrial.core.directions import GIVE_FLAG
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison
from fairtrial.core.printed import SummaryOptions
from fairtrial.core.readers import Columns, open_runs
from fairtrial.record.interim_looks import InterimLook
from fairtrial.record.store import Store, open_store
from fairtrial.record.tables import Table
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


@recorded("analyze")
def analyze(
    studies: Any = (),
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
    **settings: Unpack[AnalysisSettings],
) -> Analysis:
    """Compare candidates with a control: in a study, a data frame, chosen runs, pairs of runs, or files of other tools.

    The first argument is the name of a study, or a table: a pandas or polars DataFrame, an Arrow table, a list of
    dictionaries, or a dictionary of columns. `variant`, `seed`, `step`, `run` and `task` name its columns; usual names
    are recognized. `metric`, `direction`, `sesoi` and the other settings can be given by keyword, or together as a
    `Question` and `Columns`. A file may also be a table of means, as printed in papers; `summary_table` supplies what
    such a table omits.

    >>> import fairtrial
    >>> rows = [{"algo": algo, "seed": seed, "score": seed + (algo == "new") * (1 + seed / 9)}
    ...         for algo in ("base", "new") for seed in (1, 2, 3, 4)]
    >>> fairtrial.analyze(rows, metric="score", variant="algo", control="base").comparisons[0].verdict
    <Verdict.BETTER: 'better'>
    """
    question, columns = settle_settings(settings, question, columns)
    if is_frame(studies):
        if source is not None or pairs is not None or control_run_ids or candidate_run_ids:
            raise UserError("a frame cannot be combined with other runs", hint="Specify one source of runs.")
        return _of_frame(studies, control, candidate, question, columns, open_store(store))
    _refuse_frame_columns(settings, source)
    names = [studies] if isinstance(studies, str) else list(studies)
    candidates = [candidate] if isinstance(candidate, str) else list(candidate or [])
    place = open_store(store)
    given = {
        "a study": bool(names),
        "--pairs": pairs is not None,
        "run ids": bool(control_run_ids or candidate_run_ids),
        "--from": source is not None,
    }
    chosen = [what for what, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} cannot be combined", hint="Specify one source of runs.")
    if question.target is not None:
        refuse_without_effect(question, control, paired_by_hand=pairs is not None)
    if source is not None:
        opened = open_runs(files_of(source), columns or Columns())
        if isinstance(opened, Table):
            published = analyze_summary_table(opened, control, candidates, question, summary_table)
            if published is not None:
                return published
        elif summary_table is not None and summary_table.given():
            raise UserError(f"{summary_table.given()[0]} applies to a table of means, but {opened.label} contains runs")
        run_set = from_source(opened, question.metric_query)
    elif pairs is not None:
        run_set = from_pairs(place, pairs, question.metric_query)
    elif control_run_ids or candidate_run_ids:
        run_set = from_runs(place, _run_ids(control_run_ids, candidate_run_ids, question), question.metric_query)
    elif names:
        run_set = _of_studies(place, names, question)
        question = as_planned(question, run_set.plan)
    else:
        run_set = from_runs(place, _variants(control, candidates, question), question.metric_query)
    analysis = analyze_run_set(run_set, control, candidates, question, place)
    return label_unregistered(record_analysis(analysis, place), run_set)


def _of_frame(
    frame: Any,
    control: str | None,
    candidate: str | Sequence[str] | None,
    question: Question,
    columns: Columns,
    store: Store,
) -> Analysis:
    candidates = [candidate] if isinstance(candidate, str) else list(candidate or [])
    if question.target is not None:
        refuse_without_effect(question, control, paired_by_hand=False)
    with in_python_words():
        opened = open_frame(frame, columns, metric=question.metrics[0] if question.metrics else None)
        run_set = from_source(opened, question.metric_query)
        return analyze_run_set(run_set, control, candidates, question, store)


def _refuse_frame_columns(settings: Mapping[str, Any], source: Any) -> None:
    """Raise if columns are named, but there is no table that could have them."""
    named = [name for name in ("variant", "step", "run", "task", "status") if name in settings]
    if named and source is None:
        raise UserError(
            f"{named[0]} names a column, but the runs do not come from a table",
            hint="Choose variants with control and candidate.",
        )


def analyze_unseen(study: str, store: Store, project: Path, also: Sequence[InterimLook] = ()) -> Analysis:
    """Return what `analyze` would show for a study of a project. Nobody sees it now, so no interim look is recorded.

    `also` holds looks at the study that are not recorded.
    """
    run_set = _of_studies(store, [study], Question())
    question = as_planned(Question(), run_set.plan)
    analysis = analyze_run_set(run_set, None, [], question, store)
    return label_unregistered(label_analysis(analysis, store, also), run_set, project)


def analyze_run_set(
    run_set: RunSet, control: str | None, candidates: Sequence[str], question: Question, store: Store
) -> Analysis:
    """Analyze a run set. Records nothing: a caller that shows the analysis must record `Analysis.on_view`."""
    if question.target is not None:
        return _analyse(choose_candidates(run_set, candidates), "", question, store)
    run_set = set_baseline_apart(run_set, question, (control, *candidates))
    return _analyse(*choose_arms(run_set, control, candidates), question, store)


def _run_ids(control: Sequence[str], candidate: Sequence[str], question: Question) -> dict[str, Sequence[str]]:
    if question.target is not None:
        if control:
            raise UserError("--control-run-ids does not apply with --target", hint="Pass only --candidate-run-ids.")
        return {"candidate": candidate}
    if not control or not candidate:
        raise UserError("both --control-run-ids and --candidate-run-ids are required")
    return {"control": control, "candidate": candidate}


def _variants(control: str | None, candidates: Sequence[str], question: Question) -> dict[str, Sequence[str]]:
    if question.target is not None and candidates:
        return {name: [name] for name in candidates}
    if not control or not candidates:
        raise UserError(
            "nothing to analyze",
            hint="Name a study or runs, or pass --control STUDY:VARIANT and --candidate STUDY:VARIANT, or --from FILE.",
        )
    return {name: [name] for name in (control, *candidates)}


def _of_studies(store: Store, names: Sequence[str], question: Question) -> RunSet:
    """Return the runs of one study, or of several studies that are tasks of the same variants."""
    run_set = [from_study(store, name, question.metric_query) for name in names]
    first = run_set[0]
    if len(run_set) == 1:
        return first
    if not question.tasks:
        raise UserError(f"{len(names)} studies were given", hint="Pass --tasks to treat each study as a task.")
    shared = [arm for arm in first.arms if all(arm in each.arms for each in run_set)]
    if len(shared) < 2:
        raise UserError("the studies share fewer than two variants")
    merged = {arm: [replace(trace, task=each.source) for each in run_set for trace in each.arms[arm]] for arm in shared}
    ways = {each.direction for each in run_set} if question.direction is None else set()
    if len(ways) > 1:
        raise UserError(f"the studies disagree on the direction of {first.metric}", hint=GIVE_FLAG)
    studies = [study for each in run_set for study in each.studies]
    return replace(first, arms=merged, planned={}, source=", ".join(names), studies=studies)


def as_planned(question: Question, plan: Mapping[str, Any] | None) -> Question:
    """Fill the parts of a question that the user left open from the stored study."""
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
    """The score of every run and the comparisons of the arms. They depend only on the series and the question."""

    rule: SummaryRule
    config: ComparisonConfig
    numbers: RunScores
    windows: Mapping[str, Window | None]
    comparisons: Sequence[Comparison]


def judge_arms(run_set: RunSet, control: str, question: Question) -> JudgedArms:
    """Compute one number per run, and compare every other arm with the control."""
    rule = (question.summary or SummaryRule()).check()
    config = _comparison_config(run_set, rule, question)
    scores, windows = number_runs(run_set, run_set.metric, run_set.direction, rule)
    comparisons = _compare(run_set, scores, control, config, question)
    return JudgedArms(
        rule, config, scores, windows, adjust_comparisons_for(comparisons, run_set, scores, config, question)
    )


def _analyse(run_set: RunSet, control: str, question: Question, store: Store) -> Analysis:
    if question.since is not None:
        run_set = since(run_set, store.find(question.since).metadata.timings.created)
    _check_tasks(run_set, question)
    if question.target is not None:
        return against_target(run_set, question)
    if question.tasks:
        refuse_over_tasks(question)
        rule = (question.summary or SummaryRule()).check()
        config = _comparison_config(run_set, rule, question)
        return over_tasks(run_set, control, rule, config, question)
    judged = judge_arms(run_set, control, question)
    rule, config, scores, comparisons = judged.rule, judged.config, judged.numbers, judged.comparisons
    _refuse_for_families(comparisons, question)
    fairness = {name: fairness_of(run_set, control, name) for name in run_set.arms if name != control}
    label, asked = rule.label(run_set.metric), question.asked(run_set.metric, str(rule))
    shown = [in_context(each, run_set, fairness[each.candidate]) for each in comparisons]
    secondary, further_views = _secondary(run_set, control, rule, config, question)
    return Analysis(
        source=run_set.source,
        metric=run_set.metric,
        direction=run_set.direction,
        direction_source=run_set.direction_source,
        summary=describe(rule, judged.windows),
        control=control,
        arms=[account_of(run_set, name, scores[name]) for name in run_set.arms],
        comparisons=[replace(comparison, metric=label) for comparison in shown],
        fairness=fairness,
        cautions=[
            *shared_cautions(run_set, scores, judged.windows, paired=config.paired),
            *logging_cautions(run_set, rule),
        ],
        secondary=secondary,
        certificate=_certificate(scores, control, comparisons[0], config, question) if question.certify else None,
        power=_power(comparisons[0], config) if question.power else None,
        curves=run_set.arms,
        resampling_seed=question.seed,
        on_view=[comparisons_on_view(shown, run_set, asked), *further_views],
    )


def _comparison_config(run_set: RunSet, rule: SummaryRule, question: Question) -> ComparisonConfig:
    config = ComparisonConfig(
        paired=_is_paired(run_set, question),
        alpha=0.05 if question.alpha is None else question.alpha,
        side=question.side,
        sesoi=question.sesoi,
        method=question.method or "t",
        direction=rule.direction(run_set.direction),
        resamples=question.resamples or RESAMPLES,
        failure_value=question.failure_value,
        shown_bootstrap=_shown_bootstrap(question),
    ).check()
    if question.family is not None:
        check_adjustment(question.family, config)
    return config


def _shown_bootstrap(question: Question) -> str | None:
    """Return the bootstrap to show next to the default method if the user set the resamples but no method."""
    return "bca" if question.resamples is not None and question.method is None and not question.tasks else None


def _refuse_for_families(comparisons: Sequence[Comparison], question: Question) -> None:
    """Raise if an option that applies to a single interval was given with several comparisons."""
    asked = {"--certify": question.certify, "--power.enabled": question.power, "--ttest.enabled": question.ttest}
    given = [option for option, is_given in asked.items() if is_given]
    censored = any("horizon" in each.tests for each in comparisons)
    if given and (len(comparisons) > 1 or censored):
        why = "some runs never reached the threshold" if censored else f"there are {len(comparisons)} comparisons"
        raise UserError(
            f"{given[0]} needs a single comparison of numbers, but {why}", hint="Choose one with --candidate."
        )


def _check_tasks(run_set: RunSet, question: Question) -> None:
    tasks = {trace.task for traces in run_set.arms.values() for trace in traces}
    if len(tasks) > 1 and not question.tasks:
        raise UserError(f"these runs cover {len(tasks)} tasks", hint="Pass --tasks to analyze them together.")
    if question.tasks and tasks == {None}:
        raise UserError("--tasks: the task of the runs is unknown", hint="Name the column with --task-column.")


def _is_paired(run_set: RunSet, question: Question) -> bool:
    """Return whether runs are paired: their seeds match one to one. Depends on the plan and seeds, never on values."""
    if question.unpaired:
        return False
    if run_set.paired_by_hand:
        return True
    if any(trace.seed is None for traces in run_set.arms.values() for trace in traces):
        return False
    planned = [sorted(run_set.planned_seeds(name)) for name in run_set.arms]
    return all(seeds == planned[0] for seeds in planned)


def _compare(
    run_set: RunSet, scores: RunScores, control: str, config: ComparisonConfig, question: Question
) -> list[Comparison]:
    others = [name for name in scores if name != control]
    if any(number.censored for arm in scores.values() for number in arm.values()):
        if question.method == "t" or config.shown_bootstrap is not None:
            what = "the t test" if question.method == "t" else "the bootstrap"
            raise UserError(f"some runs never reached the threshold, so {what} has no mean to use")
        return _compare_times(scores, control, others, config, question)
    if len(others) == 1:
        arms = lay_out_seeds(scores).complete() if config.paired else unpaired_samples(scores)
        lost, names = losses_of(run_set, scores, control, others[0]), (control, others[0])
        comparison = compare(arms[control], arms[others[0]], config, names=names, seed=question.seed, losses=lost)
        return [_with_t(comparison, arms, config) if question.ttest else comparison]
    adjustment = question.family or default_adjustment(config)
    ordered = {name: scores[name] for name in (control, *others)}
    losses = {name: losses_of(run_set, scores, control, name) for name in others}
    if not config.paired:
        samples = unpaired_samples(ordered)
        return compare_family(samples, control, config, adjustment, seed=question.seed, losses=losses)
    layout = lay_out_seeds(ordered)
    return compare_family(
        layout.arms, control, config, adjustment, seed=question.seed, losses=losses, ended=layout.ended
    )


def _compare_times(
    scores: RunScores, control: str, others: Sequence[str], config: ComparisonConfig, question: Question
) -> list[Comparison]:
    """Compare censored times: lost runs rank with those that never reached the threshold. Adjusts p for a family."""
    horizons = [n.horizon for arm in scores.values() for n in arm.values() if n.horizon is not None]
    arms = {
        name: np.array([math.inf if n.value is None else n.value for n in arm.values()]) for name, arm in scores.items()
    }
    reach, threshold = min(horizons), question.summary.threshold if question.summary else None

    def again(index: int, alpha: float) -> Comparison:
        own, names = replace(config, alpha=alpha), (control, others[index])
        return compare_times(arms[control], arms[others[index]], reach, own, names=names, threshold=threshold)

    return adjust_comparisons(again, len(others), stepwise(question.family), config.alpha)


def _with_t(comparison: Comparison, arms: Mapping[str, Array], config: ComparisonConfig) -> Comparison:
    """Add the result of Student's t test to a comparison."""
    if comparison.p_value is None:
        return comparison
    kept = keep_finite(arms[comparison.control], arms[comparison.candidate], paired=config.paired)
    inference = replace(config, method="t").infer(canonical(*kept, paired=config.paired), 0)
    test = {**inference.detail, "p_value": inference.p_value(config.on_difference()), "method": inference.method}
    return replace(comparison, tests={**comparison.tests, "ttest": test})


def _secondary(
    run_set: RunSet, control: str, rule: SummaryRule, config: ComparisonConfig, question: Question
) -> tuple[list[Comparison], list[ComparisonsOnView]]:
    """Compare each further metric separately, to show next to the verdict, which uses the first metric only."""
    comparisons, views = [], []
    for metric in list(run_set.directions)[1:]:
        direction = run_set.direction_of(metric)
        own = replace(config, direction=rule.direction(direction), sesoi=None)
        scores, _ = number_runs(run_set, metric, direction, rule)
        compared = _compare(run_set, scores, control, own, question)
        views.append(comparisons_on_view(compared, run_set, question.asked(metric, str(rule)), secondary=True))
        comparisons += [replace(each, metric=rule.label(metric), label="secondary metric") for each in compared]
    return comparisons, views


def _certificate(
    scores: RunScores, control: str, comparison: Comparison, config: ComparisonConfig, question: Question
) -> Certificate:
    compared = {name: scores[name] for name in (control, comparison.candidate)}
    arms = lay_out_seeds(compared).complete() if config.paired else unpaired_samples(compared)
    kept = keep_finite(arms[control], arms[comparison.candidate], paired=config.paired)
    return certify(*kept, config, seed=question.seed)


def _power(comparison: Comparison, config: ComparisonConfig) -> dict[str, Any] | None:
    """Return the difference that this design can detect, and the seeds needed to detect the SESOI."""
    if comparison.effect.samples is None and comparison.sd_control is None:
        return None
    runs = min(comparison.n_control, comparison.n_candidate)
    if runs < 2:
        return None
    if comparison.pairing == "paired" and comparison.effect.samples:
        sd, freedom = float(np.std(np.asarray(comparison.effect.samples), ddof=1)), float(runs - 1)
        error = sd / math.sqrt(runs), freedom
    else:
        variances = [(comparison.sd_control or 0) ** 2, (comparison.sd_candidate or 0) ** 2]
        counts = [comparison.n_control, comparison.n_candidate]
        sd, freedom = math.sqrt(sum(variances) / 2), pooled_freedom(variances, [n - 1 for n in counts])
        error = welch_error(variances, counts)
    rows = []
    for power in (0.8, 0.9, 0.95):
        design = replace(config.design, power=power)
        needed = seeds_for(config.sesoi / sd, design, freedom) if config.sesoi and sd else None
        rows.append({"power": power, "detectable": detectable_from(*error, design), "seeds_for_sesoi": needed})
    return {"sd": sd, "freedom": freedom, "n": runs, "sesoi": config.sesoi, "rows": rows}
