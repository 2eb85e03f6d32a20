"""The report of a bundle, as Markdown: the questions, the results, and what the results are based on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairtrial.api.comparing.analysis import Analysis
from fairtrial.api.evidence.claims import BY_THE_AUTHOR
from fairtrial.core.directions import better_words
from fairtrial.core.formatting import shown_interval, shown_p, shown_percent, shown_value
from fairtrial.report.documents import as_markdown
from fairtrial.research.artifact import ArtifactFile
from fairtrial.research.citation import license_words

MOST_ROWS = 40


def report_text(artifact: ArtifactFile, claims: Mapping[str, Any], analyses: Mapping[str, Analysis | None]) -> str:
    """Return the report. `fairtrial research verify` recomputes every number in it from the bundled runs."""
    people = ", ".join(author.name for author in artifact.known_authors) or "Author unknown"
    parts = [f"# {artifact.title}\n", f"{people}. Version {artifact.version}, {license_words(artifact)}.\n"]
    if artifact.description:
        parts.append(f"{artifact.description}\n")
    if not claims["registered"]:
        parts.append("No analysis was registered before the runs: what follows is exploratory.\n")
    for sha256, study_claims in claims["registered"].items():
        parts += _registered(sha256, study_claims)
    for study, study_claims in claims["studies"].items():
        parts += _study(study, study_claims, analyses.get(study))
    for result in claims["results"]:
        parts += _result(result)
    return "\n".join(parts)


def _registered(sha256: str, plan_claims: Mapping[str, Any]) -> list[str]:
    parts = [f"## Registered analysis {sha256[:12]}\n", f"The plan is `registrations/{sha256}.json`.\n"]
    if plan_claims.get("reason"):
        return [*parts, f"It could not be carried out: {plan_claims['reason']}.\n"]
    rows = [_comparison(each) for each in plan_claims["comparisons"][:MOST_ROWS]]
    return [
        *parts,
        f"Study {plan_claims['study']}, by `{plan_claims['metric']}`.\n",
        as_markdown(rows),
        "",
        *_followed(plan_claims),
    ]


def _followed(plan_claims: Mapping[str, Any]) -> list[str]:
    """Return the deviations from the plan: those that the runs show, and those that only the author could see."""
    late = (
        ["It was registered late, when runs already existed, so this is exploratory.\n"] if plan_claims["late"] else []
    )
    shown = [f"- {each['kind']}: {each['text']}" for each in plan_claims["deviations"]]
    messages = [f"- {each['kind']}: {each['text']} (reported by the author)" for each in plan_claims[BY_THE_AUTHOR]]
    if not shown and not messages:
        return [*late, "No deviation from the plan was found.\n"]
    return [*late, "Deviations from the plan:\n", *shown, *messages, ""]


def _study(study: str, claims: Mapping[str, Any], analysis: Analysis | None) -> list[str]:
    if claims.get("reason"):
        return [f"## Study {study}\n", f"No headline numbers: {claims['reason']}.\n"]
    parts = [f"## Study {study}\n"]
    if analysis is not None:
        parts.append(f"{analysis.headline}\n")
    parts.append(
        f"By `{claims['metric']}` ({better_words(claims['direction'])}), summary `{claims['summary']['type']}`.\n"
    )
    parts.append(as_markdown([_arm(arm) for arm in claims["arms"][:MOST_ROWS]]))
    if claims["comparisons"]:
        parts.append(as_markdown([_comparison(each) for each in claims["comparisons"][:MOST_ROWS]]))
    cautions = [] if analysis is None else [*(c for f in analysis.comparisons for c in f.cautions), *analysis.cautions]
    values = {caution["text"]: caution for caution in cautions}.values()
    return [*parts, *(f"- Caution: {caution['text']} {caution['remedy']}" for caution in values), ""]


def _arm(arm: Mapping[str, Any]) -> dict[str, Any]:
    names = ("variant", "planned", "started", "completed", "used")
    return {**{name: arm[name] for name in names}, "mean": shown_value(arm["mean"]), "sd": shown_value(arm["sd"])}


def _comparison(comparison: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"minus {comparison['control']}": comparison["candidate"],
        "difference": shown_value(comparison["difference"]),
        f"{shown_percent(comparison['level'])} interval": shown_interval(comparison["low"], comparison["high"]),
        "p": shown_p(comparison["p_value"]),
        "adjusted p": shown_p(comparison["adjusted_p"]),
        "verdict": comparison["verdict"],
    }


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
