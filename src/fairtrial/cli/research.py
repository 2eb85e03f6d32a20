"""fairtrial research"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fairtrial.cli._artifact import add_command, cite_command, init_command, remove_command
from fairtrial.cli._bundle import bundle_command, deposit_command, export_command, verify_one_bundle
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._source_options import with_window
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK
from fairtrial.core.plugin_registry import ADJUSTMENTS, METHODS, SUMMARIES, plugin_names
from fairtrial.core.specs import MOST_SEEDS

COMMAND_HELP = "The command line that makes the study, such as 'temperature --start 1 --end 4'."
EXCLUDE_HELP = "Leave out runs for which this holds, such as 'wall_s > 3600'; repeat it for more."
TRUST_HELP = "The public key that it must be signed with: digits, or a .pub file; repeat it for more authors."
ORDER = ("init", "preregister", "add", "remove", "bundle", "verify", "cite", "export", "deposit")
"""The commands as they follow each other in a project."""


@click.group("research", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Make evidence that others can check: describe, register, bundle, verify, cite, publish."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("preregister", cls=ManyValuesCommand)
@click.argument("artifact", metavar="ARTIFACT.yaml")
@click.option("--hypothesis", required=True, metavar="TEXT", help="What you expect, in words.")
@click.option("--methods", required=True, metavar="TEXT", help="What you will do, in words.")
@click.option("--study", metavar="STUDY.yaml", help="The study that is registered.")
@click.option("--command", metavar="TEXT", help=COMMAND_HELP)
@click.option(
    "--derive-seeds", type=click.IntRange(1, MOST_SEEDS), metavar="N", help="N seeds that follow from the hash."
)
@click.option("--control", metavar="VARIANT", help="The variant to compare with.  [default: the study's first]")
@click.option("--candidate", multiple=True, metavar="VARIANT", help="The variant on trial.  [default: all others]")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Metric; further ones are secondary.")
@click.option("--direction", type=click.Choice(["max", "min"]), help="Whether more or less of it is better.")
@click.option("--summary.type", "kind", type=click.Choice(plugin_names(SUMMARIES)), help="How a run becomes a number.")
@with_window
@click.option("--summary.points", "points", type=click.IntRange(min=1), help="For last: points to average.")
@click.option("--summary.threshold", "threshold", type=float, help="For time_to: the value to be reached.")
@click.option("--method", type=click.Choice(plugin_names(METHODS)), help="How the difference is judged.  [default: t]")
@click.option("--bootstrap.n_resamples", "resamples", type=click.IntRange(min=100), help="Resamples of a bootstrap.")
@click.option("--alpha", type=float, help="Error rate.  [default: the study's]")
@click.option("--side", type=click.Choice(["two-sided", "greater", "less"]), default="two-sided", show_default=True)
@click.option("--sesoi", type=float, help="Smallest difference of interest.  [default: the study's]")
@click.option("--unpaired", is_flag=True, help="Do not pair by seed.")
@click.option(
    "--family",
    type=click.Choice(plugin_names(ADJUSTMENTS)),
    help="How several candidates are judged.",
)
@click.option(
    "--adjust",
    metavar="METRIC|variant:NAME",
    help="Covariate from before the change, as in analyze.  [default: the study's]",
)
@click.option("--stopping-rule", default="fixed", show_default=True, metavar="fixed|TEXT",
              help="fixed: all registered runs, and no comparison before; else words.")  # fmt: skip
@click.option("--exclude", multiple=True, metavar="CONDITION", help=EXCLUDE_HELP)
@click.option("--anchor", type=click.Choice(["git-tag", "file"]), help="Put the hash where others can keep it.")
@click.option("--amends", metavar="HASH", help="The registration that this one takes the place of.")
@click.option("--late", is_flag=True, help="Register although runs exist; it is marked late for ever.")
@with_output
def preregister_command(
    out: Output, *, artifact: str, hypothesis: str, methods: str, anchor: str | None, amends: str | None, late: bool,
    **asked: Any,
) -> int:  # fmt: skip
    """Fix the study, the analysis and the seeds before the first run, signed and hashed.

    Without --study and --command only the words are registered, and it is labelled so.
    """
    from fairtrial.api.evidence.preregister import preregister
    from fairtrial.cli._preregister import intent_from
    from fairtrial.cli._registration_text import show_registered

    done = preregister(
        artifact, hypothesis=hypothesis, methods=methods, intent=intent_from(asked), anchor=anchor, amends=amends,
        late=late, store=out.store,
    )  # fmt: skip
    document = done.to_dict()
    out.give(document, [document], lambda console: show_registered(console, done))
    return EXIT_OK


@command.command("verify", cls=ManyValuesCommand)
@click.argument("path", metavar="BUNDLE|REGISTRATION")
@click.option("--trust", multiple=True, metavar="KEY", help=TRUST_HELP)
@click.option("--published", metavar="FILE", help="A copy of the anchor of a registration that others kept.")
@with_output
def verify_command(out: Output, path: str, trust: Sequence[str], published: str | None) -> int:
    """Check that a bundle or a registration is what was made and signed; exit 3 if not.

    Of a bundle every headline number is computed again from the raw series. Of a registration it is checked that its
    runs came later.
    """
    from fairtrial.api.evidence.preregister import verify
    from fairtrial.cli._registration_text import show_checked
    from fairtrial.research.archive import is_bundle

    if is_bundle(Path(path)):
        return verify_one_bundle(out, Path(path), trust, published)
    checked = verify(path, trust=trust, published=published, store=out.store)
    document = checked.to_dict()
    out.give(document, document["checks"], lambda console: show_checked(console, checked))
    return EXIT_OK if checked.intact else EXIT_CHECK


for each in (init_command, add_command, remove_command, bundle_command, cite_command, export_command, deposit_command):
    command.add_command(each)
command.commands = {name: command.commands[name] for name in ORDER}
