"""Grids of option values: ranges with exact end points, lists, logarithmic ranges, and their combinations.

Values of a range are computed by index, not by repeated addition: 0 to 1 by 0.1 has eleven values, and the last is
exactly 1.0.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.core.registry import LoadedRecipe
from fairtrial.plan.cells import name_of, resolve

MOST_VALUES = 10_000
HALVINGS = 10
"""How often a step past the end of a grid is halved before the end counts as the limit of valid values."""
FORMS = "1:8:0.5 (start, end, step), 1,2,4 (a list) or log:1e-4:1e-1:7 (start, end, count)"


@dataclass(frozen=True)
class GridAxis:
    """One option and the values that it takes. `span` records the range that the user requested, for reports."""

    name: str
    values: tuple[Any, ...]
    span: Mapping[str, float | int] | None = None
    log: bool = False


def span(name: str, start: float, end: float, step: float) -> GridAxis:
    """Return an axis from start to end by step, both ends included."""
    problems = [
        f"{name}: {word} must be a finite number, not {value}"
        for word, value in (("start", start), ("end", end), ("step", step))
        if not math.isfinite(value)
    ]
    if not problems and step <= 0:
        problems.append(f"{name}: step must be above 0, not {step:g}")
    if not problems and end < start:
        problems.append(f"{name}: the range is reversed, from {start:g} to {end:g}")
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:], hint="Example: --start 1 --end 8 --step 0.5.")
    _limit(name, (end - start) / step + 1, "Use a larger step.")
    first, last, by = (Decimal(repr(float(value))) for value in (start, end, step))
    count, rest = divmod(last - first, by)
    if rest:
        near = [repr(float(first + by * n)) for n in (count, count + 1)]
        raise InvalidOptions(
            f"{name}: steps of {step:g} from {start:g} do not reach {end:g}", hint=f"End at {near[0]} or {near[1]}."
        )
    values = tuple(float(first + by * n) for n in range(int(count) + 1))
    return GridAxis(name, values, {"start": values[0], "end": values[-1], "step": float(step)})


def log_span(name: str, start: float, end: float, count: int) -> GridAxis:
    """Return an axis of `count` values from start to end, with a constant ratio between neighbors."""
    if not (0 < start < end < math.inf) or count < 2:
        raise InvalidOptions(
            f"{name}: a logarithmic range needs a positive start, a larger end and at least 2 values, "
            f"not {start:g} to {end:g} with {count}"
        )
    _limit(name, count, "Use fewer values.")
    inner = [math.exp(math.log(start) + (math.log(end) - math.log(start)) * n / (count - 1)) for n in range(count)]
    values = (float(start), *(float(f"{value:.6g}") for value in inner[1:-1]), float(end))
    if len(set(values)) < count:  # six digits do not distinguish the values of a very narrow range
        values = (float(start), *inner[1:-1], float(end))
    return GridAxis(name, values, {"start": values[0], "end": values[-1], "count": count}, log=True)


def _limit(name: str, count: float, hint: str) -> None:
    if count > MOST_VALUES:
        raise InvalidOptions(f"{name}: {count:,.0f} values are more than {MOST_VALUES:,}", hint=hint)


def parse_axis(text: str) -> GridAxis:
    """Parse `temperature=1:8:0.5`, `alpha=0.1,0.5` or `lr=log:1e-4:1e-1:7`."""
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not (equals and name and values.strip()):
        raise InvalidOptions(f"'{text}' is not of the form NAME=VALUES", hint=f"VALUES is {FORMS}.")
    parts = [part.strip() for part in values.split(":")]
    try:
        if parts[0] == "log" and len(parts) == 4:
            return log_span(name, float(parts[1]), float(parts[2]), int(parts[3]))
        if len(parts) == 3:
            return span(name, *(float(part) for part in parts))
    except ValueError:
        raise InvalidOptions(f"{name}: '{values}' has a value that is not a number", hint=f"Use {FORMS}.") from None
    if len(parts) > 1:
        raise InvalidOptions(f"{name}: '{values}' is not a valid range", hint=f"Use {FORMS}.")
    return GridAxis(name, tuple(part.strip() for part in values.split(",")))


@dataclass(frozen=True)
class GridPoint:
    """One setting of a sweep: the option values as the recipe parsed them, and the name of the variant."""

    variant: str
    values: Mapping[str, Any]


def lay_out(
    recipe: LoadedRecipe, fixed: Mapping[str, Any], axes: Sequence[GridAxis], *, zipped: bool
) -> list[GridPoint]:
    """Return every setting of a sweep, validated: all combinations of the axes, or with `zipped` values in parallel."""
    _check_axes(recipe, fixed, axes, zipped=zipped)
    rows = zip(*(axis.values for axis in axes), strict=True) if zipped else itertools.product(*(a.values for a in axes))
    points, problems = [], []
    for row in rows:
        given = {axis.name: value for axis, value in zip(axes, row, strict=True)}
        try:
            points.append(_point(recipe, fixed, given))
        except InvalidOptions as error:
            problems += [error.message, *error.problems]
    if problems:
        first, *rest = dict.fromkeys(problems)
        raise InvalidOptions(first, problems=rest)
    names = [point.variant for point in points]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InvalidOptions(f"the setting {twice} occurs twice")
    return points


def _check_axes(recipe: LoadedRecipe, fixed: Mapping[str, Any], axes: Sequence[GridAxis], *, zipped: bool) -> None:
    names = [axis.name for axis in axes]
    known = recipe.options.model_fields
    strange = [] if recipe.options.free_values else [name for name in names if name not in known]
    problems = [unknown("option", name, known) for name in dict.fromkeys(strange)]
    problems += [f"{name} is swept twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    problems += [f"{name} is both swept and fixed" for name in names if name in fixed]
    if not axes:
        problems.append("nothing to sweep")
    lengths = {axis.name: len(axis.values) for axis in axes}
    if zipped and len(set(lengths.values())) > 1:
        message = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        problems.append(f"--zip needs the same number of values for every option: {message}")
    if problems:
        raise InvalidOptions(problems[0], problems=problems[1:], hint=f"Example: --param temperature={FORMS}.")
    if not zipped:
        _limit("all combinations", math.prod(lengths.values()), "Use fewer values, or --zip.")


def _point(recipe: LoadedRecipe, fixed: Mapping[str, Any], given: Mapping[str, Any]) -> GridPoint:
    where = ", ".join(f"{name}={value}" for name, value in given.items())
    options = resolve(recipe, {**fixed, **given}, where=where)
    known = options.to_dict()  # values as the recipe parsed them: the text `4` of a float option is 4.0
    values = {name: known.get(name, value) for name, value in given.items()}
    return GridPoint(name_of(values), values)


def defaults_of(recipe: LoadedRecipe, names: Sequence[str]) -> dict[str, Any]:
    known = recipe.options.model_construct().model_dump(mode="json")
    return {name: known.get(name) for name in names}


def beyond(recipe: LoadedRecipe, fixed: Mapping[str, Any], point: GridPoint, axis: GridAxis) -> bool:
    """Return whether the point is at an end of the axis and valid values exist beyond that end.

    A value beyond the end is tried at one whole step, a half, a quarter … of it; for an integer also the next one.
    If no such value is valid, the end is the limit of the option, and a best value there is not a reason to widen the
    range.
    """
    tried = sorted(number for value in axis.values if (number := _number(value)) is not None)
    here = _number(point.values[axis.name])
    if len(tried) < len(axis.values) or len(tried) < 2 or here not in (tried[0], tried[-1]):
        return False
    neighbour = tried[1] if here == tried[0] else tried[-2]
    return any(
        _is_valid(recipe, {**fixed, **point.values, axis.name: further})
        for further in _further(here, neighbour, axis.log, whole=isinstance(point.values[axis.name], int))
    )


def _further(here: float, neighbour: float, log: bool, *, whole: bool) -> list[float]:
    """Return values past the end of a grid, from one whole step down to about a thousandth of a step."""
    parts = [0.5**halvings for halvings in range(HALVINGS + 1)]
    if log and neighbour > 0 and here > 0:
        candidates = [here * (here / neighbour) ** part for part in parts]
    else:
        candidates = [here + (here - neighbour) * part for part in parts]
    if not whole:
        return [value for value in candidates if value != here]
    numbers = [round(value) for value in candidates] + [round(here) + (1 if here > neighbour else -1)]
    return [number for number in dict.fromkeys(numbers) if number != here]


def _is_valid(recipe: LoadedRecipe, values: Mapping[str, Any]) -> bool:
    try:
        resolve(recipe, values, where="")
    except InvalidOptions:
        return False
    return True


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
