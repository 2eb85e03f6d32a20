"""A chart: one line per difference. `fairtrial analyze STUDY --plots FOLDER` also writes effects.png."""

from fairtrial.plugins import AnalysisChart, charts


def draw(analysis):
    effects = [found.effect for found in analysis.comparisons]
    limits = [limit for each in effects for limit in (each.low, each.value, each.high) if limit is not None]
    room = 0.1 * (max(limits) - min(limits) or 1.0)
    x = charts.Axis(f"difference in {analysis.metric}", (min(0, *limits) - room, max(0, *limits) + room))
    frame = charts.Frame(x, charts.Axis("", (len(effects) - 0.5, -0.5), drawn=False), 420, 60 + 30 * len(effects))
    bars = [{"x": each.low, "x2": each.high, "y": row} for row, each in enumerate(effects) if each.low is not None]
    dots = [{"x": each.value, "y": row} for row, each in enumerate(effects)]
    names = [
        {"x": frame.x_at(0), "y": row - 0.25, "text": found.candidate} for row, found in enumerate(analysis.comparisons)
    ]
    layers = [frame.across(0), frame.draw("rule", bars), frame.draw("circle", dots, size=60), frame.write(names)]
    return charts.finished(frame.layered(layers), f"Differences from {analysis.control}")


def pictures(analysis):
    if any(found.effect.value is not None for found in analysis.comparisons):
        yield "effects", lambda: draw(analysis)


EFFECTS = AnalysisChart(pictures)
