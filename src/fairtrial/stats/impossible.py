"""Find published values that no runs can produce, by checking means and spreads for arithmetic consistency.

A mean of n runs of K items each is a multiple of 1/(K·n); n values in a range have a maximum standard deviation; a mean
lies inside its own interval. Each check is a necessary condition in exact arithmetic and allows for rounding, so
numbers that were computed from real runs and rounded correctly always pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from scipy import special

from fairtrial.core.formatting import shown_percent
from fairtrial.core.printed import Printed, PrintedArm, SummaryOptions
from fairtrial.stats.published import half_width_of, sd_from
from fairtrial.stats.samples import DUST
from fairtrial.stats.student import t_quantile

IMPOSSIBLE, DOUBTFUL = "impossible", "doubtful"
ROUND_OFF = Fraction(1, 10**12)
"""The relative error allowed for a mean that was computed in floating point and printed with all its digits."""
MOST_SUMS = 2_000
"""The maximum number of item sums to try for a printed mean; with more, practically every spread is possible."""


@dataclass(frozen=True)
class Finding:
    """A problem with one printed value, and the arithmetic that shows it."""

    kind: str
    severity: str
    arm: str
    place: str
    sentence: str

    def to_dict(self) -> dict[str, str]:
        return dict(vars(self))


def find_impossible(arms: Sequence[PrintedArm], options: SummaryOptions) -> list[Finding]:
    """Return every impossible or doubtful value of a table, in row order."""
    findings = []
    for arm in arms:
        checks = (_outside_range, _items_of_mean, _spread_of_range, _spread_of_items, _interval, _two_spreads, _still)
        for check in checks:
            findings += [
                Finding(kind, severity, arm.name, arm.place, f"{arm.name}: {message}")
                for kind, severity, message in check(arm, options)
            ]
    return findings


FindingFields = Iterator[tuple[str, str, str]]
"""Kind, severity, sentence."""


def bounds_of(options: SummaryOptions) -> tuple[Fraction, Fraction] | None:
    """Return the range of the metric. With a number of items the default is 0 to 1; otherwise it is None (unknown)."""
    if options.bounds is not None:
        return _exact(options.bounds[0]), _exact(options.bounds[1])
    return (Fraction(0), Fraction(1)) if options.items is not None else None


def means_checked(arms: Sequence[PrintedArm], options: SummaryOptions) -> int:
    """Count the means that are printed with enough digits for the items check to exclude any value."""
    bounds = bounds_of(options)
    if options.items is None or bounds is None:
        return 0
    return sum(arm.mean.unit < _step(arm, bounds, options.items) for arm in arms)


def _exact(value: float) -> Fraction:
    return Fraction(repr(value))


def _step(arm: PrintedArm, bounds: tuple[Fraction, Fraction], items: int) -> Fraction:
    return (bounds[1] - bounds[0]) / (items * arm.n)


def _reach(printed: Printed, scale: Fraction) -> tuple[Fraction, Fraction]:
    """Return the interval of true values for a printed number, allowing for rounding and floating-point error."""
    slack = ROUND_OFF * max(abs(printed.exact), scale)
    return printed.low - slack, printed.high + slack


def _shown(value: Fraction | float, like: Printed) -> str:
    """Format a computed value with two more digits than the printed one has."""
    number, decimals = float(value), max(0, -round(math.log10(like.unit)))
    return f"{number:,.{min(decimals + 2, 12)}f}" if abs(number) < 1e9 else f"{number:.4g}"


# Means


def _outside_range(arm: PrintedArm, options: SummaryOptions) -> FindingFields:
    bounds = bounds_of(options)
    if bounds is None:
        return
    low, high = _reach(arm.mean, bounds[1] - bounds[0])
    if high < bounds[0] or low > bounds[1]:
        percent = options.bounds is None and 1 < arm.mean.value <= 100
        hint = "; for percentages, pass --range 0:100" if percent else ""
        message = f"the mean {arm.mean} lies outside of the range {float(bounds[0]):g} to {float(bounds[1]):g}{hint}."
        yield "mean outside its range", IMPOSSIBLE, message


def _sums(arm: PrintedArm, options: SummaryOptions) -> tuple[int, int] | None:
    """Return the smallest and largest item sum that the mean allows; it allows none if the first exceeds the second."""
    bounds = bounds_of(options)
    if options.items is None or bounds is None:
        return None
    low, high = _reach(arm.mean, bounds[1] - bounds[0])
    step = _step(arm, bounds, options.items)
    first, last = math.ceil((low - bounds[0]) / step), math.floor((high - bounds[0]) / step)
    return max(0, first), min(options.items * arm.n, last)


def _items_of_mean(arm: PrintedArm, options: SummaryOptions) -> FindingFields:
    """GRIM test: a mean of whole items is a multiple of one item's share."""
    sums, bounds = _sums(arm, options), bounds_of(options)
    if sums is None or bounds is None or options.items is None or sums[0] <= sums[1]:
        return
    step = _step(arm, bounds, options.items)
    below = math.floor((arm.mean.exact - bounds[0]) / step)
    if not 0 <= below < options.items * arm.n:
        return  # outside of the range, which is already reported
    near = [_shown(bounds[0] + step * (below + more), arm.mean) for more in (0, 1)]
    message = (
        f"the mean {arm.mean} cannot be a mean of {arm.n} runs of {options.items:,} items: such means are multiples of "
        f"{float(step):.4g}, and the nearest are {near[0]} and {near[1]}."
    )
    yield "mean of whole items", IMPOSSIBLE, message


# Spreads


def _spread_of_range(arm: PrintedArm, options: SummaryOptions) -> FindingFields:
    """Check the spread against the maximum standard deviation, which values at the ends of the range have."""
    bounds = bounds_of(options)
    if bounds is None:
        return
    most = largest_sd(arm.mean, arm.n, bounds)
    least = _least_sd(arm, options.level)
    if most is None or least <= most * (1 + 1e-9):
        return
    limit = f"{arm.n} values from {float(bounds[0]):g} to {float(bounds[1]):g} with the mean {arm.mean} have"
    if arm.sd is not None:
        message = f"the standard deviation {arm.sd} is too large: {limit} at most {_shown(most, arm.sd)}."
        yield "spread too large for its range", IMPOSSIBLE, message
    elif arm.se is not None:
        sd = _shown(sd_from(arm, options.level), arm.se)
        message = (
            f"the standard error {arm.se} times √{arm.n} is a standard deviation of {sd}; {limit} at most "
            f"{_shown(most, arm.se)}, so the column may contain standard deviations."
        )
        yield "standard error that looks like a standard deviation", DOUBTFUL, message
    else:
        message = (
            f"the interval of half-width {half_width_of(arm):.4g} needs a standard deviation of "
            f"{sd_from(arm, options.level):.4g}; {limit} at most {float(most):.4g}, so it is not a "
            f"{shown_percent(options.level)} t interval of the mean."
        )
        yield "interval too wide for its range", DOUBTFUL, message


def largest_sd(mean: Printed, n: int, bounds: tuple[Fraction, Fraction]) -> float | None:
    """Return the largest sd of n values in a range whose mean rounds to the printed one; None if it is out of range.

    The sum of squares is largest if all values but one are at the ends of the range. Between two whole sums it is
    convex, so only the ends of the mean's rounding interval and the sum nearest the middle need to be checked.
    """
    low, width = bounds[0], bounds[1] - bounds[0]
    reach = _reach(mean, width)
    first, last = (min(max((end - low) / width * n, Fraction(0)), Fraction(n)) for end in reach)
    if reach[1] < bounds[0] or reach[0] > bounds[1]:
        return None
    sums = [first, last]
    whole = [math.ceil(first), math.floor(last)]
    if whole[0] <= whole[1]:
        sums += [Fraction(min(max(middle, whole[0]), whole[1])) for middle in (n // 2, (n + 1) // 2)]
    squares = max(math.floor(total) + (total - math.floor(total)) ** 2 - total**2 / n for total in sums)
    return math.sqrt(squares / (n - 1)) * float(width)


def _least_sd(arm: PrintedArm, level: float) -> float:
    """Return the smallest standard deviation that is consistent with the printed spread."""
    if arm.sd is not None:
        return float(max(arm.sd.low, Fraction(0)))
    if arm.se is not None:
        return float(max(arm.se.low, Fraction(0))) * math.sqrt(arm.n)
    half = half_width_of(arm)
    if arm.limits is not None:
        half -= float(arm.limits[0].unit + arm.limits[1].unit) / 4
    elif arm.half_width is not None:
        half -= float(arm.half_width.unit) / 2
    return max(0.0, half) * math.sqrt(arm.n) / t_quantile(1 - (1 - level) / 2, arm.n - 1)


def _spread_of_items(arm: PrintedArm, options: SummaryOptions) -> FindingFields:
    """GRIMMER test: a sum of squares of whole numbers is a whole number of the same parity as their sum."""
    sums, bounds = _sums(arm, options), bounds_of(options)
    if arm.sd is None or options.items is None or sums is None or bounds is None:
        return
    if not 0 <= sums[1] - sums[0] <= MOST_SUMS:
        return
    unit = (bounds[1] - bounds[0]) / options.items
    low, high = (max(Fraction(0), end / unit) for end in _reach(arm.sd, bounds[1] - bounds[0]))
    totals = [(total, *_squares_between(total, arm.n, options.items)) for total in range(sums[0], sums[1] + 1)]
    if _holds_square(totals, arm.n, low, high, arm.n - 1):
        return
    largest = largest_sd(arm.mean, arm.n, bounds)
    if largest is not None and float(arm.sd.low) > largest * (1 + 1e-9):
        return  # too large for its range, which is already reported
    if _holds_square(totals, arm.n, low, high, arm.n):
        right = _shown(arm.sd.exact * Fraction(math.sqrt(arm.n / (arm.n - 1))), arm.sd)
        message = (
            f"the standard deviation {arm.sd} is possible only if squares were divided by n = {arm.n}, as numpy.std "
            f"does; divided by n − 1 it is about {right}."
        )
        yield "standard deviation divided by n", DOUBTFUL, message
        return
    near = [
        _shown(Fraction(math.sqrt(each / (arm.n - 1))) * unit, arm.sd)
        for each in _nearest_squares(totals, arm.n, arm.sd.exact / unit)
    ]
    which = f"the nearest possible: {' and '.join(near)}" if near else "no value is possible"
    message = (
        f"the standard deviation {arm.sd} is impossible for {arm.n} runs of {options.items:,} items with the mean "
        f"{arm.mean}; {which}."
    )
    yield "standard deviation of whole items", IMPOSSIBLE, message


Total = tuple[int, int, int]
"""A sum of whole numbers, and the smallest and largest possible sum of their squares."""


def _squares_between(total: int, n: int, most: int) -> tuple[int, int]:
    """Return the smallest and largest sum of squares of n whole numbers from 0 to `most` with this sum.

    It is smallest if the numbers are as equal as possible, and largest if they are at the ends.
    """
    each, left = divmod(total, n)
    full, rest = divmod(total, most)
    return n * each**2 + 2 * each * left + left, full * most**2 + rest**2


def _holds_square(totals: Sequence[Total], n: int, low: Fraction, high: Fraction, divisor: int) -> bool:
    """Return whether some sum of squares gives a standard deviation between `low` and `high`."""
    for total, least, most in totals:
        middle = Fraction(total**2, n)
        first = max(least, math.ceil(divisor * low**2 + middle))
        first += (first - total) % 2
        if first <= min(most, math.floor(divisor * high**2 + middle)):
            return True
    return False


def _nearest_squares(totals: Sequence[Total], n: int, sd: Fraction) -> list[Fraction]:
    """Return the nearest possible sums of squared deviations below and above that of the printed spread."""
    wanted = (n - 1) * sd**2
    below: list[Fraction] = []
    above: list[Fraction] = []
    for total, least, most in totals:
        middle = Fraction(total**2, n)
        under = min(most, math.floor(wanted + middle))
        under -= (under - total) % 2
        over = max(least, math.ceil(wanted + middle))
        over += (over - total) % 2
        below += [under - middle] if under >= least else []
        above += [over - middle] if over <= most else []
    return [*([max(below)] if below else []), *([min(above)] if above else [])]


def _still(arm: PrintedArm, options: SummaryOptions) -> FindingFields:
    if sd_from(arm, options.level) <= DUST * abs(arm.mean.value):
        yield (
            "no spread",
            DOUBTFUL,
            (f"its spread is 0 over {arm.n} runs: the runs did not vary, or by less than the printed precision."),
        )


# Intervals and second measures of spread


def _interval(arm: PrintedArm, options: SummaryOptions) -> FindingFields:  # noqa: ARG001
    if arm.limits is None:
        return
    low, high = arm.limits
    mean = _reach(arm.mean, Fraction(0))
    if mean[1] < low.low or mean[0] > high.high:
        yield "mean outside its interval", IMPOSSIBLE, f"the mean {arm.mean} is not inside [{low}, {high}]."
        return
    middle = (low.exact + high.exact) / 2
    slack = (low.unit + high.unit) / 4 + arm.mean.unit / 2 + ROUND_OFF * max(abs(arm.mean.exact), abs(middle))
    if abs(middle - arm.mean.exact) > slack:
        message = (
            f"the center of [{low}, {high}] is {_shown(middle, low)}, not the mean {arm.mean}: it is not a t interval."
        )
        yield "interval not around its mean", DOUBTFUL, message
    if arm.half_width is not None:
        half = (high.exact - low.exact) / 2
        if abs(half - arm.half_width.exact) > (low.unit + high.unit) / 4 + arm.half_width.unit / 2:
            message = f"[{low}, {high}] has a half-width of {_shown(half, low)}, not the printed {arm.half_width}."
            yield "two half-widths", IMPOSSIBLE, message


def _two_spreads(arm: PrintedArm, options: SummaryOptions) -> FindingFields:
    """Check that a standard deviation and another measure of spread in the same row agree."""
    if arm.sd is None or arm.sd.value == 0:
        return
    root = math.sqrt(arm.n)
    if arm.se is not None:
        reading = _reading(arm.sd, arm.se.value, float(arm.se.unit) / 2, {"it": 1 / root})
        if reading is None:
            message = (
                f"the standard deviation {arm.sd} divided by √{arm.n} is {_shown(arm.sd.value / root, arm.se)}, but "
                f"the standard error is {arm.se}."
            )
            yield "standard error does not fit", DOUBTFUL, message
    if arm.limits is None and arm.half_width is None:
        return
    quantile = 1 - (1 - options.level) / 2
    ways = {
        "t": t_quantile(quantile, arm.n - 1) / root,
        "normal": float(special.ndtri(quantile)) / root,
        "mean ± sd": 1.0,
        "mean ± se": 1 / root,
    }
    unit = arm.half_width.unit / 2 if arm.half_width is not None else sum(each.unit for each in arm.limits or ()) / 4
    reading = _reading(arm.sd, half_width_of(arm), float(unit), ways)
    if reading not in ("t", "normal"):
        is_what = f"it is {reading}" if reading else "it is not an interval of this mean"
        message = (
            f"with the standard deviation {arm.sd} a {shown_percent(options.level)} t interval has the half-width "
            f"{arm.sd.value * ways['t']:.4g}, but the printed one has {half_width_of(arm):.4g}: {is_what}."
        )
        yield "interval does not fit", DOUBTFUL, message


def _reading(sd: Printed, shown: float, slack: float, ways: dict[str, float]) -> str | None:
    """Return the first formula that gives the spread from the standard deviation, within the rounding of both."""
    for way, factor in ways.items():
        if abs(sd.value * factor - shown) <= float(sd.unit) / 2 * factor + slack + 1e-12 * shown:
            return way
    return None
