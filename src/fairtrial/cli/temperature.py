"""fairtrial temperature"""

from __future__ import annotations

from typing import Any

import click

from fairtrial.cli._lab import lab_command, lab_terms, run_options
from fairtrial.cli._output import Output
from fairtrial.cli._sweep_text import give_sweep
from fairtrial.cli.sweep import CONFIRM_OPTIONS, range_options

RUNS = 3


def _temperature(
    out: Output, settings: dict[str, Any], *, start: float, end: float, step: float, confirm: int | None,
    baseline: str | None, **how: Any,
) -> int:  # fmt: skip
    """Distil at every temperature of a range and say which is best.

    Every number comes from a training that happened. The best value comes with those that cannot be told apart from
    it. The same command again keeps what is finished and fills in the rest.
    """
    from fairtrial.api.sweep import temperature_sweep

    with lab_terms(out, RUNS, **how) as terms:
        found = temperature_sweep(
            start, end, step, terms.runs, options=settings, confirm=confirm or 0, baseline=baseline, terms=terms
        )
    return give_sweep(out, found)


OWN: list[click.Parameter] = [*range_options(1.0, 8.0, 0.5), *CONFIRM_OPTIONS, *run_options(RUNS, stack=True)]
command = lab_command("temperature", _temperature, OWN, without=["temperature"])
