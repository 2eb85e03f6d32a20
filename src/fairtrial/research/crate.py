"""`ro-crate-metadata.json`: the description of a bundle as an RO-Crate 1.1, for third-party tools."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import orjson

from fairtrial.core.paths import BundlePaths
from fairtrial.research.artifact import ANOTHER_LICENSE, ArtifactFile, Author

CONTEXT = "https://w3id.org/ro/crate/1.1/context"
PROFILE = "https://w3id.org/ro/crate/1.1"
HOME = "#fairtrial"
_KINDS = {
    ".json": "application/json", ".jsonl": "application/jsonl", ".md": "text/markdown", ".yaml": "application/yaml",
    ".yml": "application/yaml", ".csv": "text/csv", ".txt": "text/plain", ".png": "image/png", ".svg": "image/svg+xml",
    ".pdf": "application/pdf", ".py": "text/x-python", ".cff": "application/yaml", ".ipynb": "application/x-ipynb+json",
}  # fmt: skip
_TYPES = {"dataset": "Data set", "model": "Model", "code": "Software", "experiment": "Experiment"}

Entity = dict[str, Any]


@dataclass(frozen=True)
class CratedRun:
    """The data about a run that the crate contains."""

    study: str
    run: str
    status: str
    begun: float
    ended: float | None


def crate_document(
    artifact: ArtifactFile, files: Mapping[str, tuple[int, str]], runs: Sequence[CratedRun], *, version: str
) -> bytes:
    """Return the crate document for these files. It does not depend on when or where it is written."""
    published = artifact.date.isoformat() if artifact.date else _day(_latest(runs))
    studies = sorted({run.study for run in runs})
    paths = BundlePaths(PurePosixPath())
    outside = [name for name in sorted(files) if not PurePosixPath(name).is_relative_to(paths.store)]
    graph: list[Entity] = [
        {
            "@id": str(paths.crate), "@type": "CreativeWork", "about": {"@id": "./"},
            "conformsTo": {"@id": PROFILE},
        },
        _root(artifact, published, [*outside, str(paths.manifest), *(f"{paths.store}/{s}/" for s in studies)]),
        *map(_person, artifact.known_authors),
        *_organizations(artifact.known_authors),
        _license(artifact),
        {
            "@id": HOME, "@type": "SoftwareApplication", "name": "Fairtrial", "version": version,
            "description": "Ran, recorded and analysed what is in this crate.",
        },
    ]  # fmt: skip
    for study in studies:
        graph += _study(study, [run for run in runs if run.study == study], files, str(paths.store))
    graph += [_file(name, files[name]) for name in sorted(files)]
    graph.append(
        {
            "@id": str(paths.manifest),
            "@type": "File",
            "name": paths.manifest.name,
            "encodingFormat": _KINDS[".json"],
            "description": "Size and SHA-256 of every other file, and what was left out of the bundle.",
        }
    )
    return orjson.dumps({"@context": CONTEXT, "@graph": graph}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _root(artifact: ArtifactFile, published: str, parts: Sequence[str]) -> Entity:
    people = [{"@id": _person_id(author)} for author in artifact.known_authors]
    document: Entity = {
        "@id": "./",
        "@type": "Dataset",
        "name": artifact.title,
        "description": artifact.description or f"{_TYPES[artifact.type]}: {artifact.title}",
        "identifier": f"https://doi.org/{artifact.doi}" if artifact.doi else artifact.id,
        "datePublished": published,
        "version": artifact.version,
        "license": {"@id": _license(artifact)["@id"]},
        "author": people[0] if len(people) == 1 else people or None,
        "keywords": ", ".join(artifact.keywords) or None,
        "url": artifact.url,
        "hasPart": [{"@id": _id(name)} for name in parts],
    }
    return {key: value for key, value in document.items() if value is not None}


def _id(name: str) -> str:
    return quote(name, safe="/=,@+")


def _person_id(author: Author) -> str:
    return f"https://orcid.org/{author.orcid}" if author.orcid else f"#{quote(author.name)}"


def _person(author: Author) -> Entity:
    document: Entity = {
        "@id": _person_id(author),
        "@type": "Person" if author.given else "Organization",
        "name": author.name,
        "givenName": author.given,
        "familyName": author.family if author.given else None,
        "email": author.email,
        "affiliation": {"@id": _organization_id(author.affiliation)} if author.affiliation else None,
    }
    return {key: value for key, value in document.items() if value is not None}


def _organization_id(name: str) -> str:
    return f"#organization-{quote(name)}"


def _organizations(authors: Sequence[Author]) -> list[Entity]:
    names = dict.fromkeys(author.affiliation for author in authors if author.affiliation)
    return [{"@id": _organization_id(name), "@type": "Organization", "name": name} for name in names]


def _license(artifact: ArtifactFile) -> Entity:
    if artifact.license is None:  # RO-Crate requires an entity here, so this one states that there is no license
        message = "No license was chosen, so others have no permission to reuse this."
        return {"@id": "#no-license", "@type": "CreativeWork", "name": "No license", "description": message}
    own = artifact.license.startswith(ANOTHER_LICENSE)
    place = f"#{artifact.license}" if own else f"https://spdx.org/licenses/{artifact.license}"
    message = "A license of its own." if own else f"SPDX license {artifact.license}."
    return {"@id": place, "@type": "CreativeWork", "name": artifact.license, "description": message}


def _study(study: str, runs: Sequence[CratedRun], files: Mapping[str, tuple[int, str]], store: str) -> list[Entity]:
    """Return the entities of a study: the study, the action that made it, and each run with its files."""
    folder = f"{store}/{study}/"
    by_run: dict[str, list[str]] = {}
    for name in sorted(files):
        if name.startswith(folder):
            first, slash, _ = name.removeprefix(folder).partition("/")
            by_run.setdefault(first if slash else "", []).append(name)
    own = by_run.get("", [])
    top = {name: f"{folder}{name}/" for name in sorted(run.run for run in runs)}
    document: Entity = {
        "@id": _id(folder),
        "@type": "Dataset",
        "name": f"Study {study}",
        "description": f"The plan of the study and its {len(runs)} runs, with every value that they logged.",
        "hasPart": [{"@id": _id(name)} for name in [*own, *top.values()]],
    }
    action: Entity = {
        "@id": f"#made-{quote(study)}",
        "@type": "CreateAction",
        "name": f"Runs of study {study}",
        "instrument": {"@id": HOME},
        "result": {"@id": _id(folder)},
        "startTime": _moment(min(run.begun for run in runs)),
        "endTime": _moment(_latest(runs)),
    }
    entities = [document, action]
    for run in runs:
        place = top[run.run]
        inside = by_run.get(run.run, [])
        entities.append(
            {
                "@id": _id(place),
                "@type": "Dataset",
                "name": f"Run {run.study}/{run.run}",
                "description": f"One run, {run.status}.",
                "hasPart": [{"@id": _id(name)} for name in inside],
            }
        )
    return entities


def _file(name: str, known: tuple[int, str]) -> Entity:
    size, digest = known
    kind = _KINDS.get(PurePosixPath(name).suffix, "application/octet-stream")
    return {"@id": _id(name), "@type": "File", "name": PurePosixPath(name).name, "contentSize": str(size),
            "encodingFormat": kind, "sha256": digest}  # fmt: skip


def _latest(runs: Sequence[CratedRun]) -> float:
    return max((run.ended or run.begun for run in runs), default=0.0)


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _day(seconds: float) -> str:
    return _moment(seconds)[:10]
