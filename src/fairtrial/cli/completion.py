"""fairtrial completion"""

from __future__ import annotations

import sys

import click

from fairtrial.cli._completion_shells import SHELLS
from fairtrial.cli._help import HelpfulCommand, HelpPage


@click.command("completion", cls=HelpfulCommand, page=HelpPage(examples=[shell.load for shell in SHELLS.values()]))
@click.argument("shell", type=click.Choice(list(SHELLS)), metavar="bash|zsh|fish")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the full traceback of an error.")
def command(shell: str) -> None:
    """Print a script that completes commands, options and names with TAB.

    Completes the names of studies, runs, variants, metrics, profiles and recipes, and files. To use it in every new
    shell, add the line below for your shell to ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.
    """
    chosen = SHELLS[shell]
    click.echo(chosen.script, nl=False)
    if sys.stdout.isatty():
        click.echo(f"To load it in every new shell, add this line to {chosen.startup_file}: {chosen.load}", err=True)
