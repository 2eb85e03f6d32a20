"""Who was busy when: tracks of work side by side, each a row of exclusive spans, and what they had in common.

A track is made from the same notes that phases of a step are: every moment between its beginning and its end belongs to
the innermost phase that is open, to the residual where work went on outside of any, or to nobody where it rested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.probe.phases import RESIDUAL, SLACK, ClockError

Interval = tuple[float, float]


@dataclass(frozen=True)
class Span:
    """A stretch of time that belongs to one phase."""

    phase: str
    begun: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


@dataclass(frozen=True)
class Track:
    """Spans in the order of time. `idle` names phases in which the track only waits."""

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
        """Seconds of each phase within the windows; what no span covers is `idle`. They add up to the windows."""
        by_phase: dict[str, float] = {}
        for span in self.spans:
            inside = total(within([(span.begun, span.ended)], windows))
            if inside > 0:
                by_phase[span.phase] = by_phase.get(span.phase, 0.0) + inside
        return {**by_phase, "idle": not_negative(total(windows) - sum(by_phase.values()))}


def not_negative(seconds: float) -> float:
    """What is left of a time; less than nothing, beyond rounding, means that something was counted twice."""
    if seconds < -SLACK:
        raise ClockError(f"the parts add up to {-seconds:g} s more than the time that passed")
    return max(0.0, seconds)


def spans_of(notes: Sequence[Any], begun: float, ended: float) -> list[Span]:
    """The notes of one piece of work, from its beginning to its end, as spans without gaps."""
    spans: list[Span] = []
    open_phases: list[str] = []
    mark = begun

    def pass_to(now: float) -> None:
        nonlocal mark
        if now < mark:
            raise ClockError(f"the clock went back by {mark - now:g} s")
        if now > mark:
            spans.append(Span(open_phases[-1] if open_phases else RESIDUAL, mark, now))
        mark = now

    for (kind, name), now in zip(notes[::2], notes[1::2], strict=True):
        pass_to(now)
        if kind == "open":
            open_phases.append(name)
        elif not open_phases or open_phases.pop() != name:
            raise ClockError(f"phase '{name}' ended, but it was not the one that began last")
    pass_to(ended)
    return spans


def spans_of_steps(notes: Sequence[Any]) -> list[Span]:
    """The notes of a timer of steps as spans: what lies between a step's end and the next beginning is nobody's."""
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
    """The same moments as intervals that do not touch."""
    joined: list[Interval] = []
    for begun, ended in sorted(intervals):
        if joined and begun <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        else:
            joined.append((begun, ended))
    return joined


def within(intervals: Iterable[Interval], windows: Sequence[Interval]) -> list[Interval]:
    """The part of them that lies in windows that do not touch each other."""
    cut = ((max(begun, first), min(ended, last)) for first, last in intervals for begun, ended in windows)
    return [(first, last) for first, last in cut if first < last]


def total(intervals: Iterable[Interval]) -> float:
    """Seconds of intervals that do not overlap."""
    return sum(ended - begun for begun, ended in intervals)


def overlap_s(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """Seconds in which both were busy: the intersection of two sets of intervals."""
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
    """The tracks as a document that Perfetto opens: one row each, times in microseconds from the first span."""
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
