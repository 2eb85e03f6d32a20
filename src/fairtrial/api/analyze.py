"""analyze: control against candidate, from recorded runs or from anyone's table, to a verdict."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.analyse.certificate import Certificate, certify
from fairtrial.analyse.compare import POWER, Terms, compare
from fairtrial.analyse.families import ADJUST, check_adjustment, compare_family, default_adjustment
from fairtrial.analyse.power import Design, detectable, sd_upper, seeds_for
from fairtrial.analyse.samples import Array, canonical
from fairtrial.analyse.student import infer_t
from fairtrial.analyse.summaries import SummaryRule, describe
from fairtrial.analyse.times import compare_times
from fairtrial.analyse.verdicts import conclude
from fairtrial.api.analysis import Analysis, Question
from fairtrial.api.context import account_of, fairness_of, in_context, shared_cautions
from fairtrial.api.gather import (
    Gathered,
    from_file,
    from_pairs,
    from_runs,
    from_study,
    since,
)  # fmt: skip
from fairtrial.api.numbers import Numbers, align, number_runs
from fairtrial.api.over_tasks import over_tasks
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison
from fairtrial.core.paths import default_store
from fairtrial.core.traces import likely_direction
from fairtrial.record.store import Store
from fairtrial.record.tables import Columns


def analyze(
    studies: str | Sequence[str] = (),
    *,
    control: str | None = None,
    candidate: str | Sequence[str] | None = None,
    pairs: Sequence[Mapping[str, Any]] | None = None,
    control_run_ids: Sequence[str] = (),
    candidate_run_ids: Sequence[str] = (),
    source: str | os.PathLike[str] | None = None,
    columns: Columns | None = None,
    question: Question | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Analysis:
    """Did the candidate do better than the control? On a study, chosen runs, pairs, or a file from elsewhere."""
    question = question or Question()
    names = [studies] if isinstance(studies, str) else list(studies)
    candidates = [candidate] if isinstance(candidate, str) else list(candidate or [])
    place = Store(default_store(store))
    given = {
        "a study": bool(names), "--pairs": pairs is not None, "run ids": bool(control_run_ids or candidate_run_ids),
        "--from": source is not None,
    }  # fmt: skip
    chosen = [what for what, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} cannot be combined", hint="Give one source of runs.")
    arms = [name for name in (control, *candidates) if name]
    if source is not None:
        gathered = from_file(Path(source), columns or Columns(), question.wanted, _both(control, candidates, arms))
    elif pairs is not None:
        gathered = from_pairs(place, pairs, question.wanted)
    elif control_run_ids or candidate_run_ids:
        gathered = from_runs(place, _run_ids(control_run_ids, candidate_run_ids), question.wanted)
    elif names:
        return _of_studies(place, names, _both(control, candidates, arms), control, question)
    else:
        gathered = from_runs(place, _variants(control, candidates), question.wanted)
    return _analyse(gathered, control, question, place)


def _both(control: str | None, candidates: Sequence[str], arms: Sequence[str]) -> list[str]:
    """Chosen arms, control first; a control alone is set against all the others."""
    return list(dict.fromkeys(arms)) if control and candidates else []


def _run_ids(control: Sequence[str], candidate: Sequence[str]) -> dict[str, Sequence[str]]:
    if not control or not candidate:
        raise UserError("both --control-run-ids and --candidate-run-ids are needed")
    return {"control": control, "candidate": candidate}


def _variants(control: str | None, candidates: Sequence[str]) -> dict[str, Sequence[str]]:
    if not control or not candidates:
        raise UserError(
            "nothing to analyse",
            hint="Name a study, --control STUDY:VARIANT and --candidate STUDY:VARIANT, runs, or --from FILE.",
        )
    return {name: [name] for name in (control, *candidates)}


def _of_studies(
    store: Store, names: Sequence[str], arms: Sequence[str], control: str | None, question: Question
) -> Analysis:
    gathered = [from_study(store, name, question.wanted, arms) for name in names]
    if len(gathered) == 1:
        return _analyse(gathered[0], control, _as_planned(question, gathered[0].plan), store)
    if not question.tasks:
        raise UserError(f"{len(names)} studies were given", hint="With --tasks each of them is taken as a task.")
    first = gathered[0]
    shared = [arm for arm in first.arms if all(arm in each.arms for each in gathered)]
    merged = {
        arm: [replace(trace, task=each.source) for each in gathered for trace in each.arms[arm]] for arm in shared
    }
    joined = replace(
        first, arms=merged, planned={}, source=", ".join(names), studies=[s for g in gathered for s in g.studies]
    )
    return _analyse(joined, control, _as_planned(question, first.plan), store)


def _as_planned(question: Question, plan: Mapping[str, Any] | None) -> Question:
    """What the study decided on, where the person did not say otherwise now."""
    if not plan:
        return question
    return replace(
        question,
        alpha=question.alpha if question.alpha is not None else plan.get("alpha"),
        sesoi=question.sesoi if question.sesoi is not None else plan.get("sesoi"),
        summary=question.summary or rule_of_study(plan.get("summary") or {}),
    )


def rule_of_study(summary: Mapping[str, Any]) -> SummaryRule:
    known = {name: value for name, value in summary.items() if value is not None}
    if "window" in known:
        first, _, last = str(known["window"]).partition(":")
        known["window"] = (float(first), float(last))
    return SummaryRule(**known)


def _analyse(gathered: Gathered, control: str | None, question: Question, store: Store) -> Analysis:
    if question.since is not None:
        gathered = since(gathered, float(store.find(question.since).metadata["timings"]["created"]))
    control = _control(gathered, control)
    rule = (question.summary or SummaryRule()).check()
    _check_tasks(gathered, question)
    terms = Terms(
        paired=_is_paired(gathered, question), alpha=0.05 if question.alpha is None else question.alpha,
        side=question.side, sesoi=question.sesoi, method=question.method,
        direction=rule.direction(gathered.direction), resamples=question.resamples,
    ).check()  # fmt: skip
    if question.family is not None:
        check_adjustment(question.family, terms)
    if question.tasks:
        return over_tasks(gathered, control, rule, terms, question)
    numbers, window = number_runs(gathered, gathered.metric, gathered.direction, rule)
    comparisons = _compare(numbers, control, terms, question)
    fairness = {name: fairness_of(gathered, control, name) for name in gathered.arms if name != control}
    cautions = shared_cautions(gathered, numbers, paired=terms.paired)
    label = rule.label(gathered.metric)
    comparisons = [
        replace(in_context(found, gathered, fairness[found.candidate], store), metric=label) for found in comparisons
    ]
    return Analysis(
        source=gathered.source, metric=gathered.metric, direction=gathered.direction,
        summary=describe(rule, window), control=control,
        arms=[account_of(gathered, name, numbers[name]) for name in gathered.arms],
        comparisons=comparisons, fairness=fairness, cautions=cautions,
        secondary=_secondary(gathered, control, rule, terms, question),
        certificate=_certificate(numbers, control, comparisons[0], terms, question),
        power=_power(comparisons[0], terms) if question.power else None,
        curves=gathered.arms,
    )  # fmt: skip


def _control(gathered: Gathered, control: str | None) -> str:
    names = list(gathered.arms)
    if len(names) < 2:
        raise UserError(
            f"{gathered.source} has one variant, {names[0]}; a comparison needs two",
            hint="How noisy one variant is: fairtrial variance.",
        )
    if control is not None and control not in names:
        raise UserError(f"no variant '{control}' among {', '.join(names)}")
    return control or names[0]


def _check_tasks(gathered: Gathered, question: Question) -> None:
    tasks = {trace.task for traces in gathered.arms.values() for trace in traces}
    if len(tasks) > 1 and not question.tasks:
        raise UserError(f"these runs cover {len(tasks)} tasks", hint="Add --tasks to judge them together.")
    if question.tasks and tasks == {None}:
        raise UserError("--tasks: nothing says which task a run was on", hint="Name its column with --task-column.")


def _is_paired(gathered: Gathered, question: Question) -> bool:
    """Paired when the seeds match one to one. Decided by the plan and the seeds, never by the values."""
    if question.unpaired:
        return False
    if gathered.paired_by_hand:
        return True
    if any(trace.seed is None for traces in gathered.arms.values() for trace in traces):
        return False
    planned = [sorted(gathered.planned_seeds(name)) for name in gathered.arms]
    return all(seeds == planned[0] for seeds in planned)


def _compare(numbers: Numbers, control: str, terms: Terms, question: Question) -> list[Comparison]:
    others = [name for name in numbers if name != control]
    if any(number.censored for arm in numbers.values() for number in arm.values()):
        return _compare_times(numbers, control, others, terms)
    arms = align(numbers, terms.paired)
    if len(others) == 1:
        found = compare(arms[control], arms[others[0]], terms, names=(control, others[0]), seed=question.seed)
        return [_with_t(found, arms, terms) if question.ttest else found]
    adjustment = question.family or default_adjustment(terms)
    ordered = {control: arms[control], **{name: arms[name] for name in others}}
    return compare_family(ordered, control, terms, adjustment, seed=question.seed)


def _compare_times(numbers: Numbers, control: str, others: Sequence[str], terms: Terms) -> list[Comparison]:
    """Some runs never arrived: lost runs are ranked with them, and p is adjusted where there are several arms."""
    horizons = [n.horizon for arm in numbers.values() for n in arm.values() if n.horizon is not None]
    arms = {
        name: np.array([math.inf if n.value is None else n.value for n in arm.values()])
        for name, arm in numbers.items()
    }
    found = [compare_times(arms[control], arms[name], min(horizons), terms, names=(control, name)) for name in others]
    if len(found) < 2:
        return found
    known = [each for each in found if each.p_value is not None]
    adjusted = dict(zip(map(id, known), ADJUST["holm"]([each.p_value or 0.0 for each in known]), strict=True))
    return [_adjust_times(each, adjusted.get(id(each)), terms) for each in found]


def _adjust_times(found: Comparison, p: float | None, terms: Terms) -> Comparison:
    if p is None or found.superiority is None:
        return found
    decision = conclude(p <= terms.alpha, (found.superiority.value or 0) > 0.5, None, None)
    return replace(
        found, adjusted_p=p, adjustment="holm", verdict=decision.verdict, reason=decision.reason,
        significant=decision.significant,
    )  # fmt: skip


def _with_t(found: Comparison, arms: Mapping[str, Array], terms: Terms) -> Comparison:
    """Student's t beside another method."""
    if found.p_value is None:
        return found
    control, candidate = (arms[name] for name in (found.control, found.candidate))
    if terms.paired:
        both = np.isfinite(control) & np.isfinite(candidate)
        control, candidate = control[both], candidate[both]
    else:
        control, candidate = control[np.isfinite(control)], candidate[np.isfinite(candidate)]
    ordered = canonical(control, candidate, paired=terms.paired)
    inference = infer_t(ordered).negated() if ordered.swapped else infer_t(ordered)
    told = {**inference.detail, "p_value": inference.p_value(terms.on_difference()), "method": inference.method}
    return replace(found, tests={**found.tests, "ttest": told})


def _secondary(
    gathered: Gathered, control: str, rule: SummaryRule, terms: Terms, question: Question
) -> list[Comparison]:
    """Further metrics, each by itself: shown beside the verdict, which is about the first metric alone."""
    found = []
    for metric in gathered.metrics[1:]:
        direction = question.direction if question.direction else likely_direction(metric)
        own = replace(terms, direction=rule.direction(direction), sesoi=None)
        numbers, _ = number_runs(gathered, metric, direction, rule)
        found += [
            replace(each, metric=rule.label(metric), label="secondary metric")
            for each in _compare(numbers, control, own, question)
        ]
    return found


def _certificate(
    numbers: Numbers, control: str, found: Comparison, terms: Terms, question: Question
) -> Certificate | None:
    if not question.certify:
        return None
    if min(found.n_control, found.n_candidate) < 2:
        raise UserError("--certify needs at least two usable runs per arm")
    arms = align({name: numbers[name] for name in (control, found.candidate)}, terms.paired)
    sides = [arms[control], arms[found.candidate]]
    whole = np.isfinite(sides[0]) & np.isfinite(sides[1]) if terms.paired else None
    kept = [side[whole if whole is not None else np.isfinite(side)] for side in sides]
    return certify(kept[0], kept[1], terms, seed=question.seed)


def _power(found: Comparison, terms: Terms) -> dict[str, Any] | None:
    """What this design sees, and what it would take to see the smallest difference of interest."""
    if found.effect.samples is None and found.sd_control is None:
        return None
    runs = min(found.n_control, found.n_candidate)
    if runs < 2:
        return None
    sd = _noise_of(found)
    upper = sd_upper(sd, Design(terms.paired).freedom(runs), POWER) if sd else None
    rows = []
    for power in (0.8, 0.9, 0.95):
        design = replace(terms.design, power=power)
        needed = seeds_for(terms.sesoi / upper, design) if terms.sesoi and upper else None
        rows.append({"power": power, "detectable": detectable(runs, sd, design), "seeds_for_sesoi": needed})
    return {"sd": sd, "sd_upper": upper, "assurance": POWER, "n": runs, "sesoi": terms.sesoi, "rows": rows}


def _noise_of(found: Comparison) -> float:
    if found.pairing == "paired" and found.effect.samples:
        return float(np.std(np.asarray(found.effect.samples), ddof=1))
    return math.sqrt(((found.sd_control or 0) ** 2 + (found.sd_candidate or 0) ** 2) / 2)
