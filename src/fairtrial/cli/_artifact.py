"""fairtrial research init, add, remove and cite: describe the project, choose its files, cite it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fairtrial.cli._help import HelpfulCommand, HelpPage
from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._output import Output, with_output, with_own_output
from fairtrial.core.errors import UserError

AUTHOR_HELP = (
    "An author: 'Given Family; orcid=…; affiliation=…'. Repeat the option for more authors, in citation order.  "
    "[default: git's user.name, else unknown]"
)
ARTIFACT_HELP = "Path of artifact.yaml.  [default: the nearest one in this folder or above]"


@click.command(
    "init",
    cls=ManyValuesCommand,
    page=HelpPage(examples=("fairtrial research init --id demo --title 'Which teacher helps?' --type model",)),
)
@click.option("--id", "id_", required=True, metavar="NAME", help="Short name, usable as a file name.")
@click.option("--title", required=True, help="Title to cite it by.")
@click.option(
    "--type", "kind", required=True, metavar="KIND", help="Kind of artifact: dataset, model, code or experiment."
)
@click.option("--author", "authors", multiple=True, metavar="NAME", help=AUTHOR_HELP)
@click.option(
    "--license", "license_", metavar="SPDX", help="SPDX license, such as Apache-2.0 or CC-BY-4.0.  [default: none]"
)
@click.option("--keywords", metavar="LIST", help="Search keywords, separated by commas.")
@click.option("--description", metavar="TEXT", help="What it contains, in a few sentences.")
@click.option("--version", "version_", metavar="TEXT", help="Version of the artifact.  [default: 0.1.0]")
@click.option("--date", "day", metavar="YYYY-MM-DD", help="Release date.  [default: today]")
@click.option("--doi", metavar="DOI", help="Its DOI, if one is already assigned.")
@click.option("--url", metavar="URL", help="Web address of the artifact.")
@click.option("--output", metavar="FOLDER", default=".", show_default=True, help="Project folder.")
@with_own_output
def init_command(
    out: Output, id_: str, title: str, kind: str, authors: Sequence[str], license_: str | None, keywords: str | None,
    version_: str | None, day: str | None, output: str, **rest: Any,
) -> None:  # fmt: skip
    """Describe a research artifact: write artifact.yaml, which makes the folder a project, and CITATION.cff."""
    from fairtrial.api.evidence.artifact import init_artifact
    from fairtrial.research.artifact import not_stated, parse_author

    given = {
        "id": id_, "title": title, "type": kind, "authors": [parse_author(text) for text in authors],
        "license": license_, "version": version_, "date": day, "store": out.store,
        "keywords": [word.strip() for word in keywords.split(",") if word.strip()] if keywords else None, **rest,
    }  # fmt: skip
    project = init_artifact(Path(output), {name: value for name, value in given.items() if value is not None})
    names = [author.name for author in project.artifact.authors]
    document = {
        "artifact": str(project.paths.artifact),
        "citation": str(project.paths.citation),
        "authors": names,
        "authors_from": project.authors_from,
        "license": project.artifact.license,
    }
    if project.authors_from == "git":
        out.say(f"Author: {names[0]}, from git's user.name. Change it under 'authors' in artifact.yaml if it is wrong.")
    for gap in not_stated(project.artifact):
        out.say(gap)
    out.give(
        document,
        [document],
        lambda console: console.print(
            f"Wrote {project.paths.artifact} and {project.paths.citation.name}. "
            f"Runs started in this folder or below it go to {project.artifact.store}.",
            markup=False,
        ),
    )


@click.command("add", cls=HelpfulCommand, page=HelpPage(examples=("fairtrial research add results.txt",)))
@click.argument("files", nargs=-1, required=True)
@click.option("--artifact", metavar="FILE", help=ARTIFACT_HELP)
@with_output
def add_command(out: Output, files: Sequence[str], artifact: str | None) -> None:
    """Add files, such as redirected output, to the project and its bundle."""
    from fairtrial.api.evidence.artifact import add_file

    _give_names(out, "added", [add_file(file, artifact) for file in files], "Added")


@click.command("remove", cls=HelpfulCommand, page=HelpPage(examples=("fairtrial research remove results.txt",)))
@click.argument("files", nargs=-1, required=True)
@click.option("--artifact", metavar="FILE", help=ARTIFACT_HELP)
@with_output
def remove_command(out: Output, files: Sequence[str], artifact: str | None) -> None:
    """Remove added files from the project. The files themselves are not deleted."""
    from fairtrial.api.evidence.artifact import remove_file

    _give_names(out, "removed", [remove_file(file, artifact) for file in files], "Removed from the project:")


def _give_names(out: Output, what: str, names: Sequence[str], said: str) -> None:
    out.give(
        {what: list(names)},
        [{"file": name} for name in names],
        lambda console: console.print(f"{said} {', '.join(names)}.", markup=False),
    )


@click.command("cite", cls=HelpfulCommand, page=HelpPage(examples=("fairtrial research cite --style apa",)))
@click.argument("artifact", required=False)
@click.option(
    "--style", default="bibtex", show_default=True, metavar="NAME", help="Citation style: bibtex, cff or apa."
)
@with_own_output
@click.option("--output", metavar="FILE", help="Write the citation to this file.")
def cite_command(out: Output, artifact: str | None, style: str, output: str | None) -> None:
    """Print a citation of the artifact, made only from the fields of artifact.yaml."""
    from fairtrial.api.evidence.artifact import cite, load_project
    from fairtrial.report.documents import write_text
    from fairtrial.research.artifact import NO_AUTHOR

    text = cite(style, artifact)
    if not load_project(artifact).artifact.known_authors:
        out.say(NO_AUTHOR)
    if output:
        if Path(output).exists():
            raise UserError(f"{output} already exists", hint="Choose another --output.")
        write_text(Path(output), text)
        out.say(f"Wrote {output}")
        return
    document = {"style": style, "text": text}
    out.give(document, [document], lambda console: console.out(text.rstrip("\n"), highlight=False))
