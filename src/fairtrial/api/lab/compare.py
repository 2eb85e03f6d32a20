"""compare: compare strategies on the same seeds, with the cost of each, and a baseline without a teacher."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, cast

import numpy as np

from fairtrial.api.comparing.compare import compare_given
from fairtrial.api.lab.arms import LabConfig, Ran, check_terms, lab_name, mean_loss, on_view, run_arms
from fairtrial.api.running.planning import load_checked_recipe
from fairtrial.api.running.recording import recorded
from fairtrial.api.running.registered import as_registered
from fairtrial.core.cautions import DEAD_ARMS, MATCHED_BY_TIME, NOTHING_TO_MATCH
from fairtrial.core.deprecation import warn_renamed
from fairtrial.core.devices import GIGABYTE
from fairtrial.core.errors import InvalidOptions, RunsFailed, unknown
from fairtrial.core.findings import Comparison, Estimate, FilledCaution, Verdict
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.results import Result
from fairtrial.core.runs import Run, Status
from fairtrial.plan.cells import resolve
from fairtrial.plan.study import Study
from fairtrial.record.store import open_store
from fairtrial.record.studies import load_plan
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.families import compare_pairs, with_worst
from fairtrial.stats.samples import Array
from fairtrial.stats.sweeps import exact_mean, mean_of

RECIPE = "distill"
BASELINE = "none"
MATCHED = "none-matched"
STRATEGIES = ("kd", "progressive", "attention", "mse", "combined")
RUNS = 5
STUDENT: Mapping[str, Any] = {"student": "cnn", "learning_rate": 1e-2, "steps": 2000}
"""Attention transfer needs spatial maps, so strategies are compared on a student that has them, at a learning rate that
suits it. It converges in fewer steps than the students that a sweep trains."""


@dataclass(frozen=True)
class Strategy:
    """One strategy: its result, and the time and memory of a run in its own process."""

    name: str
    accuracy: Estimate
    loss: float | None
    time_s: float | None
    memory_gb: float | None
    memory_basis: str | None
    lost: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "accuracy": self.accuracy.value, "loss": self.loss, "time_s": self.time_s,
            "memory_gb": self.memory_gb, "ci": self.accuracy.limits, "runs": self.accuracy.n, "lost": len(self.lost),
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class StrategyComparison(Result):
    """Strategies, best first, and the comparisons of all pairs, judged as one family.

    >>> fairtrial.compare_strategies(["kd", "mse"]).significant  # doctest: +SKIP
    """

    study: str
    metric: str
    direction: str
    level: float
    adjustment: str
    strategies: Sequence[Strategy]
    comparisons: Sequence[Comparison]
    """In each comparison, the better of the two is the candidate."""
    best: str
    cautions: Sequence[FilledCaution] = ()
    failed: bool = False
    direction_source: str | None = None
    arms: Sequence[str] = ()
    """The names of the strategies in the order of the study, which sets their colors in charts."""

    @property
    def significant(self) -> list[Comparison]:
        """The comparisons with the verdict better, largest difference first."""
        settled = [each for each in self.comparisons if each.verdict is Verdict.BETTER]
        return sorted(settled, key=lambda each: -abs(each.effect.value or 0.0))

    @property
    def alike(self) -> list[str]:
        """The strategies that are statistically indistinguishable from the best."""
        settled = {each.control for each in self.significant if each.candidate == self.best}
        compared = {each.control for each in self.comparisons if each.candidate == self.best}
        return [each.name for each in self.strategies if each.name in compared - settled]

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "metric": self.metric,
            "direction": self.direction,
            "direction_source": self.direction_source,
            "baseline": BASELINE,
            "strategies": [each.to_dict() for each in self.strategies],
            "significant": [_pair(each) for each in self.significant],
            "best": {"name": self.best, "set": [self.best, *self.alike]},
            "family": {"adjustment": self.adjustment, "level": self.level, "pairs": len(self.comparisons)},
            "memory_basis": next((each.memory_basis for each in self.strategies if each.memory_basis), None),
            "comparisons": [each.to_dict() for each in self.comparisons],
            "cautions": list(self.cautions),
        }


def _pair(comparison: Comparison) -> dict[str, Any]:
    return {
        "better": comparison.candidate,
        "worse": comparison.control,
        "p": comparison.p_value,
        "p_adjusted": comparison.adjusted_p,
        "delta": comparison.effect.value,
        "ci": comparison.effect.limits,
    }


@recorded("compare")
def compare_strategies(
    strategies: Sequence[str] = STRATEGIES,
    *,
    options: Mapping[str, Any] | None = None,
    compute_matched: bool = False,
    family: str | None = None,
    terms: LabConfig | None = None,
) -> StrategyComparison:
    """Distill with every strategy on the same seeds; the baseline `none`, learning from labels alone, is always added.

    Time and tensor memory are measured on runs in their own process. `compute_matched` adds a second baseline that
    trains as long as the slowest strategy took.

    >>> fairtrial.compare_strategies(["kd", "mse"]).best  # doctest: +SKIP
    """
    terms = terms or LabConfig(runs=RUNS)
    study = as_registered(plan_compare(strategies, options=options, family=family, terms=terms), terms.plan)
    recipe = load_checked_recipe(RECIPE)
    judged, adjustment = terms.judged_by(family)
    metric = terms.metric_of(recipe, "report")
    alone = replace(terms, stack=False)
    ran = run_arms(study, alone, metric)
    cautions: list[FilledCaution] = []
    if compute_matched:
        changes = _matched(ran, study, recipe, terms)
        if changes is None:
            cautions.append(NOTHING_TO_MATCH.fill())
        else:
            run_arms(study.model_copy(update={"variants": {MATCHED: changes}}), alone, metric)
            study = study.model_copy(update={"variants": {**study.variants, MATCHED: changes}})
            cautions.append(MATCHED_BY_TIME.fill(name=MATCHED, steps=changes["steps"]))
            ran = run_arms(study, replace(alone, replace_old=False), metric)
    return _judge(ran, study.study, replace(judged, direction=ran.direction), adjustment, terms, cautions)


_OF_STRATEGIES = frozenset({"strategies", "options", "compute_matched", "terms"})
"""Arguments that only `compare_strategies` takes; `compare` was its name once."""


def compare(
    control: Any = None,
    candidate: Any = None,
    *,
    paired: bool | None = None,
    names: tuple[str, str] | None = None,
    store: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Comparison:
    """Compare a candidate with a control, whatever they are, and return the `Comparison`: verdict, effect, interval.

    Both are one of: scores, one per run, as a list, an array or a Series; a mapping from seed to score, or a Series
    with seeds as its index; a data frame with a column of scores; a variant of a recorded study, as `STUDY:VARIANT`;
    recorded runs. One frame or one study with two variants can be given alone.

    Scores with seeds are paired by seed. Scores without seeds are paired by position with `paired=True` and are
    otherwise not paired. NaN and None are lost runs. Settings are those of `analyze`: `metric`, `direction`, `sesoi`,
    `alpha`, `side`, `method` and, for frames, the names of columns. Without a metric, higher scores are better.

    >>> import fairtrial
    >>> comparison = fairtrial.compare([0.81, 0.80, 0.83, 0.79], [0.85, 0.83, 0.88, 0.84], paired=True)
    >>> print(comparison)  # doctest: +ELLIPSIS
    candidate is better than control: +0.0425 [...
    >>> fairtrial.compare({1: 0.5, 2: 0.4, 3: 0.6}, {3: 0.5, 1: 0.4, 2: 0.31}, metric="loss").verdict
    <Verdict.BETTER: 'better'>
    """
    former = _OF_STRATEGIES & set(settings)
    if former or (candidate is None and _are_strategies(control)):
        warn_renamed("fairtrial.compare() of strategies", "fairtrial.compare_strategies()", stacklevel=2)
        given = {"strategies": control} if control is not None else {}
        return cast(Comparison, compare_strategies(**given, **settings))
    return compare_given(control, candidate, paired=paired, names=names, store=store, settings=settings)


def _are_strategies(given: Any) -> bool:
    return isinstance(given, list | tuple) and bool(given) and all(each in (*STRATEGIES, BASELINE) for each in given)


def plan_compare(
    strategies: Sequence[str] = STRATEGIES,
    *,
    options: Mapping[str, Any] | None = None,
    family: str | None = None,
    terms: LabConfig | None = None,
) -> Study:
    """Return the study that `compare_strategies` would launch first, before a registration changes its seeds.

    Starts and writes nothing. The compute-matched baseline is not part of it: its steps depend on the times of runs.
    """
    terms, fixed = terms or LabConfig(runs=RUNS), with_student(options or {})
    check_terms(terms)
    recipe = load_checked_recipe(RECIPE)
    names = _check_strategies(recipe, strategies, fixed)
    terms.judged_by(family)  # raises for an invalid adjustment
    return terms.plan_of(
        lab_name("compare", recipe, fixed, terms.study, usual=STUDENT, variant_values={"strategy": BASELINE}),
        recipe,
        terms.metric_of(recipe, "report"),
        options=fixed,
        variants={name: {"strategy": name} for name in names},
    )


def with_student(given: Mapping[str, Any]) -> dict[str, Any]:
    """Add the settings of the default student, unless another student is named."""
    usual = given.get("student", STUDENT["student"]) == STUDENT["student"]
    return {**(STUDENT if usual else {}), **given}


def _check_strategies(recipe: LoadedRecipe, given: Sequence[str], fixed: Mapping[str, Any]) -> list[str]:
    valid = recipe.module.STRATEGIES
    problems = [unknown("strategy", name, valid) for name in given if name not in valid]
    problems += [f"strategy {name} is named twice" for name in dict.fromkeys(given) if list(given).count(name) > 1]
    if not given:
        problems.append("no strategy is named")
    if "strategy" in fixed:
        problems.append("strategy is what is compared, so it cannot be fixed")
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:], hint=f"Strategies: {', '.join(valid)}.")
    return list(dict.fromkeys([BASELINE, *given]))


def _judge(
    ran: Ran, study: str, judged: ComparisonConfig, adjustment: str, terms: LabConfig, cautions: Sequence[FilledCaution]
) -> StrategyComparison:
    layout = ran.layout
    arms = {name: sample for name, sample in layout.arms.items() if np.isfinite(sample).any()}
    dead = [name for name in ran.run_set.arms if name not in arms]
    if not arms:
        raise RunsFailed(f"no run of {study} ended with a valid {ran.metric}")
    order = _worst_first({name: ran.arms[name] for name in arms}, ran.direction)
    pairs = list(combinations(order, 2))
    comparisons = compare_pairs(arms, pairs, judged, adjustment, ended=layout.ended) if pairs else []
    comparisons = on_view(comparisons, ran, terms) if comparisons else []
    rows = [_strategy(name, ran, terms) for name in ran.run_set.arms]
    sign = 1 if ran.direction == "max" else -1
    rows.sort(key=lambda row: -sign * row.accuracy.value if row.accuracy.value is not None else float("inf"))
    carried = {caution["text"]: caution for each in comparisons for caution in each.cautions}
    lost = [DEAD_ARMS.fill(names=", ".join(dead))] if dead else []
    return StrategyComparison(
        study=study, metric=ran.metric, direction=ran.direction, direction_source=ran.direction_source,
        level=terms.level, adjustment=(comparisons[0].adjustment if comparisons else None) or adjustment,
        strategies=rows, comparisons=[replace(each, metric=ran.metric) for each in comparisons],
        best=order[-1], cautions=[*cautions, *lost, *carried.values(), *ran.cautions],
        failed=bool(ran.launched.bad or ran.launched.missing), arms=list(ran.run_set.arms),
    )  # fmt: skip


def _worst_first(arms: Mapping[str, Array], direction: str) -> list[str]:
    """Order arms so that in every pair the better one is the candidate. A lost run counts as the worst value seen."""
    sign = 1 if direction == "max" else -1
    scored = with_worst(arms, direction)
    last_first = list(arms)[::-1]  # so that among equal arms the first is best
    return sorted(last_first, key=lambda name: sign * exact_mean(scored[name]))


def _strategy(name: str, ran: Ran, terms: LabConfig) -> Strategy:
    runs = _completed(ran, name)
    bytes_, basis = _memory(runs)
    return Strategy(
        name, mean_of(ran.sample(name), terms.alpha), mean_loss(runs, ran.metric), _time(runs),
        None if bytes_ is None else bytes_ / GIGABYTE, basis, ran.lost(name),
    )  # fmt: skip


def _time(runs: Sequence[Run]) -> float | None:
    times = [run.metadata.timings.wall_s for run in runs]
    known = [seconds for seconds in times if seconds is not None]
    return sum(known) / len(known) if known else None


def _memory(runs: Sequence[Run]) -> tuple[float | None, str | None]:
    resources = [run.metadata.resources for run in runs]
    known = [each.peak_tensor_bytes for each in resources if each.peak_tensor_bytes is not None]
    basis = next((each.basis for each in resources if each.basis), None)
    return (max(known), basis) if known else (None, None)


def _matched(ran: Ran, study: Study, recipe: LoadedRecipe, terms: LabConfig) -> dict[str, Any] | None:
    """Return the baseline with as many steps as fit into the slowest strategy's time; a recorded choice is kept."""
    planned = (load_plan(open_store(terms.store, study.study), study.study) or {}).get("variants", {}).get(MATCHED)
    if planned and not terms.replace_old:
        return dict(planned)
    times = {name: _time(_completed(ran, name)) for name in ran.run_set.arms if name != MATCHED}
    own, others = times.pop(BASELINE), [seconds for seconds in times.values() if seconds is not None]
    if own is None or not others:
        raise RunsFailed("compute cannot be matched: it needs the times of the baseline and of a strategy")
    steps = int(resolve(recipe, {**study.options, "strategy": BASELINE}, where=MATCHED).to_dict()["steps"])
    matched = round(steps * max(others) / own)
    return {"strategy": BASELINE, "steps": matched} if matched > steps else None


def _completed(ran: Ran, name: str) -> list[Run]:
    return [run for run in ran.runs_of(name) if run.status is Status.COMPLETED]
