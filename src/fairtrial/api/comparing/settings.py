"""Keyword arguments of `analyze` and `compare`: fields of a question and columns of a table, not nested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypedDict

from fairtrial.api.comparing.analysis import Question
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.readers import Columns
from fairtrial.stats.summaries import SummaryRule


class AnalysisSettings(TypedDict, total=False):
    """What can be set by keyword. `variant`, `step`, `run`, `task` and `status` name columns of a table."""

    metric: str | Sequence[str]
    """The metric or metrics; the verdict is about the first one. NAME:max or NAME:min states a direction."""
    direction: str
    """`max` or `min`."""
    summary: SummaryRule | str | Mapping[str, Any]
    """A summary type such as `auc`, or its settings."""
    alpha: float
    side: str
    sesoi: float
    method: str
    resamples: int
    unpaired: bool
    family: str
    certify: bool
    tasks: bool
    statistic: str
    gamma: float
    power: bool
    ttest: bool
    since: str
    failure_value: float
    target: float
    known_sd: float
    adjust: str
    seed: str | int
    """The seed column of a table, as a string, or the random seed for resampling, as an integer."""
    variant: str
    step: str
    run: str
    task: str
    status: str


_COLUMNS = ("variant", "step", "run", "task", "status")


def settle_settings(
    settings: Mapping[str, Any], question: Question | None, columns: Columns | None
) -> tuple[Question, Columns]:
    """Return the question and the columns, with the keyword arguments filled in. Reports all unknown ones at once."""
    valid = AnalysisSettings.__annotations__
    problems = [unknown("argument", name, valid) for name in settings if name not in valid]
    if problems:
        raise UserError(problems[0], problems=problems[1:])
    asked: dict[str, Any] = {}
    named: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _COLUMNS or (name == "seed" and isinstance(value, str)):
            named[name] = value
        elif name == "metric":
            asked["metrics"] = [value] if isinstance(value, str) else list(value)
        elif name == "summary":
            asked["summary"] = _rule(value)
        else:
            asked[name] = value
    _refuse_twice(question, asked, Question())
    _refuse_twice(columns, named, Columns())
    return replace(question or Question(), **asked), replace(columns or Columns(), **named)


def _rule(given: Any) -> SummaryRule:
    if isinstance(given, SummaryRule):
        return given
    return SummaryRule(type=given) if isinstance(given, str) else SummaryRule(**given)


def _refuse_twice(given: Any, by_keyword: Mapping[str, Any], default: Any) -> None:
    """Raise if a field is set both in the object and by keyword, with different values."""
    if given is None:
        return
    both = [
        each.name
        for each in fields(given)
        if each.name in by_keyword
        and getattr(given, each.name) not in (getattr(default, each.name), by_keyword[each.name])
    ]
    if both:
        kind = type(given).__name__.lower()
        raise UserError(f"{both[0]} is given twice, by keyword and in {kind}", hint="Give it once.")
