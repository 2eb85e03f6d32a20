"""fairtrial research bundle, verify, export and deposit: publish the project, and check what was published."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_output, with_own_output
from fairtrial.cli._registration_text import MARKS
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK, EXIT_USER, UsageError
from fairtrial.core.formatting import counted
from fairtrial.core.terminal import visible

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.evidence.bundle import Bundled
    from fairtrial.api.evidence.deposit import Deposit
    from fairtrial.api.evidence.verify_bundle import CheckedBundle
    from fairtrial.research.archive import ProgressCallback

_BUNDLE_OPTIONS = (
    click.option(
        "--study", "studies", multiple=True, metavar="NAME", help="Only this study; repeat the option for more."
    ),
    click.option("--checkpoints", is_flag=True, help="Include the best checkpoint (best.pt) of every run."),
    click.option("--charts/--no-charts", default=True, help="Draw the charts of every analysis.  [default: charts]"),
    click.option(
        "--allow",
        multiple=True,
        metavar="FILE|kind:KIND",
        help="Include text that looks like a credential: name the file or the kind; repeat the option for more.",
    ),
)


def with_content(function: Any) -> Any:
    """Add the options that choose the content of a bundle."""
    for option in reversed(_BUNDLE_OPTIONS):
        function = option(function)
    return function


@click.command(
    "bundle",
    cls=ManyValuesCommand,
    page=HelpPage(
        examples=(
            "fairtrial research bundle --dry-run",
            "fairtrial research bundle artifact.yaml --zip",
        )
    ),
)
@click.argument("artifact", required=False)
@click.option("--zip", "zipped", is_flag=True, help="Write one zip file instead of a folder.")
@click.option("--output", metavar="PATH", help="Where to write it.  [default: ID-VERSION, next to artifact.yaml]")
@with_content
@click.option("--force", is_flag=True, help="Overwrite an existing zip file.")
@click.option("--dry-run", is_flag=True, help="Print the content and size of the bundle, but write nothing.")
@with_own_output
def bundle_command(
    out: Output, artifact: str | None, zipped: bool, output: str | None, studies: Sequence[str], checkpoints: bool,
    charts: bool, allow: Sequence[str], force: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Bundle runs, plans, environment, registrations, report and charts so that others can check every number.

    The bundle is an RO-Crate with a checksum for every file. The same project state always gives the same bytes.
    Host and user names are removed. Checkpoints, logs and columnar copies are left out and listed as such.
    """
    from fairtrial.api.evidence.bundle import BundleTerms, bundle

    with _progress(out, "packing") as on_progress:
        terms = BundleTerms(
            studies=studies, checkpoints=checkpoints, charts=charts, store=out.store, force=force, allow=allow,
            tell=out.say, watch=on_progress,
        )  # fmt: skip
        bundled = bundle(artifact, zipped=zipped, output=output, dry_run=dry_run, terms=terms)
    rows = [
        {"path": bundled.path, "files": bundled.files, "bytes": bundled.bytes, "packed_bytes": bundled.packed_bytes}
    ]
    out.give(bundled.to_dict(), rows, lambda console: _show_bundle(console, bundled))


def _show_bundle(console: Console, bundled: Bundled) -> None:
    if bundled.path is None:
        console.print("Nothing was written.", markup=False)
        return
    size = (bundled.packed_bytes or 0) / 1e6
    signed = f"signed with key {bundled.signer[:16]}…" if bundled.signer else "not signed"
    console.print(f"Wrote {bundled.path}: {counted(bundled.files, 'file')}, {size:,.1f} MB, {signed}.", markup=False)
    console.print(f"Check it with: fairtrial research verify {bundled.path}", markup=False)


def verify_one_bundle(out: Output, path: Path, trust: Sequence[str], published: str | None) -> int:
    """Verify a bundle, print the checks, and return exit code 3 if one fails."""
    from fairtrial.api.evidence.verify_bundle import verify_bundle

    with _progress(out, "verifying") as on_progress:
        checked_bundle = verify_bundle(path, trust=trust, published=published, watch=on_progress)
    out.give(
        checked_bundle.to_dict(),
        [check.to_dict() for check in checked_bundle.checks],
        lambda console: _show_checks(console, checked_bundle),
    )
    return EXIT_OK if checked_bundle.intact else EXIT_CHECK


def _show_checks(console: Console, checked_bundle: CheckedBundle) -> None:
    console.print(f"{checked_bundle.path}: {checked_bundle.sentence}", style="bold", markup=False)
    console.print()
    for check in checked_bundle.checks:
        style = "red" if check.ok is False else ""
        console.print(f"  {MARKS[check.ok]} {check.name}: {check.detail}", style=style, markup=False)
    for note in checked_bundle.notes:
        console.print(note, markup=False)


@click.command("export", cls=ManyValuesCommand, page=HelpPage(examples=("fairtrial research export --to notebook",)))
@click.argument("artifact", required=False)
@click.option("--to", "kind", required=True, metavar="KIND", help="Output format: folder, markdown or notebook.")
@click.option("--output", metavar="PATH", help="Where to write it.  [default: next to artifact.yaml]")
@with_content
@with_own_output
def export_command(
    out: Output, artifact: str | None, kind: str, output: str | None, studies: Sequence[str], checkpoints: bool,
    charts: bool, allow: Sequence[str],
) -> None:  # fmt: skip
    """Export the project as a plain folder, a Markdown report, or a notebook that repeats the analysis."""
    from fairtrial.api.evidence.bundle import BundleTerms
    from fairtrial.api.evidence.export import export

    terms = BundleTerms(
        studies=studies, checkpoints=checkpoints, charts=charts, store=out.store, allow=allow, tell=out.say
    )
    path = export(artifact, to=kind, output=output, terms=terms)
    document = {"path": str(path)}
    out.give(document, [document], lambda console: console.print(f"Wrote {path}", markup=False))


@click.command(
    "deposit", cls=ManyValuesCommand, page=HelpPage(examples=("fairtrial research deposit demo-0.1.0.zip --sandbox",))
)
@click.argument("bundle", metavar="BUNDLE.zip")
@click.option("--sandbox", is_flag=True, help="Use Zenodo's sandbox, a service for testing.")
@click.option("--api", metavar="URL", help="Base URL of the API.  [default: $ZENODO_API, or Zenodo's]")
@click.option("--yes", is_flag=True, help="Upload the bundle as a draft; needs $ZENODO_TOKEN.")
@with_output
def deposit_command(out: Output, bundle: str, sandbox: bool, api: str | None, yes: bool) -> int:
    """Prepare the upload of a bundle to Zenodo; with a token and --yes, upload it as a draft that you can publish.

    Writes the metadata next to the bundle and prints the exact upload commands. Exits with 1 if nothing was uploaded.
    """
    from fairtrial.api.evidence.deposit import deposit
    from fairtrial.research.zenodo import SANDBOX

    if sandbox and api:
        raise UsageError("--sandbox and --api cannot be used together")
    result = deposit(bundle, api=SANDBOX if sandbox else api, yes=yes)
    out.give(result.to_dict(), list(result.files), lambda console: _show_deposit(console, result))
    if result.draft is not None:
        return EXIT_OK
    click.echo(visible(f"Error: nothing was uploaded: {result.why_not}"), err=True)
    return EXIT_USER


def _show_deposit(console: Console, deposit: Deposit) -> None:
    console.print(f"Wrote {deposit.metadata_file}, the metadata for {deposit.api}.", markup=False)
    for file in deposit.files:
        console.print(f"  {file['name']}, {file['bytes']:,} bytes, SHA-256 {file['sha256']}", markup=False)
    if deposit.draft is not None:
        console.print(
            f"Uploaded as draft {deposit.draft['id']}. It is not published yet: review and publish it at "
            f"{deposit.draft['page']}",
            markup=False,
        )
        return
    console.print("Upload it with:", style="bold")
    for line in deposit.commands:
        console.out(f"  {line}", highlight=False)


@contextlib.contextmanager
def _progress(out: Output, what: str) -> Iterator[ProgressCallback]:
    """Show a progress bar on a terminal; show nothing otherwise."""
    from fairtrial.research.archive import quiet

    if not out.live:
        yield quiet
        return
    from rich.progress import Progress

    with Progress(console=out.console(err=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
