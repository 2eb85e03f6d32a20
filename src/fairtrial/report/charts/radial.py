"""Radar chart of several metrics: a spoke per metric, a polygon per variant, and the raw values at the rim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.errors import NothingToDraw, UserError
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart, alt
from fairtrial.report.charts.labels import KEY_LINE, name_key
from fairtrial.report.charts.places import known
from fairtrial.report.charts.style import INK, LETTER, colour_of, dash_of, short_names

RADIUS = 160
RINGS = (0.25, 0.5, 0.75, 1.0)
TEXT_LINE = 15
TEXTS_PER_SPOKE, TEXTS = 4, 32
FILLED = 3
SCALING = "Each metric has its own scale, from 0 at the center to 1 at the rim; farther out is better."


@dataclass(frozen=True)
class RadialProfile:
    """The scores of one variant and their text, one per metric."""

    name: str
    scores: Sequence[float | None]
    texts: Sequence[str]


def radial_profile(rows: Sequence[Mapping[str, Any]], *, title: str | None = None, scaling: str = SCALING) -> Chart:
    """Draw three or more metrics. Rows have variant, metric, score (0 to 1) and text (the raw value)."""
    metrics = list(dict.fromkeys(str(row["metric"]) for row in rows))
    if not any(_score(row) is not None for row in rows):
        raise NothingToDraw("there is nothing to draw: no variant has a score")
    if len(metrics) < 3:
        raise UserError(
            f"a radial profile needs at least three metrics, not {len(metrics)}", hint="Compare them one by one."
        )
    profiles = _profiles(rows, metrics)
    hidden = Axis("", (-1, 1), drawn=False)
    frame = Frame(hidden, hidden, width=2 * RADIUS, height=2 * RADIUS)
    rim = _rim(metrics, profiles)
    layers = [
        *_web(frame, len(metrics)),
        *_polygons(frame, profiles),
        *[frame.write(words, align=side) for side, words in rim.items()],
        *_names(frame, profiles, rim.get("left", [])),
    ]
    return finished(frame.layered(layers), title or _finding(profiles, metrics), [scaling])


def _profiles(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> list[RadialProfile]:
    by_variant = {(str(row["variant"]), str(row["metric"])): row for row in rows}
    return [
        RadialProfile(
            name,
            [_score(by_variant.get((name, metric))) for metric in metrics],
            [str(by_variant.get((name, metric), {}).get("text") or "–") for metric in metrics],
        )
        for name in dict.fromkeys(str(row["variant"]) for row in rows)
    ]


def _score(row: Mapping[str, Any] | None) -> float | None:
    score = known(row["score"]) if row is not None else None
    return None if score is None else min(1.0, max(0.0, score))


def _point(turn: float, radius: float) -> dict[str, float]:
    """Return the point at this many turns clockwise from the top."""
    return {"x": radius * math.sin(math.tau * turn), "y": radius * math.cos(math.tau * turn)}


def _web(frame: Frame, spokes: int) -> list[alt.Chart]:
    rings = [{**_point(i / 120, ring), "order": i, "group": ring} for ring in RINGS for i in range(121)]
    ends = [_point(i / spokes, 1.0) for i in range(spokes)]
    lines = [{"x": 0, "y": 0, "x2": end["x"], "y2": end["y"]} for end in ends]
    marks = [{**_point(-0.5 / spokes, ring - 0.05), "text": f"{ring:g}"} for ring in (0.5, 1.0)]
    return [
        frame.draw("line", rings, color="#DDDDDD", strokeWidth=1),
        frame.draw("rule", lines, color="#DDDDDD", strokeWidth=1),
        frame.write(marks, fontSize=10, color="#999999", align="center"),
    ]


def _polygons(frame: Frame, profiles: Sequence[RadialProfile]) -> list[alt.Chart]:
    layers = []
    for place, profile in enumerate(profiles):
        spokes = len(profile.scores)
        corners = [
            {**({"x": None, "y": None} if score is None else _point(i / spokes, score)), "order": i}
            for i, score in enumerate([*profile.scores, profile.scores[0]])
        ]
        colour = colour_of(place)
        inside = {"fill": colour, "fillOpacity": 0.08} if len(profiles) <= FILLED and None not in profile.scores else {}
        layers += [
            frame.draw("line", corners, stroke=colour, strokeWidth=2, strokeDash=dash_of(place), **inside),
            frame.draw("point", corners[:-1], color=colour, filled=True, size=36, opacity=1),
        ]
    return layers


def _rim(metrics: Sequence[str], profiles: Sequence[RadialProfile]) -> dict[str, list[dict[str, Any]]]:
    """Return the labels at the rim: the metric, and below it the raw values in the colors of their variants."""
    aligned: dict[str, list[dict[str, Any]]] = {}
    names = short_names(metrics, 24)
    for i, name in enumerate(names):
        turn = i / len(metrics)
        lines = [(name, INK), *_texts(profiles, i)]
        at = _point(turn, 1 + 16 / RADIUS)
        up = -(len(lines) - 1) * TEXT_LINE * (1 + math.cos(math.tau * turn)) / 2
        for line, (text, colour) in enumerate(lines):
            y = at["y"] - (up + line * TEXT_LINE) / RADIUS
            aligned.setdefault(_side(turn), []).append({"x": at["x"], "y": y, "text": text, "colour": colour})
    return aligned


def _side(turn: float) -> str:
    across = math.sin(math.tau * turn)
    return "center" if abs(across) < 0.1 else "left" if across > 0 else "right"


def _texts(profiles: Sequence[RadialProfile], metric: int) -> list[tuple[str, str]]:
    if len(profiles) <= TEXTS_PER_SPOKE and len(profiles) * len(profiles[0].scores) <= TEXTS:
        return [(profile.texts[metric], colour_of(place)) for place, profile in enumerate(profiles)]
    best = _leader(profiles, metric)
    return [] if best is None else [(f"best {profiles[best].texts[metric]}", colour_of(best))]


def _leader(profiles: Sequence[RadialProfile], metric: int) -> int | None:
    """Return the only variant with the highest score; None if several share it or none has a score."""
    scores = [-1.0 if profile.scores[metric] is None else profile.scores[metric] or 0.0 for profile in profiles]
    top = max(scores)
    return scores.index(top) if top >= 0 and scores.count(top) == 1 else None


def _names(frame: Frame, profiles: Sequence[RadialProfile], labels: Sequence[Mapping[str, Any]]) -> list[alt.Chart]:
    """Draw a key of the variants, to the right of the rim labels."""
    right = max([1.0, *(word["x"] + LETTER * len(word["text"]) / RADIUS for word in labels)])
    entries = [(profile.name, place) for place, profile in enumerate(profiles)]
    return name_key(frame, entries, left=RADIUS * (1 + right) + 30, top=RADIUS - KEY_LINE * (len(entries) - 1) / 2)


def _finding(profiles: Sequence[RadialProfile], metrics: Sequence[str]) -> str:
    if len(profiles) == 1:
        return f"{profiles[0].name} over {len(metrics)} metrics"
    leads = [leader for metric in range(len(metrics)) if (leader := _leader(profiles, metric)) is not None]
    if not leads:
        return f"No variant scores highest alone on any of {len(metrics)} metrics"
    (first, most), *others = Counter(leads).most_common()
    level = 1 + sum(count == most for _, count in others)
    if level > 1:
        return f"{level} variants score highest on {most} of {len(metrics)} metrics each"
    return f"{profiles[first].name} scores highest on {most} of {len(metrics)} metrics"
