"""fairtrial analyze"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._many_values import InsteadOfArguments, ManyValuesCommand
from fairtrial.cli._output import Output, with_chart_output
from fairtrial.cli._published import as_published, give_published, with_summary_table
from fairtrial.cli._source_options import COLUMN_FLAGS, rule_from, with_file, with_window
from fairtrial.cli._verdict_text import page_row_of, row_of, show_analysis
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK, UsageError, UserError
from fairtrial.core.plugin_registry import ADJUSTMENTS, METHODS, SUMMARIES, plugin_names
from fairtrial.core.terminal import visible

if TYPE_CHECKING:
    from fairtrial.api.comparing.analysis import Analysis

PAIRS_HELP = 'Explicit pairs: {"control": RUN, "candidate": RUN, "seed": N}, or one JSON list of them.'
CSV_HELP = "Also write the value of every run to a CSV file."
PLOTS_HELP = "Write charts to this folder: curves, differences, bootstrap distribution, normality, profiles."
FAILURE_HELP = (
    "Value to use for lost runs. Without it, a candidate that lost more runs than the control cannot be better."
)
TASKS_HELP = "Analyze all tasks together: from a task column, or with one study per task."


TARGET_HELP = "Compare each variant with a fixed value, such as a published loss, instead of with a control."
ADJUST_HELP = (
    "Adjust for a covariate from before the change: the first value of a metric, or variant:NAME, a baseline arm "
    "with more seeds. Exploratory unless the study file or the registration plans it."
)
PLAN_HELP = "Run the registered analysis and list every deviation; anything else that you request is exploratory."
FIELDS = {
    **dict.fromkeys(("kind", "window", "percent", "percent_window", "points", "threshold"), "summary"),
    "bootstrap": "method",
    "with_power": "power",
    "candidate": "candidates",
}
"""Command-line options whose field in the question has another name."""


PAGE = HelpPage(
    {
        "What to compare": "--control --candidate --from --tasks | --pairs --control-run-ids --candidate-run-ids"
        " --target --known-sd --since --plan",
        "How to judge": "--metric --direction --sesoi --alpha --require | --side --unpaired --method --family --adjust"
        " --failure-value --bootstrap.method --bootstrap.n_resamples --statistic --gamma --seed",
        "How to summarize a run": "--summary.type --summary.window | --summary.percent --summary.percent-window"
        " --summary.points --summary.threshold",
        "What else to show": "--plots --power.enabled | --output.csv_path --ttest.enabled --certify",
        "Columns of a file": f"| {COLUMN_FLAGS}",
        "Published tables of means": "| --claims --all-pairs --n --plus-minus --interval-level --items --range",
    },
    (
        "fairtrial analyze demo --candidate kd --require better",
        "fairtrial analyze --from results.csv --metric accuracy --direction max",
    ),
)


@click.command("analyze", cls=ManyValuesCommand, page=PAGE)
@click.argument("studies", nargs=-1, metavar="[STUDY]...")
@click.option("--plan", metavar="REGISTRATION", help=PLAN_HELP)
@click.option("--control", metavar="VARIANT", help="Variant to compare with.  [default: the study's first]")
@click.option("--candidate", multiple=True, metavar="VARIANT", help="Variant to test; repeat for more.")
@click.option("--target", type=float, metavar="VALUE", help=TARGET_HELP)
@click.option("--known-sd", type=float, metavar="SD", help="With --target: standard deviation of runs, if known.")
@click.option("--pairs", cls=InsteadOfArguments, multiple=True, metavar="JSON...", help=PAIRS_HELP)
@click.option(
    "--control-run-ids",
    cls=InsteadOfArguments,
    multiple=True,
    metavar="RUN...",
    help="Runs of the control, by id, path or glob; takes several values.",
)
@click.option(
    "--candidate-run-ids",
    cls=InsteadOfArguments,
    multiple=True,
    metavar="RUN...",
    help="Runs of the candidate, by id, path or glob; takes several values.",
)
@with_file
@with_summary_table
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Metric of the verdict; repeat to show further metrics."
)
@click.option("--direction", type=click.Choice(["max", "min"]), help="Whether higher (max) or lower (min) is better.")
@click.option(
    "--summary.type",
    "kind",
    type=click.Choice(plugin_names(SUMMARIES)),
    help="How to summarize a run as one number.  [default: last]",
)
@with_window
@click.option("--summary.points", "points", type=click.IntRange(min=1), help="For last: number of points to average.")
@click.option("--summary.threshold", "threshold", type=float, help="For time_to: value to reach.")
@click.option("--method", type=click.Choice(plugin_names(METHODS)), help="Method of comparison.  [default: t]")
@click.option(
    "--bootstrap.method",
    "bootstrap",
    type=click.Choice(["bca", "percentile", "studentized"]),
    help="Bootstrap method; the same as --method. With --tasks: percentile adds rliable's stratified bootstrap.",
)
@click.option(
    "--bootstrap.n_resamples",
    "resamples",
    type=click.IntRange(min=100),
    help="Number of bootstrap resamples; given alone, adds a bootstrap interval.  [default: 10000; with --tasks 50000]",
)
@click.option("--alpha", type=float, help="Significance level.  [default: the study's, or 0.05]")
@click.option(
    "--side",
    type=click.Choice(["two-sided", "greater", "less"]),
    default="two-sided",
    show_default=True,
    help="Alternative hypothesis; greater tests only whether the candidate is better.",
)
@click.option("--sesoi", type=float, help="Smallest effect size of interest.  [default: the study's]")
@click.option(
    "--require",
    "required",
    type=click.Choice(["better", "not-worse", "equivalent"]),
    help="Exit with code 3 unless this is the verdict.",
)
@click.option("--failure-value", type=float, help=FAILURE_HELP)
@click.option("--unpaired", is_flag=True, help="Do not pair by seed.")
@click.option(
    "--family",
    type=click.Choice(plugin_names(ADJUSTMENTS)),
    help="Correction for several candidates; the default auto means max-spread below 12 paired seeds, else holm.",
)
@click.option("--adjust", metavar="METRIC|variant:NAME", help=ADJUST_HELP)
@click.option("--ttest.enabled", "ttest", is_flag=True, help="Also show Student's t-test, in addition to the method.")
@click.option("--power.enabled", "with_power", is_flag=True, help="Show which differences this design can detect.")
@click.option("--certify", is_flag=True, help="Simulate how often intervals of this design cover the true value.")
@click.option("--tasks", is_flag=True, help=TASKS_HELP)
@click.option(
    "--statistic",
    type=click.Choice(["iqm", "mean", "median", "trimmed", "olympic", "optimality_gap"]),
    help="With --tasks: aggregate over tasks.  [default: iqm from 20 tasks on, else mean]",
)
@click.option(
    "--gamma", type=float, help="For optimality_gap: the target score.  [default: 1; 100 for normalized scores]"
)
@click.option("--since", metavar="RUN", help="Use only this run and runs that started later.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed for resampling.")
@click.option("--output.csv_path", "csv_path", metavar="FILE", help=CSV_HELP)
@click.option("--plots", metavar="DIR", help=PLOTS_HELP)
@with_chart_output
def command(
    out: Output, *, studies: Sequence[str], control: str | None, candidate: Sequence[str], pairs: Sequence[str],
    control_run_ids: Sequence[str], candidate_run_ids: Sequence[str], source: Sequence[str] | None, columns: Any,
    summary_table: Any, required: str | None, csv_path: str | None, plots: str | None, plan: str | None, **asked: Any,
) -> int:  # fmt: skip
    """Test whether a candidate is better than the control, by how much, and with what certainty.

    Compares the variants of a study, selected runs, or results from a file; runs are paired by seed if seeds match.
    The first line is the verdict: better, worse, equivalent or inconclusive.

    Repeatable options also take several values: --control-run-ids r1 r2 r3. Put the study before such options.
    """
    from fairtrial.api.comparing.analysis import unmet
    from fairtrial.api.comparing.analyze import analyze

    question = _question(**asked)
    out.name_store() if source is None else None
    if plan is not None:
        analysis = _analyze_preregistered(
            out, plan, {**vars(question), "control": control, "candidates": list(candidate)}
        )
    else:
        analysis = out.command.answer(
            analyze, studies, control=control, candidate=list(candidate), pairs=_pairs(pairs),
            control_run_ids=control_run_ids, candidate_run_ids=candidate_run_ids, source=source, columns=columns,
            question=question, store=out.store, summary_table=summary_table,
        )  # fmt: skip
    missed = unmet(analysis, required) if required else None
    requirement = {"required": {"verdict": required, "met": missed is None}} if required else {}
    out.command.add(requirement)
    published = as_published(analysis)
    if published is not None:
        give_published(
            out, published, requirement, {"--output.csv_path": csv_path, "--plots": plots, "--output": out.chart}
        )
        return _exit_code(missed)
    comparisons = [*analysis.comparisons, *analysis.secondary]
    rows = [(page_row_of if out.format in ("markdown", "latex") else row_of)(each) for each in comparisons]
    out.give({**analysis.to_dict(), **requirement}, rows, lambda console: show_analysis(console, analysis))
    _write_files(out, analysis, csv_path, plots)
    return _exit_code(missed)


def _exit_code(missed: str | None) -> int:
    if missed is None:
        return EXIT_OK
    click.echo(visible(f"Error: {missed}"), err=True)  # the JSON document already contains it
    return EXIT_CHECK


def _analyze_preregistered(out: Output, plan: str, question: Mapping[str, Any]) -> Analysis:
    """Run the registered analysis. Only options that the user gave explicitly count as deviations from the plan."""
    from fairtrial.api.evidence.preregistered_analysis import analyze_by_plan

    sources = {
        "studies": "a study",
        "source": "--from",
        "pairs": "--pairs",
        "control_run_ids": "--control-run-ids",
        "candidate_run_ids": "--candidate-run-ids",
    }
    other = [message for name, message in sources.items() if name in out.given]
    if other:
        raise UsageError(f"--plan and {other[0]} cannot be used together", hint="The plan already names the study.")
    fields = dict.fromkeys(FIELDS.get(name, name) for name in out.given)
    asked = {name: question[name] for name in fields if name in question}
    return out.command.answer(analyze_by_plan, plan, asked=asked, store=out.store)


def _question(
    *, metrics: Sequence[str], direction: str | None, kind: str | None, window: str | None, percent: float | None,
    percent_window: str | None, points: int | None, threshold: float | None, method: str | None,
    bootstrap: str | None, resamples: int | None, alpha: float | None, side: str, sesoi: float | None, unpaired: bool,
    failure_value: float | None, family: str | None, ttest: bool, with_power: bool, certify: bool, tasks: bool,
    statistic: str | None, gamma: float | None, since: str | None, seed: int, target: float | None,
    known_sd: float | None, adjust: str | None,
) -> Any:  # fmt: skip
    from fairtrial.api.comparing.analysis import Question

    if method and bootstrap and method != bootstrap:
        raise UsageError(f"--method {method} and --bootstrap.method {bootstrap} are contradictory")
    if statistic and not tasks:
        raise UsageError("--statistic needs --tasks")
    if gamma is not None and statistic != "optimality_gap":
        raise UsageError("--gamma needs --statistic optimality_gap")
    if known_sd is not None and target is None:
        raise UsageError("--known-sd needs --target")
    method = method or bootstrap
    others = [name for name in plugin_names(METHODS) if name not in METHODS.built_in]  # may resample
    if resamples is not None and method not in (None, "bca", "percentile", "studentized", *others):
        raise UsageError(f"--bootstrap.n_resamples needs a bootstrap method; --method {method} does not resample")
    return Question(
        metrics=list(metrics), direction=direction,
        summary=rule_from(kind, window, percent, percent_window, points, threshold),
        alpha=alpha, side=side, sesoi=sesoi, method=method, resamples=resamples,
        unpaired=unpaired, family=family, certify=certify, tasks=tasks, statistic=statistic,
        gamma=gamma, power=with_power, ttest=ttest, since=since, seed=seed, failure_value=failure_value, target=target,
        known_sd=known_sd, adjust=adjust,
    )  # fmt: skip


def _pairs(given: Sequence[str]) -> list[Mapping[str, Any]] | None:
    """Parse --pairs: one JSON list, or several objects."""
    if not given:
        return None
    from fairtrial.core.untrusted import parse_json

    try:
        parsed = [parse_json(text.encode(errors="replace"), where="it", hint=None, error=UserError) for text in given]
    except UserError as error:
        raise UsageError(f"--pairs is not valid JSON: {error.message}") from None
    return parsed[0] if len(parsed) == 1 and isinstance(parsed[0], list) else parsed


def _write_files(out: Output, analysis: Analysis, csv_path: str | None, plots: str | None) -> None:
    if csv_path:
        from fairtrial.report.documents import as_csv, write_text

        write_text(Path(csv_path), as_csv(_run_rows(analysis)))
        out.say(f"Wrote {csv_path}")
    if plots or out.chart:
        from fairtrial.api.comparing.plots import main_chart, write_plots

        for path in write_plots(analysis, Path(plots)) if plots else ():
            out.say(f"Wrote {path}")
        if out.chart:
            main_chart(analysis, out.chart)
            out.say(f"Wrote {out.chart}")


def _run_rows(analysis: Analysis) -> list[dict[str, Any]]:
    return [
        {"variant": arm.variant, "seed": seed, "metric": analysis.metric, "value": value}
        for arm in analysis.arms
        for seed, value in arm.values.items()
    ]
