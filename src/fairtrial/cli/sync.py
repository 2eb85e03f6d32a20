"""fairtrial sync"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_output
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK, UsageError
from fairtrial.core.formatting import shown_time

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.benchmarking.sync import Sync
    from fairtrial.sync.comparison import Missing
    from fairtrial.sync.parameters import Parameter


def _show_categories(ctx: click.Context, _option: click.Parameter, given: bool) -> None:
    if given:
        from fairtrial.sync.categories import built_in_text

        click.echo(built_in_text(), nl=False)
        ctx.exit()


@click.command(
    "sync",
    cls=ManyValuesCommand,
    page=HelpPage(
        examples=(
            "fairtrial sync myapp.cli:train myapp.cli:bench",
            "fairtrial sync 'myapp.cli:app train' 'myapp.cli:app bench' --docs BENCH.md",
        )
    ),
)
@click.argument("train")
@click.argument("bench")
@click.option(
    "--interface", metavar="PKG.MOD:FUNCTION", help="Function that BENCH calls; it must accept the options of BENCH."
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN=REASON",
    help="Option that BENCH leaves out on purpose, and the reason; * and ? are wildcards.",
)
@click.option(
    "--exclude-file", metavar="FILE", help="YAML file of exclusions, pattern: reason; --exclude overrides it."
)
@click.option(
    "--forbid",
    multiple=True,
    metavar="PATTERN=REASON",
    help="Option that BENCH must not have, and the reason; if TRAIN has it, it counts as excluded.",
)
@click.option("--categories", metavar="FILE", help="YAML file of categories that replaces the built-in list.")
@click.option(
    "--show-categories",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_categories,
    help="Print the built-in list of categories, which you can edit and pass as --categories, and exit.",
)
@click.option("--docs", metavar="FILE.md", help="Page that must document every option of BENCH.")
@click.option(
    "--run-test", metavar="COMMAND", help="Test to run, such as 'pytest tests/test_bench.py'; not run in a shell."
)
@with_output
def command(
    out: Output, *, train: str, bench: str, interface: str | None, exclude: Sequence[str], exclude_file: str | None,
    forbid: Sequence[str], categories: str | None, docs: str | None, run_test: str | None,
) -> int:  # fmt: skip
    """Check whether two programs, a trainer and its benchmark, still take the same options.

    TRAIN and BENCH name Click or Typer commands as module:attribute or path/to/file.py:attribute. A subcommand follows
    after a space: 'myapp.cli:app train'. Lists every gap; exits with 3 if there is one.
    """
    from fairtrial.api.benchmarking import sync as api

    sync = api.sync(
        train, bench, interface=interface, exclude=_pairs("--exclude", exclude), exclude_file=exclude_file,
        forbid=_pairs("--forbid", forbid), categories=categories, docs=docs, run_test=run_test, tell=out.say,
    )  # fmt: skip
    out.give(sync.to_dict(), sync.options.rows(), lambda console: _show(console, sync))
    return EXIT_OK if sync.agrees else EXIT_CHECK


def _pairs(flag: str, words: Sequence[str]) -> dict[str, str]:
    """Parse `pattern=reason` words. A missing reason is reported later, together with all other problems."""
    pairs: dict[str, str] = {}
    for word in words:
        pattern, _, reason = word.partition("=")
        if pattern in pairs:
            raise UsageError(f"{flag}: '{pattern}' is given twice")
        pairs[pattern] = reason
    return pairs


def _show(console: Console, sync: Sync) -> None:
    _show_options(console, sync)
    console.print()
    console.print("=== Benchmark Training Sync Report ===", style="bold", markup=False)
    console.print()
    console.print(f"Status: {sync.status}", style="bold green" if sync.agrees else "bold red")
    console.print()
    _show_counts(console, sync.counts)
    if sync.gaps:
        console.print()
        console.print(f"To fix: {', '.join(sync.gaps)}.", markup=False)
    for title, rows in _sections(sync):
        _show_section(console, title, rows)
    _show_interface(console, sync)
    _show_test(console, sync)


def _show_counts(console: Console, counts: Mapping[str, int]) -> None:
    for title, count in counts.items():
        console.print(f"{title}: {count}", markup=False, soft_wrap=True)


def _show_options(console: Console, sync: Sync) -> None:
    """Print which options both programs have and which only one has, by name."""
    (train, bench), options = sync.names, sync.options
    console.print("=== CLI Option Sync Report ===", style="bold", markup=False)
    counts = {
        "Common options": len(options.common),
        f"{train} only": len(options.train_only),
        f"{bench} only": len(options.bench_only),
    }
    _show_counts(console, counts)
    _show_section(console, f"Options in {train} but NOT in {bench}", [[_flag(each)] for each in options.train_only])
    _show_section(console, f"Options in {bench} but NOT in {train}", [[_flag(each)] for each in options.bench_only])
    if options.common:
        console.print()
        console.print("Options in both:", style="bold")
        _show_rows(console, [["", _listed(pair.train for pair in options.common)]])


def _listed(parameters: Iterable[Parameter]) -> str:
    return ", ".join(map(_flag, parameters))


def _flag(parameter: Parameter) -> str:
    return f"{parameter.shown} (hidden)" if parameter.hidden else parameter.shown


def _sections(sync: Sync) -> Iterable[tuple[str, list[list[str]]]]:
    """Yield the sections of the report as title and rows, gaps first. Sections without rows are not printed."""
    options = sync.options
    renamed = [each.pair.train for each in options.renamed if each.certain]  # listed once, as renamed
    to_add = [each for each in options.missing if each.suggestion is None]
    to_exclude = [each for each in options.missing if each.suggestion is not None]
    yield f"Missing options that need to be added to {sync.names[1]}", [[_to_add(each)] for each in to_add]
    yield "Missing options that need to be added to the exclusion list", [[_to_exclude(each)] for each in to_exclude]
    yield "", [[each.suggestion or ""] for each in to_exclude]
    yield "Under another name", [[str(each)] for each in options.renamed]
    yield (
        "Differing",
        [
            [_flag(each.parameter), each.what, f"TRAIN {each.train}", f"BENCH {each.bench}"]
            for each in options.differing
            if not (each.what == "flags" and each.parameter in renamed)
        ],
    )
    yield "Forbidden options", [[_flag(each.parameter), each.rule.reason] for each in options.forbidden]
    yield "Stale exclusions", [[each.exclusion.pattern, each.why] for each in options.stale]
    yield (
        f"Not accepted by {sync.interface.function if sync.interface else ''}",
        [
            [_flag(each.parameter), each.parameter.variable, f"did it mean {each.nearest}?" if each.nearest else ""]
            for each in sync.not_accepted or ()
        ],
    )
    yield (
        "Absent from the docs",
        [[", ".join(each.flags), each.parameter.help] for each in sync.undocumented or ()],
    )
    yield (
        "Warning: excluded, but looks like a training parameter",
        [[_flag(each.parameter), each.category.name, each.exclusion.reason] for each in options.suspicious],
    )
    yield "Excluded", [[_flag(each.parameter), each.exclusion.reason] for each in options.excluded]


def _to_add(missing: Missing) -> str:
    return f"{_flag(missing.parameter)}: {missing.parameter.help or 'no help text'} [{missing.category.name}]"


def _to_exclude(missing: Missing) -> str:
    """Return the option with the reason that would exclude it, and its help text to check that reason."""
    message = f" ({missing.parameter.help})" if missing.parameter.help else ""
    return f"{_flag(missing.parameter)}: {missing.category.reason}{message} [{missing.category.name}]"


def _show_section(console: Console, title: str, rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    console.print()
    if title:
        console.print(f"{title}:", style="yellow" if title.startswith("Warning") else "bold", markup=False)
    if len(rows[0]) == 1:
        for row in rows:  # without a title: lines of an exclusion file, whole, so that they can be copied
            console.print(f"  {row[0]}", markup=False, soft_wrap=True if not title else None)
    else:
        _show_rows(console, [["  " + row[0], *row[1:]] for row in rows])


def _show_rows(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns. On a narrow terminal cells wrap, except for the option names in the first column."""
    from fairtrial.cli._tables import Column, PlainTable

    most = max(map(len, rows))
    columns = [Column("", left=True), *(Column("", left=True, wraps=True) for _ in range(1, most))]
    table = PlainTable(columns, show_header=False)
    for row in rows:
        table.add_row(*row, *[""] * (most - len(row)))
    console.print(table)


def _show_interface(console: Console, sync: Sync) -> None:
    taken = sync.interface
    if taken is None:
        return
    if taken.takes_any:
        console.print(f"\n{taken.function} accepts any parameter, so none is missing.", markup=False)
        return
    console.print(f"\nParameters of {taken.function}:", style="bold", markup=False)
    _show_rows(console, [["", ", ".join(sorted(taken.names)) or "none"]])


def _show_test(console: Console, sync: Sync) -> None:
    test = sync.test
    console.print()
    console.print(f"Test result: {sync.test_result}", style="bold", markup=False)
    if test is None:
        return
    console.print(f"  {test.command}: {test.ending} in {shown_time(test.seconds)}", markup=False, soft_wrap=True)
    for line in () if test.passed else test.tail:
        console.print(f"  | {line}", markup=False)
