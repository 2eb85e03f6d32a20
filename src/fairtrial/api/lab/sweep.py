"""sweep, temperature, alpha: train over a grid of values, and find the best and those indistinguishable from it.

plan a grid → launch what is missing → score the runs → pick the winner and its set → confirm on fresh seeds and data
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pvariance, stdev
from typing import Any

import orjson

from fairtrial.api.comparing.analysis import Analysis, Question
from fairtrial.api.comparing.analyze import analyze
from fairtrial.api.comparing.gather import MetricQuery, from_study
from fairtrial.api.comparing.numbers import align, number_runs, unpaired_samples
from fairtrial.api.lab.arms import LabConfig, Ran, check_terms, lab_name, mean_loss, run_arms
from fairtrial.api.running.planning import load_checked_recipe
from fairtrial.api.running.recomputing import FROM_SERIES, RecomputableVerb
from fairtrial.api.running.recording import recorded, unrecorded
from fairtrial.api.running.registered import as_registered, registration_for
from fairtrial.core.canonical import content_hash
from fairtrial.core.cautions import (
    BEST_OF_MANY,
    EDGE_OF_GRID,
    FEW_SEEDS,
    LOST_VALUES,
    NOT_CONFIRMED,
    REPORT_NOT_FRESH,
    SELECTED_ON_REPORT,
)
from fairtrial.core.errors import InvalidOptions, RunsFailed, UserError
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.results import Result
from fairtrial.core.specs import confirmation_seeds, split_and_quantity
from fairtrial.plan.cells import name_of, resolve
from fairtrial.plan.grids import GridAxis, GridPoint, beyond, defaults_of, lay_out, parse_axis, span
from fairtrial.plan.study import Study
from fairtrial.record.store import Store
from fairtrial.research.seeds import CONFIRMATION
from fairtrial.stats.diagnostics import one_arm_cautions
from fairtrial.stats.summaries import SummaryRule
from fairtrial.stats.sweeps import Winner, mean_of, pick_winner

CONFIRMED = 5
"""Number of fresh runs that the caution about an unconfirmed winner suggests."""


@dataclass(frozen=True)
class SweepPoint:
    """One setting: the mean of its runs by the selection metric, and whether it is in the winner's set."""

    variant: str
    values: Mapping[str, Any]
    accuracy: Estimate
    std_dev: float | None
    loss: float | None
    lost: Mapping[str, str]
    alike: bool | None

    @property
    def value(self) -> Any:
        """The swept value; with several options, all values by name."""
        return next(iter(self.values.values())) if len(self.values) == 1 else dict(self.values)


@dataclass(frozen=True)
class Confirmation:
    """Winner and baseline on fresh seeds and fresh report data: an estimate without selection bias."""

    study: str
    winner: str
    baseline: str | None
    accuracy: Estimate
    baseline_accuracy: Estimate | None
    analysis: Analysis | None

    def to_dict(self) -> dict[str, Any]:
        comparison = self.analysis.comparisons[0] if self.analysis else None
        return {
            "study": self.study,
            "winner": self.winner,
            "baseline": self.baseline,
            "accuracy": self.accuracy.value,
            "ci": self.accuracy.limits,
            "runs": self.accuracy.n,
            "baseline_accuracy": self.baseline_accuracy.value if self.baseline_accuracy else None,
            "verdict": comparison.verdict.value if comparison else None,
            "sentence": str(comparison) if comparison else None,
            "comparison": comparison.to_dict() if comparison else None,
        }


@dataclass(frozen=True, repr=False)
class Sweep(Result):
    """A finished sweep. `best` is the selection estimate; `confirmation` the unbiased one, if requested.

    >>> result = fairtrial.sweep(
    ...     "fake", ["effect=0,0.2"], options={"steps": 5}, terms=fairtrial.LabConfig(runs=3, study="grid"))
    >>> len(result.points)
    2
    """

    kind: str
    study: str
    recipe: str
    axes: Sequence[GridAxis]
    metric: str
    direction: str
    level: float
    runs: int
    points: Sequence[SweepPoint]
    winner: Winner
    confirmation: Confirmation | None = None
    cautions: Sequence[FilledCaution] = ()
    failed: bool = False
    direction_source: str | None = None
    statistics: Mapping[str, float | int | None] = field(default_factory=dict)

    @property
    def params(self) -> list[str]:
        return [axis.name for axis in self.axes]

    @property
    def best(self) -> SweepPoint:
        return next(point for point in self.points if point.variant == self.winner.best)

    @property
    def best_param(self) -> Any:
        """The best value; with several options, the best of each by name."""
        return self.best.value

    @property
    def alike(self) -> list[SweepPoint] | None:
        """The values statistically indistinguishable from the best, including it; None if there are too few runs."""
        if self.winner.alike is None:
            return None
        return [point for point in self.points if point.alike]

    def to_dict(self) -> dict[str, Any]:
        named = self.kind in ("temperature", "alpha")
        key = self.kind if named else "value"
        best = {
            key: self.best.value,
            "accuracy": self.best.accuracy.value,
            "confirmed": self.confirmation.accuracy.value if self.confirmation else None,
            "set": None if self.alike is None else [point.value for point in self.alike],
        }
        head: dict[str, Any] = (
            {"sweep_type": self.kind, "range": self.axes[0].span}
            if named
            else {"param": self.params[0] if len(self.params) == 1 else self.params}
        )
        return {
            **head, "study": self.study, "recipe": self.recipe, "metric": self.metric, "direction": self.direction,
            "direction_source": self.direction_source,
            "results": [{key: point.value, **_row(point)} for point in self.points],
            "best": best, **({f"best_{self.kind}": self.best.value} if named else {}),
            "statistical_analysis": dict(self.statistics),
            "confirmation": self.confirmation.to_dict() if self.confirmation else None,
            "cautions": list(self.cautions),
        }  # fmt: skip


def _row(point: SweepPoint) -> dict[str, Any]:
    return {
        "accuracy": point.accuracy.value, "loss": point.loss, "std_dev": point.std_dev,
        "ci": point.accuracy.limits, "runs": point.accuracy.n, "lost": len(point.lost), "in_set": point.alike,
    }  # fmt: skip


@recorded("temperature")
def temperature_sweep(
    start: float = 1.0, end: float = 8.0, step: float = 0.5, runs: int | Sequence[int] | None = None, **settings: Any
) -> Sweep:
    """Distill at every temperature of a range. Takes the arguments of `sweep`; `options` are those of `distill`.

    >>> fairtrial.temperature_sweep(1.0, 8.0, 0.5, runs=3).best_param  # doctest: +SKIP
    """
    axis = span("temperature", start, end, step)
    return unrecorded(sweep)("distill", [axis], kind="temperature", **_with_runs(settings, runs))


@recorded("alpha")
def alpha_sweep(
    start: float = 0.0, end: float = 1.0, step: float = 0.1, runs: int | Sequence[int] | None = None, **settings: Any
) -> Sweep:
    """Distill with every weight of the teacher (alpha) in a range.

    >>> fairtrial.alpha_sweep(0.0, 1.0, 0.5, runs=3).best_param  # doctest: +SKIP
    """
    return unrecorded(sweep)("distill", [span("alpha", start, end, step)], kind="alpha", **_with_runs(settings, runs))


def plan_range_sweep(kind: str, start: float, end: float, step: float, **settings: Any) -> Study:
    """Return the study that `temperature_sweep` or `alpha_sweep` would launch; `kind` is the swept option."""
    return plan_sweep("distill", [span(kind, start, end, step)], kind=kind, **settings)


temperature = temperature_sweep
alpha = alpha_sweep


def _with_runs(settings: Mapping[str, Any], runs: int | Sequence[int] | None) -> dict[str, Any]:
    terms = settings.get("terms") or LabConfig()
    return {**settings, "terms": terms if runs is None else replace(terms, runs=runs)}


@recorded("sweep")
def sweep(
    recipe: str,
    params: Sequence[GridAxis | str],
    *,
    options: Mapping[str, Any] | None = None,
    zipped: bool = False,
    confirm: int = 0,
    baseline: Any = None,
    kind: str = "sweep",
    terms: LabConfig | None = None,
) -> Sweep:
    """Train a recipe at every setting of a grid; find the best, and those statistically indistinguishable from it.

    `params` are strings such as `temperature=1:8:0.5`, `alpha=0.1,0.5` or `learning_rate=log:1e-4:1e-1:7`. The winner
    is chosen on the eval split. `confirm` is the number of fresh seeds on which the winner and the baseline run again,
    with fresh report data.

    >>> result = fairtrial.sweep(
    ...     "fake", ["effect=0,0.2"], options={"steps": 5}, terms=fairtrial.LabConfig(runs=3, study="grid"))
    >>> result.best_param
    0.2
    """
    terms = terms or LabConfig()
    plan = _lay_out_study(
        recipe, params, options=options, zipped=zipped, confirm=confirm, baseline=baseline, kind=kind, terms=terms
    )
    loaded, fixed, study = plan.recipe, plan.fixed, as_registered(plan.study, terms.plan)
    fresh = _fresh_seeds(study, confirm, terms) if confirm else []  # raises now, not after training
    ran = run_arms(study, terms, plan.metric)
    sweep = _judge(kind, study, loaded, plan.axes, plan.points, ran, terms)
    if confirm:
        sweep = _confirm(sweep, loaded, fixed, plan.baseline, fresh, replace(terms, plan=None))
    cautions = [*_cautions(sweep, loaded, fixed, ran), *ran.cautions]
    return replace(sweep, cautions=list({caution["text"]: caution for caution in cautions}.values()))


def plan_sweep(
    recipe: str,
    params: Sequence[GridAxis | str],
    *,
    options: Mapping[str, Any] | None = None,
    zipped: bool = False,
    confirm: int = 0,
    baseline: Any = None,
    kind: str = "sweep",
    terms: LabConfig | None = None,
) -> Study:
    """Return the study that `sweep` would launch, before a registration changes its seeds.

    Starts and writes nothing.
    """
    plan = _lay_out_study(
        recipe, params, options=options, zipped=zipped, confirm=confirm, baseline=baseline, kind=kind,
        terms=terms or LabConfig(),
    )  # fmt: skip
    if confirm:
        _unregistered_seeds(confirm, terms or LabConfig())  # raises if it is too many
    return plan.study


@dataclass(frozen=True)
class _SweepPlan:
    """The study of a sweep, and what it was built from."""

    study: Study
    recipe: LoadedRecipe
    fixed: Mapping[str, Any]
    axes: Sequence[GridAxis]
    points: Sequence[GridPoint]
    baseline: GridPoint | None
    metric: str | None


def _lay_out_study(
    recipe: str, params: Sequence[GridAxis | str], *, options: Mapping[str, Any] | None, zipped: bool, confirm: int,
    baseline: Any, kind: str, terms: LabConfig,
) -> _SweepPlan:  # fmt: skip
    """Plan every setting of the grid as a variant; reject settings that could not be trained or confirmed."""
    fixed = dict(options or {})
    check_terms(terms, confirm)
    loaded = load_checked_recipe(recipe)
    axes = [parse_axis(param) if isinstance(param, str) else param for param in params]
    points = lay_out(loaded, fixed, axes, zipped=zipped)
    if baseline is not None and not confirm:
        raise InvalidOptions("a baseline is only used with --confirm", hint="Add --confirm N.")
    base = _baseline(loaded, fixed, axes, baseline) if confirm else None
    if base is not None:
        _check_confirmation(loaded, fixed, [*points, base])
    metric = terms.metric_of(loaded, "eval")
    verb = kind if kind != "sweep" else f"sweep-{loaded.name}-{'+'.join(axis.name for axis in axes)}"
    study = terms.plan_of(
        lab_name(verb, loaded, fixed, terms.study, variant_values=points[0].values),
        loaded,
        metric,
        options=fixed,
        variants={point.variant: dict(point.values) for point in points},
    )
    return _SweepPlan(study, loaded, fixed, axes, points, base, metric)


def _check_confirmation(recipe: LoadedRecipe, fixed: Mapping[str, Any], points: Sequence[GridPoint]) -> None:
    """Check before training that every possible winner is valid with fresh report data."""
    for point in points:
        fresh = recipe.fresh_report(resolve(recipe, {**fixed, **point.values}, where=point.variant), 0) or {}
        for name in fresh:
            if name in point.values:
                raise InvalidOptions(f"{name} cannot be swept with --confirm, which sets it itself")
        resolve(recipe, {**fixed, **point.values, **fresh}, where=f"--confirm of {point.variant}")


def _baseline(recipe: LoadedRecipe, fixed: Mapping[str, Any], axes: Sequence[GridAxis], given: Any) -> GridPoint:
    """Return the setting that the winner is confirmed against: the given values, or the recipe's defaults."""
    names = [axis.name for axis in axes]
    if isinstance(given, str) and "=" in given:
        given = {key.strip(): value for key, _, value in (part.partition("=") for part in given.split(","))}
    if given is None:
        values = defaults_of(recipe, names)
        unset = [name for name, value in values.items() if value is None]
        if unset:
            raise UserError(f"{unset[0]} has no default to compare with", hint="Set it with --baseline.")
    elif isinstance(given, Mapping):
        values = dict(given)
    else:
        values = {names[0]: given}
    if set(values) != set(names):
        raise InvalidOptions(
            f"the baseline must set {', '.join(names)}", hint="For example: --baseline temperature=4,alpha=1"
        )
    options = resolve(recipe, {**fixed, **values}, where="baseline").to_dict()
    taken = {name: options.get(name, values[name]) for name in names}
    return GridPoint(name_of(taken), taken)


def _judge(
    kind: str, study: Study, recipe: LoadedRecipe, axes: Sequence[GridAxis], points: Sequence[GridPoint], ran: Ran,
    terms: LabConfig,
) -> Sweep:  # fmt: skip
    winner = pick_winner(ran.arms, direction=ran.direction, alpha=terms.alpha)
    if winner is None:
        raise RunsFailed(f"no run of {study.study} ended with a valid {ran.metric}")
    rows = [_point(point, ran, winner, terms) for point in points]
    return Sweep(
        kind=kind, study=study.study, recipe=recipe.name, axes=axes, metric=ran.metric, direction=ran.direction,
        direction_source=ran.direction_source,
        level=terms.level, runs=len(study.seed_list), points=rows, winner=winner,
        failed=bool(ran.launched.bad or ran.launched.missing), statistics=_statistics(rows, winner, terms),
    )  # fmt: skip


def _point(point: GridPoint, ran: Ran, winner: Winner, terms: LabConfig) -> SweepPoint:
    mean = mean_of(ran.sample(point.variant), terms.alpha)
    alike = None if winner.alike is None else point.variant in winner.alike
    return SweepPoint(
        point.variant, point.values, mean, stdev(mean.samples or ()) if mean.n > 1 else None,
        mean_loss(ran.runs_of(point.variant), ran.metric), ran.lost(point.variant), alike,
    )  # fmt: skip


def _statistics(points: Sequence[SweepPoint], winner: Winner, terms: LabConfig) -> dict[str, float | int | None]:
    means = [point.accuracy.value for point in points if point.accuracy.value is not None]
    spacing = winner.spacing
    return {
        "mean_accuracy": fmean(means) if means else None,
        "variance": pvariance(means) if len(means) > 1 else None,
        "residual_sd": spacing.sd if spacing else None,
        "degrees_of_freedom": spacing.freedom if spacing else None,
        "tukey_limit": spacing.limit if spacing else None,
        "range_p": spacing.range_p if spacing else None,
        "level": terms.level,
        "values": len(points),
    }


def _fresh_seeds(study: Study, count: int, terms: LabConfig) -> list[int]:
    """Return seeds that were not used for selection; derived ones if the study's registration derives its seeds."""
    registration = registration_for(study.study, terms.plan)
    if registration is not None and registration.derives_seeds:
        return registration.derived(CONFIRMATION, count)
    return _unregistered_seeds(count, terms)


def _unregistered_seeds(count: int, terms: LabConfig) -> list[int]:
    return confirmation_seeds(count, terms.seeds if isinstance(terms.seeds, list) else ())


def _confirm(
    sweep: Sweep,
    recipe: LoadedRecipe,
    fixed: Mapping[str, Any],
    base: GridPoint | None,
    seeds: list[int],
    terms: LabConfig,
) -> Sweep:
    """Run the winner and the baseline again, on seeds and report data that were not used for selection."""
    best = sweep.best
    options = resolve(recipe, {**fixed, **best.values}, where=best.variant)
    asked = [sweep.study, sorted(point.variant for point in sweep.points), sweep.runs, best.variant]
    fresh = recipe.fresh_report(options, int(content_hash(asked)[:12], 16))
    arms = {base.variant: dict(base.values)} if base else {}
    arms[best.variant] = dict(best.values)
    split, quantity = split_and_quantity(sweep.metric)
    metric = f"report_{quantity}" if split == "eval" else sweep.metric
    study = terms.study_of(
        f"{sweep.study}-confirm-{content_hash(asked)[:8]}",
        recipe,
        metric,
        options={**fixed, **(fresh or {})},
        variants=arms,
        seeds=seeds,
    )
    try:
        ran = run_arms(study, terms, metric)
    except RunsFailed as error:  # the sweep is valid without it
        return replace(sweep, cautions=[NOT_CONFIRMED.fill(why=error.message)], failed=True)
    question = Question(metrics=[ran.metric], direction=ran.direction, alpha=terms.alpha)
    alone = len(arms) == 1
    analysis = None if alone else unrecorded(analyze)(
        study.study, control=base.variant if base else None, candidate=best.variant, question=question,
        store=terms.store,
    )  # fmt: skip
    means = {name: mean_of(ran.sample(name), terms.alpha) for name in arms}
    confirmation = Confirmation(
        study.study,
        best.variant,
        base.variant if base else None,
        means[best.variant],
        means[base.variant] if base else None,
        analysis,
    )
    stale = [] if fresh is not None else [REPORT_NOT_FRESH.fill(recipe=recipe.name)]
    failed = sweep.failed or bool(ran.launched.bad or ran.launched.missing)
    return replace(sweep, confirmation=confirmation, cautions=[*stale, *ran.cautions], failed=failed)


def _cautions(sweep: Sweep, recipe: LoadedRecipe, fixed: Mapping[str, Any], ran: Ran) -> list[FilledCaution]:
    best = GridPoint(sweep.best.variant, sweep.best.values)
    cautions = list(sweep.cautions)
    cautions += [
        EDGE_OF_GRID.fill(param=axis.name, value=best.values[axis.name])
        for axis in sweep.axes
        if beyond(recipe, fixed, best, axis)
    ]
    if sweep.confirmation is None and len(sweep.points) > 1:
        cautions.append(BEST_OF_MANY.fill(count=len(sweep.points), metric=sweep.metric, runs=CONFIRMED))
    if sweep.metric.startswith("report_"):
        instead = sweep.metric.replace("report_", "eval_", 1)
        cautions.append(SELECTED_ON_REPORT.fill(metric=sweep.metric, instead=instead))
    lost = [f"{point.variant} seed {seed}" for point in sweep.points for seed in point.lost]
    if lost:
        shown = ", ".join(lost[:3]) + (" …" if len(lost) > 3 else "")
        cautions.append(LOST_VALUES.fill(count=len(lost), which=shown))
    if sweep.runs == 1 and not any(caution["code"] == FEW_SEEDS.code for caution in ran.cautions):
        cautions.append(FEW_SEEDS.fill(n=1))
    elif counts := [point.accuracy.n for point in sweep.points if point.accuracy.low is not None]:
        cautions += one_arm_cautions(min(counts))
    return cautions


# A recorded sweep as a claim


def _claimed_questions(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not isinstance(result.get("results"), list):
        return []
    level = (result.get("statistical_analysis") or {}).get("level", LabConfig.level)
    return [{"param": result.get("sweep_type") or result.get("param"), "level": level}]


def _claimed_numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    key, best = result.get("sweep_type") or "value", result["best"]
    rows = [
        {"value": row[key], **{name: row[name] for name in ("accuracy", "ci", "std_dev", "runs")}}
        for row in result["results"]
    ]
    return {"results": _by_value(rows), "best": best[key], "set": _ordered(best["set"])}


def recompute(store: Store, question: Mapping[str, Any]) -> dict[str, Any]:
    """Recompute the mean of every setting of a sweep, and the best one, from the runs of its study."""
    run_set = from_study(store, question["study"], MetricQuery([question["metric"]], question["direction"]))
    scores, _ = number_runs(run_set, run_set.metric, run_set.direction, SummaryRule())
    param, alpha = question["param"], round(1 - float(question["level"]), 12)
    settings = {
        name: values.get(param) if isinstance(param, str) else dict(values)
        for name, values in (run_set.plan or {}).get("variants", {}).items()
    }
    rows = []
    for name in (name for name in run_set.arms if name in settings and scores[name]):
        mean = mean_of(unpaired_samples({name: scores[name]})[name], alpha)
        rows.append(
            {"value": settings[name], "accuracy": mean.value, "ci": mean.limits,
             "std_dev": stdev(mean.samples or ()) if mean.n > 1 else None, "runs": mean.n}
        )  # fmt: skip
    scored = {name: arm for name, arm in scores.items() if arm}
    winner = pick_winner(align(scored), direction=run_set.direction, alpha=alpha)
    alike = None if winner is None or winner.alike is None else [settings[name] for name in winner.alike]
    return {
        "results": _by_value(rows),
        "best": None if winner is None else settings[winner.best],
        "set": _ordered(alike),
    }


def _by_value(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: orjson.dumps(row["value"], option=orjson.OPT_SORT_KEYS))


def _ordered(values: Sequence[Any] | None) -> list[Any] | None:
    if values is None:
        return None
    return sorted(values, key=lambda value: orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


RECOMPUTABLE = RecomputableVerb(_claimed_questions, _claimed_numbers, recompute, FROM_SERIES)
