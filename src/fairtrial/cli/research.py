"""fairtrial research"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fairtrial.cli._artifact import add_command, cite_command, init_command, remove_command
from fairtrial.cli._bundle import bundle_command, deposit_command, export_command, verify_one_bundle
from fairtrial.cli._help import HelpfulGroup, HelpPage
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._source_options import with_window
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK
from fairtrial.core.plugin_registry import ADJUSTMENTS, METHODS, SUMMARIES, plugin_names
from fairtrial.core.specs import MOST_SEEDS

COMMAND_HELP = "Command line that launches the study, such as 'temperature --start 1 --end 4'."
EXCLUDE_HELP = "Exclude runs that meet this condition, such as 'wall_s > 3600'; repeat for more."
TRUST_HELP = "Public key that the signature must match: hexadecimal digits or a .pub file; repeat for more authors."
ORDER = ("init", "preregister", "add", "remove", "bundle", "verify", "cite", "export", "deposit")
"""The subcommands, in the order of a project's workflow."""


@click.group(
    "research",
    cls=HelpfulGroup,
    invoke_without_command=True,
    page=HelpPage(examples=("fairtrial research bundle --zip",)),
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Produce evidence that others can check: describe, register, bundle, verify, cite, publish."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


PREREGISTER_PAGE = HelpPage(
    {
        "What you plan": "--hypothesis --methods --study --command --derive-seeds --stopping-rule --exclude",
        "How you will judge": "--control --candidate --metric --direction --sesoi --alpha --side | --method --family"
        " --adjust --unpaired --bootstrap.n_resamples --summary.type --summary.window --summary.percent"
        " --summary.percent-window --summary.points --summary.threshold",
        "The registration": "--anchor --amends --late",
    },
    (
        "fairtrial research preregister artifact.yaml --study study.yaml "
        "--hypothesis 'kd is better' --methods '15 paired seeds'",
    ),
)


@command.command("preregister", cls=ManyValuesCommand, page=PREREGISTER_PAGE)
@click.argument("artifact", metavar="ARTIFACT.yaml")
@click.option("--hypothesis", required=True, metavar="TEXT", help="What you expect, as text.")
@click.option("--methods", required=True, metavar="TEXT", help="What you will do, as text.")
@click.option("--study", metavar="STUDY.yaml", help="Study to register.")
@click.option("--command", metavar="TEXT", help=COMMAND_HELP)
@click.option(
    "--derive-seeds", type=click.IntRange(1, MOST_SEEDS), metavar="N", help="Derive N seeds from the hash of the plan."
)
@click.option("--control", metavar="VARIANT", help="Variant to compare with.  [default: the study's first]")
@click.option("--candidate", multiple=True, metavar="VARIANT", help="Variant to test.  [default: all others]")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Metric of the verdict; repeat for secondary metrics."
)
@click.option("--direction", type=click.Choice(["max", "min"]), help="Whether higher (max) or lower (min) is better.")
@click.option(
    "--summary.type", "kind", type=click.Choice(plugin_names(SUMMARIES)), help="How to summarize a run as one number."
)
@with_window
@click.option("--summary.points", "points", type=click.IntRange(min=1), help="For last: number of points to average.")
@click.option("--summary.threshold", "threshold", type=float, help="For time_to: value to reach.")
@click.option("--method", type=click.Choice(plugin_names(METHODS)), help="Method of comparison.  [default: t]")
@click.option(
    "--bootstrap.n_resamples", "resamples", type=click.IntRange(min=100), help="Number of bootstrap resamples."
)
@click.option("--alpha", type=float, help="Significance level.  [default: the study's]")
@click.option("--side", type=click.Choice(["two-sided", "greater", "less"]), default="two-sided", show_default=True)
@click.option("--sesoi", type=float, help="Smallest effect size of interest.  [default: the study's]")
@click.option("--unpaired", is_flag=True, help="Do not pair by seed.")
@click.option(
    "--family",
    type=click.Choice(plugin_names(ADJUSTMENTS)),
    help="Correction for several candidates.",
)
@click.option(
    "--adjust",
    metavar="METRIC|variant:NAME",
    help="Covariate from before the change, as in analyze.  [default: the study's]",
)
@click.option("--stopping-rule", default="fixed", show_default=True, metavar="fixed|TEXT",
              help="fixed: no comparison before all registered runs are done; or your own rule, as text.")  # fmt: skip
@click.option("--exclude", multiple=True, metavar="CONDITION", help=EXCLUDE_HELP)
@click.option(
    "--anchor", type=click.Choice(["git-tag", "file"]), help="Where to put the hash so that others can keep a copy."
)
@click.option("--amends", metavar="HASH", help="Hash of the registration that this one replaces.")
@click.option("--late", is_flag=True, help="Register although runs exist; the registration is permanently marked late.")
@with_output
def preregister_command(
    out: Output, *, artifact: str, hypothesis: str, methods: str, anchor: str | None, amends: str | None, late: bool,
    **asked: Any,
) -> int:  # fmt: skip
    """Register the study, the analysis and the seeds before the first run, signed and hashed.

    Without --study and --command only the text is registered, and the registration is labeled "text only".
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


@command.command(
    "verify",
    cls=ManyValuesCommand,
    page=HelpPage(examples=("fairtrial research verify demo-0.1.0.zip --trust author.pub",)),
)
@click.argument("path", metavar="BUNDLE|REGISTRATION")
@click.option("--trust", multiple=True, metavar="KEY", help=TRUST_HELP)
@click.option("--published", metavar="FILE", help="Copy of a registration's anchor that others kept.")
@with_output
def verify_command(out: Output, path: str, trust: Sequence[str], published: str | None) -> int:
    """Check that a bundle or a registration is unchanged and correctly signed. Exits with 3 if it is not.

    For a bundle, every headline number is recomputed from the raw series. For a registration, the check includes that
    its runs started after it.
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
