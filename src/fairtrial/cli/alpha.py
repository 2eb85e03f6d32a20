"""fairtrial alpha"""

from __future__ import annotations

from typing import Any

import click

from fairtrial.cli._lab import lab_command, lab_terms, run_options
from fairtrial.cli._output import Output
from fairtrial.cli._sweep_text import give_sweep
from fairtrial.cli.sweep import CONFIRM_OPTIONS, range_options

RUNS = 3


def _alpha(
    out: Output, settings: dict[str, Any], *, start: float, end: float, step: float, confirm: int | None,
    baseline: str | None, **how: Any,
) -> int:  # fmt: skip
    """Distil with every weight of the teacher in a range and say which is best.

    At 0 the student learns from labels alone, at 1 from the teacher alone. The best value comes with those that
    cannot be told apart from it.
    """
    from fairtrial.api.sweep import alpha_sweep

    with lab_terms(out, RUNS, **how) as terms:
        found = alpha_sweep(
            start, end, step, terms.runs, options=settings, confirm=confirm or 0, baseline=baseline, terms=terms
        )
    return give_sweep(out, found)


OWN: list[click.Parameter] = [*range_options(0.0, 1.0, 0.1), *CONFIRM_OPTIONS, *run_options(RUNS, stack=True)]
command = lab_command("alpha", _alpha, OWN, without=["alpha"])
