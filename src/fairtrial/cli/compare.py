"""fairtrial compare"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._lab import (
    FAMILY_HELP,
    HOW_TO_RUN,
    flat,
    give,
    interval_words,
    lab_command,
    lab_terms,
    next_commands,
    planned_terms,
    run_options,
)
from fairtrial.cli._output import Output
from fairtrial.cli._pieces import judged_line, show_cautions, show_next, show_title
from fairtrial.cli._sweep_text import quantity_of
from fairtrial.cli._tables import plain_table
from fairtrial.core.formatting import (
    counted,
    decimals_for,
    p_equals,
    shown_change,
    shown_interval,
    shown_p,
    shown_percent,
    shown_time,
    shown_value,
)
from fairtrial.core.plugin_registry import ADJUSTMENTS, plugin_names

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.lab.compare import StrategyComparison
    from fairtrial.core.findings import Comparison
    from fairtrial.plan.study import Study

RUNS = 5
DEFAULT = "kd,progressive,attention,mse,combined"


def _compare(out: Output, settings: dict[str, Any], *, compute_matched: bool, **parsed: Any) -> int:
    """Compare distillation strategies on the same seeds.

    The baseline `none`, which learns only from labels, is always included. Time and memory are measured on runs that
    had a process of their own. All differences are corrected for multiple comparisons together.
    """
    from fairtrial.api.lab.compare import compare_strategies

    question, how = _question(settings, **parsed)
    with lab_terms(out, RUNS, **how) as terms:
        strategy_comparison = out.command.answer(
            compare_strategies, **question, compute_matched=compute_matched, terms=terms
        )
    rows = [flat(each.to_dict()) for each in strategy_comparison.strategies]
    return give(out, strategy_comparison, rows, lambda console: _show(console, out, strategy_comparison), _draw)


def _plan(out: Output, settings: dict[str, Any], *, compute_matched: bool, **parsed: Any) -> Study:  # noqa: ARG001
    from fairtrial.api.lab.compare import plan_compare

    question, how = _question(settings, **parsed)
    return plan_compare(**question, terms=planned_terms(out, RUNS, **how))


def _question(
    settings: dict[str, Any], *, strategies: str, family: str | None, **how: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the parsed flags into the arguments of the API function and the options on how to run."""
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    return {"strategies": names, "options": settings, "family": family}, how


def _show(console: Console, out: Output, strategy_comparison: StrategyComparison) -> None:
    quantity = quantity_of(strategy_comparison.metric).capitalize()
    interval = f"{shown_percent(strategy_comparison.level)} interval"
    table = plain_table("Strategy", quantity, interval, "Loss", "Time", "Memory (GB)", "Runs")
    for each in strategy_comparison.strategies:
        memory = "" if each.memory_gb is None else f"{each.memory_gb:.4f}"
        runs = f"{each.accuracy.n}" + (f" ({len(each.lost)} lost)" if each.lost else "")
        cells = [each.name, shown_value(each.accuracy.value), interval_words(each.accuracy), shown_value(each.loss)]
        table.add_row(*cells, shown_time(each.time_s), memory, runs)
    show_title(console, "Strategy Comparison Results")
    console.print(_headline(strategy_comparison), style="bold", markup=False)
    console.print()
    console.print(table)
    console.print()
    if strategy_comparison.significant:
        family = f"adjusted for {counted(len(strategy_comparison.comparisons), 'comparison')}"
        console.print(
            f"Statistical significance (p < {1 - strategy_comparison.level:.3g}, {family}):", style="bold", markup=False
        )
    for line in [difference_line(each) for each in strategy_comparison.significant] or ["No significant difference."]:
        console.print(line, markup=False)
    open_ = len(strategy_comparison.comparisons) - len(strategy_comparison.significant)
    if open_ and strategy_comparison.significant:
        console.print(f"{open_} of {len(strategy_comparison.comparisons)} comparisons are inconclusive.", markup=False)
    console.print(judged_line(strategy_comparison.metric, strategy_comparison.direction), markup=False)
    show_cautions(console, strategy_comparison.cautions)
    show_next(console, next_commands(out, strategy_comparison.study))


def _draw(strategy_comparison: StrategyComparison, path: Path) -> None:
    from fairtrial.api.lab.lab_plots import strategies_chart

    strategies_chart(strategy_comparison, path)


def _headline(strategy_comparison: StrategyComparison) -> str:
    best = next(each for each in strategy_comparison.strategies if each.name == strategy_comparison.best)
    value = f"{quantity_of(strategy_comparison.metric)} {shown_value(best.accuracy.value)}"
    if not strategy_comparison.comparisons:
        return f"Only {best.name} has a result ({value})."
    if not strategy_comparison.alike:
        return f"{best.name} is best ({value}): better than every other strategy."
    return (
        f"{best.name} has the best mean ({value}); statistically indistinguishable from it: "
        f"{', '.join(strategy_comparison.alike)}."
    )


def difference_line(comparison: Comparison) -> str:
    """`progressive > kd (p = 0.012, Δ = +0.031 [+0.008, +0.054])`"""
    low, high = comparison.effect.low, comparison.effect.high
    decimals = decimals_for(None if low is None or high is None else high - low)
    p = comparison.adjusted_p if comparison.adjusted_p is not None else comparison.p_value
    change = shown_change(comparison.effect.value or 0.0, decimals)
    message = p_equals(shown_p(p))
    return (
        f"{comparison.candidate} > {comparison.control} ({message}, Δ = {change} {shown_interval(low, high, decimals)})"
    )


OWN: list[click.Parameter] = [
    click.Option(
        ["--strategies"], default=DEFAULT, show_default=True, metavar="LIST", help="Strategies, separated by commas."
    ),
    click.Option(
        ["--compute-matched"], is_flag=True, help="Add a baseline that trains for as long as the slowest strategy."
    ),
    click.Option(["--family"], type=click.Choice(plugin_names(ADJUSTMENTS)), help=FAMILY_HELP),
    *run_options(RUNS, stack=False),
]
PAGE = HelpPage(
    {
        "What to compare": "--strategies --compute-matched",
        "How to judge": "--metric --direction | --level --family",
        "How to run": HOW_TO_RUN,
    },
    ("fairtrial compare --strategies kd,mse,combined --runs 5", "fairtrial compare --labels 1000 --output compare.png"),
)
command = lab_command("compare", _compare, _plan, OWN, PAGE, without=["strategy"])
