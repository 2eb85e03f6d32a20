"""Are several differences judged together as surely as promised, and what does the promise cost?

Everything here runs the project's own functions on simulated layouts of arms × seeds whose truth is known. Shapes of
noise are those of `stats/noise.py`. Five layouts: equal arms; one arm of five times the spread; a control of five
times the spread; an arm, or the control, that does not share the luck of the seeds with the others (r = 0.9 among
those). Each with 3 to 6 arms, against a control and over all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
from scipy import special

from benchmarks.figures import Figure, Goal, at_least, at_most, within
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.families import compare_family, residual_variance
from fairtrial.stats.family_power import FamilyPlan
from fairtrial.stats.noise import SHAPES, Shape
from fairtrial.stats.samples import Array
from fairtrial.stats.spreads import (
    ENOUGH_FOR_HOLM,
    MAX_SPREAD,
    FamilyLimit,
    IndexPair,
    largest_spreads,
    pair_differences,
    settled,
    shared_tail,
    student_limit,
)

TITLE = "Are several differences judged together as surely as promised?"
ALPHA, POWER = 0.05, 0.8
REPEATS = 8_000
DEEP = 40_000
ARMS = (3, 4, 5, 6)
COUNTS = (3, 4, 5, 8, 11, 12, 15)
KINDS = ("control", "all pairs")
EQUAL, NOISY, NOISY_CONTROL = "equal arms", "one arm of five times the spread", "a control of five times the spread"
ALONE, CONTROL_ALONE = "one arm that does not correlate", "a control that does not correlate"
TWO_GROUPS = "two groups of arms, each with its own luck"
SPREADS, CORRELATIONS = (NOISY, NOISY_CONTROL), (ALONE, CONTROL_ALONE)
HOLDS = ("normal", "heavy tails")
"""Shapes on which one pair by itself keeps its promise although one of its arms is far noisier."""


def measure(folder: Path) -> list[Figure]:  # noqa: ARG001
    return [*_errors(), *_beside_one_pair(), *_powers(), *_equivalence(), *_coverage(), *_outlooks(), *_losses()]


def percent(name: str, share: float, repeats: int, goal: Goal | None = None, note: str | None = None) -> Figure:
    error = 196 * math.sqrt(share * (1 - share) / repeats)
    return Figure(name, 100 * share, "%", 100 * share - error, 100 * share + error, repeats, goal, note)


def slack(share: float, repeats: int) -> float:
    """Three standard errors of a simulated share, in percent."""
    return 300 * math.sqrt(share * (1 - share) / repeats)


# Layouts


def pairs_of(kind: str, arms: int) -> tuple[IndexPair, ...]:
    return tuple((0, arm) for arm in range(1, arms)) if kind == "control" else tuple(combinations(range(arms), 2))


def layouts(shape: Shape, case: str, arms: int, n: int, repeats: int, stream: int = 0) -> Array:
    """Arms of equal means: (repeats, arms, n)."""
    rng = np.random.default_rng([arms, n, len(shape.name), len(case), stream])
    own = shape.draw(rng, (repeats, arms, n)) - shape.mean
    odd = 0 if case in (NOISY_CONTROL, CONTROL_ALONE) else arms - 1
    if case in SPREADS:
        own[:, odd] *= 5
    if case == TWO_GROUPS:
        luck = 3 * (shape.draw(rng, (repeats, 2, n)) - shape.mean)
        own += np.where(np.arange(arms)[:, None] < arms // 2, luck[:, :1], luck[:, 1:])
    if case in CORRELATIONS:
        luck, other = 3 * (shape.draw(rng, (2, repeats, n)) - shape.mean)
        own += luck[:, None]
        own[:, odd] += other - luck
    return own


# Rules, for many layouts at once: means of differences, and half-widths of their intervals


def half_widths(layout: Array, pairs: tuple[IndexPair, ...], rule: str) -> tuple[Array, Array]:
    """By the rule of the largest spread, plain Tukey's limit, or Holm's first step."""
    arms, n = layout.shape[-2:]
    means, own = pair_differences(layout, pairs)
    residual, freedom = residual_variance(layout)
    limit = FamilyLimit(arms, len(pairs), freedom, narrower=rule == MAX_SPREAD)
    if rule == "holm":
        return means, student_limit(ALPHA / 2 / len(pairs), n - 1) * np.sqrt(own / n)
    if rule == "tukey":
        return means, np.broadcast_to(limit.reach(ALPHA / 2) * np.sqrt(2 * residual / n)[:, None], means.shape)
    largest, least = largest_spreads(own, residual, pairs)
    return means, np.maximum(
        limit.reach(ALPHA / 2) * np.sqrt(largest / n), student_limit(ALPHA / 2, n - 1) * np.sqrt(least / n)
    )


def family_error(shape: Shape, case: str, arms: int, n: int, kind: str, rule: str = "auto") -> float:
    """How often anything is found among equal arms. Holm finds something exactly when its first step does."""
    layout = layouts(shape, case, arms, n, REPEATS)
    means, reach = half_widths(layout, pairs_of(kind, arms), settled(rule, n))
    return float((np.abs(means) > reach).any(axis=1).mean())


@cache
def _most(shapes: tuple[str, ...], cases: tuple[str, ...], counts: tuple[int, ...], kind: str, rule: str = "auto"):  # type: ignore[no-untyped-def]
    cells = {
        (shape.name, case, arms, n): family_error(shape, case, arms, n, kind, rule)
        for shape, case, arms, n in product(SHAPES, cases, ARMS, counts)
        if shape.name in shapes
    }
    where = max(cells, key=lambda key: cells[key])
    return cells[where], f"{where[0]}, {where[1]}, {where[2]} arms, {where[3]} seeds; {len(cells)} cells"


def _errors() -> Iterator[Figure]:
    everything = tuple(shape.name for shape in SHAPES)
    early, late = tuple(n for n in COUNTS if n < 5), tuple(n for n in COUNTS if n >= 5)
    goal = at_most(6 + slack(0.06, REPEATS))
    for kind in KINDS:
        for cases, shapes, named in (
            ((EQUAL,), everything, "equal arms, all shapes"),
            (CORRELATIONS, everything, "unequal correlation, all shapes"),
            (SPREADS, HOLDS, "unequal spread, normal and heavy tails"),
        ):
            for counts, seeds in ((late, "from 5 seeds on"), (early, "3 and 4 seeds, no caution needed")):
                most, where = _most(shapes, cases, counts, kind)
                yield percent(f"family-wise error, {kind}, {named}, {seeds}: most", most, REPEATS, goal, where)
        most, where = _most(("normal",), (TWO_GROUPS,), COUNTS, kind)
        yield percent(f"family-wise error, {kind}, {TWO_GROUPS}, normal: most", most, REPEATS, None, where)
        for rule in ("tukey", "holm"):
            most, where = _most(("normal",), (NOISY, NOISY_CONTROL, *CORRELATIONS), COUNTS, kind, rule)
            yield percent(f"the same by {rule}, {kind}, unequal arms, normal: most", most, REPEATS, note=where)


def _beside_one_pair() -> Iterator[Figure]:
    """Where one arm is far noisier and its noise is skewed or in two peaks, one pair by itself errs as often."""
    for shape in (each for each in SHAPES if each.name not in HOLDS):
        for n in (3, 5, 8, 15):
            cells = [
                (family_error(shape, case, arms, n, kind), _one_pair(shape, case, arms, n))
                for case, arms, kind in product(SPREADS, (4, 6), KINDS)
            ]
            family, alone = max(each[0] for each in cells), max(each[1] for each in cells)
            note = f"the noisy pair by itself, paired t: {100 * alone:.1f} %"
            goal = at_most(100 * alone + 2 + slack(alone, REPEATS))
            yield percent(f"family-wise error, unequal spread, {shape.name}, n = {n}", family, REPEATS, goal, note)


def _one_pair(shape: Shape, case: str, arms: int, n: int) -> float:
    layout = layouts(shape, case, arms, n, REPEATS)
    means, own = pair_differences(layout, [(0, arms - 1)])
    return float((np.abs(means) > student_limit(ALPHA / 2, n - 1) * np.sqrt(own / n)).mean())


# Power


def powers(kind: str, arms: int, n: int, distance: float = 1.5) -> dict[str, float]:
    """How often one arm that is better by so many standard deviations of a difference is seen, by each rule."""
    layout = layouts(SHAPES[0], EQUAL, arms, n, DEEP, 1)
    layout[:, 1] += distance * math.sqrt(2)
    pairs = pairs_of(kind, arms)
    place = pairs.index((0, 1))
    found = {}
    for rule in ("auto", "tukey"):
        means, reach = half_widths(layout, pairs, settled(rule, n))
        found[rule] = float((np.abs(means) > reach)[:, place].mean())
    means, own = pair_differences(layout, pairs)
    p = 2 * special.stdtr(n - 1, -np.abs(means) / np.sqrt(own / n))
    found["holm"] = float(holm_rejects(p)[:, place].mean())
    if settled("auto", n) == "holm":
        found["auto"] = found["holm"]
    return found


def holm_rejects(p: Array) -> Array:
    """Which of (…, pairs) survive all steps."""
    order = np.argsort(p, axis=-1)
    ordered = np.take_along_axis(p, order, -1)
    steps = np.logical_and.accumulate(ordered * (p.shape[-1] - np.arange(p.shape[-1])) <= ALPHA, axis=-1)
    rejected = np.empty_like(steps)
    np.put_along_axis(rejected, order, steps, -1)
    return rejected


def _powers() -> Iterator[Figure]:
    bound = {5: 12.0, 8: 10.0}
    for kind, n, arms in product(KINDS, (3, 5, 8, 12), (4, 6)):
        found = {rule: 100 * share for rule, share in powers(kind, arms, n).items()}
        goal = at_least(found["tukey"] - bound[n]) if n in bound else None
        note = f"Tukey {found['tukey']:.1f} %, Holm {found['holm']:.1f} %"
        name = f"power for one arm at d = 1.5, {kind}, {arms} arms, n = {n}"
        yield percent(name, found["auto"] / 100, DEEP, goal, note)


# Equivalence, and what an interval covers


def _equivalence() -> Iterator[Figure]:
    """All candidates lie on the margin, in turn above and below: any that is called equivalent is an error."""
    worst: dict[str, float] = {}
    for case, arms, n, kind in product((EQUAL, *SPREADS, *CORRELATIONS), (4, 6), (3, 5, 8), KINDS):
        layout = layouts(SHAPES[0], case, arms, n, REPEATS, 2)
        pairs = pairs_of(kind, arms)
        means, own = pair_differences(layout, pairs)
        residual, freedom = residual_variance(layout)
        limit = FamilyLimit(arms, len(pairs), freedom, narrower=True)
        largest, least = largest_spreads(own, residual, pairs)
        reach = np.maximum(
            limit.bonferroni(ALPHA) * np.sqrt(largest / n),
            student_limit(shared_tail(ALPHA, len(pairs)), n - 1) * np.sqrt(least / n),
        )
        sides = np.where(np.arange(len(pairs)) % 2, 1.0, -1.0)
        wrong = (sides * means < 0) & (np.abs(means) > reach)
        worst[f"{case}, {kind}, {arms} arms, n = {n}"] = float(wrong.any(axis=1).mean())
    where = max(worst, key=lambda key: worst[key])
    goal = at_most(6 + slack(0.06, REPEATS))
    yield percent("false equivalence at the margin, any of a family: most", worst[where], REPEATS, goal, where)


def _coverage() -> Iterator[Figure]:
    """Intervals of the largest spread hold for all pairs at once; those of Holm's steps agree with its verdicts."""
    for arms in (4, 6):
        layout = layouts(SHAPES[0], EQUAL, arms, 5, DEEP, 3)
        means, reach = half_widths(layout, pairs_of("all pairs", arms), MAX_SPREAD)
        covered = float((np.abs(means) <= reach).all(axis=1).mean())
        name = f"all intervals of a family cover, {arms} arms, n = 5"
        yield percent(name, covered, DEEP, at_least(95 - slack(0.95, DEEP)))


# What a family can see, as it is printed


def _outlooks() -> Iterator[Figure]:
    for kind, arms, n in product(KINDS, (4, 6), (3, 5, 8, 15)):
        yield _detectable(kind, arms, n)
    for kind, arms, n, distance in (("control", 4, 5, 1.2), ("all pairs", 6, 5, 1.2), ("control", 4, 5, 0.7)):
        yield _seeds(kind, arms, n, distance)


def _plan(kind: str, arms: int) -> FamilyPlan:
    return FamilyPlan("auto", arms, pairs_of(kind, arms), ALPHA, POWER)


def _detectable(kind: str, arms: int, n: int) -> Figure:
    """Each simulated study prints its detectable difference; another one like it has exactly that true difference."""
    pairs, rule = pairs_of(kind, arms), settled("auto", n)
    _, shown = half_widths(layouts(SHAPES[0], EQUAL, arms, n, DEEP, 4), pairs, rule)
    means, reach = half_widths(layouts(SHAPES[0], EQUAL, arms, n, DEEP, 5), pairs, rule)
    factor = _plan(kind, arms).detectable(1.0, n) or math.nan
    seen = float((np.abs(means[:, 0] + factor * shown[:, 0]) > reach[:, 0]).mean())
    name = f"power at the detectable difference that was printed, {kind}, {arms} arms, n = {n}"
    return percent(name, seen, DEEP, within(100 * POWER, 5), f"median printed: {factor * np.median(shown[:, 0]):.3g}")


def _seeds(kind: str, arms: int, n: int, distance: float) -> Figure:
    """Each simulated pilot says how many seeds a difference needs; as many are drawn, and the difference is there."""
    pairs, plan = pairs_of(kind, arms), _plan(kind, arms)
    effect = distance * math.sqrt(2)
    _, shown = half_widths(layouts(SHAPES[0], EQUAL, arms, n, 300, 6), pairs, settled("auto", n))
    asked = [plan.seeds_for(effect, float(half), n) or 0 for half in shown[:, 0]]
    seen = {count: _seen_with(count, pairs, arms, effect) for count in set(asked)}
    share = float(np.mean([seen[count] for count in asked]))
    name = f"power with the seeds that were asked for, {kind}, {arms} arms, pilot of {n}, d = {distance:g}"
    note = f"seeds asked for: median {np.median(asked):g}, {min(asked)} to {max(asked)}"
    return Figure(name, 100 * share, "%", samples=len(asked), goal=within(100 * POWER, 5), note=note)


def _seen_with(n: int, pairs: tuple[IndexPair, ...], arms: int, effect: float) -> float:
    layout = layouts(SHAPES[0], EQUAL, arms, n, 1_000, 7)
    layout[:, pairs[0][1]] += effect
    means, reach = half_widths(layout, pairs, settled("auto", n))
    return float((np.abs(means) > reach)[:, 0].mean())


def _losses() -> Iterator[Figure]:
    """What one arm loses must not remove seeds from the others."""
    rng = np.random.default_rng(8)
    arms = {name: rng.normal(size=8) for name in "abcd"}
    arms["d"][:4] = np.nan
    found = {each.candidate: each.effect.n for each in compare_family(arms, "a", ComparisonConfig(True), "auto")}
    yield Figure("pairs of b, where d lost 4 of 8", found["b"], "", goal=at_least(8))
    late = {name: rng.normal(size=ENOUGH_FOR_HOLM) for name in "abc"}
    rules = {each.adjustment for each in compare_family(late, "a", ComparisonConfig(True), "auto")}
    yield Figure("families of 12 seeds that Holm judges", float(rules == {"holm"}), "", goal=at_least(1))
