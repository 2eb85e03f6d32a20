"""fairtrial init"""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from fairtrial.cli._help import HelpfulCommand, HelpPage
from fairtrial.core.terminal import visible


@click.command(
    "init", cls=HelpfulCommand, page=HelpPage(examples=("fairtrial init --recipe classify --output study.yaml",))
)
@click.option("--recipe", default="distill", metavar="RECIPE", help="Recipe that the study trains.", show_default=True)
@click.option("--study", metavar="NAME", help="Name of the study.  [default: from the file name]")
@click.option("--output", default="study.yaml", metavar="FILE", help="File to write.", show_default=True)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the full traceback of an error.")
def command(recipe: str, study: str | None, output: str, force: bool, output_format: str) -> None:
    """Write a complete, commented study file to start from."""
    from fairtrial.api.running.init import write_study

    path = write_study(Path(output), recipe=recipe, study=study, force=force)
    if output_format == "json":
        from fairtrial.report.documents import as_json

        click.echo(as_json({"path": str(path)}), nl=False)
    else:
        click.echo(visible(f"Wrote {path}. Launch it with: fairtrial launch {shlex.quote(str(path))}"))
