"""Timelines of concurrent work: tracks of exclusive spans, and their overlap.

A track is built from the same marks as the phases of a step: all time between its start and its end is assigned to the
innermost open phase, to the residual for work outside of any phase, or to no phase while it is idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.probe.phases import RESIDUAL, SLACK, ClockError

Interval = tuple[float, float]


@dataclass(frozen=True)
class Span:
    """An interval of time that belongs to one phase."""

    phase: str
    begun: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


@dataclass(frozen=True)
class Track:
    """Spans in chronological order. `idle` names phases in which the track only waits."""

    name: str
    spans: Sequence[Span]
    idle: frozenset[str] = frozenset()

    @property
    def busy(self) -> list[Interval]:
        return merged((span.begun, span.ended) for span in self.spans if span.phase not in self.idle)

    @property
    def busy_s(self) -> float:
        return total(self.busy)

    def phases(self, windows: Sequence[Interval]) -> dict[str, float]:
        """Return the seconds of each phase within the windows; time without a span is `idle`, so they add up."""
        by_phase: dict[str, float] = {}
        for span in self.spans:
            inside = total(within([(span.begun, span.ended)], windows))
            if inside > 0:
                by_phase[span.phase] = by_phase.get(span.phase, 0.0) + inside
        return {**by_phase, "idle": not_negative(total(windows) - sum(by_phase.values()))}


def not_negative(seconds: float) -> float:
    """Return the remaining seconds; raise an error if negative beyond rounding, because time was counted twice."""
    if seconds < -SLACK:
        raise ClockError(f"the parts add up to {-seconds:g} s more than the elapsed time")
    return max(0.0, seconds)


def spans_of(notes: Sequence[Any], begun: float, ended: float) -> list[Span]:
    """Convert the marks of one piece of work into spans without gaps from `begun` to `ended`."""
    spans: list[Span] = []
    open_phases: list[str] = []
    mark = begun

    def pass_to(now: float) -> None:
        nonlocal mark
        if now < mark:
            raise ClockError(f"the clock went backwards by {mark - now:g} s")
        if now > mark:
            spans.append(Span(open_phases[-1] if open_phases else RESIDUAL, mark, now))
        mark = now

    for (kind, name), now in zip(notes[::2], notes[1::2], strict=True):
        pass_to(now)
        if kind == "open":
            open_phases.append(name)
        elif not open_phases or open_phases.pop() != name:
            raise ClockError(f"phase '{name}' ended, but it is not the innermost open phase")
    pass_to(ended)
    return spans


def spans_of_steps(notes: Sequence[Any]) -> list[Span]:
    """Convert the marks of a step timer into spans; time between a step's end and a new start has no span."""
    spans: list[Span] = []
    begun = 0.0
    inside: list[Any] = []
    for mark, now in zip(notes[::2], notes[1::2], strict=True):
        if mark is None:
            begun, inside = now, []
        elif isinstance(mark, int):
            spans += spans_of(inside, begun, now)
            begun, inside = now, []
        else:
            inside += [mark, now]
    return spans


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge overlapping and adjacent intervals."""
    joined: list[Interval] = []
    for begun, ended in sorted(intervals):
        if joined and begun <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        else:
            joined.append((begun, ended))
    return joined


def within(intervals: Iterable[Interval], windows: Sequence[Interval]) -> list[Interval]:
    """Return the parts of the intervals inside the windows, which must not overlap."""
    cut = ((max(begun, first), min(ended, last)) for first, last in intervals for begun, ended in windows)
    return [(first, last) for first, last in cut if first < last]


def total(intervals: Iterable[Interval]) -> float:
    """Return the total seconds of non-overlapping intervals."""
    return sum(ended - begun for begun, ended in intervals)


def overlap_s(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """Return the seconds in which both were busy: the intersection of two sets of intervals."""
    overlap_s, other = 0.0, 0
    for begun, ended in first:
        while other < len(second) and second[other][1] <= begun:
            other += 1
        ahead = other
        while ahead < len(second) and second[ahead][0] < ended:
            overlap_s += min(ended, second[ahead][1]) - max(begun, second[ahead][0])
            ahead += 1
    return overlap_s


def chrome_trace(tracks: Sequence[Track], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tracks as a trace that Perfetto can open: one row each, times in microseconds from the first span."""
    first = min((span.begun for track in tracks for span in track.spans), default=0.0)
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "fairtrial profile"}}
    ]
    for row, track in enumerate(tracks, 1):
        events.append({"ph": "M", "pid": 1, "tid": row, "name": "thread_name", "args": {"name": track.name}})
        events += [
            {
                "ph": "X", "pid": 1, "tid": row, "name": span.phase, "cat": track.name,
                "ts": (span.begun - first) * 1e6, "dur": span.seconds * 1e6,
            }
            for span in track.spans
        ]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(facts)}
