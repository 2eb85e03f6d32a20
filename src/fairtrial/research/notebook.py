"""A Jupyter notebook that repeats the analysis and compares the result with the claims."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from fairtrial.research.artifact import ArtifactFile

SET_UP = """\
import math
import shutil
import tempfile
from pathlib import Path

import fairtrial

RUNS = {runs!r}  # path of the runs, relative to this notebook
STORE = RUNS
if "://" not in RUNS:  # read a copy: an analysis writes to its store, and the evidence must not change
    STORE = Path(tempfile.mkdtemp()) / "runs"
    shutil.copytree(RUNS, STORE, ignore=shutil.ignore_patterns("checkpoints", ".*"))


def same(found, claimed):
    \"\"\"Equal up to rounding differences between numerical libraries.\"\"\"
    if found is None or claimed is None:
        return found is None and claimed is None
    return math.isclose(found, claimed, rel_tol={tolerance!r})
"""
ANALYSE = """\
analysis = fairtrial.analyze({study!r}, store=STORE)
print(analysis)
"""
CHECK = """\
claimed = {claimed}
for found in analysis.comparisons:
    said = claimed[found.candidate]
    assert found.verdict == said["verdict"], found.candidate
    assert same(found.effect.value, said["difference"]), found.candidate
    assert same(found.effect.low, said["low"]) and same(found.effect.high, said["high"]), found.candidate
    assert same(found.p_value, said["p_value"]), found.candidate
print(len(analysis.comparisons), "comparisons as claimed")
"""
LIST = """\
for run in fairtrial.list_runs(study={study!r}, store=STORE):
    print(run["variant"], run["seed"], run["metric"], run["value"])
"""
QUOTED = ("verdict", "difference", "low", "high", "p_value")


def notebook(artifact: ArtifactFile, claims: Mapping[str, Any], *, runs: str, tolerance: float) -> bytes:
    """Return a notebook in format 4.5. Cell ids are hashes of the content, so the same state gives the same bytes."""
    cells = [_cell(kind, text, at) for at, (kind, text) in enumerate(_cells(artifact, claims, runs, tolerance))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _cells(artifact: ArtifactFile, claims: Mapping[str, Any], runs: str, tolerance: float) -> Iterator[tuple[str, str]]:
    yield "markdown", f"# {artifact.title}\n\nRepeats every comparison from the recorded series."
    yield "code", SET_UP.format(runs=runs, tolerance=tolerance)
    for study, study_claims in claims["studies"].items():
        yield "markdown", f"## Study {study}"
        if not study_claims.get("comparisons"):
            yield "code", LIST.format(study=study)
            continue
        claimed = {each["candidate"]: {name: each[name] for name in QUOTED} for each in study_claims["comparisons"]}
        yield "code", ANALYSE.format(study=study)
        yield "code", CHECK.format(claimed=_literal(claimed))


def _literal(claimed: Mapping[str, Mapping[str, Any]]) -> str:
    rows = (f"    {name!r}: {dict(values)!r},\n" for name, values in claimed.items())
    return "{\n" + "".join(rows) + "}"


def _cell(kind: str, text: str, at: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "cell_type": kind,
        "id": hashlib.sha256(f"{at} {text}".encode()).hexdigest()[:12],
        "metadata": {},
        "source": text.rstrip("\n").splitlines(keepends=True),
    }
    return {**document, "execution_count": None, "outputs": []} if kind == "code" else document
