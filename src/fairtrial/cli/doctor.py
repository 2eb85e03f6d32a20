"""fairtrial doctor"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fairtrial.cli._help import HelpfulCommand, HelpPage
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._progress import make_progress
from fairtrial.cli._tables import Column, PlainTable
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK, UsageError
from fairtrial.core.formatting import counted

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.benchmarking.doctor import DamageReport
    from fairtrial.stats.aa_noise import NoiseFloor


@click.command(
    "doctor",
    cls=HelpfulCommand,
    page=HelpPage(
        examples=(
            "fairtrial doctor --aa",
            "fairtrial doctor --since demo --paths src/",
        )
    ),
)
@click.option(
    "--aa",
    is_flag=True,
    help="Run an A/A test: measure this machine's timing noise and the smallest detectable change.",
)
@click.option("--damage", is_flag=True, help="Find every file in the store that differs from what was recorded.")
@click.option("--repair", is_flag=True, help="With --damage: repair what can be repaired without data loss.")
@click.option(
    "--since", metavar="STUDY|COMMIT", help="Show what changed in the code since a study was run, or since a commit."
)
@click.option("--paths", multiple=True, metavar="PATH…", help="With --since: only these paths, such as src/.")
@click.argument("more_paths", nargs=-1, metavar="")
@with_output
def command(
    out: Output, aa: bool, damage: bool, repair: bool, since: str | None, paths: tuple[str, ...],
    more_paths: tuple[str, ...],
) -> int:  # fmt: skip
    """Show what is installed and what this machine can measure. Exits with 3 if the store is unusable.

    With --damage: compare every file in the store with what was recorded. Exits with 3 if damage remains.

    With --since: compare the working tree with the commit that the runs of a study recorded, or with any commit.
    """
    if more_paths and not paths:
        raise UsageError(f"unexpected argument '{more_paths[0]}'", hint="Put paths after --paths.")
    if paths and since is None:
        raise UsageError("--paths needs --since", hint="Run: fairtrial doctor --since STUDY --paths src/")
    if since is not None:
        if aa or damage:
            raise UsageError("--since cannot be used with --aa or --damage")
        return _since(out, since, [*paths, *more_paths])
    if repair and not damage:
        raise UsageError("--repair needs --damage", hint="Run: fairtrial doctor --damage --repair")
    if damage:
        if aa:
            raise UsageError("--damage and --aa cannot be used together")
        return _damage(out, repair=repair)
    from fairtrial.api.benchmarking.doctor import doctor

    checks, facts = doctor(out.store)
    rows = [asdict(check) for check in checks]
    floor = _self_check(out) if aa else None

    def show(console: Console) -> None:
        marks = {True: "✓", False: "✗", None: "·"}
        width = max(len(check.name) for check in checks)
        for check in checks:
            style = "red" if check.ok is False else ""
            line, hint = f"{marks[check.ok]} {check.name:<{width}}  {check.finding}", f"  → {check.hint}"
            if check.hint and len(line) + len(hint) <= console.width:
                console.print(line + hint, style=style)
                continue
            table = PlainTable([Column("", left=True), Column("", left=True, wraps=True)], show_header=False)
            table.add_row(f"{marks[check.ok]} {check.name:<{width}}", check.finding, style=style)
            console.print(table)
            if check.hint:  # on a line of its own, which is not wrapped, so that a command can be copied
                console.print(f"  {hint}", style=style, soft_wrap=True)
        for line in _floor_lines(floor) if floor else ():
            console.print(line, markup=False)

    out.give({"checks": rows, "machine": facts, "aa": floor.to_dict() if floor else None}, rows, show)
    return EXIT_CHECK if any(check.ok is False and check.name == "store" for check in checks) else EXIT_OK


def _since(out: Output, reference: str, paths: list[str]) -> int:
    from fairtrial.api.running.code_since import code_since

    changes = code_since(reference, paths=paths, store=out.store)
    document = changes.to_dict()

    def show(console: Console) -> None:
        for line in changes.lines():
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    out.give(
        document, [{key: value for key, value in each.items() if key != "stat"} for each in document["commits"]], show
    )
    return EXIT_OK


def _damage(out: Output, *, repair: bool) -> int:
    from fairtrial.api.benchmarking.doctor import damage_of

    out.name_store()
    if out.live:
        with make_progress(out) as progress:
            bar = progress.add_task("runs", total=None, unit="")
            damage_report = damage_of(
                out.store,
                repair=repair,
                on_progress=lambda done, every: progress.update(bar, completed=done, total=every),
            )
    else:
        damage_report = damage_of(out.store, repair=repair)
    rows = [each.to_dict(damage_report.root) for each in damage_report.damage]
    out.give(damage_report.to_dict(), rows, lambda console: _show_damage(console, damage_report))
    return EXIT_CHECK if damage_report.remaining else EXIT_OK


def _show_damage(console: Console, damage_report: DamageReport) -> None:
    for each in damage_report.damage:
        mark, style = ("✓ repaired", None) if each.repaired else ("✗", "red")
        console.print(f"{mark} {each.reason}", style=style, markup=False)
        if each.kept:
            console.print(f"    the old file is kept as {each.kept}", markup=False)
        elif each.repair:
            message = "--repair can" if each.mend else "manual repair:"
            console.print(f"    {message} {each.repair}", markup=False)
    counts = [f"{counted(len(damage_report.remaining), 'damaged file')} in {counted(damage_report.runs, 'run')}"]
    repaired = len(damage_report.damage) - len(damage_report.remaining)
    counts += [f"{repaired} repaired"] if repaired else []
    able = sum(each.mend is not None for each in damage_report.remaining)
    counts += [f"{able} can be repaired with --repair"] if able and not repaired else []
    message = "; ".join(counts) if damage_report.damage else f"No damage in {counted(damage_report.runs, 'run')}"
    console.print(f"{message}.", style="bold", markup=False)


def _self_check(out: Output) -> NoiseFloor:
    from fairtrial.api.benchmarking.self_check import AA_ROUNDS, self_check

    out.say("Timing identical work in an A/A test, for about ten seconds …")
    if not out.live:
        return self_check()
    with make_progress(out) as progress:
        bar = progress.add_task("rounds", total=AA_ROUNDS, unit="")
        return self_check(on_round=lambda done: progress.update(bar, completed=done))


def _floor_lines(floor: NoiseFloor) -> list[str]:
    seen = ", ".join(
        f"{value:.2g} % in {rounds} rounds" for rounds, value in floor.detectable_percent.items() if value is not None
    )
    return [
        "",
        f"Noise floor: 95 % of A/A rounds are within ± {floor.round_percent:.2g} %.",
        f"Smallest slowdown that is detected with 80 % power: {seen}.",
        f"False positives: {floor.alarms} of {floor.comparisons} comparisons of identical work (5 % are expected).",
        f"Drift: speed changed by {floor.drift_percent:.2g} % between the two halves of this check, within seconds.",
        "Measurements that are further apart or from other processes differ by more.",
    ]
