"""Lanes of work: spans without gaps, sums that come out, and true overlap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.probe.phases import ClockError
from fairtrial.probe.timeline import Span, Track, chrome_trace, merged, overlap_s, spans_of, within

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda pair: (pair[0], pair[0] + pair[1])))


def test_every_moment_belongs_to_the_innermost_phase() -> None:
    notes = [("open", "a"), 1.0, ("open", "b"), 2.0, ("close", "b"), 5.0, ("close", "a"), 6.0]
    assert spans_of(notes, 0.0, 8.0) == [
        Span("residual", 0.0, 1.0), Span("a", 1.0, 2.0), Span("b", 2.0, 5.0), Span("a", 5.0, 6.0), Span("residual", 6.0, 8.0),
    ]  # fmt: skip


def test_phases_and_rest_add_up_to_the_window() -> None:
    track = Track("l", [Span("a", 1.0, 2.0), Span("wait", 2.0, 4.0), Span("a", 7.0, 9.0)], frozenset({"wait"}))
    assert track.phases([(0.0, 8.0)]) == {"a": 2.0, "wait": 2.0, "idle": 4.0}
    assert track.phases([(0.0, 2.0), (7.5, 8.5)]) == {"a": 2.0, "idle": 1.0}
    assert track.busy == [(1.0, 2.0), (7.0, 9.0)] and track.busy_s == 3.0


def test_a_clock_that_goes_back_is_an_error() -> None:
    with pytest.raises(ClockError, match="went back"):
        spans_of([("open", "a"), 2.0, ("close", "a"), 1.0], 0.0, 3.0)
    with pytest.raises(ClockError, match="not the innermost"):
        spans_of([("open", "a"), 1.0, ("close", "b"), 2.0], 0.0, 3.0)


@given(INTERVALS, INTERVALS)
def test_overlap_is_what_counting_moments_gives(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    def moments(intervals: list[tuple[int, int]]) -> set[int]:
        return {moment for begun, ended in intervals for moment in range(begun, ended)}

    assert overlap_s(merged(first), merged(second)) == len(moments(first) & moments(second))


def test_a_trace_has_a_row_per_lane_and_begins_at_zero() -> None:
    told = chrome_trace([Track("x", [Span("a", 5.0, 6.0)]), Track("y", [Span("b", 5.5, 7.0)])], {"seed": 1})
    spans = [(each["tid"], each["name"], each["ts"], each["dur"]) for each in told["traceEvents"] if each["ph"] == "X"]
    assert spans == [(1, "a", 0.0, 1e6), (2, "b", 5e5, 1.5e6)]


def test_what_lies_outside_of_the_window_is_cut_off() -> None:
    assert within([(0.0, 2.0), (3.0, 4.0), (5.0, 9.0)], [(1.0, 6.0)]) == [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]
    assert within([(0.0, 1.0)], [(1.0, 2.0)]) == [] and within([(0.0, 9.0)], [(1.0, 2.0), (4.0, 5.0)])[1] == (4.0, 5.0)


def test_time_that_is_counted_twice_is_an_error() -> None:
    with pytest.raises(ClockError, match="more than the elapsed time"):
        Track("l", [Span("a", 0.0, 2.0), Span("b", 1.0, 3.0)]).phases([(0.0, 3.0)])
