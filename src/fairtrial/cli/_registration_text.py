"""Text output for a new registration and for the checks of a registration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairtrial.core.formatting import counted, shown_moment

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.research.register import Registered
    from fairtrial.research.verify import Checked

MARKS = {True: "✓", False: "✗", None: "–"}


def show_registered(console: Console, done: Registered) -> None:
    registration = done.registration
    console.print(f"Registered {registration.sha256}", style="bold", markup=False)
    console.print(
        f"  {registration.path}, entry {done.entry} of the ledger, {shown_moment(registration.plan['time'])}",
        markup=False,
    )
    console.print(f"  signed with key {done.signer}", markup=False)
    if registration.is_text_only:
        console.print("  text only: it fixes neither a study nor an analysis", style="yellow", markup=False)
    else:
        arms = counted(len(registration.plan["study"]["arms"]), "arm")
        seeds = ", ".join(map(str, registration.seeds[:5])) + (" …" if len(registration.seeds) > 5 else "")
        how = "seeds derived from it" if registration.derives_seeds else "seeds"
        console.print(f"  study {registration.study}: {arms}, {len(registration.seeds)} {how}: {seeds}", markup=False)
    if registration.late:
        message = ", ".join(str(run["run"]) for run in registration.late[:3]) + (
            " …" if len(registration.late) > 3 else ""
        )
        console.print(
            f"  late: {counted(len(registration.late), 'run')} began before it: {message}", style="yellow", markup=False
        )
    if done.anchor:
        console.print(f"  anchor: {done.anchor['how']} {done.anchor['name']}. {done.anchor['proves']}", markup=False)


def show_checked(console: Console, checked: Checked) -> None:
    console.print(f"{checked.path.name}: {checked.sentence}", style="bold", markup=False)
    for check in checked.checks:
        style = "red" if check.ok is False else None
        console.print(f"  {MARKS[check.ok]} {check.name}: {check.detail}", style=style, markup=False)
    for note in checked.notes:
        console.print(note, markup=False)
