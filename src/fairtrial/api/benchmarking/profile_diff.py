"""profile diff and profile check: compare two snapshots of the same work, or check conditions on one snapshot."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairtrial.api.running.recording import recorded
from fairtrial.core.cautions import APART, LOWER_QUALITY, OTHER_SURROUNDINGS, QUALITY_UNKNOWN
from fairtrial.core.conditions import ConditionResult, check
from fairtrial.core.errors import UserError
from fairtrial.core.paths import StorePaths
from fairtrial.core.results import Result
from fairtrial.core.schema import PROFILE_SCHEMA
from fairtrial.record.profiles import find_profile, profile_names, profile_snapshots, read_profile
from fairtrial.record.store import Store
from fairtrial.stats.paired_quality import QualityChange, compare_means, compare_shares
from fairtrial.stats.samples import Array
from fairtrial.stats.speed import SpeedComparison, compare_processes, compare_rounds

MARGIN = 0.05
ENOUGH = 3
PROCESS_SPREAD = 0.1
"""Assumed variation between identical processes on a shared machine: the standard deviation of log mean times."""
LEGAL = "the share of legal orders"
REWARD = "the reward"
PER_STEP = ("prompt_tokens", "completion_tokens", "decisions")


@dataclass(frozen=True, repr=False)
class ProfileDiff(Result):
    """Time per step of B divided by that of A, on the steps that both took, and the work of each step.

    >>> fairtrial.diff_profiles("first", "second").per_step  # doctest: +SKIP
    """

    names: tuple[str, str]
    compared: SpeedComparison
    steps: int
    per_step: Mapping[str, tuple[float, float]]
    settings: Mapping[str, tuple[Any, Any]]
    cautions: Sequence[Mapping[str, str]]
    tokens_per_second: Mapping[str, tuple[float, float]]
    quality: Mapping[str, QualityChange] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": PROFILE_SCHEMA, "a": self.names[0], "b": self.names[1], "steps": self.steps,
            **self.compared.to_dict(), "per_step": {name: list(pair) for name, pair in self.per_step.items()},
            "settings": {name: list(pair) for name, pair in self.settings.items()}, "cautions": list(self.cautions),
            "tokens_per_second": {name: list(pair) for name, pair in self.tokens_per_second.items()},
            "quality": self.quality and {name: each.to_dict() for name, each in self.quality.items()},
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        return [{"per_step": name, "a": a, "b": b} for name, (a, b) in self.per_step.items()]


def load_profile(word: str, store: str | os.PathLike[str] | None = None) -> tuple[Path, dict[str, Any]]:
    """Return the snapshot with this name, or in this file, and its path.

    >>> path, snapshot = fairtrial.load_profile("first")  # doctest: +SKIP
    """
    path = find_profile(Store.at(store).paths, word)
    return path, read_profile(path, PROFILE_SCHEMA)


@recorded("profile", "diff")
def diff_profiles(
    first: str, second: str, *, store: str | os.PathLike[str] | None = None, margin: float = MARGIN, level: float = 0.95
) -> ProfileDiff:
    """Compare the time that two profiles took for the same work. Steps are paired; different work raises UserError.

    If both names have at least three measurements, these are compared, so that the variation between processes is
    known. With fewer, the assumed variation PROCESS_SPREAD is added to that of the steps.

    >>> fairtrial.diff_profiles("first", "second")  # doctest: +SKIP
    """
    if not 0.5 < level < 1:
        raise UserError(f"level must lie between 0.5 and 1, not {level:g}")
    place = Store.at(store).paths
    lots = [_measurements(place, word) for word in (first, second)]
    a, b = (lot[-1] for lot in lots)
    steps = _same_work(a, b, (first, second))
    names, alpha = (first, second), round(1 - level, 12)
    if min(map(len, lots)) >= ENOUGH:
        means = [np.array([_mean(each, "ms", steps) for each in lot]) for lot in lots]
        compared = compare_processes(means[0], means[1], names, margin, alpha)
    else:
        times = [np.array([each["work"][step]["ms"] for step in range(steps)]) for each in (a, b)]
        compared = compare_rounds(times[0], times[1], names, margin, alpha, spread=PROCESS_SPREAD)
    per_step = {name: (_mean(a, name, steps), _mean(b, name, steps)) for name in PER_STEP}
    settings = _differing(a["configuration"], b["configuration"])
    rates = {
        name: (rate, b["tokens_per_second"][name])
        for name, rate in a["tokens_per_second"].items()
        if rate and b["tokens_per_second"].get(name)
    }
    quality, doubts = _quality(a, b, names, level)
    return ProfileDiff(names, compared, steps, per_step, settings, [*_cautions(a, b, lots), *doubts], rates, quality)


def _quality(
    a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str], level: float
) -> tuple[dict[str, QualityChange] | None, list[Mapping[str, str]]]:
    """Compare how well A and B play, paired by position, with a caution for each figure that is significantly lower.

    Only rollout profiles record quality; for other modes the result is None.
    """
    if a["mode"] != "rollout":
        return None, []
    ours, theirs = a.get("quality"), b.get("quality")
    if ours is None or theirs is None:
        lacking = ", ".join(name for name, figure in zip(names, (ours, theirs), strict=True) if figure is None)
        return None, [QUALITY_UNKNOWN.fill(why=f"{lacking} was measured by a version that did not record them")]
    alike = all(ours[key] == theirs[key] for key in ("positions", "decisions"))
    if not alike or len(ours["legal"]) != len(theirs["legal"]):
        return None, [QUALITY_UNKNOWN.fill(why="the two profiles used different positions")]

    def both(key: str) -> tuple[Array, Array]:
        return np.array(ours[key], dtype=float), np.array(theirs[key], dtype=float)

    quality_changes = {
        "legal_share": compare_shares(LEGAL, *both("legal"), level),
        "reward_mean": compare_means(REWARD, *both("reward"), level),
    }
    return quality_changes, [_fall(each) for each in quality_changes.values() if each.falls]


def _fall(change: QualityChange) -> dict[str, str]:
    return LOWER_QUALITY.fill(
        what=change.name, a=f"{change.a:.3g}", b=f"{change.b:.3g}", change=shown_change(change), n=change.n
    )


def shown_change(change: QualityChange) -> str:
    """Format the difference, with its interval if there are enough positions for one."""
    interval = "" if change.low is None or change.high is None else f" [{change.low:+.3g}, {change.high:+.3g}]"
    return f"{change.difference:+.3g}{interval}"


def _measurements(place: StorePaths, word: str) -> list[dict[str, Any]]:
    """Return the named snapshot, preceded by all others of that name with the same mode, configuration and seed."""
    named = read_profile(find_profile(place, word), PROFILE_SCHEMA)
    if word not in profile_names(place):
        return [named]
    profiles = [read_profile(path, PROFILE_SCHEMA) for path in profile_snapshots(place, word)]
    alike = [each for each in profiles if all(each[key] == named[key] for key in ("mode", "configuration", "seed"))]
    return [*alike[:-1], named]


def _cautions(a: Mapping[str, Any], b: Mapping[str, Any], lots: Sequence[Sequence[Any]]) -> list[Mapping[str, str]]:
    cautions = [] if min(map(len, lots)) >= ENOUGH else [APART.fill(spread=f"{100 * PROCESS_SPREAD:.0f}")]
    strange = [
        key for key in ("cpu", "python", "versions", "platform") if a["hardware"].get(key) != b["hardware"].get(key)
    ]
    if a["code"].get("git_commit") != b["code"].get("git_commit"):
        strange.append("commit")
    return [*cautions, *([OTHER_SURROUNDINGS.fill(what=", ".join(strange))] if strange else [])]


def check_profile(
    word: str, expressions: Sequence[str], store: str | os.PathLike[str] | None = None
) -> list[ConditionResult]:
    """Check each expression on a snapshot.

    >>> fairtrial.check_profile("first", ["policy_lag_steps.max<=max_policy_lag_steps"])  # doctest: +SKIP
    """
    document = load_profile(word, store)[1]
    return [check(expression, document) for expression in expressions]


def _same_work(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str]) -> int:
    """Return how many steps can be paired; raise UserError if a pair of steps had different positions."""
    if a["mode"] != b["mode"]:
        raise UserError(f"{names[0]} is a {a['mode']} profile, but {names[1]} is a {b['mode']} profile")
    pairs = list(zip(a["work"], b["work"], strict=False))
    same = [one["positions"] == other["positions"] for one, other in pairs]
    if not all(same) or not pairs:
        raise UserError(
            f"{names[0]} and {names[1]} did not do the same work: step {1 + same.index(False) if pairs else 1} differs",
            hint="Use the same game, --seed, --groups, --samples and --horizon. Rollout profiles see the same "
            "positions for all prompts; a model that is being trained reaches positions of its own.",
        )
    return len(pairs)


def _mean(document: Mapping[str, Any], name: str, steps: int) -> float:
    return float(np.mean([document["work"][step][name] for step in range(steps)]))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (a.get(name), b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name)}
