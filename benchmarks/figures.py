"""What a benchmark found: figures with units, intervals, goals, and whether the goals were met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import OURS, OURS_AGAIN, Estimate, Spent, median_interval, ratio_interval

WIDTH = 130
NOISE = "noise floor, fairtrial against itself"


@dataclass(frozen=True)
class Goal:
    """A limit that a figure is held against."""

    text: str
    holds: Callable[[float], bool]


def at_most(limit: float) -> Goal:
    return Goal(f"≤ {limit:g}", lambda value: value <= limit)


def less_than(limit: float) -> Goal:
    return Goal(f"< {limit:g}", lambda value: value < limit)


def at_least(limit: float) -> Goal:
    return Goal(f"≥ {limit:g}", lambda value: value >= limit)


def within(target: float, tolerance: float) -> Goal:
    return Goal(f"{target:g} ± {tolerance:g}", lambda value: abs(value - target) <= tolerance)


def exactly(target: float) -> Goal:
    return Goal(f"= {target:g}", lambda value: value == target)


@dataclass(frozen=True)
class Figure:
    """One measured number. What could not be measured has no value, and a note that says why."""

    name: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    samples: int | None = None
    goal: Goal | None = None
    note: str | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal was reached; None where there is none. A goal that was not measured was not met."""
        if self.goal is None:
            return None
        return self.value is not None and bool(self.goal.holds(self.value))  # NumPy's truth values are not JSON

    def to_dict(self) -> dict[str, Any]:
        return {
            "value": _plain(self.value),
            "unit": self.unit,
            "low": _plain(self.low),
            "high": _plain(self.high),
            "samples": None if self.samples is None else int(self.samples),
            "goal": self.goal.text if self.goal else None,
            "met": self.met,
            "note": self.note,
        }


def _plain(value: Any) -> Any:
    """A number of NumPy as Python's own."""
    return value.item() if hasattr(value, "item") else value


def estimated(name: str, estimate: Estimate, unit: str, goal: Goal | None = None, note: str | None = None) -> Figure:
    return Figure(name, estimate.median, unit, estimate.low, estimate.high, estimate.n, goal, note)


def unavailable(reasons: Mapping[str, str], unit: str) -> list[Figure]:
    """Contestants that could not take part are named, with the reason."""
    return [Figure(name, None, unit, note=f"unavailable: {reason}") for name, reason in reasons.items()]


def medians(
    results: Mapping[str, list[Spent]], which: str, scale: float, unit: str, goal: Goal | None = None
) -> list[Figure]:
    """Every contestant's median time; the goal is ours alone."""
    return [
        estimated(
            f"{name}, {which}",
            median_interval(getattr(spent, which) for spent in times).scaled(scale),
            unit,
            goal if name == OURS else None,
        )
        for name, times in results.items()
        if name != OURS_AGAIN
    ]


def ratios(results: Mapping[str, list[Spent]], which: str) -> list[Figure]:
    """How many times ours each peer took, and how far ours is from itself."""
    times = {name: [getattr(spent, which) for spent in each] for name, each in results.items()}
    ours = times.pop(OURS)
    named = {NOISE if name == OURS_AGAIN else f"{name} / fairtrial": each for name, each in times.items()}
    return [estimated(f"{name}, {which}", ratio_interval(each, ours), "×") for name, each in named.items()]


def missed(figures: Iterable[Figure]) -> list[str]:
    return [figure.name for figure in figures if figure.met is False]


def show(title: str, figures: Iterable[Figure]) -> None:
    """Print a readable table of figures; where there is an interval, the value is the median."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=None, padding=(0, 2, 0, 0), title_justify="left")
    for heading, justify in (("figure", "left"), ("value", "right"), ("95 % interval", "right"), ("n", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for heading in ("unit", "goal", ""):
        table.add_column(heading)
    for figure in figures:
        table.add_row(*(Text(cell) for cell in _row(figure)))  # notes may hold what looks like markup
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(table, "")


def _row(figure: Figure) -> list[str]:
    interval = "" if figure.low is None or figure.high is None else f"{_number(figure.low)} … {_number(figure.high)}"
    verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
    return [
        figure.name,
        "" if figure.value is None else _number(figure.value),
        interval,
        str(figure.samples or ""),
        figure.unit,
        figure.goal.text if figure.goal else "",
        " ".join(filter(None, [verdict, figure.note])),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
