"""The frontier of cost and a metric: a staircase through its members, and names that hide nothing."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.core.errors import NothingToDraw, UserError
from fairtrial.report import charts
from fairtrial.report.charts import style
from fairtrial.report.formats import CHART_SUFFIXES
from tests.report.test_charts import (
    INF,
    LONG,
    MAGIC,
    NAN,
    domain,
    layers_of,
    lines_of,
    numbers,
    place_of,
    spec_of,
    ticks_of,
    words,
)

WIDTH = style.WIDTH


def point(name: str, cost: Any, value: Any, member: bool = True, **limits: Any) -> dict[str, Any]:
    unknown = {"cost_low": None, "cost_high": None, "low": None, "high": None}
    return {"name": name, "cost": cost, "value": value, "member": member} | unknown | limits


def around(name: str, cost: float, value: float, member: bool, *, dollars: float, points: float) -> dict[str, Any]:
    """A point with intervals in both directions, so wide to each side."""
    limits = {"cost_low": cost - dollars, "cost_high": cost + dollars, "low": value - points, "high": value + points}
    return point(name, cost, value, member, **limits)


DOCUMENTED = [
    point("lora-r4", 6.30, 0.845),
    point("lora-r8", 9.60, 0.862),
    point("lora-r16", 17.40, 0.871),
    point("lora-r64", 31.20, 0.878),
    point("full", 144.60, 0.882),
]
MEASURED = [
    around("lora-r64", 17.4, 0.871, True, dollars=1.5, points=0.004),
    around("dora-r16", 12.5, 0.858, False, dollars=2.0, points=0.007),
    around("lora-r8", 6.3, 0.845, True, dollars=0.8, points=0.006),
    around("lora-r16", 9.6, 0.862, True, dollars=1.2, points=0.005),
]


def frontier(rows: Any = DOCUMENTED, **wording: Any) -> Any:
    usual = {"metric": "report_accuracy", "level": 0.95, "card": "a100-80gb", "better": "higher", "estimated": False}
    return charts.frontier(rows, **{**usual, "title": "Five configurations are on the frontier", **wording})


def cloud(count: int, name: str = "lora-r{}") -> list[dict[str, Any]]:
    rng = np.random.default_rng(count)
    costs = np.exp(rng.uniform(1, 6, count))
    values = 0.9 - 0.15 / np.sqrt(costs) - rng.exponential(0.015, count)
    best = [value >= values[costs <= cost].max() for cost, value in zip(costs, values, strict=True)]
    told = zip(costs.tolist(), values.tolist(), best, strict=True)
    return [
        around(name.format(place), cost, value, bool(member), dollars=cost / 10, points=0.004)
        for place, (cost, value, member) in enumerate(told)
    ]


def is_log(chart: Any) -> bool:
    return bool(spec_of(chart)["layer"][0]["encoding"]["x"]["scale"]["type"] == "log")


def places(chart: Any, rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Where rows are drawn, in pixels from the left and from the top."""
    (left, right), (bottom, top) = domain(chart, "x"), domain(chart, "y")
    height, scale = spec_of(chart)["height"], np.log if is_log(chart) else np.asarray
    x, y = scale([row["x"] for row in rows]), np.array([row["y"] for row in rows])
    across = WIDTH * (x - scale(left)) / (scale(right) - scale(left))
    return list(zip(across.tolist(), (height * (top - y) / (top - bottom)).tolist(), strict=True))


def boxes(chart: Any) -> list[tuple[float, float, float, float]]:
    """What all words in and beside the frame fill: left, top, right and bottom."""
    aligns = [layer["mark"]["align"] for layer in spec_of(chart)["layer"] if layer["mark"]["type"] == "text"]
    found = []
    for align, rows in zip(aligns, layers_of(chart, "text"), strict=True):
        for row, (x, y) in zip(rows, places(chart, rows), strict=True):
            lines = lines_of(row["text"])
            width, half = style.LETTER * max(map(len, lines)), 7 * len(lines) - 1
            left = x - width * {"left": 0, "center": 0.5, "right": 1}[align]
            found.append((left, y - half, left + width, y + half))
    return found


def touch(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def dots(chart: Any) -> list[dict[str, Any]]:
    """The dots of all points: hollow ones first, since filled ones are drawn over them."""
    *_, hollow, filled = layers_of(chart, "point")
    return hollow + filled


@pytest.mark.slow
@pytest.mark.parametrize("suffix", CHART_SUFFIXES)
@pytest.mark.parametrize("rows", [DOCUMENTED, MEASURED, cloud(30)])
def test_a_frontier_is_written_in_every_format(rows: Any, suffix: str, tmp_path: Path) -> None:
    charts.save(frontier(rows), tmp_path / f"chart{suffix}")
    content = (tmp_path / f"chart{suffix}").read_bytes()
    assert content.startswith(MAGIC[suffix])
    assert len(content) > 3000


def test_altair_finds_nothing_wrong_with_a_frontier() -> None:
    assert frontier().to_dict(validate=True)
    assert frontier(cloud(30)).to_dict(validate=True)


def test_a_frontier_says_what_it_shows() -> None:
    text = words(frontier(MEASURED))
    assert all(f">{row['name']}<" in text for row in MEASURED)
    assert "Bars are 95 % intervals. Filled: on the frontier. Hollow: dominated." in text
    assert "Line: the best result up to each cost." in text
    plain = words(frontier([point("a", 1, 0.5), point("b", 2, 0.4)], better="lower"))
    assert "Dots are means. Filled: on the frontier. Line: the best result up to each cost." in plain


def test_the_axes_say_what_is_paid_and_what_is_had() -> None:
    text = words(frontier())
    assert ">cost on a100-80gb (USD)<" in text
    assert ">report_accuracy<" in text
    assert ">estimated cost on t4 (USD)<" in words(frontier(card="t4", estimated=True))


def test_the_line_is_a_staircase_through_the_members_in_order_of_cost() -> None:
    (line,) = layers_of(frontier(MEASURED), "line")
    assert [(row["x"], row["y"]) for row in line] == [
        (6.3, 0.845), (9.6, 0.845), (9.6, 0.862), (17.4, 0.862), (17.4, 0.871),
    ]  # fmt: skip
    assert [row["order"] for row in line] == [0, 1, 2, 3, 4]


def test_where_lower_is_better_the_staircase_falls() -> None:
    (line,) = layers_of(frontier([point("b", 2, 0.4), point("a", 1, 0.5)], better="lower"), "line")
    assert [(row["x"], row["y"]) for row in line] == [(1, 0.5), (2, 0.5), (2, 0.4)]


def test_the_staircase_passes_by_members_that_only_something_else_speaks_for() -> None:
    chart = frontier([point("a", 1, 0.8), point("small", 2, 0.7), point("b", 3, 0.9)])
    (line,) = layers_of(chart, "line")
    assert 0.7 not in [row["y"] for row in line]
    assert [row["colour"] for row in dots(chart)] == [style.ACCENT] * 3


def test_members_are_filled_and_drawn_over_the_hollow_others() -> None:
    *_, hollow, filled = layers_of(frontier(MEASURED), "point")
    assert [row["y"] for row in hollow] == [0.858]
    assert [row["y"] for row in filled] == [0.871, 0.845, 0.862]
    assert place_of(frontier(MEASURED), "dora-r16")["colour"] == style.QUIET
    assert place_of(frontier(MEASURED), "lora-r64")["colour"] == style.INK


def test_intervals_are_bars_in_both_directions_where_they_are_known() -> None:
    rows = [MEASURED[0], point("cost only", 12, 0.86, cost_low=11, cost_high=13), point("neither", 6, 0.85)]
    across, upright = [bars for bars in layers_of(frontier(rows), "rule") if bars]
    assert [(row["x"], row["x2"], row["y"]) for row in across] == [
        (pytest.approx(15.9), pytest.approx(18.9), 0.871), (11, 13, 0.86),
    ]  # fmt: skip
    assert [(row["x"], row["y"], row["y2"]) for row in upright] == [
        (17.4, pytest.approx(0.867), pytest.approx(0.875)),
    ]  # fmt: skip
    assert not any(layers_of(frontier(), "rule"))


def test_an_interval_without_an_end_has_an_arrow() -> None:
    chart = frontier([*DOCUMENTED, point("vague", 20, 0.85, False, cost_low=-5, cost_high=25, low=0.8, high=None)])
    assert "Arrows: the interval extends beyond the frame." in words(chart)
    back, forth, *_ = [rows for rows in layers_of(chart, "point") if rows]
    assert [row["x"] for row in back] == [domain(chart, "x")[0]]
    assert [row["y"] for row in forth][-1] in domain(chart, "y")


def test_intervals_wider_than_all_differences_are_drawn_whole() -> None:
    rows = [around(str(n), 10 + n / 100, 0.8 + n / 1000, True, dollars=3, points=0.2) for n in range(3)]
    chart = frontier(rows)
    assert domain(chart, "x")[0] < 7 and domain(chart, "x")[1] > 13
    assert domain(chart, "y")[0] < 0.6 and domain(chart, "y")[1] > 1
    assert "Arrows" not in words(chart)


@pytest.mark.slow
def test_costs_far_apart_have_a_logarithmic_axis_and_that_is_said() -> None:
    assert is_log(frontier())
    assert ticks_of(frontier()) == [7, 10, 20, 30, 50, 70, 100]
    assert "The cost axis is logarithmic." in words(frontier())
    assert not is_log(frontier(DOCUMENTED[:4]))
    assert "logarithmic" not in words(frontier(DOCUMENTED[:4]))


@pytest.mark.parametrize("cost", [0.0, -1.0])
def test_a_cost_that_has_no_place_on_a_logarithmic_axis_makes_an_even_one(cost: float) -> None:
    chart = frontier([point("free", cost, 0.8), *DOCUMENTED])
    assert not is_log(chart)
    assert domain(chart, "x")[0] < cost


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        ([1e-5, 3e-5], ["1e-5", "2e-5"]),
        ([1e-5, 1e4], ["1e-5", "0.001", "0.1", "10", "1,000"]),
        ([30, 4e6], ["100", "10,000", "100k", "1M"]),
        ([2e9, 9e9], ["2B", "8B"]),
        ([8000, 12000], ["9,000", "11,000"]),
        ([0, 0], ["0.0", "1.0"]),
        ([250, 250], ["150", "250", "350"]),
    ],
)
def test_ticks_can_be_read_whatever_the_costs(costs: list[float], told: list[str]) -> None:
    text = words(frontier([point(str(place), cost, 0.8 + place) for place, cost in enumerate(costs)]))
    assert not [tick for tick in told if f">{tick}<" not in text]


@pytest.mark.slow
def test_round_numbers_do_not_crowd_a_logarithmic_axis() -> None:
    for factor in np.logspace(1.4, 60, 10).tolist():
        ticks = ticks_of(frontier([point("a", 0.003, 0.8), point("b", 0.003 * factor, 0.9)]))
        assert ticks and 3 <= len(ticks) <= 9


def test_names_stand_beside_their_points() -> None:
    chart = frontier()
    names = places(chart, [place_of(chart, row["name"]) for row in DOCUMENTED])
    for (x, y), (dot_x, dot_y) in zip(names, places(chart, dots(chart)), strict=True):
        assert abs(x - dot_x) < 15 and abs(y - dot_y) < 15


@pytest.mark.parametrize(
    "rows",
    [
        DOCUMENTED,
        MEASURED,
        cloud(12),
        cloud(30),
        cloud(30, LONG + " {}"),
        [point(f"twin {place}", 5, 0.8) for place in range(12)],
        [point(f"{place} {LONG}", 5, 0.8 + place / 100) for place in range(20)],
        [point(f"{LONG} {place}", place, 0.8) for place in range(20)],
    ],
)
def test_names_hide_neither_points_nor_each_other(rows: Any) -> None:
    chart = frontier(rows)
    placed = boxes(chart)
    assert not [(a, b) for place, a in enumerate(placed) for b in placed[:place] if touch(a, b)]
    for x, y in places(chart, dots(chart)):
        assert not [box for box in placed if touch(box, (x - 4, y - 4, x + 4, y + 4))]
    text = words(chart)
    assert all(line.strip() in text for row in rows for line in style.name_lines(row["name"]))


def test_a_name_far_from_its_point_has_a_line_to_it() -> None:
    chart = frontier([point(f"twin {place}", 5, 0.8) for place in range(12)])
    leads = next(rows for rows in layers_of(chart, "rule") if rows)
    assert all((row["x"], row["y"]) == (pytest.approx(5), pytest.approx(0.8)) for row in leads)
    assert not any(layers_of(frontier([point("lone", 5, 0.8)]), "rule"))


@pytest.mark.slow
def test_where_names_find_no_room_there_are_numbers_in_order_of_cost_and_a_list() -> None:
    rows = cloud(30, LONG + " {}")
    chart = frontier(rows)
    assert "Numbers are in order of cost; their names are at the right." in words(chart)
    *_, numbered, named = layers_of(chart, "text")
    assert [row["text"] for row in numbered] == [str(number) for number in range(1, 31)]
    by_cost = sorted(rows, key=lambda row: float(row["cost"]))
    assert ["".join(row["text"]) for row in named] == [row["name"] for row in by_cost]
    assert [row["colour"] == style.INK for row in named] == [row["member"] for row in by_cost]
    assert min(x for x, _ in places(chart, numbered)) > WIDTH
    assert "Numbers" not in words(frontier(MEASURED))


@pytest.mark.slow
def test_of_very_many_points_the_frontier_is_named_and_the_rest_is_counted() -> None:
    rows = cloud(120)
    text = words(frontier(rows))
    assert "No space for " in text
    assert all(f">{row['name']}<" in text for row in rows if row["member"])


def test_names_are_taken_as_they_are_and_long_ones_have_several_lines() -> None:
    odd = "a.b [c] 'd\" <e> & f\\g"
    text = words(frontier([point(odd, 1, 0.8), point(LONG, 2, 0.9)]))
    assert odd in text
    assert len(style.name_lines(LONG)) == 2 and all(line.strip() in text for line in style.name_lines(LONG))


def test_points_without_a_place_are_left_out_and_counted() -> None:
    lost = [point("a", NAN, 0.8), point("b", 1, INF), point("c", None, 0.8), point("d", 1, None)]
    chart = frontier([*DOCUMENTED, *lost])
    assert len(dots(chart)) == 5
    assert "Left out: 4 configurations without a cost or a value of report_accuracy." in words(chart)
    assert "Left out" not in words(frontier())


@pytest.mark.parametrize("rows", [[], [point("a", NAN, 0.8), point("b", 1, None)]])
def test_no_point_is_a_sentence_and_not_an_empty_picture(rows: Any) -> None:
    with pytest.raises(NothingToDraw, match="there is nothing to draw: no configuration has both a cost and a value"):
        frontier(rows)


def test_a_point_that_diverged_does_not_flatten_the_others() -> None:
    losses = [point("wild", 3, 5e4), *(point(str(place), 5 + place, 0.5 - place / 20) for place in range(6))]
    chart = frontier(losses, better="lower")
    low, high = domain(chart, "y")
    assert high < 1
    assert "Some means are outside the frame." in words(chart)
    (line,) = layers_of(chart, "line")
    drawn = [row["y"] for row in line if row["y"] is not None]
    assert drawn[0] == high and min(drawn) > low
    assert place_of(chart, "wild")["y"] < high


@pytest.mark.parametrize(
    "rows",
    [
        [point("one", 6.3, 0.845)],
        [around("one", 6.3, 0.845, True, dollars=9, points=0.1)],
        [point("nothing", 0, 0)],
        [point("a", 5, 0.8), point("b", 5, 0.8)],
        [point("a", 5, 0.8, False), point("b", 9, 0.8, False)],
        [point("", 5, 0.8), point("", 6, 0.8)],
        [point("a", 1e-90, 0.8), point("b", 1e90, 0.9)],
        [point("a", 5, 0.8, low=0.9, high=0.7, cost_low=INF, cost_high=-INF)],
    ],
)
def test_odd_frontiers_are_drawn(rows: Any) -> None:
    text = words(frontier(rows))
    assert "NaN" not in text and "undefined" not in text


def test_a_lone_point_has_no_line_and_a_readable_axis() -> None:
    chart = frontier([point("one", 6.3, 0.845)])
    assert "Line" not in words(chart)
    assert domain(chart, "x")[0] < 4 and domain(chart, "x")[1] > 9


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(numbers, numbers, numbers, numbers, st.booleans()), max_size=6), st.booleans())
def test_any_numbers_make_a_frontier_or_a_sentence(rows: list[tuple[Any, ...]], higher: bool) -> None:
    told = [
        point(str(place), cost, value, member, cost_low=low, cost_high=high, low=high, high=low)
        for place, (cost, value, low, high, member) in enumerate(rows)
    ]
    try:
        chart = frontier(told, better="higher" if higher else "lower")
    except UserError:
        return
    json.dumps(chart.to_dict(validate=False), allow_nan=False)
    (line,) = layers_of(chart, "line")
    heights = [row["y"] for row in line if row["y"] is not None]
    assert all(b >= a if higher else b <= a for a, b in pairwise(heights))
