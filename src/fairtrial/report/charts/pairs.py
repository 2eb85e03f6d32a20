"""Chart of paired runs: one line per pair, from control to candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fairtrial.core.errors import NothingToDraw
from fairtrial.core.formatting import counted
from fairtrial.report.charts.frame import Axis, Frame, finished
from fairtrial.report.charts.grammar import Chart, alt
from fairtrial.report.charts.labels import LEAD, end_labels
from fairtrial.report.charts.places import domain_of, known
from fairtrial.report.charts.style import INK, QUIET, ArmStyle, name_lines, shown, style_at

LABELLED = 20
MANY = 50
NAME_LINE = 40
"""Longest line of a name below the chart, in characters: two of them fit side by side."""
DASHES = {"better": [1, 0], "worse": [5, 3], "unchanged": [1, 0]}


@dataclass(frozen=True)
class SeedPair:
    """The values of one seed on both sides, and the outcome."""

    seed: str
    control: float
    candidate: float
    outcome: str

    @property
    def line(self) -> ArmStyle:
        """The style of its line. The line joins two arms, so its color is neither of theirs."""
        return ArmStyle(QUIET, DASHES[self.outcome])


def paired_differences(
    seeds: Sequence[str],
    control: Sequence[float],
    candidate: Sequence[float],
    *,
    names: tuple[str, str],
    metric: str,
    title: str,
    direction: str = "max",
    styles: tuple[ArmStyle, ArmStyle] | None = None,
) -> Chart:
    """Draw one line per pair: solid if the candidate is better on that seed, dashed if it is worse."""
    pairs = _whole_pairs(seeds, control, candidate, direction)
    if not pairs:
        raise NothingToDraw(f"there is nothing to draw: no pair has {metric} on both sides")
    y = Axis(metric, domain_of(value for pair in pairs for value in (pair.control, pair.candidate)))
    frame = Frame(Axis("", (-0.15, 1.15), drawn=False), y)
    layers = [
        *[frame.across(side, color="#DDDDDD") for side in (0, 1)],
        *_lines(frame, pairs, styles or (style_at(0), style_at(1))),
        *_means(frame, pairs, names),
        *(_seed_names(frame, pairs) if len(pairs) <= LABELLED else []),
    ]
    return finished(frame.layered(layers), title, [_tally(pairs), _left_out(len(seeds) - len(pairs))])


def _whole_pairs(
    seeds: Sequence[str], control: Sequence[float], candidate: Sequence[float], direction: str
) -> list[SeedPair]:
    triples = zip(seeds, map(known, control), map(known, candidate), strict=True)
    return [
        SeedPair(seed, first, second, _outcome(first, second, direction))
        for seed, first, second in triples
        if first is not None and second is not None
    ]


def _outcome(first: float, second: float, direction: str) -> str:
    gain = second - first if direction == "max" else first - second
    return "better" if gain > 0 else "worse" if gain < 0 else "unchanged"


def _lines(frame: Frame, pairs: Sequence[SeedPair], styles: tuple[ArmStyle, ArmStyle]) -> list[alt.Chart]:
    lines, points = [], []
    for pair in pairs:
        lines.append({"x": 0, "x2": 1, "y": pair.control, "y2": pair.candidate, "dash": pair.line.dash})
        points += [
            {"x": side, "y": value, "colour": style.colour}
            for side, (value, style) in enumerate(zip((pair.control, pair.candidate), styles, strict=True))
        ]
    many = len(pairs) > MANY
    faint = max(0.1, 20 / len(pairs)) if many else 0.8
    return [
        frame.draw("rule", lines, color=QUIET, strokeWidth=0.8 if many else 1.6, strokeOpacity=faint),
        frame.draw("circle", points, size=12 if many else 45, fillOpacity=0.4 if many else 1, opacity=1),
    ]


def _means(frame: Frame, pairs: Sequence[SeedPair], names: tuple[str, str]) -> list[alt.Chart]:
    means = fmean(pair.control for pair in pairs), fmean(pair.candidate for pair in pairs)
    span = frame.y.domain[1] - frame.y.domain[0]
    bars = [{"x": side - 0.025, "x2": side + 0.025, "y": mean} for side, mean in enumerate(means)]
    slope = [{"x": 0, "x2": 1, "y": means[0], "y2": means[1]}]
    lines = [name_lines(name, NAME_LINE) for name in names]
    below, lower = (frame.y_at(frame.height + offset) for offset in (18, 19 + 16 * max(map(len, lines))))
    words = [{"x": side, "y": below, "text": name} for side, name in enumerate(lines)]
    numbers = [{"x": side, "y": lower, "text": f"mean {shown(mean, span)}"} for side, mean in enumerate(means)]
    return [
        frame.draw("rule", slope, color=INK, strokeWidth=2.5),
        frame.draw("rule", bars, color=INK, strokeWidth=3),
        frame.write(words, align="center", baseline="alphabetic", fontWeight="bold", fontSize=13),
        frame.write(numbers, align="center", color=QUIET),
    ]


def _seed_names(frame: Frame, pairs: Sequence[SeedPair]) -> list[alt.Chart]:
    ends = [(pair.candidate, f"seed {pair.seed}", pair.line) for pair in pairs]
    return end_labels(frame, ends, left=frame.width * frame.x.share(1.0) + LEAD + 4, size=11)


def _tally(pairs: Sequence[SeedPair]) -> str:
    counts = Counter(pair.outcome for pair in pairs)
    better = f"{counts['better']:,} of {counted(len(pairs), 'pair')} better (solid lines)"
    worse = f"{counts['worse']:,} worse (dashed lines)"
    same = f"{counts['unchanged']:,} unchanged (level lines)" if counts["unchanged"] else ""
    return f"{', '.join(filter(None, [better, worse if counts['worse'] else '', same]))}. Thick line: means."


def _left_out(lost: int) -> str:
    return f"Left out: {counted(lost, 'pair')} without a number on both sides." if lost else ""
