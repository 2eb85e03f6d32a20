"""The report of a bundle, as Markdown: what was asked, what was found, what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairtrial.api.comparing.analysis import Analysis
from fairtrial.api.evidence.claims import BY_THE_AUTHOR
from fairtrial.core.directions import better_words
from fairtrial.core.formatting import shown_interval, shown_p, shown_value
from fairtrial.report.documents import as_markdown
from fairtrial.research.artifact import ArtifactFile
from fairtrial.research.citation import license_words

MOST_ROWS = 40


def report_text(artifact: ArtifactFile, headlines: Mapping[str, Any], analyses: Mapping[str, Analysis | None]) -> str:
    """Every number in it is computed from the runs of the bundle, and checked again by `fairtrial research verify`."""
    people = ", ".join(author.name for author in artifact.known_authors) or "Author unknown"
    parts = [f"# {artifact.title}\n", f"{people}. Version {artifact.version}, {license_words(artifact)}.\n"]
    if artifact.description:
        parts.append(f"{artifact.description}\n")
    if not headlines["registered"]:
        parts.append("No analysis was registered before the runs: what follows is exploratory.\n")
    for sha256, found in headlines["registered"].items():
        parts += _registered(sha256, found)
    for study, found in headlines["studies"].items():
        parts += _study(study, found, analyses.get(study))
    for result in headlines["results"]:
        parts += _result(result)
    return "\n".join(parts)


def _registered(sha256: str, found: Mapping[str, Any]) -> list[str]:
    parts = [f"## Registered analysis {sha256[:12]}\n", f"The plan is `registrations/{sha256}.json`.\n"]
    if found.get("reason"):
        return [*parts, f"It could not be followed: {found['reason']}.\n"]
    rows = [_comparison(each) for each in found["comparisons"][:MOST_ROWS]]
    return [*parts, f"Study {found['study']}, by `{found['metric']}`.\n", as_markdown(rows), "", *_followed(found)]


def _followed(found: Mapping[str, Any]) -> list[str]:
    """How far the plan was followed: what the runs show, and what only the author's machine knew."""
    late = ["It was registered late, when runs were there already: this is exploratory.\n"] if found["late"] else []
    shown = [f"- {each['kind']}: {each['text']}" for each in found["deviations"]]
    messages = [f"- {each['kind']}: {each['text']} (by the author's word)" for each in found[BY_THE_AUTHOR]]
    if not shown and not messages:
        return [*late, "No deviation from the plan was found.\n"]
    return [*late, "Deviations from the plan:\n", *shown, *messages, ""]


def _study(study: str, found: Mapping[str, Any], analysis: Analysis | None) -> list[str]:
    if found.get("reason"):
        return [f"## Study {study}\n", f"No headline: {found['reason']}.\n"]
    parts = [f"## Study {study}\n"]
    if analysis is not None:
        parts.append(f"{analysis.headline}\n")
    parts.append(
        f"By `{found['metric']}` ({better_words(found['direction'])}), summary `{found['summary']['type']}`.\n"
    )
    parts.append(as_markdown([_arm(arm) for arm in found["arms"][:MOST_ROWS]]))
    if found["comparisons"]:
        parts.append(as_markdown([_comparison(each) for each in found["comparisons"][:MOST_ROWS]]))
    cautions = [] if analysis is None else [*(c for f in analysis.comparisons for c in f.cautions), *analysis.cautions]
    values = {caution["text"]: caution for caution in cautions}.values()
    return [*parts, *(f"- Caution: {caution['text']} {caution['remedy']}" for caution in values), ""]


def _arm(arm: Mapping[str, Any]) -> dict[str, Any]:
    names = ("variant", "planned", "started", "completed", "used")
    return {**{name: arm[name] for name in names}, "mean": shown_value(arm["mean"]), "sd": shown_value(arm["sd"])}


def _comparison(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"minus {found['control']}": found["candidate"], "difference": shown_value(found["difference"]),
        f"{100 * found['level']:g} % interval": shown_interval(found["low"], found["high"]),
        "p": shown_p(found["p_value"]), "adjusted p": shown_p(found["adjusted_p"]), "verdict": found["verdict"],
    }  # fmt: skip


def _result(result: Mapping[str, Any]) -> list[str]:
    asked, numbers = result["asked"], result["numbers"]
    parts = [f"## {asked['command']}, study {asked['study']}\n"]
    if "results" in numbers:
        names = ("accuracy", "std_dev", "runs")
        rows = [
            {"value": row["value"], **{name: shown_value(row[name]) for name in names}}
            for row in numbers["results"][:MOST_ROWS]
        ]
        return [*parts, f"Best: {numbers['best']}, by `{asked['metric']}`.\n", as_markdown(rows), ""]
    if "points" in numbers:
        rows = [
            {name: row[name] for name in ("name", "hours", "cost", "accuracy", "pareto")} for row in numbers["points"]
        ]
        return [*parts, f"Frontier: {', '.join(numbers['frontier'])}.\n", as_markdown(rows), ""]
    chosen = numbers["recommended"]
    limits = ", ".join(f"{name} {value}" for name, value in asked["constraints"].items() if value is not None)
    message = "Nothing meets the constraints" if chosen is None else f"Recommended: {chosen['name']}"
    return [*parts, f"{message} ({limits or 'no constraints'}).\n"]
