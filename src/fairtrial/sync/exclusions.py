"""Options of TRAIN that BENCH leaves out on purpose, each with a reason."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.errors import InvalidOptions
from fairtrial.sync.parameters import Parameter, plain_name


@dataclass(frozen=True)
class Exclusion:
    """A pattern and a reason. `declared` means that the option of TRAIN itself declares the reason."""

    pattern: str
    reason: str
    declared: bool = False

    def covers(self, parameter: Parameter) -> bool:
        return any(fnmatch.fnmatchcase(name, plain_name(self.pattern)) for name in parameter.names)


@dataclass(frozen=True)
class Stale:
    """An exclusion that no longer applies, and why."""

    exclusion: Exclusion
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"pattern": self.exclusion.pattern, "reason": self.exclusion.reason, "why": self.why}


@dataclass(frozen=True)
class Forbidden:
    """An option of BENCH that a rule forbids."""

    parameter: Parameter
    rule: Exclusion

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.parameter.name, "pattern": self.rule.pattern, "reason": self.rule.reason}


def make_exclusions(given: Mapping[Any, Any], *, noun: str = "exclusion") -> list[Exclusion]:
    """Turn a mapping of pattern to reason into exclusions, or raise an error that lists all problems."""
    problems = [problem for pattern, reason in given.items() if (problem := _problem(noun, str(pattern), reason))]
    if problems:
        raise InvalidOptions(
            problems[0],
            problems=problems[1:],
            hint="Give the reason why the benchmark leaves the option out: 'tensorboard-*=reason'.",
        )
    return [Exclusion(str(pattern).strip(), str(reason).strip()) for pattern, reason in given.items()]


def _problem(noun: str, pattern: str, reason: Any) -> str | None:
    if not plain_name(pattern.strip()):
        return f"the {noun} '{pattern}={'' if reason is None else reason}' names no option"
    if reason is None or (isinstance(reason, str) and not reason.strip()):
        return f"the {noun} '{pattern}' has no reason"
    return None if isinstance(reason, str) else f"the reason of the {noun} '{pattern}' is not text: {reason!r}"


def declared_exclusions(train: Sequence[Parameter]) -> list[Exclusion]:
    """Return the exclusions that options of TRAIN declare themselves, in an attribute `excluded_reason`."""
    return [Exclusion(each.name, each.excluded_reason, declared=True) for each in train if each.excluded_reason]


def forbidden_options(rules: Sequence[Exclusion], bench: Sequence[Parameter]) -> list[Forbidden]:
    """Return the options of BENCH that a rule forbids, each with the first such rule."""
    matched = ((each, next((rule for rule in rules if rule.covers(each)), None)) for each in bench)
    return [Forbidden(each, rule) for each, rule in matched if rule is not None]


def stale_exclusions(
    exclusions: Sequence[Exclusion], train: Sequence[Parameter], in_both: Sequence[Parameter]
) -> list[Stale]:
    """Return the exclusions that match no option of TRAIN, or only options that BENCH now has."""
    stale_exclusions = []
    for exclusion in exclusions:
        if not any(exclusion.covers(each) for each in train):
            stale_exclusions.append(Stale(exclusion, "TRAIN has no such option"))
        taken = [each.shown for each in in_both if exclusion.covers(each)]
        if taken:
            stale_exclusions.append(Stale(exclusion, f"BENCH has {', '.join(taken)}"))
    return stale_exclusions
