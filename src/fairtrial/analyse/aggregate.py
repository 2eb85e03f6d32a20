"""Many tasks at once: aggregates over runs × tasks, with intervals that hold at few runs.

Runs are resampled within each task. A resample of n runs varies less than n fresh runs would, by √((n − 1)/n); with
three to five runs that is much, and intervals that ignore it cover 86–90 % where they say 95 %. So deviations are
scaled up. The scaled interval is good from 20 tasks on, where the many tasks make up for the few runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fairtrial.analyse.compare import Judged, Terms, assemble, decide_by, judge
from fairtrial.analyse.inference import Inference
from fairtrial.analyse.samples import Array, Seed
from fairtrial.analyse.student import from_t, paired_parts
from fairtrial.analyse.verdicts import Decision, stand_both
from fairtrial.core.cautions import FEW_TASKS, TASK_SCALES
from fairtrial.core.errors import InvalidOptions, UserError, unknown
from fairtrial.core.findings import Attrition, Comparison, Estimate, FilledCaution, Reason

RESAMPLES = 50_000
BOOTSTRAP = "stratified bootstrap"
ENOUGH_TASKS = 20
BLOCK = 1 << 18
"""Numbers resampled at once: a block stays in the processor's cache."""

Statistic = Callable[[Array], Array]


def iqm(scores: Array) -> Array:
    """Mean of the middle half of all scores; (…, runs, tasks) → (…)."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = int(0.25 * flat.shape[-1])
    return np.asarray(flat[..., cut : flat.shape[-1] - cut].mean(axis=-1))


def mean(scores: Array) -> Array:
    return np.asarray(scores.mean(axis=-2).mean(axis=-1))


def median(scores: Array) -> Array:
    """Median over tasks of the mean over runs."""
    return np.asarray(np.median(scores.mean(axis=-2), axis=-1))


def optimality_gap(scores: Array, gamma: float = 1.0) -> Array:
    """By how much the runs miss γ on average; what lies above it does not make up for what lies below."""
    return np.asarray(gamma - np.minimum(scores, gamma).mean(axis=(-2, -1)))


STATISTICS: dict[str, Statistic] = {"iqm": iqm, "mean": mean, "median": median, "optimality_gap": optimality_gap}


def statistic_named(name: str, gamma: float = 1.0) -> Statistic:
    if name not in STATISTICS:
        raise InvalidOptions(unknown("statistic", name, STATISTICS))
    return (lambda scores: optimality_gap(scores, gamma)) if name == "optimality_gap" else STATISTICS[name]


def default_statistic(tasks: int) -> str:
    """What intervals hold for: IQM over many tasks, the mean over few."""
    return "iqm" if tasks >= ENOUGH_TASKS else "mean"


def aggregate(
    scores: Array,
    *,
    statistic: str = "iqm",
    level: float = 0.95,
    resamples: int = RESAMPLES,
    rng: Seed = None,
    gamma: float = 1.0,
) -> Estimate:
    """One number over runs × tasks with its interval. `rng` is a seed or a generator; without one, seed 0."""
    table, function = as_scores(scores, "scores"), statistic_named(statistic, gamma)
    if not 0.5 < level < 1:
        raise InvalidOptions(f"level must lie between 0.5 and 1, not {level!r}")
    if resamples < 100:
        raise InvalidOptions(f"resamples must be at least 100, not {resamples}")
    runs, tasks = table.shape
    value = float(function(table))
    cautions = (FEW_TASKS.fill(tasks=tasks, statistic=statistic),) if _is_shaky(statistic, tasks) else ()
    if runs < 2 or np.all(np.ptp(table, axis=0) == 0):
        reason = Reason.TOO_FEW if runs < 2 else Reason.NO_VARIATION
        return Estimate(value, None, None, level, statistic, runs, reason=reason.value, cautions=cautions)
    inference = _infer(table, statistic, function, resamples, _generator(rng))
    low, high = inference.interval(1 - level)
    return Estimate(value, low, high, level, f"{statistic}, {inference.method}", runs, cautions=cautions)


def _is_shaky(statistic: str, tasks: int) -> bool:
    return tasks < ENOUGH_TASKS and statistic != "mean"


def _infer(table: Array, name: str, function: Statistic, resamples: int, rng: np.random.Generator) -> Inference:
    if name == "mean" and table.shape[1] < ENOUGH_TASKS:
        middle, error, freedom = paired_parts(np.sort(table.mean(axis=1)))
        return from_t("Student's t over runs", float(middle), float(error), freedom)
    draws = resampled(table, function, resamples, rng)
    return _from_draws(float(function(table)), draws, _widening(len(table)))


def _from_draws(value: float, draws: Array, widening: float) -> Inference:
    ordered = np.sort(value + widening * (draws - value))
    below = float((np.searchsorted(ordered, 0.0, "left") + np.searchsorted(ordered, 0.0, "right")) / (2 * len(draws)))
    below = min(max(below, 0.5 / len(draws)), 1 - 0.5 / len(draws))
    return Inference(
        BOOTSTRAP, value,
        lower=lambda tail: float(np.quantile(ordered, tail)),
        upper=lambda tail: float(np.quantile(ordered, 1 - tail)),
        p_greater=below, p_less=1 - below, p_two_sided=2 * min(below, 1 - below),
        detail={"resamples": len(draws), "widening": widening},
    )  # fmt: skip


def _widening(runs: int) -> float:
    return math.sqrt(runs / (runs - 1))


def _generator(seed: Seed) -> np.random.Generator:
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng([int(seed or 0), 0])


def as_scores(scores: Array, name: str) -> Array:
    """A finite table of runs × tasks in canonical order, or a sentence on what is wrong with it."""
    try:
        table = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a table of numbers, runs × tasks, without gaps") from None
    if table.ndim != 2 or 0 in table.shape:
        raise UserError(f"{name} must be a table of runs × tasks, not of shape {table.shape}")
    if not np.isfinite(table).all():
        count = int((~np.isfinite(table)).sum())
        raise UserError(
            f"{name} holds {count} value(s) that are not finite",
            hint="A run without a result is an outcome: set it to the worst score that it can have.",
        )
    return table[np.lexsort(table.T[::-1])]


def resampled(table: Array, function: Statistic, resamples: int, rng: np.random.Generator) -> Array:
    """The statistic of tables whose runs were drawn anew within each task."""
    draws = [function(table[rows, np.arange(table.shape[1])]) for rows in _rows(table.shape, resamples, rng)]
    return np.concatenate(draws)


def _rows(
    shape: tuple[int, ...], resamples: int, rng: np.random.Generator
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint16]]]:
    runs, tasks = shape
    block = max(1, BLOCK // (runs * tasks))
    sizes = [block] * (resamples // block) + ([resamples % block] if resamples % block else [])
    kind = np.uint8 if runs <= 256 else np.uint16
    return [rng.integers(0, runs, (size, runs, tasks), dtype=kind) for size in sizes]


def probability_of_improvement(
    control: Array, candidate: Array, *, level: float = 0.95, resamples: int = 2000, rng: Seed = None
) -> Estimate:
    """How often a run of the candidate beats one of the control, averaged over tasks, ties halved."""
    first, second = as_scores(control, "control"), as_scores(candidate, "candidate")
    _same_tasks(first, second)
    # wins[t, i, j]: run i of the candidate against run j of the control on task t.
    gaps = second.T[:, :, None] - first.T[:, None, :]
    wins = (np.sign(gaps) + 1) / 2
    value = float(wins.mean(axis=(1, 2)).mean())
    n, m = len(first), len(second)
    if min(n, m) < 2:
        return Estimate(value, None, None, level, "probability of improvement", n + m, reason=Reason.TOO_FEW.value)
    generator = _generator(rng)
    drawn = [_multiplicities(len(table), table.shape[1], resamples, generator) for table in (second, first)]
    draws = np.einsum("bti,tij,btj->b", drawn[0], wins, drawn[1], optimize="optimal") / (n * m * wins.shape[0])
    if np.ptp(draws) == 0:  # every task is won or lost by all runs: nothing is left to resample
        name, why = "probability of improvement", Reason.NO_VARIATION.value
        return Estimate(value, None, None, level, name, n + m, reason=why)
    ordered = np.clip(value + _widening(min(n, m)) * (draws - value), 0, 1)
    low, high = (float(x) for x in np.quantile(ordered, [(1 - level) / 2, (1 + level) / 2]))
    return Estimate(value, low, high, level, "probability of improvement, stratified bootstrap", n + m)


def _multiplicities(runs: int, tasks: int, resamples: int, rng: np.random.Generator) -> Array:
    """How often each run occurs in each resample of each task: all that a resample is."""
    return rng.multinomial(runs, [1 / runs] * runs, size=(resamples, tasks)).astype(np.float64)


def _same_tasks(first: Array, second: Array) -> None:
    if first.shape[1] != second.shape[1]:
        raise UserError(f"the arms were run on {first.shape[1]} and {second.shape[1]} tasks; they must be the same")


def performance_profile(
    scores: Array, taus: Array, *, level: float = 0.95, resamples: int = 2000, rng: Seed = None
) -> tuple[Array, Array, Array]:
    """The share of runs above each τ, averaged over tasks, with a band from whole resampled tables."""
    table, thresholds = as_scores(scores, "scores"), np.asarray(taus, dtype=np.float64)
    above = table[:, :, None] > thresholds
    value = above.mean(axis=(0, 1))
    if len(table) < 2:
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    counts = _multiplicities(len(table), table.shape[1], resamples, _generator(rng))
    draws = np.tensordot(counts, above.transpose(1, 0, 2).astype(float), axes=2) / table.size
    spread = np.clip(value + _widening(len(table)) * (draws - value), 0, 1)
    low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return value, low, high


@dataclass(frozen=True)
class TaskTerms:
    """What is asked of a comparison over tasks."""

    statistic: str | None = None
    resamples: int = RESAMPLES
    gamma: float = 1.0


def compare_tasks(
    control: Array, candidate: Array, terms: Terms, how: TaskTerms, *, names: tuple[str, str], seed: Seed = None
) -> Comparison:
    """Candidate against control over the same tasks: the difference of their aggregates.

    Over few tasks this is the comparison of per-run means over tasks; from 20 on a stratified bootstrap, which
    resamples pairs together where the runs are paired. A run that lost a task has no mean: the verdict must hold
    without it, and with the worst score that anyone had on that task.
    """
    _same_tasks(control, candidate)
    kept = _whole_runs(control, candidate, paired=terms.paired)
    judged = _judge_tasks(*kept, terms, how, seed)
    lost = tuple(int(np.isnan(table.mean(axis=1)).sum()) for table in (control, candidate))
    decision, attrition = judged.decision, None
    if any(lost):
        decision, attrition = _under_attrition(control, candidate, judged, terms, how, seed, lost)
    found = assemble(kept[0].mean(axis=1), kept[1].mean(axis=1), judged, decision, attrition, terms, names)
    name = how.statistic or default_statistic(control.shape[1])
    if judged.inference is not None and judged.inference.method.startswith(BOOTSTRAP):
        # The runs' own means over tasks are not what this statistic rests on.
        effect, equivalence = replace(found.effect, samples=None), replace(found.equivalence, samples=None)
        found = replace(found, effect=effect, equivalence=equivalence)
    return replace(found, cautions=(*found.cautions, *_task_cautions(*kept, name)))


def _whole_runs(control: Array, candidate: Array, *, paired: bool) -> tuple[Array, Array]:
    whole = [np.isfinite(table).all(axis=1) for table in (control, candidate)]
    if paired:
        whole = [whole[0] & whole[1]] * 2
    return control[whole[0]], candidate[whole[1]]


def _judge_tasks(control: Array, candidate: Array, terms: Terms, how: TaskTerms, seed: Seed) -> Judged:
    tasks = control.shape[1]
    name = how.statistic or default_statistic(tasks)
    plain = judge(control.mean(axis=1), candidate.mean(axis=1), terms, seed)
    if plain.inference is None or (name == "mean" and tasks < ENOUGH_TASKS):
        return plain
    function = statistic_named(name, how.gamma)
    inference = _difference(control, candidate, terms, function, how.resamples, _generator(seed))
    inference = replace(inference, method=f"{inference.method} of the {name} over {tasks} tasks")
    return Judged(inference, decide_by(inference, terms))


def _under_attrition(
    control: Array, candidate: Array, judged: Judged, terms: Terms, how: TaskTerms, seed: Seed, lost: tuple[int, ...]
) -> tuple[Decision, Attrition]:
    seen = np.concatenate([control, candidate])
    empty = ~np.isfinite(seen).any(axis=0)
    worst = (
        np.nanmin(np.where(empty, 0.0, seen), axis=0)
        if terms.direction == "max"
        else np.nanmax(np.where(empty, 0.0, seen), axis=0)
    )
    filled = [np.where(np.isfinite(table), table, worst) for table in (control, candidate)]
    scored = _judge_tasks(filled[0], filled[1], terms, how, seed)
    decision = stand_both(judged.decision, scored.decision)
    return decision, Attrition(lost[0], lost[1], None, judged.decision.verdict, scored.decision.verdict)


def _difference(
    control: Array, candidate: Array, terms: Terms, function: Statistic, resamples: int, rng: np.random.Generator
) -> Inference:
    value = float(function(candidate) - function(control))
    columns = np.arange(control.shape[1])
    draws = []
    for rows in _rows(control.shape, resamples, rng):
        if terms.paired:
            others = rows
        else:
            others = rng.integers(0, len(candidate), (len(rows), *candidate.shape), dtype=rows.dtype)
        draws.append(function(candidate[others, columns]) - function(control[rows, columns]))
    return _from_draws(value, np.concatenate(draws), _widening(min(len(control), len(candidate))))


def _task_cautions(control: Array, candidate: Array, name: str) -> list[FilledCaution]:
    tasks = control.shape[1]
    found: list[FilledCaution] = []
    if _is_shaky(name, tasks):
        found.append(FEW_TASKS.fill(tasks=tasks, statistic=name))
    sizes = np.abs(np.concatenate([control, candidate])).mean(axis=0)
    if tasks > 1 and len(control) and sizes.min() * 10 < sizes.max():
        found.append(TASK_SCALES.fill())
    return found


def mean_curve(
    curves: Array, *, level: float = 0.95, resamples: int = 2000, rng: Seed = None
) -> tuple[Array, Array, Array]:
    """The mean of runs × points with a pointwise band from resampled whole runs, widened to Student's t."""
    from scipy import special

    runs = len(curves)
    middle = curves.mean(axis=0)
    if runs < 2:
        return middle, np.full_like(middle, np.nan), np.full_like(middle, np.nan)
    tail = (1 - level) / 2
    counts = _generator(rng).multinomial(runs, [1 / runs] * runs, size=resamples) / runs
    widening = _widening(runs) * float(special.stdtrit(runs - 1, tail) / special.ndtri(tail))
    draws = middle + widening * (counts @ curves - middle)
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return middle, low, high
