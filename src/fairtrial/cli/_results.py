"""How results look when Python shows them: the same text, rows and charts as those of the shell commands.

`core/results.py` loads this module when a result is printed, displayed or converted. Each view is named by its module,
so that showing one result does not import the other commands.
"""

from __future__ import annotations

import importlib
import inspect
import io
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairtrial.core.errors import UserError
from fairtrial.core.terminal import visible

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]
WIDTH = 120
"""Width of text that is not printed to a terminal."""


@dataclass(frozen=True)
class View:
    """How one class of results is shown. `show` and `draw` are functions, as `module:name`.

    `show(console, result)` prints the report; it may also take the `Output` of the command, before the result.
    `draw(result, path)` writes the chart.
    """

    show: str
    rows: Callable[[Any], Iterable[Row]]
    draw: str | None = None
    page: Callable[[Any], Iterable[Row]] | None = None
    """Rows for people, rounded; None: the same as `rows`."""


def _lookup(reference: str) -> Callable[..., Any]:
    module, _, name = reference.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _rows_by(reference: str, items: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterable[Row]]:
    """Return a function that gives a row per item, made by the function with this name."""
    return lambda result: map(_lookup(reference), items(result))


def _flat(items: Callable[[Any], Iterable[Row]]) -> Callable[[Any], Iterable[Row]]:
    return _rows_by("fairtrial.cli._lab:flat", items)


def _published_rows(analysis: Any) -> Iterable[Row]:
    if analysis.options.claims:
        return map(_lookup("fairtrial.cli._published_text:claim_row"), analysis.claims)
    return map(_lookup("fairtrial.cli._verdict_text:row_of"), analysis.comparisons)


def _advice_rows(advice: Any) -> Iterable[Row]:
    if advice.feasible:
        return map(_lookup("fairtrial.cli._choice:flat_point"), advice.rows())
    relaxed: Iterable[Row] = _lookup("fairtrial.cli.recommend:_relaxed_rows")(advice.to_dict())
    return relaxed


def _evaluation_rows(evaluations: Any) -> Iterable[Row]:
    return [
        {
            "run": each.run.name,
            "checkpoint": each.checkpoint,
            "step": each.step,
            **each.metrics,
            "selected": each.selected,
            "gap": each.gap,
        }
        for each in evaluations.runs
    ]


def _variance_rows(variance: Any) -> Iterable[Row]:
    row = _lookup("fairtrial.cli.variance:_row")
    return [{"summary": name, **row(each)} for name, each in variance.spreads.items()]


def _trained_rows(trained: Any) -> Iterable[Row]:
    return [{**_without_nested(trained.to_dict()), **trained.run.final}]


def _without_nested(document: Row) -> dict[str, Any]:
    return {name: value for name, value in document.items() if not isinstance(value, dict | list | tuple)}


VIEWS: Mapping[str, View] = {
    "Analysis": View(
        "fairtrial.cli._verdict_text:show_analysis",
        _rows_by("fairtrial.cli._verdict_text:row_of", lambda result: [*result.comparisons, *result.secondary]),
        "fairtrial.api.comparing.plots:main_chart",
        _rows_by("fairtrial.cli._verdict_text:page_row_of", lambda result: [*result.comparisons, *result.secondary]),
    ),
    "PublishedAnalysis": View("fairtrial.cli._published_text:show_published", _published_rows),
    "Comparison": View(
        "fairtrial.cli._results:_show_sentence",
        _rows_by("fairtrial.cli._verdict_text:row_of", lambda result: [result]),
        "fairtrial.api.comparing.plots:comparison_chart",
        _rows_by("fairtrial.cli._verdict_text:page_row_of", lambda result: [result]),
    ),
    "Estimate": View("fairtrial.cli._results:_show_sentence", lambda result: [_without_nested(result.to_dict())]),
    "Sweep": View(
        "fairtrial.cli._sweep_text:show_sweep",
        _rows_by("fairtrial.cli._sweep_text:_row", lambda result: result.to_dict()["results"]),
        "fairtrial.api.lab.lab_plots:sweep_chart",
    ),
    "StrategyComparison": View(
        "fairtrial.cli.compare:_show",
        _flat(lambda result: [each.to_dict() for each in result.strategies]),
        "fairtrial.api.lab.lab_plots:strategies_chart",
    ),
    "Ablation": View(
        "fairtrial.cli.ablation:_show",
        _rows_by("fairtrial.cli.ablation:_row", lambda result: result.rows),
        "fairtrial.api.lab.lab_plots:ablation_chart",
    ),
    "CostPerformance": View(
        "fairtrial.cli.cost_performance:_show",
        _rows_by("fairtrial.cli._choice:flat_point", lambda result: result.rows()),
        "fairtrial.api.pricing.frontier_plot:frontier_chart",
    ),
    "Advice": View("fairtrial.cli.recommend:_show", _advice_rows),
    "CostModel": View("fairtrial.cli._results:_show_cost_model", lambda result: result.to_dict()["cards"]),
    "Plan": View("fairtrial.cli.power:_show", lambda result: list(result.curve) or [result.to_dict()]),
    "Variance": View("fairtrial.cli.variance:_show", _variance_rows, "fairtrial.api.comparing.plots:variance_chart"),
    "ByStream": View(
        "fairtrial.cli.variance:_show_streams",
        _rows_by("fairtrial.cli.variance:_stream_row", lambda r: _lookup("fairtrial.cli.variance:_stream_rows")(r)),
    ),
    "Bench": View("fairtrial.cli._bench_text:show_bench", lambda result: result.phase_rows()),
    "SpeedPair": View("fairtrial.cli._bench_text:show_pair", lambda result: result.rows()),
    "Profile": View("fairtrial.cli._results:_show_profile", lambda result: result.to_dict()["work"]),
    "ProfileDiff": View("fairtrial.cli._profile_text:show_diff", lambda result: result.rows()),
    "Launched": View("fairtrial.cli.launch:_show", lambda result: result.to_dict()["arms"]),
    "Trained": View("fairtrial.cli.train:show_trained", _trained_rows),
    "CheckpointEvaluations": View("fairtrial.cli.evaluate:_show", _evaluation_rows),
    "StudyState": View("fairtrial.cli._watch_text:show_study", lambda result: [c.to_dict() for c in result.cells]),
    "Sync": View("fairtrial.cli.sync:_show", lambda result: result.options.rows()),
    "RunList": View("fairtrial.cli.runs:_show_list", lambda result: result.to_dict()["runs"]),
}  # fmt: skip


def _view(result: Any) -> View:
    return next(VIEWS[each.__name__] for each in type(result).__mro__ if each.__name__ in VIEWS)


def text(result: Any) -> str:
    from fairtrial.cli._console import SafeConsole

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else WIDTH
    target = io.StringIO()
    # In a notebook, Rich would display each line there in place of writing it.
    console = SafeConsole(
        file=target,
        width=width,
        soft_wrap=not is_terminal,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
    )
    _show(console, result)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()).strip("\n")


def _show(console: Console, result: Any) -> None:
    show = _lookup(_view(result).show)
    parameters = inspect.signature(show).parameters
    if "out" in parameters:
        from fairtrial.cli._output import Output

        show(console, Output("text", None, None, quiet=True, color=False), result)
    elif "against" in parameters:  # a result that was not compared with a baseline
        show(console, result, None)
    else:
        show(console, result)


def headline(result: Any) -> str:
    """Return the result's own headline, or the first line of its report that is not a title's underline."""
    own = getattr(result, "headline", None)
    if isinstance(own, str):
        return visible(own)
    lines = [line.strip() for line in text(result).splitlines()]
    return next((line for line in lines if line), "empty")


def rows(result: Any) -> list[Row]:
    return [dict(row) for row in _view(result).rows(result)]


def html(result: Any) -> str:
    from fairtrial.report.fragment import fragment

    cautions = [*_cautions_of(result), *(c for each in getattr(result, "comparisons", ()) for c in _cautions_of(each))]
    view = _view(result)
    shown = [dict(row) for row in (view.page or view.rows)(result)]
    return fragment(headline(result), shown, cautions, text(result))


def _cautions_of(result: Any) -> Sequence[Mapping[str, str]]:
    return getattr(result, "cautions", ())


def draw(result: Any, path: Path) -> None:
    reference = _view(result).draw
    if reference is None:
        drawable = ", ".join(name for name, view in VIEWS.items() if view.draw)
        raise UserError(f"a {type(result).__name__} has no chart", hint=f"These results have one: {drawable}.")
    _lookup(reference)(result, path)


# Views of results that no command prints by themselves


def _show_sentence(console: Console, result: Any) -> None:
    console.print(str(result))


def _show_profile(console: Console, profile: Any) -> None:
    from fairtrial.cli._profile_text import show_profile

    show_profile(console, profile.to_dict())


def _show_cost_model(console: Console, model: Any) -> None:
    from fairtrial.core.formatting import shown_money

    card = model.card
    console.print(
        f"{card.name}: {shown_money(card.usd_per_hour)} per hour, {card.memory_gb:g} GB, "
        f"{card.performance:g} times the speed of an A100 ({card.basis})"
    )
    console.print(f"Hours can be converted from: {', '.join(model.devices())}.")
