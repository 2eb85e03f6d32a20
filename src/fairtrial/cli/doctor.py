"""fairtrial doctor"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fairtrial.cli._output import Output, with_output
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK

if TYPE_CHECKING:
    from rich.console import Console


@click.command("doctor")
@with_output
def command(out: Output) -> int:
    """Show what is installed and what this machine can measure. Exit 3 if the store cannot be used."""
    from fairtrial.api.doctor import doctor

    checks, facts = doctor(out.store)
    rows = [asdict(check) for check in checks]

    def show(console: Console) -> None:
        marks = {True: "✓", False: "✗", None: "·"}
        for check in checks:
            hint = f"  → {check.hint}" if check.hint else ""
            line = f"{marks[check.ok]} {check.name:<16} {check.finding}{hint}"
            console.print(line, style="red" if check.ok is False else None, markup=False)

    out.give({"checks": rows, "machine": facts}, rows, show)
    return EXIT_CHECK if any(check.ok is False and check.name == "store" for check in checks) else EXIT_OK
