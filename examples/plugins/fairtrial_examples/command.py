"""A command that lists the runs in files of other tools. `fairtrial peek run_seed1.trainlog`"""

from pathlib import Path

import click

from fairtrial.plugins import open_runs, with_output


@click.command("peek")
@click.argument("paths", nargs=-1, required=True)
@with_output
def command(out, paths):
    """Show the runs in files of other tools, and their metrics."""
    source = open_runs([Path(path) for path in paths])
    runs = source.traces(source.metrics())
    rows = [
        {"run": run.run, "variant": run.variant, "seed": run.seed, "metrics": ", ".join(run.curves)} for run in runs
    ]

    def show(console):
        for row in rows:
            console.print("{run}: variant {variant}, seed {seed}, metrics {metrics}".format(**row), markup=False)

    out.give({"runs": rows}, rows, show)
