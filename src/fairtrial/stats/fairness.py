"""Find every recorded way in which two arms differ in addition to the change under test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.cautions import MIXED_COMMITS, OTHER_PROCESSOR, OTHER_SIZE, UNDECLARED
from fairtrial.core.findings import FilledCaution

Facts = Sequence[Mapping[str, Any]]
SIZE_LIMIT = 0.1
BUDGET = ("steps", "batch_size", "epochs")
"""Options that determine how much training a run gets, whatever their role."""


@dataclass(frozen=True)
class OptionDifference:
    """An option whose values differ between the arms. `declared`: a variant of the study sets it."""

    option: str
    role: str | None
    control: Any
    candidate: Any
    declared: bool


@dataclass(frozen=True)
class Fairness:
    """The options in which the arms differ, and the sizes of the models. None: not recorded."""

    options: tuple[OptionDifference, ...]
    sizes: Mapping[str, tuple[float | None, float | None]]
    cautions: tuple[FilledCaution, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "options": [vars(difference) for difference in self.options],
            "sizes": {name: list(pair) for name, pair in self.sizes.items()},
        }


def judge_fairness(
    control: Facts,
    candidate: Facts,
    *,
    names: tuple[str, str],
    declared: Iterable[str] | None,
    roles: Mapping[str, str],
) -> Fairness:
    """Compare the recorded facts of both arms. `declared` is None if no study declares the change under test.

    Without a declaration, differences in model and training options are assumed to be the change under test.
    Differences in data, evaluation or the amount of training are not, because they make the comparison unfair.
    """
    options = tuple(_options(control, candidate, declared, roles))
    cautions: list[FilledCaution] = []
    hidden = [d for d in options if not d.declared]
    if hidden:
        message = "; ".join(f"{d.option} {_shown(d.control)} vs. {_shown(d.candidate)}" for d in hidden)
        cautions.append(UNDECLARED.fill(what=", ".join(_kinds(hidden)), values=message))
    on_trial = {d.role for d in options if d.declared}
    for what, key in (("recipe", "recipe"), ("data", "data"), ("commit", "commit"), ("uncommitted changes", "changes")):
        if what == "data" and "data" in on_trial:
            continue
        cautions += _undeclared(what, _values(control, key), _values(candidate, key))
    cautions += _undeclared("library versions", *_parts(control, candidate, "versions"))
    cautions += _undeclared("environment", *_parts(control, candidate, "machine", but=("cpu",)))
    cautions += _processors(control, candidate, names)
    sizes = {name: (_one(control, name), _one(candidate, name)) for name in ("parameters", "flops_per_step")}
    for name, pair in sizes.items():
        cautions += _size(name, pair, names)
    return Fairness(options, sizes, tuple(cautions))


def _options(
    control: Facts, candidate: Facts, declared: Iterable[str] | None, roles: Mapping[str, str]
) -> Iterable[OptionDifference]:
    sides = [[run.get("options") or {} for run in facts] for facts in (control, candidate)]
    wanted = None if declared is None else set(declared)
    names = dict.fromkeys(name for side in sides for options in side for name in options)
    for name in names:
        values = [_distinct(options.get(name) for options in side) for side in sides]
        if values[0] != values[1]:
            role = roles.get(name)
            known = name in wanted if wanted is not None else role in ("training", "model") and name not in BUDGET
            yield OptionDifference(name, role, _flat(values[0]), _flat(values[1]), known)


def _kinds(hidden: Sequence[OptionDifference]) -> list[str]:
    kinds = ("training budget" if d.option in BUDGET else d.role or d.option for d in hidden)
    return list(dict.fromkeys(kinds))


def _undeclared(what: str, control: list[Any], candidate: list[Any]) -> list[FilledCaution]:
    known = [values for values in (control, candidate) if values]
    if control == candidate or len(known) < 2:
        return []
    return [UNDECLARED.fill(what=what, values=f"{_shown(_flat(control))} vs. {_shown(_flat(candidate))}")]


def _parts(control: Facts, candidate: Facts, key: str, but: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return only the entries of a mapping (versions, machine) that differ between the sides."""
    sides = [[run.get(key) or {} for run in facts] for facts in (control, candidate)]
    names = dict.fromkeys(name for side in sides for entry in side for name in entry if name not in but)
    parts: tuple[list[str], list[str]] = ([], [])
    for name in names:
        values = [_distinct(entry.get(name) for entry in side) for side in sides]
        if values[0] != values[1]:
            for side, value in zip(parts, values, strict=True):
                side.append(f"{name} {_shown(_flat(value))}")
    return parts


def _processors(control: Facts, candidate: Facts, names: tuple[str, str]) -> list[FilledCaution]:
    """Return a caution if the compared runs used different processors.

    Runs are compared pair by pair if the arms share seeds, else arm against arm. Values that one side did not record
    are ignored.
    """
    sides = [{run.get("seed"): run.get("processor") or {} for run in facts} for facts in (control, candidate)]
    pairs = [(sides[0][seed], sides[1][seed]) for seed in sides[0] if seed is not None and seed in sides[1]]
    where = ""
    if pairs:
        unlike = [pair for pair in pairs if _differ(*pair)]
        where = f"In {len(unlike)} of {len(pairs)} pairs " if len(unlike) < len(pairs) else ""
    else:
        kinds = [_distinct(each or None for each in side.values()) for side in sides]
        alike = kinds[0] == kinds[1]
        unlike = [] if alike else [(a, b) for a in kinds[0] for b in kinds[1] if _differ(a, b)]
    if not unlike:
        return []
    shown = [" and ".join(dict.fromkeys(_kind_of_processor(pair[side], unlike) for pair in unlike)) for side in (0, 1)]
    return [
        OTHER_PROCESSOR.fill(
            where=where, control=names[0], candidate=names[1], control_kind=shown[0], candidate_kind=shown[1]
        )
    ]


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return any(one[key] != other[key] for key in one if None not in (one[key], other.get(key)))


def _kind_of_processor(kind: Mapping[str, Any], unlike: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Describe a processor by its name and by what distinguishes it from the others."""
    details = [kind["cpu_model"]] if kind.get("cpu_model") else []
    details += [f"torch uses {kind['torch_instruction_set']}"] if kind.get("torch_instruction_set") else []
    features = [{*(each.get("cpu_features") or ())} for pair in unlike for each in pair]
    everywhere = set.intersection(*features)
    own = [name for name in kind.get("cpu_features") or () if name not in everywhere]
    details += [f"with {' '.join(own)}"] if own else []
    return f"{kind.get('cpu') or 'an unknown processor'}" + (f" ({', '.join(details)})" if details else "")


def mixed_commits(variant: str, facts: Facts) -> list[FilledCaution]:
    """Return a caution if the runs of one variant used more than one commit."""
    in_order = sorted((run for run in facts if run.get("commit")), key=lambda run: run.get("created") or 0)
    by_age = list(dict.fromkeys(run["commit"] for run in in_order))
    if len(by_age) < 2:
        return []
    commits = ", ".join(_shown(commit) for commit in by_age[:5]) + (" …" if len(by_age) > 5 else "")
    return [MIXED_COMMITS.fill(variant=variant, count=len(by_age), commits=commits, oldest=_shown(by_age[0]))]


def _size(name: str, pair: tuple[float | None, float | None], names: tuple[str, str]) -> list[FilledCaution]:
    control, candidate = pair
    if not control or candidate is None or abs(candidate / control - 1) <= SIZE_LIMIT:
        return []
    what = {"flops_per_step": "FLOPs per step"}.get(name, name)
    return [
        OTHER_SIZE.fill(control=names[0], candidate=names[1], what=what, ratio=f"{100 * candidate / control:.0f} %")
    ]


def _values(facts: Facts, key: str) -> list[Any]:
    return _distinct(run.get(key) for run in facts)


def _distinct(values: Iterable[Any]) -> list[Any]:
    distinct: list[Any] = []
    for value in values:
        if value is not None and value not in distinct:
            distinct.append(value)
    return sorted(distinct, key=str)


def _one(facts: Facts, key: str) -> float | None:
    values = _values(facts, key)
    return sum(values) / len(values) if values else None


def _flat(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values or None


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(_shown(item) for item in value)
    text = "none" if value is None else str(value)
    return text[:12] if len(text) == 40 or len(text) == 64 else text  # abbreviate commits and hashes
