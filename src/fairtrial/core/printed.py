"""Printed numbers: a mean, a spread and a count per arm, with the unit of their last digit.

Numbers in a paper's table are rounded. `0.87` means any value from 0.865 to 0.875, so checks of such a table need the
last digit as well as the value. Arithmetic on printed numbers is exact (fractions), so that a check never calls a value
impossible because of its own rounding.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from fairtrial.core.cells import number_in

Spread = Literal["sd", "se", "ci"]
SPREADS: tuple[Spread, ...] = ("sd", "se", "ci")
MOST_RUNS_PER_ARM = 1_000_000
SMALLEST, LARGEST = 1e-100, 1e100
"""Limits of magnitude; squares of numbers beyond them overflow or underflow floating point."""

_PLUS_MINUS = re.compile(r"±|\+/-|\\pm")
_LONGEST_TEXT = 40


@dataclass(frozen=True)
class Printed:
    """A number and the unit of its last digit: the true value is within half a unit of it."""

    value: float
    exact: Fraction
    unit: Fraction
    text: str

    @property
    def low(self) -> Fraction:
        return self.exact - self.unit / 2

    @property
    def high(self) -> Fraction:
        return self.exact + self.unit / 2

    def __str__(self) -> str:
        return self.text


def printed_in(cell: Any) -> Printed | None:
    """Return the printed number in a cell; None if it is not a number or is outside the usable range."""
    number = number_in(cell)
    if number is None or not math.isfinite(number) or abs(number) > LARGEST or 0 < abs(number) < SMALLEST:
        return None
    text = str(cell).strip()
    # Beyond this length, the text adds no precision to the float. A JSON float has no original text.
    exact = Decimal(text if len(text) <= _LONGEST_TEXT else repr(number))
    exponent = int(exact.as_tuple().exponent)
    if number == 0:  # zero may be written with any exponent
        exact, exponent = Decimal(0), min(0, max(exponent, -_LONGEST_TEXT))
    unit = Fraction(10) ** exponent
    return Printed(number + 0.0, Fraction(exact), unit, text)


def plus_minus_in(cell: Any) -> tuple[str, str] | None:
    """Return both sides of `0.871 ± 0.012`, also written `+/-` or `\\pm`; None if the cell has another form."""
    if not isinstance(cell, str) or len(cell) > 4 * _LONGEST_TEXT:
        return None
    sides = _PLUS_MINUS.split(cell.replace("$", ""))
    return (sides[0].strip(), sides[1].strip()) if len(sides) == 2 else None


@dataclass(frozen=True)
class PrintedArm:
    """One row of a table of means. At least one of the measures of spread is set."""

    variant: str
    n: int
    mean: Printed
    sd: Printed | None = None
    se: Printed | None = None
    half_width: Printed | None = None
    limits: tuple[Printed, Printed] | None = None
    task: str | None = None
    place: str = ""

    @property
    def spread(self) -> str:
        """The measure that the standard deviation is computed from."""
        if self.sd is not None:
            return "sd"
        return "se" if self.se is not None else "interval"

    @property
    def name(self) -> str:
        return self.variant if self.task is None else f"{self.variant} on {self.task}"


@dataclass(frozen=True)
class SummaryOptions:
    """Information that a table of means does not contain, and options for its analysis.

    >>> fairtrial.SummaryOptions(n=5, plus_minus="sd").n
    5
    """

    n: int | None = None
    """Runs per arm, if the table has no column for it."""
    plus_minus: Spread | None = None
    """Meaning of the number after ±: a standard deviation, a standard error, or the half-width of an interval."""
    interval_level: float | None = None
    """Level of the intervals in the table. None: 0.95."""
    items: int | None = None
    """Number of items in the test set, each right or wrong: a run's score is a multiple of one item."""
    bounds: tuple[float, float] | None = None
    """Smallest and largest possible value of the metric."""
    claims: bool = False
    """Judge the table as a list of claims."""
    all_pairs: bool = False

    def given(self) -> list[str]:
        """Return the options that are set, as command-line flags."""
        flags = {
            "--claims": self.claims,
            "--all-pairs": self.all_pairs,
            "--n": self.n is not None,
            "--plus-minus": self.plus_minus is not None,
            "--interval-level": self.interval_level is not None,
            "--items": self.items is not None,
            "--range": self.bounds is not None,
        }
        return [flag for flag, is_given in flags.items() if is_given]

    def problems(self) -> list[str]:
        """Return the errors in these values, one message each."""
        problems = []
        if self.n is not None and not 2 <= self.n <= MOST_RUNS_PER_ARM:
            problems.append(f"n must lie between 2 and {MOST_RUNS_PER_ARM:,}, not {self.n}")
        if self.plus_minus is not None and self.plus_minus not in SPREADS:
            problems.append(f"plus_minus must be one of {', '.join(SPREADS)}, not {self.plus_minus!r}")
        if self.interval_level is not None and not 0.5 <= self.interval_level <= 0.9999:
            problems.append(f"interval_level must lie between 0.5 and 0.9999, not {self.interval_level!r}")
        if self.items is not None and not 1 <= self.items <= 10**9:
            problems.append(f"items must lie between 1 and 1,000,000,000, not {self.items}")
        if self.bounds is not None and not -LARGEST < self.bounds[0] < self.bounds[1] < LARGEST:
            problems.append(
                f"a range must go from a smaller to a larger number, not {self.bounds[0]!r}:{self.bounds[1]!r}"
            )
        return problems

    @property
    def level(self) -> float:
        return 0.95 if self.interval_level is None else self.interval_level
