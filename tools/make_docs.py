"""Writes the documentation that can be derived from the program, so that the two cannot drift apart.

python tools/make_docs.py            writes docs/cli.md, docs/api.md, docs/cautions.md, docs/documents.md,
                                     docs/formats.md, docs/evidence.md, docs/decisions/index.md, docs/schemas/,
                                     measured tables, shown output
python tools/make_docs.py --check    writes nothing; names the files that differ, and exits 1 if there are any
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

os.environ["FAIRTRIAL_BUILT_IN_ONLY"] = "1"  # before the imports below, which read the names of plug-ins
os.environ.pop("COLUMNS", None)  # pages show the width of a pipe, whatever the terminal of the author

from fairtrial.cli._output import shared_options
from fairtrial.cli.app import COMMANDS, cli
from fairtrial.cli.profile import MODES
from fairtrial.core.cautions import ALL as CAUTIONS
from fairtrial.core.errors import nearest
from fairtrial.core.events import EventLine
from fairtrial.core.metadata_schema import Metadata
from fairtrial.core.options import OptionInfo, describe_options
from fairtrial.core.registry import LoadedRecipe, load_recipe, recipe_names
from fairtrial.core.schema import ARTIFACT_SCHEMA, EVENTS_SCHEMA, METADATA_SCHEMA, REGISTRATION_SCHEMA, STUDY_SCHEMA
from fairtrial.costs.prices import BUILT_IN
from fairtrial.plan.study import Study
from fairtrial.research.artifact import ArtifactFile
from fairtrial.research.plan_schema import RegistrationModel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the table of documented items belongs to the tests

from tests.documents.records import Item  # noqa: E402
from tests.documents.table import ITEMS  # noqa: E402

from tools.api_page import api_page  # noqa: E402
from tools.markdown_text import NOTICE, code, plain, table  # noqa: E402
from tools.reference_pages import decisions_page, evidence_page, formats_page  # noqa: E402

EVIDENCE = "docs/evidence"
FIGURES = re.compile(r"(<!-- evidence:(\S+) -->\n)(.*?)(<!-- /evidence -->)", re.DOTALL)
PRICES = re.compile(r"(<!-- prices -->\n)(.*?)(<!-- /prices -->)", re.DOTALL)
FILES = re.compile(r"(<!-- file:(\S+) -->\n)(.*?)(<!-- /file -->)", re.DOTALL)
RUNS = re.compile(r"(<!-- run -->\n\n```console\n\$ ((?:[^\n]*\\\n)*[^\n]*\n))(.*?)(```\n\n<!-- /run -->)", re.DOTALL)

Page = tuple[str, str]


def pages(root: Path) -> Iterator[Page]:
    """Every generated file: its path below the root, and the text that it must have."""
    yield "docs/cli.md", cli_page()
    yield "docs/cautions.md", cautions_page()
    yield "docs/api.md", api_page()
    schemas = dict(schema_pages())
    yield from ((f"docs/{path}", text) for path, text in schemas.items())
    yield "docs/formats.md", formats_page(schemas)
    yield "docs/evidence.md", evidence_page(sorted((root / EVIDENCE).glob("*.json")), root / "docs")
    yield "docs/decisions/index.md", decisions_page(root / "docs" / "decisions")
    figures = read_figures(root / EVIDENCE)
    yield "docs/documents.md", documents_page(ITEMS, figures)
    for path in sorted([root / "README.md", *root.glob("docs/*.md")]):
        name, text = path.relative_to(root).as_posix(), path.read_text()
        if any(each.search(text) for each in (FIGURES, FILES, PRICES, RUNS)):
            yield name, with_runs(with_prices(with_files(with_figures(text, figures, where=name), root)), root)


# The command line.


def cli_page() -> str:
    parts = [NOTICE, "# The command line\n", paragraphs(cli.help or "")]
    parts.append(table(("command", "job"), ((f"[`{name}`](#fairtrial-{name})", job) for name, job in COMMANDS.items())))
    parts += [
        "## Options that all commands share\n",
        "`init` and `completion` have only those that are listed with them.\n",
        option_table(shared_options(), click.Context(cli)),
    ]
    parts += command_sections()
    parts += recipe_sections()
    return "\n".join(parts)


def command_sections() -> Iterator[str]:
    root = click.Context(cli, info_name="fairtrial")
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        yield from command_section(command, click.Context(command, root, info_name=name), level=2)


def command_section(command: click.Command, ctx: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * level} {ctx.command_path}\n"
    yield f"```\n{ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}\n```\n"
    recipe: LoadedRecipe | None = getattr(command, "recipe", None)
    of_any_recipe = recipe is not None and ctx.info_name != command.name
    if not of_any_recipe:
        yield paragraphs(command.help or "")
    if recipe:
        whose = "each recipe" if of_any_recipe else code(recipe.name)
        yield f"The options of {whose} are [below](#options-of-recipes).\n"
    options = own_options(command)
    if options:
        yield option_table(options, ctx)
    if isinstance(command, click.Group):
        for shown, name in inner_commands(command, ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from command_section(inner, click.Context(inner, ctx, info_name=shown), level + 1)


def inner_commands(group: click.Group, ctx: click.Context) -> list[tuple[str, str]]:
    """The subcommands to show, as (name to print, name). One recipe stands for all: only their options differ."""
    recipes = {
        "train": [("RECIPE", "fake")],
        "bench": [("RECIPE", "fake")],
        "launch": [("STUDY.yaml", "STUDY.yaml"), ("RECIPE", "fake")],
        "profile": [(name, name) for name in (*MODES, *group.commands)],
    }
    return recipes.get(ctx.info_name or "", [(name, name) for name in group.commands])


def own_options(command: click.Command) -> list[click.Parameter]:
    """Without those of every command, and without a recipe's, which have tables of their own."""
    shared = {(option.name, getattr(option, "help", None)) for option in shared_options()}
    recipe: LoadedRecipe | None = getattr(command, "recipe", None)
    of_recipe = {info.name for info in describe_options(recipe.options)} if recipe else set()
    return [
        parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        and (parameter.name, parameter.help) not in shared
        and (parameter.name not in of_recipe or parameter.name in getattr(command, "own", ()))
    ]


def option_table(parameters: Iterable[click.Parameter], ctx: click.Context) -> str:
    records = [record for parameter in parameters if (record := parameter.get_help_record(ctx))]
    return table(("option", "what it does"), ((code(flags), plain(text)) for flags, text in records))


def paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n")) + "\n"


# Recipes.


def recipe_sections() -> Iterator[str]:
    yield "## Options of recipes\n"
    yield (
        "`train` and `launch` take these as flags; study files take them as keys, with `_` for `-`. An option whose "
        "role is `output`, `checkpoint` or `speed` cannot change a number and is no part of a cell's fingerprint.\n"
    )
    for name in recipe_names():
        recipe = load_recipe(name)
        yield f"### {name}\n"
        yield f"{recipe.summary}{' Judged by ' + code(recipe.metric.on('report')) + '.' if recipe.metric else ''}\n"
        yield table(
            ("flag", "type", "default", "unit", "role", "what it does"),
            map(option_row, describe_options(recipe.options)),
        )


def option_row(info: OptionInfo) -> tuple[str, ...]:
    flag = f"{info.flag}, {info.flag.replace('--', '--no-', 1)}" if info.is_switch else info.flag
    if info.type_name == "list":
        flag = "-- PROGRAM ARGUMENTS…"
    kind = ", ".join(map(code, info.choices)) if info.choices else info.type_name
    unset = info.default is None or info.default in ((), {}, "")
    default = "" if unset else code(json.dumps(info.default).strip('"'))
    return code(flag), kind, default, info.unit or "", info.role.value, plain(info.help)


# Cautions and schemas.


def cautions_page() -> str:
    def shown(text: str) -> str:
        """Show of `{count:run is/runs are}` the plural."""
        return spaced(re.sub(r"\{(\w+):[^/}]*/([^}]*)\}", r"{\1} \2", text))

    rows = ((code(caution.code), shown(caution.text), shown(caution.remedy)) for caution in CAUTIONS.values())
    return "\n".join(
        [
            NOTICE,
            "# Cautions\n",
            "Every caution that Fairtrial can give, from `core/cautions.py`. A caution never stops anything. It says "
            "what a number does not cover, and what to do about it. Words in braces are filled in where it is given.\n",
            table(("code", "what it says", "what to do"), rows),
        ]
    )


def spaced(text: str) -> str:
    """Doubled braces stand for plain ones."""
    return plain(text.replace("{{", "{").replace("}}", "}"))


def schema_pages() -> Iterator[Page]:
    """The published schemas, by their paths below docs/."""
    models = {
        f"study-{STUDY_SCHEMA}": ("A study file of Fairtrial", Study.model_json_schema()),
        f"metadata-{METADATA_SCHEMA}": (
            "metadata.json of a run of Fairtrial",
            Metadata.model_json_schema(by_alias=True),
        ),
        f"events-{EVENTS_SCHEMA}": (
            "One line of events.jsonl of a run of Fairtrial",
            EventLine.model_json_schema(by_alias=True),
        ),
        f"artifact-{ARTIFACT_SCHEMA}": ("artifact.yaml of a project of Fairtrial", ArtifactFile.model_json_schema()),
        f"registration-{REGISTRATION_SCHEMA}": (
            "A registration of Fairtrial",
            RegistrationModel.model_json_schema(by_alias=True),
        ),
    }
    for name, (title, schema) in models.items():
        if "description" in schema:  # examples in Python do not belong in a schema
            schema["description"] = schema["description"].partition("\n\n>>>")[0]
        yield f"schemas/{name}.json", schema_page(title, schema)


def schema_page(title: str, schema: Mapping[str, Any]) -> str:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return (
        json.dumps({**head, **{k: v for k, v in schema.items() if k != "title"}}, indent=2, ensure_ascii=False) + "\n"
    )


# What the reference documents promise.

DOCUMENTS = {
    "000": "Keeping a benchmark command in step with its training command",
    "001": "Distillation: sweeps, strategies, ablation, cost, recommendation, research",
    "002": "The test and benchmark plan of a GRPO pipeline",
    "003": "Normalized scores and the best checkpoint",
    "004": "Many seeds: launcher, variance, analysis, best practices",
    "commands": "The specification of Fairtrial's own commands",
}
TIMED = "documented_lines"
"""The benchmark that runs the lines at full size."""


def documents_page(items: Sequence[Item], figures: Mapping[str, Any] | None) -> str:
    differing = sum(bool(item.differs) for item in items)
    parts = [
        NOTICE,
        "# The reference documents, point by point\n",
        "Fairtrial implements five documents of other projects. Their command lines run as they stand, with the name "
        "of the program replaced. Each row is a test in `tests/documents`, which runs the line or the option in a "
        "small store and compares exit codes, fields, files and keys. An option passes only if it changes the "
        f"result. Of {len(items)} points {len(items) - differing} are as documented; {differing} differ and say why.\n",
    ]
    for document, title in DOCUMENTS.items():
        rows = [documents_row(item) for item in items if item.document == document]
        parts += [f"## {document}: {title}\n", table(("section", "item", "ours", "state"), rows)]
    if figures and TIMED in figures:
        parts += ["## The lines at full size\n", "Each in a process of its own, from an empty store.\n"]
        parts += [figure_table(TIMED, figures, "docs/documents.md")]
    return "\n".join(parts)


def documents_row(item: Item) -> tuple[str, ...]:
    return item.section, in_code(item.theirs, item), in_code(item.ours, item), plain_outside_code(item.state)


def in_code(text: str, item: Item) -> str:
    """Command lines are set in code as a whole; other words have their own marks."""
    return code(text) if item.is_command_line else plain_outside_code(text)


def plain_outside_code(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else plain(part) for part in parts)


# Measured figures.


def read_figures(folder: Path) -> dict[str, Any] | None:
    """Name of a group → name of a figure → what was measured, of all steps; None where nothing was measured yet."""
    files = sorted(folder.glob("*.json"))
    figures: dict[str, Any] = {}
    for file in files:
        figures |= json.loads(file.read_text())["figures"]
    return figures if files else None


def with_figures(text: str, figures: Mapping[str, Any] | None, *, where: str) -> str:
    return FIGURES.sub(lambda block: f"{block[1]}{figure_table(block[2], figures, where)}{block[4]}", text)


def figure_table(name: str, figures: Mapping[str, Any] | None, where: str) -> str:
    if figures is None:
        return "not measured yet\n"
    if name not in figures:
        guess = nearest(name, figures)
        sys.exit(f"{where}: {EVIDENCE} has no figures named '{name}'" + (f"; did you mean '{guess}'?" if guess else ""))
    found = figures[name]
    rows = [
        (label, measured(figure), figure.get("goal") or "", met(figure), note(figure))
        for label, figure in found.items()
    ]
    width = 5 if any(row[-1] for row in rows) else 4
    return "\n" + table(("figure", "measured", "goal", "met", "note")[:width], [row[:width] for row in rows]) + "\n"


def measured(figure: Mapping[str, Any]) -> str:
    """The value with its unit and interval; what could not be measured says why."""
    if figure.get("value") is None:
        return figure.get("note") or ""
    text = f"{number(figure['value'])} {figure.get('unit') or ''}".strip()
    if figure.get("low") is not None and figure.get("high") is not None:
        text += f" ({number(figure['low'])} … {number(figure['high'])})"
    return text


def note(figure: Mapping[str, Any]) -> str:
    """What was said beside a figure that has a value."""
    return "" if figure.get("value") is None else figure.get("note") or ""


def number(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def met(figure: Mapping[str, Any]) -> str:
    return {True: "yes", False: "**no**", None: ""}[figure.get("met")]


# Files that a page shows.


def with_files(text: str, root: Path) -> str:
    def shown(block: re.Match[str]) -> str:
        language = "toml" if block[2].endswith(".toml") else "python"
        return f"{block[1]}\n```{language}\n{(root / block[2]).read_text()}```\n\n{block[4]}"

    return FILES.sub(shown, text)


# Commands that a page shows with what they print.


def with_runs(text: str, root: Path) -> str:
    return RUNS.sub(lambda block: f"{block[1]}{printed_by(block[2], root)}{block[4]}", text)


def printed_by(command: str, root: Path) -> str:
    """What a `fairtrial …` line prints on standard output, run from the root."""
    words = shlex.split(command.replace("\\\n", " "))
    done = subprocess.run([sys.executable, "-m", *words], cwd=root, capture_output=True, text=True, check=False)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


# Prices.


def with_prices(text: str) -> str:
    return PRICES.sub(lambda block: f"{block[1]}\n{price_table()}\n{block[3]}", text)


def price_table() -> str:
    rows = (
        (code(card.name), f"${card.usd_per_hour:.2f}", f"{card.memory_gb:g} GB", f"{card.performance:g} ×", card.basis,
         f"{card.source}, {card.as_of}")
        for card in BUILT_IN.cards.values()
    )  # fmt: skip
    return table(("card", "per hour", "memory", "speed", "basis of the speed", "price from"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")
    checking = parser.parse_args().check
    wanted = {ROOT / name: text for name, text in pages(ROOT)}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{'differs' if checking else 'wrote'}: {path.relative_to(ROOT)}")
        if not checking:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
    if checking and stale:
        print("Make them anew with: python tools/make_docs.py", file=sys.stderr)
    return 1 if checking and stale else 0


if __name__ == "__main__":
    sys.exit(main())
