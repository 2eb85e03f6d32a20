"""fairtrial ablation"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._lab import (
    FAMILY_HELP,
    HOW_TO_RUN,
    flat,
    give,
    lab_command,
    lab_terms,
    next_commands,
    planned_terms,
    run_options,
)
from fairtrial.cli._output import Output
from fairtrial.cli._pieces import judged_line, show_cautions, show_next, show_title
from fairtrial.cli._sweep_text import quantity_of
from fairtrial.cli._tables import Column, plain_table
from fairtrial.core.findings import Estimate
from fairtrial.core.formatting import (
    counted,
    decimals_for,
    p_equals,
    shown_change,
    shown_interval,
    shown_p,
    shown_percent,
    shown_value,
)
from fairtrial.core.plugin_registry import ADJUSTMENTS, plugin_names

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.lab.ablation import Ablation, AblationRow
    from fairtrial.plan.study import Study

RUNS = 3
DEFAULT = "temperature,attention_loss,layer_matching"


def _ablation(out: Output, settings: dict[str, Any], **parsed: Any) -> int:
    """Remove components of a model, one at a time or together, and measure what each contributes.

    The base model is the combined strategy on a cnn student; option values in --base FILE replace its defaults.
    Differences are paired by seed and corrected for multiple comparisons.
    """
    from fairtrial.api.lab.ablation import ablation

    question, how = _question(settings, **parsed)
    with lab_terms(out, RUNS, **how) as terms:
        result = out.command.answer(ablation, **question, terms=terms)
    rows = [_row(row) for row in result.rows]
    return give(out, result, rows, lambda console: _show(console, out, result), _draw)


def _plan(out: Output, settings: dict[str, Any], **parsed: Any) -> Study:
    from fairtrial.api.lab.ablation import plan_ablation

    question, how = _question(settings, **parsed)
    return plan_ablation(**question, terms=planned_terms(out, RUNS, **how))


def _question(
    settings: dict[str, Any], *, base: str | None, components: str, also: Sequence[str], all_pairs: bool,
    factorial: bool, family: str | None, **how: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Split the parsed flags into the arguments of the API function and the options on how to run."""
    names = [name.strip() for name in components.split(",") if name.strip()]
    question = {"components": names, "base": base, "options": settings, "also": also, "all_pairs": all_pairs}
    return {**question, "factorial": factorial, "family": family}, how


def _row(row: AblationRow) -> dict[str, Any]:
    return {**flat(row.to_dict()), "removed": "+".join(row.removed), "identical_to": ", ".join(row.identical)}


def _show(console: Console, out: Output, ablation: Ablation) -> None:
    quantity = quantity_of(ablation.metric).capitalize()
    interval = f"{shown_percent(ablation.level)} interval"
    table = plain_table("Model", quantity, "Change", interval, "adj. p", Column("", left=True, wraps=True))
    for row in ablation.rows:
        table.add_row(*_cells(row))
    show_title(console, "Ablation Study Results")
    console.print(table)
    console.print()
    for line in _conclusions(ablation):
        console.print(line, markup=False)
    if ablation.interactions:
        console.print("Interactions:", style="bold")
        for each in ablation.interactions:
            p = f", adjusted {p_equals(shown_p(each.adjusted_p))}" if each.adjusted_p is not None else ""
            message = f"{' × '.join(each.components)}: {_change(each.effect)}{p}, {each.basis}"
            console.print(f"  {message}", markup=False)
    console.print(judged_line(ablation.metric, ablation.direction), markup=False)
    show_cautions(console, ablation.cautions)
    show_next(console, next_commands(out, ablation.study))


def _draw(ablation: Ablation, path: Path) -> None:
    from fairtrial.api.lab.lab_plots import ablation_chart

    ablation_chart(ablation, path)


def _cells(row: AblationRow) -> list[str]:
    name = f"− {' − '.join(row.removed)}" if row.removed else "Full model"
    accuracy = shown_value(row.accuracy.value)
    if row.effect is None:
        return [name, accuracy, "baseline" if not row.removed else "", "", "", _note(row)]
    effect = row.effect.effect
    decimals = _decimals(effect)
    change = "" if effect.value is None else shown_change(effect.value, decimals)
    p = row.effect.adjusted_p if row.effect.adjusted_p is not None else row.effect.p_value
    return [name, accuracy, change, shown_interval(effect.low, effect.high, decimals), shown_p(p), _note(row)]


def _note(row: AblationRow) -> str:
    lost = f"{counted(len(row.lost), 'run')} lost" if row.lost else ""
    same = f"identical to {', '.join(row.identical)}" if row.identical else ""
    verdict = row.effect.verdict.value if row.effect and not same else ""
    return ", ".join(part for part in (verdict, same, lost) if part)


def _conclusions(ablation: Ablation) -> list[str]:
    """Summarize the verdict on each single component."""
    said: dict[str, list[str]] = {"worse": [], "better": [], "open": []}
    for row in ablation.rows[1:]:
        if len(row.removed) == 1 and row.effect is not None and not row.identical:
            verdict = row.effect.verdict.value
            said[verdict if verdict in said else "open"].append(row.removed[0])
    groups = [
        (said["worse"], "contributes: the model is worse without it", "contribute: the model is worse without each"),
        (said["better"], "hurts: the model is better without it", "hurt: the model is better without each"),
        (said["open"], "shows no clear contribution with this few runs", "show no clear contribution"),
    ]
    return [f"{', '.join(names)} {one if len(names) == 1 else many}." for names, one, many in groups if names]


def _decimals(effect: Estimate) -> int | None:
    return decimals_for(None if effect.low is None or effect.high is None else effect.high - effect.low)


def _change(effect: Estimate) -> str:
    if effect.value is None:
        return "unknown"
    decimals = _decimals(effect)
    return f"{shown_change(effect.value, decimals)} {shown_interval(effect.low, effect.high, decimals)}".rstrip()


OWN: list[click.Parameter] = [
    click.Option(
        ["--base"], metavar="FILE", help="YAML file with options of the full model; other options keep their defaults."
    ),
    click.Option(
        ["--components"], default=DEFAULT, show_default=True, metavar="LIST", help="Components, separated by commas."
    ),
    click.Option(
        ["--also"], multiple=True, metavar="A+B", help="Also remove these components together; repeat for more."
    ),
    click.Option(["--all-pairs"], is_flag=True, help="Also remove every pair of components together."),
    click.Option(["--factorial"], is_flag=True, help="Remove every subset of the components."),
    click.Option(["--family"], type=click.Choice(plugin_names(ADJUSTMENTS)), help=FAMILY_HELP),
    *run_options(RUNS, stack=True),
]
PAGE = HelpPage(
    {
        "What to remove": "--components --base --also --all-pairs --factorial",
        "How to judge": "--metric | --direction --level --family",
        "How to run": f"{HOW_TO_RUN} --stack",
    },
    (
        "fairtrial ablation --components temperature,attention_loss --runs 5",
        "fairtrial ablation --all-pairs --output ablation.png",
    ),
)
command = lab_command("ablation", _ablation, _plan, OWN, PAGE)
