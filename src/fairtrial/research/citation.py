"""Citations of an artifact as CITATION.cff, BibTeX and APA, made only from the fields of artifact.yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fairtrial.research.artifact import ANOTHER_LICENSE, UNKNOWN, ArtifactFile, Author

STYLES = ("bibtex", "cff", "apa")
_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip
_APA_KIND = {
    "dataset": "Data set",
    "model": "Machine learning model",
    "code": "Computer software",
    "experiment": "Data set",
}


def cite(artifact: ArtifactFile, style: str) -> str:
    return {"bibtex": bibtex, "cff": cff, "apa": apa}[style](artifact)


def cff(artifact: ArtifactFile) -> str:
    """Return CITATION.cff, version 1.2.0. It has only software and data sets; models and experiments are data sets."""
    own_license = (artifact.license or "").startswith(ANOTHER_LICENSE)
    document: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use this, please cite it as below.",
        "type": "software" if artifact.type == "code" else "dataset",
        "title": artifact.title,
        "abstract": artifact.description,
        "authors": [_cff_author(author) for author in artifact.authors],
        "keywords": artifact.keywords or None,
        "version": artifact.version,
        "date-released": artifact.date.isoformat() if artifact.date else None,
        "license": None if own_license else artifact.license,
        "doi": artifact.doi,
        "url": artifact.url,
    }
    return "".join(f"{key}:{_yaml(value)}\n" for key, value in document.items() if value is not None)


def license_words(artifact: ArtifactFile) -> str:
    return "no license" if artifact.license is None else f"license {artifact.license}"


def with_gaps(artifact: ArtifactFile) -> list[str]:
    """Return the CITATION.cff files that `research init` would have written without the author, the license or both."""
    gaps: list[dict[str, Any]] = [{"authors": [Author(family=UNKNOWN)]}, {"license": None}]
    return [cff(artifact.model_copy(update=gap)) for gap in (*gaps, gaps[0] | gaps[1])]


def _cff_author(author: Author) -> dict[str, Any]:
    names = {"family-names": author.family, "given-names": author.given} if author.given else {"name": author.family}
    more = {
        "orcid": author.orcid and f"https://orcid.org/{author.orcid}",
        "affiliation": author.affiliation,
        "email": author.email,
    }
    return {key: value for key, value in {**names, **more}.items() if value is not None}


def _yaml(value: Any) -> str:
    """Return a value as YAML: JSON, which is valid YAML, except that authors are on separate lines for readability."""
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        rows = ("\n    ".join(f"{k}: {json.dumps(v, ensure_ascii=False)}" for k, v in each.items()) for each in value)
        return "".join(f"\n  - {row}" for row in rows)
    return f" {json.dumps(value, ensure_ascii=False)}"


def bibtex(artifact: ArtifactFile) -> str:
    fields = {
        "title": f"{{{_tex(artifact.title)}}}",
        "author": " and ".join(map(_bibtex_author, artifact.known_authors)),
        "year": str(artifact.date.year) if artifact.date else None,
        "month": str(artifact.date.month) if artifact.date else None,
        "version": _tex(artifact.version),
        "keywords": _tex(", ".join(artifact.keywords)) or None,
        "doi": artifact.doi,
        "url": artifact.url,
        "note": _tex(f"{_APA_KIND[artifact.type]}, {license_words(artifact)}"),
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@misc{{{_key(artifact)},", *lines, "}", ""])


def _bibtex_author(author: Author) -> str:
    """Return an author for BibTeX. Braces keep a name of several words, or with the word `and`, together."""
    family = _tex(author.family)
    if not author.given:
        return f"{{{family}}}"
    return (
        f"{{{family}}}, {_tex(author.given)}"
        if re.search(r"[\s,]", author.family)
        else f"{family}, {_tex(author.given)}"
    )


def _key(artifact: ArtifactFile) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", artifact.id) + (f"-{artifact.date.year}" if artifact.date else "")


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def apa(artifact: ArtifactFile) -> str:
    """Return an APA (7th edition) citation: beyond 20 authors, 19 and the last. Without authors, the title leads."""
    names = [_apa_author(author) for author in artifact.known_authors]
    work = f"{artifact.title} (Version {artifact.version}) [{_APA_KIND[artifact.type]}]."
    if len(names) > 20:
        message = ", ".join(names[:19]) + ", … " + names[-1]
    else:
        message = ", & ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    year = artifact.date.year if artifact.date else "n.d."
    place = f"https://doi.org/{artifact.doi}" if artifact.doi else artifact.url
    full = message if message.endswith(".") else f"{message}."
    sentence = f"{full} ({year}). {work}" if names else f"{work} ({year})."
    return f"{sentence} {place}\n" if place else f"{sentence}\n"


def _apa_author(author: Author) -> str:
    if not author.given:
        return author.family
    initials = " ".join("-".join(f"{part[0]}." for part in word.split("-") if part) for word in author.given.split())
    return f"{author.family}, {initials}"
