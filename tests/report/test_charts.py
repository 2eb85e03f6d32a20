"""Every chart is really rendered: the right bytes, the words that matter, and no picture for no data."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.core.errors import MissingExtra, UserError
from fairtrial.report import charts
from fairtrial.report.charts import places, style
from fairtrial.report.charts.curves import ALL_POINTS
from fairtrial.report.charts.rendering import rendered
from fairtrial.report.formats import CHART_SUFFIXES

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<svg", ".pdf": b"%PDF"}
LONG = "the same transformer with a warm-up of two thousand steps and no dropout at all"
NAN, INF = math.nan, math.inf


def band(name: str, runs: int = 5, points: int = 50, level: float = 0.8) -> charts.Band:
    rng = np.random.default_rng(runs)
    steps = np.linspace(0, 1000, points)
    table = level * (1 - np.exp(-steps / 200)) + rng.normal(0, 0.02, (runs, points))
    mean, spread = table.mean(axis=0), 3 * table.std(axis=0)
    lines = [(steps.tolist(), line.tolist()) for line in table]
    return charts.Band(name, steps.tolist(), mean.tolist(), (mean - spread).tolist(), (mean + spread).tolist(), lines)


def curves(*names: str, **settings: Any) -> Any:
    bands = [band(name, level=0.7 + 0.01 * place) for place, name in enumerate(names)]
    return charts.learning_curves(bands, **{"metric": "eval_accuracy", "level": 0.95, **settings})


def pairs(count: int = 5, names: tuple[str, str] = ("control", "warm up"), **settings: Any) -> Any:
    rng = np.random.default_rng(count)
    control = rng.normal(0.8, 0.02, count)
    candidate = control + rng.normal(0.02, 0.02, count)
    seeds = [str(seed) for seed in range(count)]
    wording = {"names": names, "metric": "report_accuracy", "title": "warm up is better than control"}
    return charts.paired_differences(seeds, control.tolist(), candidate.tolist(), **{**wording, **settings})


def distribution(samples: Any = (0.01, 0.02, 0.03), **settings: Any) -> Any:
    found = {"value": 0.02, "low": 0.005, "high": 0.035, "level": 0.95, "sesoi": 0.01}
    wording = {"metric": "report_accuracy", "names": ("control", "warm up"), "title": "warm up is better than control"}
    return charts.difference_distribution(samples, **{**found, **wording, **settings})


def half_width(n: int, width: float | None, extrapolated: bool = False) -> dict[str, Any]:
    return {"n": n, "half_width": width, "relative": width, "extrapolated": extrapolated}


def panels(**settings: Any) -> Any:
    rows = [half_width(n, 0.3 / math.sqrt(n), n > 5) for n in range(2, 40)]
    asked = {"threshold": 0.05, "relative": True, "metric": "eval_accuracy", "n": 5, "arm": "base"}
    return charts.variance_panels(
        **{"panels": {"AUC": rows, "derivative": rows}, "n_min": {"AUC": 36, "derivative": 4}, **asked, **settings}
    )


def comparison(name: str, value: float | None, low: float | None, high: float | None, verdict: str) -> dict[str, Any]:
    return {"name": name, "value": value, "low": low, "high": high, "verdict": verdict}


FAMILY = [
    comparison("warm up", 0.03, 0.01, 0.05, "better"),
    comparison("label smoothing", 0.001, -0.004, 0.006, "equivalent"),
    comparison("no decay", -0.03, -0.05, -0.01, "worse"),
    comparison("one-sided", 0.01, -INF, 0.03, "inconclusive"),
    comparison("two runs", 0.01, None, None, "inconclusive"),
    comparison("nothing", None, None, None, "inconclusive"),
]


def forest(rows: Any = FAMILY, **settings: Any) -> Any:
    axis = "difference in report_accuracy: each named arm − base"
    wording = {"axis": axis, "level": 0.95, "sesoi": 0.01, "title": "One of six is better"}
    return charts.forest(rows, **{**wording, **settings})


def swept(value: Any, mean: float | None = None, spread: float | None = None, **marks: Any) -> dict[str, Any]:
    """One value of a sweep: three runs about a mean, and an interval that reaches `spread` to both sides."""
    runs = [] if mean is None else [mean - 0.002, mean, mean + 0.002]
    low, high = (None, None) if mean is None or spread is None else (mean - spread, mean + spread)
    return {"value": value, "mean": mean, "low": low, "high": high, "runs": runs, "best": False} | marks


TEMPERATURES = [
    swept(1.0, 0.60, 0.005, distinct=True),
    swept(2.0, 0.64, 0.005, distinct=True),
    swept(3.0, 0.65, 0.005, distinct=False),
    swept(4.0, 0.66, 0.005, best=True, distinct=False),
    swept(5.5),
]


def sweep(rows: Any = TEMPERATURES, **settings: Any) -> Any:
    wording = {"param": "temperature", "metric": "report_accuracy", "level": 0.95, "title": "temperature 4 is best"}
    return charts.sweep_curve(rows, **{**wording, **settings})


def arm(name: str, value: float | None, low: float | None, high: float | None, word: str) -> dict[str, Any]:
    runs = [] if value is None else [value - 0.01, value, value + 0.01]
    return {"name": name, "value": value, "low": low, "high": high, "runs": runs, "word": word}


STRATEGIES = [
    arm("dkd", 0.66, 0.65, 0.67, "best"),
    arm("kd", 0.655, 0.645, 0.665, "not distinguishable from dkd"),
    arm("one-sided", 0.64, -INF, 0.65, "worse than dkd"),
    arm("two runs", 0.63, None, None, "worse than dkd"),
    arm("lost", None, None, None, ""),
    arm("none", 0.62, 0.61, 0.63, "baseline, worse than dkd"),
]


def strategies(rows: Any = STRATEGIES, **settings: Any) -> Any:
    return charts.arms(rows, **{"metric": "report_accuracy", "level": 0.95, "title": "dkd is best", **settings})


def radial(names: Sequence[str] = ("warm up", "no decay"), metrics: int = 4) -> Any:
    """Differences from the control in several metrics; in every second metric, lower is better."""
    rng = np.random.default_rng(1)
    rows = []
    for name in names:
        for place in range(metrics):
            value, half = rng.normal(0, 10.0**place, 2)
            rows.append(
                {"arm": name, "metric": f"metric {place}", "direction": ("max", "min")[place % 2], "value": value,
                 "low": value - abs(half), "high": value + abs(half), "control_mean": f"{place}.5",
                 "verdict": "inconclusive" if abs(half) > abs(value) else "better"}
            )  # fmt: skip
    return charts.metric_profile(rows, control="control", level=0.95)


def profile(name: str, scale: float, limits: bool = True) -> list[dict[str, Any]]:
    values = [(tau, math.exp(-tau / scale)) for tau in np.linspace(0, 3, 30).tolist()]
    return [
        {"variant": name, "tau": tau, "value": v, "low": 0.9 * v if limits else None, "high": v if limits else NAN}
        for tau, v in values
    ]


def profiles(*names: str) -> Any:
    rows = [row for place, name in enumerate(names) for row in profile(name, 1 + place, limits=place != 1)]
    return charts.performance_profiles(rows, score="normalised score")


ALL: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "learning_curves": (
        lambda: curves("control", "warm up", window=(500, 1000)),
        ["control", "warm up", "eval_accuracy", "step", "95 % band", "the steps used by the summary"],
    ),
    "paired_differences": (pairs, ["control", "warm up", "is better than", "report_accuracy", "seed 3", "of 5 pairs"]),
    "difference_distribution": (
        distribution,
        ["is better than control", "warm up − control", "3 differences", "+0.0200 [+0.0050, +0.0350]", "±0.01"],
    ),
    "variance_panels": (
        panels,
        [
            "base: ",
            "smaller is more precise",
            "AUC",
            "derivative",
            "you have n = 5",
            "n = 36 needed",
            "threshold 5 %",
            "5 runs are too few for AUC",
        ],
    ),
    "forest": (forest, [str(row["name"]) for row in FAMILY] + ["better", "worse", "equivalent", "inconclusive", "−∞"]),
    "sweep_curve": (
        lambda: sweep(baseline=2),
        [
            "is best",
            ">best<",
            ">baseline<",
            ">no value<",
            ">5.5<",
            ">temperature<",
            "report_accuracy",
            "95 % intervals",
        ],
    ),
    "arms": (
        strategies,
        [str(row["name"]) for row in STRATEGIES]
        + [
            "0.6600 [0.6500, 0.6700]",
            "[−∞, 0.6500]",
            "no interval",
            "no value",
            ">best<",
            ">not distinguishable from dkd<",
            ">baseline, worse than dkd<",
        ],
    ),
    "metric_profile": (
        radial,
        [
            "warm up",
            "no decay",
            "metric 2 (higher is better)",
            "metric 3 (lower is better)",
            "control mean 1.5",
            "every panel with its own scale",
            "Difference from control",
            "95 % intervals",
        ],
    ),
    "performance_profiles": (
        lambda: profiles("control", "warm up"),
        ["control", "warm up", "normalised score", "τ", "warm up is at or above control"],
    ),
}


def words(chart: Any) -> str:
    """What a reader of the picture can read."""
    svg = unescape(rendered(chart, ".svg").decode())
    return svg.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("suffix", CHART_SUFFIXES)
def test_every_chart_is_written_in_every_format(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"chart{suffix}"
    charts.save(ALL[name][0](), path)
    content = path.read_bytes()
    assert content.startswith(MAGIC[suffix])
    assert len(content) > 3000


@pytest.mark.parametrize("name", ALL)
def test_a_chart_says_what_it_shows(name: str) -> None:
    make, expected = ALL[name]
    text = words(make())
    assert not [word for word in expected if word not in text]


@pytest.mark.parametrize("name", ALL)
def test_altair_finds_nothing_wrong_with_a_chart(name: str) -> None:
    assert ALL[name][0]().to_dict(validate=True)


def test_a_png_has_twice_the_size_of_the_svg() -> None:
    chart = forest()
    png, svg = rendered(chart, ".png"), rendered(chart, ".svg").decode()
    width = float(svg.partition('width="')[2].partition('"')[0])
    assert int.from_bytes(png[16:20]) == pytest.approx(2 * width, abs=2)


def test_the_suffix_may_be_in_capitals(tmp_path: Path) -> None:
    charts.save(forest(), tmp_path / "FOREST.PNG")
    assert (tmp_path / "FOREST.PNG").read_bytes().startswith(MAGIC[".png"])


@pytest.mark.parametrize("name", ["chart.jpg", "chart", "chart.html"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="suffix") as refused:
        charts.save(forest(), tmp_path / name)
    assert refused.value.hint and ".png, .svg, .pdf" in refused.value.hint
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write .*: No such file or directory"):
        charts.save(forest(), tmp_path / "nowhere" / "chart.svg")


@pytest.mark.parametrize(("package", "act"), [("altair", forest), ("vl_convert", lambda: rendered(forest(), ".svg"))])
def test_a_missing_package_says_how_to_install_it(
    package: str, act: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=f"charts need {package}, which is not installed") as missing:
        act()
    assert missing.value.hint == "Install it with: pip install 'fairtrial[charts]'"


def test_altair_is_not_imported_before_a_chart_is_drawn() -> None:
    code = "import sys, fairtrial.report.charts; print({'altair', 'vl_convert', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def _without_network() -> list[str]:
    unshare = shutil.which("unshare")
    command = [unshare, "--user", "--map-root-user", "--net"] if unshare else []
    if not command or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let a process give up its network")
    return command


@pytest.mark.slow
def test_charts_are_rendered_without_a_network(tmp_path: Path) -> None:
    rows = json.dumps([{**row, "low": None, "high": None} for row in FAMILY])
    code = (
        "import json, sys; from pathlib import Path; from fairtrial.report import charts\n"
        "chart = charts.forest(json.loads(sys.argv[1]), axis='m', level=0.95, sesoi=None, title='t')\n"
        "for suffix in ('.png', '.svg', '.pdf'): charts.save(chart, Path('chart' + suffix))"
    )
    subprocess.run(
        [*_without_network(), sys.executable, "-c", code, rows], cwd=tmp_path, env=dict(os.environ), check=True
    )
    assert {path.suffix: path.read_bytes()[:4] for path in tmp_path.glob("chart.*")} == {
        suffix: magic[:4] for suffix, magic in MAGIC.items()
    }


@pytest.mark.parametrize("name", ALL)
def test_a_chart_refers_to_nothing_outside_itself(name: str) -> None:
    spec = ALL[name][0]().to_dict()
    spec.pop("$schema")
    assert "http" not in json.dumps(spec)
    assert '"url"' not in json.dumps(spec)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: charts.learning_curves([], metric="m", level=0.95),
        lambda: charts.learning_curves([charts.Band("a", [1], [NAN], [NAN], [NAN])], metric="m", level=0.95),
        lambda: charts.paired_differences([], [], [], names=("a", "b"), metric="m", title="t"),
        lambda: charts.paired_differences(["1"], [NAN], [1.0], names=("a", "b"), metric="m", title="t"),
        lambda: distribution([]),
        lambda: distribution([NAN, INF]),
        lambda: panels(panels={}),
        lambda: panels(panels={"AUC": [], "derivative": [half_width(2, None)]}),
        lambda: forest([]),
        lambda: sweep([]),
        lambda: sweep([swept(1), swept(2, NAN), swept("three", INF)]),
        lambda: strategies([]),
        lambda: strategies([arm("a", None, 0.1, 0.2, "best"), arm("b", NAN, None, None, "")]),
        lambda: charts.metric_profile([], control="c", level=0.95),
        lambda: charts.metric_profile(
            [{"arm": "a", "metric": m, "direction": "max", "value": NAN} for m in "xyz"], control="c", level=0.95
        ),
        lambda: charts.performance_profiles([], score="s"),
        lambda: charts.performance_profiles(
            [{"variant": "a", "tau": 0, "value": None, "low": None, "high": None}], score="s"
        ),
    ],
)
def test_no_data_is_a_sentence_and_not_an_empty_picture(draw: Callable[[], Any]) -> None:
    with pytest.raises(UserError, match="there is nothing to draw: "):
        draw()


def test_a_radial_profile_of_two_metrics_is_refused() -> None:
    with pytest.raises(UserError, match="at least three metrics, not 2"):
        radial(metrics=2)


def test_one_variant_has_no_rival_in_its_title() -> None:
    assert "eval_accuracy ends at" in words(curves("only"))
    assert "only against control over 3 metrics: better on " in words(radial(["only"], 3))
    assert "How only scores over all runs" in words(profiles("only"))


def test_names_are_taken_as_they_are() -> None:
    assert "a.b [c] 'd\" <e> & f\\g" in words(curves("a.b [c] 'd\" <e> & f\\g", "control"))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 1000])
def test_few_and_many_runs_are_drawn(count: int) -> None:
    bands = [band("control", count, 600), band("candidate", count, 600)]
    chart = charts.learning_curves(bands, metric="m", level=0.95)
    drawn = [len(json.loads(rows)) for rows in chart.to_dict()["datasets"].values()]
    assert 4 * 300 < sum(drawn) < 1.5 * ALL_POINTS
    assert rendered(chart, ".png").startswith(MAGIC[".png"])
    assert rendered(pairs(count), ".png").startswith(MAGIC[".png"])
    assert rendered(distribution(np.random.default_rng(0).normal(0, 1, count).tolist()), ".png").startswith(
        MAGIC[".png"]
    )


def test_it_is_said_when_not_every_run_is_drawn() -> None:
    assert "Mean of 150 runs, pointwise 95 % band; thin lines: 100 runs." in words(
        charts.learning_curves([band("control", 150)], metric="m", level=0.95)
    )


def test_a_diverged_run_does_not_spoil_the_scale() -> None:
    calm = band("control")
    wild = [(steps, [*values[:40], *[1e30] * 10]) for steps, values in calm.runs[:1]]
    spoilt = charts.Band("control", calm.steps, calm.mean, calm.low, calm.high, [*calm.runs, *wild])
    chart = charts.learning_curves([spoilt], metric="m", level=0.95)
    domain = chart.to_dict()["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert domain[1] < 2
    assert "Some lines leave the frame." in words(chart)


def test_unknown_and_infinite_points_are_gaps() -> None:
    steps = [0.0, 1.0, 2.0, 3.0]
    holed = charts.Band(
        "a", steps, [1, NAN, 2, INF], [NAN, NAN, -INF, 0], [NAN, 2, INF, 3], [(steps, [1, INF, NAN, -INF]), ([], [])]
    )
    text = words(charts.learning_curves([holed], metric="m", level=0.95, window=(-9, 99)))
    assert "NaN" not in text
    assert "m ends at 2.000 for a" in text


@pytest.mark.parametrize(
    ("low", "high", "told", "arrow"),
    [
        (-INF, 0.03, "[−∞, ", True),
        (0.01, INF, "+∞]", True),
        (-INF, INF, "[−∞, +∞]", True),
        (None, 0.03, "[−∞, ", True),
        (None, None, "mean, no interval", False),
        (NAN, NAN, "mean, no interval", False),
        (-500.0, 500.0, "−500", True),
        (0.01, 0.03, "+0.0300", False),
    ],
)
def test_an_interval_that_goes_on_has_an_arrow(low: float | None, high: float | None, told: str, arrow: bool) -> None:
    text = words(distribution(low=low, high=high))
    assert told in text
    assert ("Arrows: the interval extends beyond the frame." in text) == arrow
    assert rendered(forest([comparison("a", 0.02, low, high, "inconclusive")]), ".png").startswith(MAGIC[".png"])


def test_pairs_without_a_number_are_left_out_and_counted() -> None:
    wording = {"names": ("a", "b"), "metric": "loss", "title": "t"}
    chart = charts.paired_differences(["1", "2", "3"], [1.0, 2.0, NAN], [0.5, 3.0, 1.0], **wording, direction="min")
    text = words(chart)
    assert "1 of 2 pairs better (solid lines), 1 worse (dashed lines)." in text
    assert "Left out: 1 pair without a number on both sides." in text


def test_a_number_of_runs_beyond_the_curve_is_told() -> None:
    text = words(panels(n_min={"AUC": 1_000_000, "derivative": None}))
    assert "n = 1,000,000 needed →" in text
    assert "5 runs are too few for AUC (1,000,000 needed); unknown for derivative" in text


def test_an_absolute_threshold_is_in_the_unit_of_the_metric() -> None:
    text = words(panels(relative=False))
    assert "threshold 0.05" in text
    assert "half-width, AUC of eval_accuracy" in text


_last: list[Any] = [None, {}]


def spec_of(chart: Any) -> Any:
    """A chart as data. Altair takes a tenth of a second for that, so the last one is kept."""
    if _last[0] is not chart:
        _last[:] = chart, chart.to_dict()
    return _last[1]


def layers_of(chart: Any, mark: str) -> list[list[dict[str, Any]]]:
    """The rows of all layers with a mark, layer by layer."""
    spec = spec_of(chart)
    found = [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]
    return [json.loads(spec["datasets"][layer["data"]["name"]]) for layer in found]


def domain(chart: Any, axis: str) -> list[float]:
    return spec_of(chart)["layer"][0]["encoding"][axis]["scale"]["domain"]


def ticks_of(chart: Any) -> list[float] | None:
    return spec_of(chart)["layer"][0]["encoding"]["x"]["axis"].get("values")


def lines_of(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def place_of(chart: Any, word: str) -> dict[str, Any]:
    (row,) = [row for rows in layers_of(chart, "text") for row in rows if "".join(row["text"]) == word]
    return row


@pytest.mark.slow
def test_a_sweep_fills_the_dots_that_are_not_distinguishable_from_the_best() -> None:
    rings, means, best = [rows for rows in layers_of(sweep(), "point") if rows]
    assert [row["x"] for row in rings] == [1, 2]
    assert [row["x"] for row in means] == [3, 4]
    assert best == [{"x": 4.0, "y": 0.66, "colour": style.ACCENT}]
    assert place_of(sweep(), "best")["x"] == pytest.approx(4)
    assert place_of(sweep(), "best")["y"] > 0.665
    assert "Filled dots: the best value and those not distinguishable from it; hollow dots" in words(sweep())


def test_a_sweep_without_a_test_has_filled_dots_only() -> None:
    chart = sweep([swept(1, 0.5), swept(2, 0.6, best=True)])
    means, best = [rows for rows in layers_of(chart, "point") if rows]
    assert [row["x"] for row in means] == [1, 2] and [row["x"] for row in best] == [2]
    assert "hollow" not in words(chart)


def test_the_line_of_a_sweep_has_a_gap_where_all_runs_were_lost() -> None:
    (line,) = layers_of(sweep([swept(3, 0.6), swept(2), swept(1, 0.5)]), "line")
    assert [row["y"] for row in line] == [0.5, None, 0.6]
    assert place_of(sweep([swept(3, 0.6), swept(2), swept(1, 0.5)]), "no value")["x"] == 2


def test_categories_stand_side_by_side_and_are_not_joined() -> None:
    chart = sweep([swept("adam", 0.6), swept("sgd", 0.61, best=True), swept(True, 0.5)], baseline="adam")
    assert not layers_of(chart, "line")
    assert [place_of(chart, name)["x"] for name in ("adam", "sgd", "True", "best", "baseline")] == [0, 1, 2, 1, 0]


@pytest.mark.parametrize(
    ("baseline", "drawn"), [(2, True), (2.5, True), (0.01, False), (99, False), ("2", False), (NAN, False)]
)
def test_a_baseline_is_marked_if_it_lies_in_the_range(baseline: Any, drawn: bool) -> None:
    assert (">baseline<" in words(sweep(baseline=baseline))) == drawn


def test_a_baseline_that_is_the_best_does_not_hide_it() -> None:
    chart = sweep(baseline=4)
    best, baseline = place_of(chart, "best"), place_of(chart, "baseline")
    assert best["x"] > baseline["x"] == 4
    assert best["y"] < domain(chart, "y")[1] < baseline["y"]
    hidden = sweep([swept(4, 0.66, 9.0, best=True)], baseline=4)
    assert place_of(hidden, "best")["y"] > place_of(hidden, "baseline")["y"] > domain(hidden, "y")[1]


def test_a_logarithmic_sweep_has_its_values_as_ticks() -> None:
    rates = [1e-5, 1e-4, 3e-4, 1e-3, 0.01]
    chart = sweep([swept(rate, 0.6) for rate in rates], log=True, baseline=1e-3)
    assert ticks_of(chart) == rates
    text = words(chart)
    assert all(f">{name}<" in text for name in ("1e−5", "0.0001", "0.0003", "0.001", "0.01"))


def test_ticks_of_many_values_are_round_numbers() -> None:
    many = np.logspace(-5, 0, 60).tolist()
    assert ticks_of(sweep([swept(value, 0.6) for value in many], log=True)) == [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1]
    close = np.linspace(0.0021, 0.0039, 60).tolist()
    assert ticks_of(sweep([swept(value, 0.6) for value in close], log=True)) == [close[0], close[-1]]
    assert ticks_of(sweep([swept(value, 0.6) for value in range(60)])) is None


def test_a_zero_on_a_logarithmic_axis_makes_categories() -> None:
    chart = sweep([swept(0, 0.6), swept(1e-5, 0.61), swept(1e-3, 0.62)], log=True, baseline=0)
    assert [place_of(chart, name)["x"] for name in ("0", "1e−5", "0.001", "baseline")] == [0, 1, 2, 0]


def test_huge_intervals_do_not_stretch_a_sweep() -> None:
    chart = sweep([swept(1, 0.60, 50.0), swept(2, 0.65, 0.01), swept(3, 0.66, INF)])
    low, high = domain(chart, "y")
    assert 0.5 < low < 0.598 and 0.662 < high < 0.7
    (bars,) = [rows for rows in layers_of(chart, "rule") if rows]
    assert [(row["y"], row["y2"]) for row in bars] == [
        (low, high),
        (pytest.approx(0.64), pytest.approx(0.66)),
        (low, high),
    ]
    assert "Arrows: the interval extends beyond the frame." in words(chart)


@pytest.mark.slow
def test_a_value_that_diverged_does_not_flatten_the_others() -> None:
    chart = sweep([swept(1, 0.60), swept(2, 0.65), swept(3, 0.66), swept(4, 5e4)])
    assert domain(chart, "y")[1] < 1
    assert "Some means are outside the frame." in words(chart)
    rows = [*STRATEGIES, arm("diverged", 5e4, None, None, "")]
    assert domain(strategies(rows), "x")[1] < 1
    assert "Some means are outside the frame." in words(strategies(rows))
    assert "50,000.0000 no interval" in words(strategies(rows))


@pytest.mark.parametrize(
    "rows",
    [
        [swept(4.0, 0.6, 0.01, best=True)],
        [swept(0, 0.0, 0.0, best=True)],
        [swept(value, 0.6, runs=[0.6]) for value in range(5)],
        [swept(value, 0.6, runs=[]) for value in range(5)],
        [swept(value, 0.6 + value / 1000, 0.01, best=value == 30) for value in range(60)],
        [swept(f"{LONG} {value}", 0.6, 0.01, best=value == 3) for value in range(60)],
        [swept(value) if value % 2 else swept(value, 0.6) for value in range(60)],
        [swept(2, 0.6), swept(2, 0.7)],
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_odd_sweeps_are_drawn(rows: Any, log: bool) -> None:
    text = words(sweep(rows, log=log, baseline=4))
    assert "NaN" not in text and "undefined" not in text


def test_one_run_per_value_is_said_and_drawn_once() -> None:
    chart = sweep([swept(1, 0.6, runs=[0.6]), swept(2, 0.61, runs=[0.61], best=True)])
    assert "One run per value." in words(chart)
    assert not any(layers_of(chart, "circle"))
    lone = [{**arm("a", 0.6, None, None, "best"), "runs": [0.6]}]
    assert "One run per arm." in words(strategies(lone))


def test_long_categories_are_slanted_and_written_in_full() -> None:
    chart = sweep([swept(f"{LONG} {place}", 0.6) for place in range(7)])
    text = words(chart)
    assert text.count("rotate(310)") == 7
    assert all(line.strip() in text for place in range(7) for line in style.name_lines(f"{LONG} {place}"))
    assert "rotate(310)" not in words(sweep([swept("adam", 0.6), swept("sgd", 0.6)]))


def test_arms_keep_their_order_and_have_the_color_of_the_study() -> None:
    chart = strategies(styles=style.arm_styles(["kd", "none", "dkd", "lost", "two runs", "one-sided"], "none"))
    names, _numbers, standing = layers_of(chart, "text")
    assert [(row["text"], row["y"]) for row in names] == [([row["name"]], y) for y, row in enumerate(STRATEGIES)]
    assert [row["text"] for row in standing] == [[row["word"]] for row in STRATEGIES]
    means = next(rows for rows in layers_of(chart, "point") if len(rows) > 2)
    assert [row["colour"] for row in means] == [style.style_at(place).colour for place in (2, 1, 5, 4, 0)]
    (dots,) = layers_of(chart, "circle")
    assert len(dots) == 15
    assert all(row["y"] - 0.5 < round(row["y"]) < row["y"] for row in dots)


numbers = st.one_of(st.none(), st.sampled_from([NAN, INF, -INF, 1e308, -1e308]), st.floats(width=32))


def _any_point(value: Any, mean: Any, limit: Any, best: bool) -> dict[str, Any]:
    runs = [number for number in (value, mean, limit) if number is not None]
    return {"value": value, "mean": mean, "low": mean, "high": limit, "runs": runs, "best": best}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(numbers, numbers, numbers), max_size=6), numbers, st.one_of(st.none(), st.floats(0, 1e6)))
def test_any_numbers_make_a_chart_or_a_sentence(rows: list[tuple[Any, Any, Any]], value: Any, sesoi: Any) -> None:
    samples = [NAN if row[0] is None else row[0] for row in rows]
    low, high = rows[0][1:] if rows else (None, None)
    family = [comparison(str(place), *row, "inconclusive") for place, row in enumerate(rows)]
    for draw in (
        lambda: distribution(samples, value=value, low=low, high=high, sesoi=sesoi),
        lambda: forest(family, sesoi=sesoi),
        lambda: strategies([arm(str(place), *row, "worse than x") for place, row in enumerate(rows)]),
        lambda: sweep([_any_point(*row, best=not place) for place, row in enumerate(rows)], baseline=value),
        lambda: sweep([_any_point(*row, best=not place) for place, row in enumerate(rows)], baseline=value, log=True),
    ):
        try:
            spec = draw().to_dict(validate=False)
        except UserError:
            continue
        json.dumps(spec, allow_nan=False)


@given(st.lists(st.floats(0, 300), min_size=1, max_size=20))
def test_labels_keep_their_order_and_their_distance(wanted: list[float]) -> None:
    placed = places.spread_out(wanted, 14, (0, 360))
    ordered = [placed[i] for i in np.argsort(wanted, kind="stable")]
    assert all(b - a >= 14 - 1e-6 for a, b in pairwise(ordered))
    assert min(placed) >= -1e-6 and max(placed) <= 360 + 1e-6


def test_a_label_with_room_stays_where_it_belongs() -> None:
    assert places.spread_out([10, 100, 200], 14, (0, 360)) == [10, 100, 200]


def test_a_thinned_line_keeps_its_ends_its_extremes_and_its_gaps() -> None:
    values = np.sin(np.arange(10_000) / 500)
    values[5000], values[7000], values[8000] = 9, -9, NAN
    kept = places.thinned(values, 300)
    assert len(kept) <= 320
    assert {0, 5000, 7000, 8000, 9999} <= set(kept.tolist())
    assert places.thinned(values[:200], 300).tolist() == list(range(200))


def test_a_line_is_cut_where_it_leaves_the_frame() -> None:
    x, y = places.cut(np.array([0.0, 1, 2, 3]), np.array([0.0, 2, -2, 0]), (-1, 1))
    assert x.tolist() == [0, 0.5, 1, 1.25, 1.75, 2, 2.5, 3]
    assert np.array_equal(y, [0, 1, NAN, 1, -1, NAN, -1, 0], equal_nan=True)


def test_a_stray_value_does_not_widen_the_frame() -> None:
    assert places.domain_of([0, 1], [1.5, 900, None, NAN], margin=0) == (0, 1.5)
    low, high = places.domain_of([3.0])
    assert low < 3 < high
