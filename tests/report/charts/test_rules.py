"""Rules that hold for every chart: arms are named in full, colors identify arms, and no label is cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairtrial.report import charts
from fairtrial.report.charts import style
from tests.report.test_charts import arm, band, comparison, layers_of, profile, radial, spec_of, swept, words

CHARTS = Path(charts.__file__).parent
NAMES = [f"{number:02}-a-name-of-exactly-forty-characters--x" for number in range(12)]
CONTROL = NAMES[0]
WORD = "not distinguishable from the best"


def resamples(name: str) -> charts.Resamples:
    draws = np.random.default_rng(0).normal(0.02, 0.01, 200).tolist()
    return charts.Resamples(name, draws, 0.02, [("BCa bootstrap", 0.0, 0.04)])


def quantiles(name: str) -> charts.Quantiles:
    return charts.Quantiles(name, [1.0, 2.0, 3.0], [-0.9, 0.0, 0.9], 0.4)


def frontier(names: list[str]) -> Any:
    rows = [
        {"name": name, "cost": 10.0 + place, "value": 0.8 + place / 100, "member": place % 2 == 0}
        for place, name in enumerate(names)
    ]
    return charts.frontier(rows, metric="m", level=0.95, title="t", card="c", better="higher", estimated=False)


def pair(names: list[str]) -> Any:
    return charts.paired_differences(
        ["1", "2"], [0.1, 0.2], [0.2, 0.1], names=(names[0], names[1]), metric="m", title="t"
    )


def difference(names: list[str]) -> Any:
    return charts.difference_distribution(
        [0.1, 0.2], value=0.15, low=0.0, high=0.3, level=0.95, sesoi=None, metric="m", names=(names[0], names[1]),
        title="t",
    )  # fmt: skip


def noise(names: list[str]) -> Any:
    rows = [{"n": n, "half_width": 0.3 / n, "relative": 0.3 / n, "extrapolated": n > 5} for n in range(2, 9)]
    return charts.variance_panels(
        {"AUC": rows}, threshold=0.05, relative=True, metric="m", n=5, n_min={"AUC": 6}, arm=names[0]
    )


OF_MANY: dict[str, Callable[[list[str]], Any]] = {
    "learning_curves": lambda names: charts.learning_curves(
        [band(name, points=5) for name in names], metric="m", level=0.95
    ),
    "forest": lambda names: charts.forest(
        [comparison(name, 0.01, 0.0, 0.02, "inconclusive") for name in names],
        level=0.95, sesoi=None, title="t", axis="a",
    ),
    "arms": lambda names: charts.arms(
        [arm(name, 0.6, 0.5, 0.7, WORD) for name in names], metric="m", level=0.95, title="t"
    ),
    "metric_profile": lambda names: radial(names, 3),
    "performance_profiles": lambda names: charts.performance_profiles(
        [row for name in names for row in profile(name, 1)], score="s"
    ),
    "bootstrap_distribution": lambda names: charts.bootstrap_distribution(
        [resamples(name) for name in names], metric="m", control="c", level=0.95, sesoi=None, title="t"
    ),
    "sweep_curve": lambda names: charts.sweep_curve(
        [swept(name, 0.6, 0.01) for name in names], param="p", metric="m", level=0.95, title="t"
    ),
    "frontier": frontier,
}  # fmt: skip
OF_A_PAIR: dict[str, Callable[[list[str]], Any]] = {
    "paired_differences": pair,
    "difference_distribution": difference,
}


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 12])
@pytest.mark.parametrize("name", OF_MANY)
def test_every_arm_is_named_in_full(name: str, count: int) -> None:
    text = words(OF_MANY[name](NAMES[:count]))
    assert not [arm for arm in NAMES[:count] if f">{arm}" not in text]
    assert "…" not in text and "alike" not in text


@pytest.mark.parametrize("name", OF_A_PAIR)
def test_both_arms_of_a_pair_are_named_in_full(name: str) -> None:
    text = words(OF_A_PAIR[name](NAMES[:2]))
    assert not [arm for arm in NAMES[:2] if arm not in text]
    assert "…" not in text


def test_charts_of_one_arm_name_it() -> None:
    assert f">{CONTROL}: 5 runs are too few" in words(noise(NAMES))
    assert f"The values {CONTROL} show" in words(charts.normality([quantiles(CONTROL)], what="values", metric="m"))


def test_a_name_longer_than_a_line_continues_on_the_next_one() -> None:
    name = "=".join(NAMES[:3])
    lines = style.name_lines(name)
    assert "".join(lines) == name and len(lines) == 3 and max(map(len, lines)) <= style.NAME_LINE
    text = words(OF_MANY["forest"]([name, "b"]))
    assert all(line in text for line in lines)


def test_a_decimal_number_is_not_broken() -> None:
    assert style.name_lines("momentum-0.9-lr-0.10-cosine", 18) == ["momentum-0.9-lr-", "0.10-cosine"]


def test_no_chart_calls_arms_alike() -> None:
    assert not [file.name for file in CHARTS.glob("*.py") if "alike" in file.read_text()]


def test_fourteen_arms_differ_in_color_or_dash() -> None:
    looks = {(look.colour, tuple(look.dash)) for look in style.arm_styles(map(str, range(14))).values()}
    assert len(looks) == 14


def lightness(colour: str) -> float:
    """The lightness L* of a color, from 0 to 100: what remains of it in gray print."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(116 * np.dot([0.2126, 0.7152, 0.0722], linear) ** (1 / 3) - 16)


def test_arms_with_the_same_dash_differ_in_gray_print() -> None:
    looks = list(style.arm_styles(map(str, range(7))).values())
    shades = [(tuple(look.dash), lightness(look.colour)) for look in looks]
    close = [(a, b) for place, a in enumerate(shades) for b in shades[:place] if a[0] == b[0] and abs(a[1] - b[1]) < 8]
    assert not close


def test_the_control_comes_first_and_the_others_keep_the_order_of_the_study() -> None:
    styles = style.arm_styles(["b", "c", "a", "b"], control="c")
    assert list(styles) == ["c", "b", "a"]
    assert styles["c"] == style.style_at(0) and styles["c"].colour == style.CONTROL


def test_an_arm_has_the_same_color_in_every_chart() -> None:
    styles = style.arm_styles(NAMES, CONTROL)
    shown = NAMES[3:5]  # as after --candidate, or where other arms have no value
    wanted = [styles[name].colour for name in shown]
    curves = charts.learning_curves([band(name, points=5) for name in shown], metric="m", level=0.95, styles=styles)
    *_, means = [rows for rows in layers_of(curves, "line") if rows]
    assert list(dict.fromkeys(row["colour"] for row in means)) == wanted
    rows = [comparison(name, 0.01, 0.0, 0.02, "better") for name in shown]
    family = charts.forest(rows, level=0.95, sesoi=None, title="t", axis="a", styles=styles)
    assert [row["colour"] for row in next(rows for rows in layers_of(family, "point") if rows)] == wanted


@pytest.mark.parametrize("verdict", ["better", "worse", "equivalent", "inconclusive"])
def test_the_color_of_a_comparison_does_not_depend_on_its_verdict(verdict: str) -> None:
    chart = charts.forest([comparison("a", 0.01, 0.0, 0.02, verdict)], level=0.95, sesoi=None, title="t", axis="a")
    (dot,) = next(rows for rows in layers_of(chart, "point") if rows)
    assert dot["colour"] == style.style_at(1).colour
    assert verdict in words(chart)


def test_the_lines_of_pairs_have_no_color_of_judgement() -> None:
    chart = pair(NAMES)
    lines = next(rows for rows in layers_of(chart, "rule") if rows and "dash" in rows[0])
    assert [row["dash"] for row in lines] == [[1, 0], [5, 3]]
    assert "1 of 2 pairs better (solid lines), 1 worse (dashed lines)." in words(chart)


@pytest.mark.parametrize("direction", ["max", "min"])
def test_the_note_says_which_direction_is_better_and_what_is_synthetic(direction: str) -> None:
    note = style.chart_note("eval_loss", direction, synthetic=True)
    assert note.startswith({"max": "Higher", "min": "Lower"}[direction] + " eval_loss is better.")
    assert "Synthetic" in note and "Synthetic" not in style.chart_note("eval_loss", direction, synthetic=False)
    lines = spec_of(charts.with_note(difference(NAMES), note))["title"]["subtitle"]
    assert note in " ".join(lines)


def test_learning_curves_in_place_of_the_judged_metric_say_so_in_the_title() -> None:
    chart = charts.learning_curves([band("a", points=5)], metric="eval_accuracy", level=0.95, judged="report_accuracy")
    assert spec_of(chart)["title"]["text"][0].startswith("eval_accuracy (the curve of report_accuracy) ends at ")


def test_single_runs_of_many_arms_are_not_drawn() -> None:
    chart = OF_MANY["learning_curves"](NAMES[:7])
    assert [bool(rows) for rows in layers_of(chart, "line")] == [False, True]
    assert "thin lines" not in words(chart)


@pytest.mark.parametrize(
    ("level", "text"), [(0.95, "95 %"), (1 - 0.05 / 3, "98.3 %"), (0.995, "99.5 %"), (0.9995, "99.95 %")]
)
def test_levels_have_one_decimal_unless_they_need_more(level: float, text: str) -> None:
    assert style.level_text(level) == text


def test_each_panel_of_a_profile_has_its_own_scale_and_direction() -> None:
    panels = spec_of(radial(["a", "b"], 3))["concat"]
    domains = [tuple(panel["layer"][0]["encoding"]["x"]["scale"]["domain"]) for panel in panels]
    assert len(set(domains)) == 3 and all(low < 0 < high for low, high in domains), "zero is the control"
    headings = ["".join(panel["title"]["text"]) for panel in panels]
    assert headings == [
        "metric 0 (higher is better)", "metric 1 (lower is better)", "metric 2 (higher is better)",
    ]  # fmt: skip
