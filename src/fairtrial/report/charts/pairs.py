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
from fairtrial.report.charts.style import BLUE, CONTROL, INK, QUIET, VERMILLION, short_names, shown

LABELLED = 20
MANY = 50
COLOURS = {"better": BLUE, "worse": VERMILLION, "unchanged": CONTROL}


@dataclass(frozen=True)
class SeedPair:
    """The values of one seed on both sides, and the outcome."""

    seed: str
    control: float
    candidate: float
    outcome: str

    @property
    def colour(self) -> str:
        return COLOURS[self.outcome]


def paired_differences(
    seeds: Sequence[str],
    control: Sequence[float],
    candidate: Sequence[float],
    *,
    names: tuple[str, str],
    metric: str,
    title: str,
    direction: str = "max",
) -> Chart:
    """Draw one line per pair: blue if the candidate is better on that seed, orange if it is worse."""
    pairs = _whole_pairs(seeds, control, candidate, direction)
    if not pairs:
        raise NothingToDraw(f"there is nothing to draw: no pair has {metric} on both sides")
    y = Axis(metric, domain_of(value for pair in pairs for value in (pair.control, pair.candidate)))
    frame = Frame(Axis("", (-0.15, 1.15), drawn=False), y)
    layers = [
        *[frame.across(side, color="#DDDDDD") for side in (0, 1)],
        *_lines(frame, pairs),
        *_means(frame, pairs, names),
        *(_seed_names(frame, pairs) if len(pairs) <= LABELLED else []),
    ]
    return finished(frame.layered(layers), title, [_tally(pairs, direction), _left_out(len(seeds) - len(pairs))])


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


def _lines(frame: Frame, pairs: Sequence[SeedPair]) -> list[alt.Chart]:
    lines, points = [], []
    for pair in pairs:
        lines.append({"x": 0, "x2": 1, "y": pair.control, "y2": pair.candidate, "colour": pair.colour})
        points += [
            {"x": 0, "y": pair.control, "colour": CONTROL},
            {"x": 1, "y": pair.candidate, "colour": pair.colour},
        ]
    many = len(pairs) > MANY
    faint = max(0.1, 20 / len(pairs)) if many else 0.8
    return [
        frame.draw("rule", lines, strokeWidth=0.8 if many else 1.6, strokeOpacity=faint),
        frame.draw("circle", points, size=12 if many else 45, fillOpacity=0.4 if many else 1, opacity=1),
    ]


def _means(frame: Frame, pairs: Sequence[SeedPair], names: tuple[str, str]) -> list[alt.Chart]:
    means = fmean(pair.control for pair in pairs), fmean(pair.candidate for pair in pairs)
    span = frame.y.domain[1] - frame.y.domain[0]
    bars = [{"x": side - 0.025, "x2": side + 0.025, "y": mean} for side, mean in enumerate(means)]
    slope = [{"x": 0, "x2": 1, "y": means[0], "y2": means[1]}]
    below, lower = (frame.y_at(frame.height + offset) for offset in (18, 35))
    words = [{"x": side, "y": below, "text": name} for side, name in enumerate(short_names(names, 40))]
    numbers = [{"x": side, "y": lower, "text": f"mean {shown(mean, span)}"} for side, mean in enumerate(means)]
    return [
        frame.draw("rule", slope, color=INK, strokeDash=[5, 4], strokeWidth=1.5),
        frame.draw("rule", bars, color=INK, strokeWidth=3),
        frame.write(words, align="center", fontWeight="bold", fontSize=13),
        frame.write(numbers, align="center", color=QUIET),
    ]


def _seed_names(frame: Frame, pairs: Sequence[SeedPair]) -> list[alt.Chart]:
    ends = [(pair.candidate, f"seed {pair.seed}", pair.colour) for pair in pairs]
    return end_labels(frame, ends, left=frame.width * frame.x.share(1.0) + LEAD + 4, size=11)


def _tally(pairs: Sequence[SeedPair], direction: str) -> str:
    counts = Counter(pair.outcome for pair in pairs)
    better = f"{counts['better']:,} of {counted(len(pairs), 'pair')} better (blue)"
    worse = f"{counts['worse']:,} worse (orange)"
    same = f"{counts['unchanged']:,} unchanged (gray)" if counts["unchanged"] else ""
    good = "higher" if direction == "max" else "lower"
    return f"{', '.join(filter(None, [better, worse, same]))}; {good} is better. Black: means."


def _left_out(lost: int) -> str:
    return f"Left out: {counted(lost, 'pair')} without a number on both sides." if lost else ""
