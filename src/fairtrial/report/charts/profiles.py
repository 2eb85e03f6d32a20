"""Performance profiles: the share of runs that scores above each threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairtrial.core.errors import NothingToDraw
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart
from fairtrial.report.charts.labels import key_height, lone, name_key
from fairtrial.report.charts.places import Interval, domain_of, finite, known, thinned
from fairtrial.report.charts.style import HEIGHT, PERCENT, ArmStyle, ArmStyles, arm_styles, band_opacity

POINTS = 500
Profiles = Mapping[str, Sequence[Mapping[str, Any]]]


def performance_profiles(
    rows: Sequence[Mapping[str, Any]], *, score: str, title: str | None = None, styles: ArmStyles | None = None
) -> Chart:
    """Draw the share of runs above τ, one line per variant. Rows have variant, tau, value, low and high."""
    profiles = _profiles(rows)
    if not profiles:
        raise NothingToDraw("there is nothing to draw: no variant has a performance profile")
    frame = Frame(
        Axis(f"τ ({score})", _ends(profiles), grid=False),
        Axis("share of runs that score above τ", (0, 1), labels=PERCENT),
        height=max(HEIGHT, key_height(list(profiles))),
    )
    styles = styles or arm_styles(profiles)
    bands, lines = _bands(profiles, styles), _lines(profiles, styles)
    layers = [
        frame.draw("area", bands, fillOpacity=band_opacity(len(profiles))),
        frame.draw("line", lines, strokeWidth=2.2),
        frame.draw("circle", lone(lines), size=60, opacity=1),
        *name_key(frame, _by_height(profiles, styles), left=frame.width + 14),
    ]
    reading = "Higher is better at every τ." + (" Bands are pointwise intervals." if bands else "")
    return finished(frame.layered(layers), title or _finding(profiles), [reading])


def _profiles(rows: Sequence[Mapping[str, Any]]) -> Profiles:
    """Return the drawable points by variant, in the given order of variants, sorted by τ."""
    by_variant: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if known(row["tau"]) is not None and known(row["value"]) is not None:
            by_variant.setdefault(str(row["variant"]), []).append(row)
    return {name: _along(points) for name, points in by_variant.items()}


def _along(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    ordered = sorted(points, key=lambda point: float(point["tau"]))
    return [ordered[i] for i in thinned(np.array([float(point["value"]) for point in ordered]), POINTS)]


def _ends(profiles: Profiles) -> Interval:
    taus = finite(point["tau"] for points in profiles.values() for point in points)
    ends = float(taus.min()), float(taus.max())
    return ends if ends[0] < ends[1] else domain_of(taus)


def _lines(profiles: Profiles, styles: ArmStyles) -> list[dict[str, Any]]:
    return [
        {"x": float(point["tau"]), "y": float(point["value"]), "group": name, **vars(styles[name])}
        for name, points in profiles.items()
        for point in points
    ]


def _bands(profiles: Profiles, styles: ArmStyles) -> list[dict[str, Any]]:
    return [
        {"x": float(point["tau"]), "y": float(point["low"]), "y2": float(point["high"]), **_look(name, styles)}
        for name, points in profiles.items()
        for point in points
        if known(point.get("low")) is not None and known(point.get("high")) is not None
    ]


def _look(name: str, styles: ArmStyles) -> dict[str, Any]:
    return {"colour": styles[name].colour, "group": name}


def _by_height(profiles: Profiles, styles: ArmStyles) -> list[tuple[str, ArmStyle]]:
    """Return the names sorted by the height of their lines, highest first."""
    height = {name: float(np.mean([float(point["value"]) for point in points])) for name, points in profiles.items()}
    return [(name, styles[name]) for name in sorted(profiles, key=lambda name: -height[name])]


def _finding(profiles: Profiles) -> str:
    """State which line is above all others, judging by the lines alone."""
    if len(profiles) == 1:
        return f"How {next(iter(profiles))} scores over all runs"
    curves = {
        name: {float(point["tau"]): float(point["value"]) for point in points} for name, points in profiles.items()
    }
    for name, curve in curves.items():
        others = {rival: other for rival, other in curves.items() if rival != name}
        if all(other.get(tau, 0.0) <= value for other in others.values() for tau, value in curve.items()):
            return f"{name} is at or above {' '.join(others) if len(others) == 1 else 'all others'} at every τ"
    return "The profiles cross: none is above all others at every τ"
