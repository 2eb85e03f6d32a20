"""fairtrial doctor"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fairtrial.cli._output import Output, with_output
from fairtrial.cli._progress import make_progress
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.analyse.floor import NoiseFloor


@click.command("doctor")
@click.option("--aa", is_flag=True, help="Time equal work against itself: this machine's noise, and what it can see.")
@with_output
def command(out: Output, aa: bool) -> int:
    """Show what is installed and what this machine can measure. Exit 3 if the store cannot be used."""
    from fairtrial.api.doctor import doctor

    checks, facts = doctor(out.store)
    rows = [asdict(check) for check in checks]
    floor = _self_check(out) if aa else None

    def show(console: Console) -> None:
        marks = {True: "✓", False: "✗", None: "·"}
        for check in checks:
            hint = f"  → {check.hint}" if check.hint else ""
            line = f"{marks[check.ok]} {check.name:<16} {check.finding}{hint}"
            console.print(line, style="red" if check.ok is False else None, markup=False)
        for line in _floor_lines(floor) if floor else ():
            console.print(line, markup=False)

    out.give({"checks": rows, "machine": facts, "aa": floor.to_dict() if floor else None}, rows, show)
    return EXIT_CHECK if any(check.ok is False and check.name == "store" for check in checks) else EXIT_OK


def _self_check(out: Output) -> NoiseFloor:
    from fairtrial.api.self_check import AA_ROUNDS, self_check

    out.say("Timing equal work against itself, for about ten seconds …")
    if not out.live:
        return self_check()
    with make_progress(out) as progress:
        bar = progress.add_task("rounds", total=AA_ROUNDS, unit="")
        return self_check(told=lambda done: progress.update(bar, completed=done))


def _floor_lines(floor: NoiseFloor) -> list[str]:
    seen = ", ".join(
        f"{value:.2g} % in {rounds} rounds" for rounds, value in floor.detectable_percent.items() if value is not None
    )
    return [
        "",
        f"Noise floor: 95 % of A/A rounds lie within ± {floor.round_percent:.2g} %.",
        f"Smallest slowdown that is seen four times out of five: {seen}.",
        f"False alarms: {floor.alarms} of {floor.comparisons} comparisons of equal work (5 % are to be expected).",
        f"Its speed changed by {floor.drift_percent:.2g} % from one half of this check to the other, within seconds.",
        "Times from further apart, and from other processes, differ by more.",
    ]
