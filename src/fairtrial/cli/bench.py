"""fairtrial bench"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._lab import plain_table
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._recipe_group import RecipeGroup
from fairtrial.cli._recipe_options import given_values
from fairtrial.cli._signals import stopping
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK
from fairtrial.core.options import not_benched
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.specs import FIXED_SEEDS, MOST_SEED
from fairtrial.core.words import counted, shown_memory

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.bench import Bench
    from fairtrial.core.findings import Estimate

OWN_OPTIONS = (
    click.Option(["--max-batches"], type=int, default=200, show_default=True, help="Training steps to take."),
    click.Option(["--warmup-batches"], type=int, help="Steps to leave out first.  [default: until they are steady]"),
    click.Option(["--run-validation"], is_flag=True, help="Evaluate as training does; else only steps are taken."),
    click.Option(
        ["--seed"], type=click.IntRange(0, MOST_SEED), help=f"Root of all randomness.  [default: {FIXED_SEEDS[0]}]"
    ),
    click.Option(["--level"], type=float, default=0.95, show_default=True, help="Confidence level of intervals."),
)


def _body(recipe: LoadedRecipe) -> Callable[..., Any]:
    @with_output
    def bench_recipe(
        out: Output, *, max_batches: int, warmup_batches: int | None, run_validation: bool, seed: int | None,
        level: float, **flags: Any,
    ) -> int:  # fmt: skip
        from fairtrial.api.bench import BenchTerms, bench

        out.name_store()
        with stopping() as should_stop:
            terms = BenchTerms(
                max_batches, warmup_batches, run_validation, FIXED_SEEDS[0] if seed is None else seed, level,
                out.store, out.say, should_stop,
            )  # fmt: skip
            found = bench(str(recipe.file or recipe.name), given_values(recipe.options, flags), terms)
        out.give(found.to_dict(), found.phase_rows(), lambda console: _show(console, found))
        return EXIT_OK if found.sufficient else EXIT_CHECK

    return bench_recipe


def _show(console: Console, found: Bench) -> None:
    from rich.text import Text

    console.print(_headline(found), style="bold", markup=False)
    console.print(f"Step time: {', '.join(_times(found))}.", markup=False)
    console.print()
    table = plain_table("Phase", "ms per step", "Share", "")
    for row in found.phase_rows():
        share = "" if row["share"] is None else f"{100 * row['share']:.1f} %"
        near = "near the timer" if row["near_timer"] else ""
        table.add_row(*(Text(cell) for cell in (row["phase"], f"{row['ms_per_step']:.3f}", share, near)))
    console.print(table)
    console.print()
    for line in _expenses(found):
        console.print(line, markup=False)
    show_cautions(console, found.cautions)


def _headline(found: Bench) -> str:
    rate = found.throughput
    if rate.value is None or not found.sufficient:
        return f"Insufficient: {counted(len(found.steps), 'step')} of {found.recipe} were too few to measure."
    return f"{found.recipe}: {rate.value:,.0f} {rate.unit}{_limits(rate, 0)}, {len(found.steady)} steady steps."


def _limits(estimate: Estimate, decimals: int, factor: float = 1.0) -> str:
    if estimate.low is None and estimate.high is None:
        return ""
    ends = ["…" if end is None else f"{factor * end:,.{decimals}f}" for end in (estimate.low, estimate.high)]
    return f" [{ends[0]}, {ends[1]}]"


def _times(found: Bench) -> list[str]:
    quantiles = {f"p{100 * share:g}": found.quantile(share) for share in (0.5, 0.95, 0.99)}
    named = {"mean": found.times.mean(found.alpha), **quantiles}
    return [
        f"{name} {1000 * each.value:.3f} ms{_limits(each, 3, 1000)}"
        for name, each in named.items()
        if each.value is not None
    ]


def _expenses(found: Bench) -> list[str]:
    resources = found.resources
    lines = []
    if resources.get("tensor_bytes"):
        kinds = ", ".join(
            f"{name} {shown_memory(size / 1e9)}" for name, size in resources["tensor_bytes"].items() if size
        )
        lines.append(f"Memory of tensors: {shown_memory(resources['peak_tensor_bytes'] / 1e9)} ({kinds}).")
    if resources.get("peak_process_bytes"):
        lines.append(f"Memory of the process: {shown_memory(resources['peak_process_bytes'] / 1e9)} at most.")
    if resources.get("flops_per_step"):
        mean = found.times.mean(found.alpha).value
        rate = f", {resources['flops_per_step'] / mean / 1e9:.3g} GFLOP/s" if mean else ""
        lines.append(f"Arithmetic: {resources['flops_per_step'] / 1e6:,.3g} MFLOP per step{rate}.")
    if resources.get("parameters"):
        lines.append(f"Parameters: {resources['parameters']:,}.")
    lines.append(f"Timer: {1e6 * found.event_seconds:.2f} µs per event.")
    return lines


class BenchGroup(RecipeGroup):
    """The same flags as train, but for options that make no sense here."""

    body = staticmethod(_body)
    own_options = OWN_OPTIONS

    def without(self, recipe: LoadedRecipe) -> list[str]:
        return list(not_benched(recipe.options))


@click.group("bench", cls=BenchGroup, subcommand_metavar="RECIPE [OPTIONS]…")
def command() -> None:
    """Say what a training step of a recipe costs, and where the time goes.

    It takes the options of train, and real steps through the same loop. Nothing is kept of the run.
    """
