"""Makes the pages of file formats, evidence and decisions from the schemas, the figures and the records themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.markdown_text import NOTICE, code, plain, table

FORMATS = {
    "study": ("Study file", "What a launch reads: variants, seeds and the planned analysis. See [plan](plan.md)."),
    "metadata": ("metadata.json", "What a run was and how it went. See [record](record.md)."),
    "events": ("events.jsonl", "One line for each thing that happened in a run. See [record](record.md#events)."),
    "registration": ("Registration", "A plan that was fixed before the first run. See [research](research.md)."),
    "artifact": ("artifact.yaml", "The description of a project. See [research](research.md)."),
}  # fmt: skip


# File formats.


def formats_page(schemas: Mapping[str, str]) -> str:
    """`schemas`: path of a published schema below docs/ → its text."""
    parts = [
        NOTICE,
        "# File formats\n",
        "The files of a store are plain JSON, JSONL and Parquet; people write YAML. These tables are made from the "
        "published JSON schemas. Each format has a version; newer versions of Fairtrial read older files.\n",
        "| file of a run | content |\n| --- | --- |\n"
        "| `metadata.json` | [options, status, timings, machine, best checkpoint](#metadatajson) |\n"
        "| `metrics.jsonl` | one line per logged step: `step` and one key per metric |\n"
        "| `metrics.parquet` | the same in columns, made when the run ends |\n"
        "| `events.jsonl` | [one line per event](#eventsjsonl) |\n"
        "| `checkpoints/` | `step-N.pt`, `last.pt`, `best.pt` |\n"
        "| `log.txt` | what the job printed |\n",
    ]
    for path, text in schemas.items():
        title, purpose = FORMATS[Path(path).name.partition("-")[0]]
        parts += [f"## {title}\n", f"{purpose} JSON schema: [{Path(path).name}]({path}).\n", *_schema(json.loads(text))]
    return "\n".join(parts)


def _schema(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("properties"):
        yield _keys(schema)
    for name, definition in schema.get("$defs", {}).items():
        if not definition.get("properties"):
            continue
        yield f"### {_event(definition) or name}\n"
        if definition.get("description"):
            yield f"{_prose(definition['description'])}\n"
        yield _keys(definition)


def _event(definition: Mapping[str, Any]) -> str | None:
    """The word in the key `event` of a line; lines are looked up by it and not by the name of a class."""
    word: str | None = definition["properties"].get("event", {}).get("const")
    return word


def _keys(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            code(name),
            _kind(value),
            "required" if name in required else _default(value),
            _prose(value.get("description", "")),
        )
        for name, value in schema["properties"].items()
    ]
    return table(("key", "type", "default", "meaning"), rows)


def _kind(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        return code(value["$ref"].rpartition("/")[2])
    if "const" in value:
        return code(json.dumps(value["const"]))
    if "enum" in value:
        return ", ".join(code(json.dumps(each)) for each in value["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in value:
            return " or ".join(dict.fromkeys(map(_kind, value[key])))
    kind = value.get("type", "any")
    if kind == "array" and "items" in value:
        return f"list of {_kind(value['items'])}"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"mapping to {_kind(value['additionalProperties'])}"
    return str(kind)


def _default(value: Mapping[str, Any]) -> str:
    return code(json.dumps(value["default"])) if "default" in value else ""


def _prose(text: str) -> str:
    text = " ".join(text.split())
    return "".join(part if part.startswith("`") else plain(part) for part in re.split(r"(`[^`]*`)", text))


# Evidence.


def evidence_page(files: Sequence[Path], docs: Path) -> str:
    parts = [
        NOTICE,
        "# Evidence\n",
        "`make evidence` measures what this documentation claims and writes it to a file for each step of the project, "
        "with commit, date and machine. A missed goal is recorded as missed. `make evidence STEP=5` measures one.\n",
    ]
    shown = _where_shown(docs)
    rows, missed = [], []
    for file in files:
        document = json.loads(file.read_text())
        for name, figures in document["figures"].items():
            goals = [figure["met"] for figure in figures.values() if figure.get("met") is not None]
            page = shown.get(name)
            about = document.get("measured_before", {}).get(name) or document
            rows.append((
                f"[{document['step']}](evidence/{file.name})",
                f"[{_title(name)}]({page})" if page else _title(name),
                str(len(figures)), f"{sum(goals)} of {len(goals)}" if goals else "", str(about["date"])[:10],
            ))  # fmt: skip
        missed += [f"- Step {document['step']}, {plain(line)}\n" for line in document["missed"]]
    parts.append(table(("step", "what was measured", "figures", "goals met", "date"), rows))
    parts += ["## Missed goals\n", "".join(missed) or "None.\n"]
    return "\n".join(parts)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _where_shown(docs: Path) -> dict[str, str]:
    """Name of a group of figures → the page that shows its table."""
    return {
        name: page.name
        for page in sorted(docs.glob("*.md"))
        for name in re.findall(r"<!-- evidence:(\S+) -->", page.read_text())
    } | {"documented_lines": "documents.md"}


# Decisions.


def decisions_page(folder: Path) -> str:
    lines = [f"- [{_number_and_title(path)}]({path.name})\n" for path in sorted(folder.glob("[0-9]*.md"))]
    return "\n".join(
        [
            NOTICE,
            "# Decisions\n",
            "Choices that somebody will question have half a page each: the question, the decision, its price.\n",
            "".join(lines),
        ]
    )


def _number_and_title(path: Path) -> str:
    heading = path.read_text().partition("\n")[0].removeprefix("# ")
    title = re.sub(r"^\d+[.:]?\s*", "", heading)
    return f"{path.name[:4]} {title}"
