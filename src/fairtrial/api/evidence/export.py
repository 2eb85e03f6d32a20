"""research export: write the project as a plain folder, a Markdown report, or a notebook that repeats the analysis."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import orjson

from fairtrial.api.evidence.artifact import load_project
from fairtrial.api.evidence.bundle import BundleTerms, bundle
from fairtrial.api.evidence.claims import TOLERANCE
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.paths import BundlePaths, is_url
from fairtrial.record.store_location import store_address
from fairtrial.research.notebook import notebook

FOLDER, MARKDOWN, NOTEBOOK = "folder", "markdown", "notebook"
KINDS = (FOLDER, MARKDOWN, NOTEBOOK)
USUAL = {MARKDOWN: "report.md", NOTEBOOK: "analysis.ipynb"}


def export(
    artifact: str | os.PathLike[str] | None = None,
    *,
    to: str,
    output: str | os.PathLike[str] | None = None,
    terms: BundleTerms | None = None,
) -> Path:
    """Write the export and return its path. Existing files are never overwritten.

    >>> fairtrial.export("project/artifact.yaml", to="markdown")  # doctest: +SKIP
    """
    if to not in KINDS:
        raise UserError(unknown("kind of export", to, KINDS))
    if to == FOLDER:
        path = bundle(artifact, zipped=False, output=output, terms=terms).path
        assert path is not None
        return path
    project = load_project(artifact)
    target = Path(output).absolute() if output else project.paths.root / USUAL[to]
    if target.exists():
        raise UserError(f"{target} already exists", hint="Choose another --output.")
    terms = replace(terms or BundleTerms(), charts=False)
    with tempfile.TemporaryDirectory(prefix="fairtrial-export-") as folder:
        made = BundlePaths(Path(folder) / "crate")
        bundle(project.paths.artifact, zipped=False, output=made.root, terms=replace(terms, tell=lambda _: None))
        if to == MARKDOWN:
            content = made.report.read_bytes()
        else:
            place = store_address(terms.store or project.store)
            runs = place if is_url(place) else os.path.relpath(place, target.parent)
            claims = orjson.loads(made.claims.read_bytes())
            content = notebook(project.artifact, claims, runs=runs, tolerance=TOLERANCE)
    try:
        target.write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}", hint="Choose another --output.") from None
    return target
