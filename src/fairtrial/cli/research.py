"""fairtrial research"""

from __future__ import annotations

from pathlib import Path

import click

from fairtrial.cli._artifact import add_command, cite_command, init_command
from fairtrial.cli._bundle import bundle_command, verify_one_bundle
from fairtrial.cli._output import Output, with_output


@click.group("research", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Evidence that others can check: describe, register, bundle, verify, cite, publish."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


command.add_command(init_command)
command.add_command(add_command)


@command.command("verify")
@click.argument("path", metavar="BUNDLE|REGISTRATION")
@click.option("--trust", metavar="KEY", help="The public key that it must be signed with, or a file that holds it.")
@with_output
def verify_command(out: Output, path: str, trust: str | None) -> int:
    """Check a bundle or a registration; exit code 3 where anything does not fit."""
    return verify_one_bundle(out, Path(path), trust)


command.add_command(bundle_command)
command.add_command(cite_command)
