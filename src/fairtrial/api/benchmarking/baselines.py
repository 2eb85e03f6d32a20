"""Measurements saved to a file, to compare later measurements with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fairtrial.api.benchmarking.bench import Bench
from fairtrial.api.benchmarking.bench_processes import step_seconds
from fairtrial.api.benchmarking.bench_runs import MARGIN, BenchTerms, benched
from fairtrial.api.running.planning import load_checked_recipe
from fairtrial.core.cautions import OTHER_VERSIONS, TWO_SESSIONS
from fairtrial.core.errors import CheckFailed, InvalidOptions, UserError
from fairtrial.core.findings import FilledCaution
from fairtrial.core.untrusted import checked, parse_json, read_file
from fairtrial.record.atomic import replace_bytes
from fairtrial.record.environment import git_state, machine
from fairtrial.stats.speed import Speed, SpeedComparison, compare_processes, compare_sessions
from fairtrial.stats.timing import Times

KIND = "fairtrial bench"
REMEDY = "Make a new one with --save."
SCHEMA = 1
PROCESSES = 5
"""Number of processes: times vary more between processes than within one."""
LEAST_PROCESSES = 3
SHORT_COMMIT = 8
HARDWARE = ("cpu", "cpu_count", "memory_bytes", "gpu")


Seconds = Annotated[float, Field(gt=0, le=1e9)]


class CodeState(BaseModel):
    """The measured commit, and whether the working tree had uncommitted changes; null if git cannot say."""

    model_config = ConfigDict(strict=True, frozen=True)

    git_commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$")] | None = None
    git_dirty: bool | None = None

    @classmethod
    def now(cls) -> CodeState:
        return cls.model_validate(git_state(Path.cwd()))

    def __str__(self) -> str:
        if self.git_commit is None:
            return "unknown"
        return self.git_commit[:SHORT_COMMIT] + (" with uncommitted changes" if self.git_dirty else "")


class _Kept(BaseModel):
    """The part of a baseline file that comparisons use."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    machine: dict[str, Any]
    versions: dict[str, Any]
    configuration: dict[str, Any]
    seconds: list[Seconds] = Field(min_length=2)
    processes: list[Seconds] = Field(min_length=1)
    code: CodeState = CodeState()
    """Missing in files of earlier versions."""


@dataclass(frozen=True)
class Baseline:
    """An earlier measurement: its configuration, its machine, and the times of its steady steps."""

    name: str
    machine: Mapping[str, Any]
    versions: Mapping[str, Any]
    configuration: Mapping[str, Any]
    seconds: Sequence[float]
    """Times of the steady steps of one process."""
    processes: Sequence[float]
    """Mean time of a step in each process."""
    code: CodeState


@dataclass(frozen=True)
class AgainstBaseline:
    compared: SpeedComparison
    cautions: Sequence[FilledCaution]
    code: tuple[CodeState, CodeState]
    """The code of the baseline, and the current code."""

    @property
    def regressed(self) -> bool:
        return self.compared.verdict is Speed.SLOWER

    def to_dict(self) -> dict[str, Any]:
        then, now = (each.model_dump() for each in self.code)
        return {**self.compared.to_dict(), "code": {"then": then, "now": now}}


def further_processes(
    recipe: str, options: Mapping[str, Any], terms: BenchTerms, processes: int = PROCESSES
) -> list[float]:
    """Repeat the measurement in new processes, `processes - 1` times: the caller's own measurement is the first."""
    loaded, further_processes = load_checked_recipe(recipe), []
    for number in range(1, processes):
        terms.show("processes", number, processes)
        further_processes.append(step_seconds(loaded, options, terms))
    return further_processes


def save_baseline(bench: Bench, path: Path, further: Sequence[float] = ()) -> None:
    """Save a measurement; raise CheckFailed if it has too few steady steps."""
    if not bench.sufficient:
        raise CheckFailed(f"not saved to {path}: too few steady steps to compare with", hint="Raise --max-batches.")
    document = {
        "kind": KIND,
        "schema": SCHEMA,
        "machine": _hardware(),
        "versions": _versions(),
        "code": CodeState.now().model_dump(),
        "configuration": _configuration(bench.recipe, bench.options, bench.validation, bench.whole_steps),
        "seconds": [each.seconds for each in bench.steady],
        "processes": [bench.step_s, *further],
        "bench": bench.to_dict(),
    }
    replace_bytes(path, (json.dumps(document, indent=1) + "\n").encode())


def _hardware() -> dict[str, Any]:
    facts = machine()
    return {name: facts[name] for name in HARDWARE}


def _versions() -> dict[str, Any]:
    facts = machine()
    return {"python": facts["python"], **facts["versions"]}


def _configuration(recipe: str, options: Mapping[str, Any], validation: bool, whole_steps: bool) -> dict[str, Any]:
    return {"recipe": recipe, **options, "run_validation": validation, "whole_steps": whole_steps}


def require_comparable(baseline: Baseline, recipe: str, options: Mapping[str, Any], terms: BenchTerms) -> None:
    """Raise InvalidOptions if the machine or the configuration differs, before anything is measured."""
    loaded = load_checked_recipe(recipe)
    resolved = benched(loaded, options, terms).to_dict()
    now = {
        "machine": _hardware(),
        "configuration": _configuration(loaded.name, resolved, terms.validation, terms.whole_steps),
    }
    problems = [f"{kind}: {message}" for kind in now for message in _differences(getattr(baseline, kind), now[kind])]
    if problems:
        raise InvalidOptions(
            f"{baseline.name} cannot be compared with this measurement: {problems[0]}",
            problems=problems[1:],
            hint="Measure a new baseline here with --save.",
        )


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file. Call it before the measurement, so that an invalid file fails early."""
    try:
        document = parse_json(read_file(path), where=f"the baseline {path}", hint=REMEDY)
    except FileNotFoundError:
        raise UserError(f"no such baseline file: {path}", hint="Make one with --save.") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise UserError(f"{path} is not a bench baseline", hint="Make one with --save.")
    if document.get("schema") != SCHEMA:
        raise UserError(f"{path} was written by another version of bench", hint="Make a new one with --save.")
    kept = checked(_Kept, document, where=f"{path} is damaged", hint=REMEDY)
    return Baseline(str(path), kept.machine, kept.versions, kept.configuration, kept.seconds, kept.processes, kept.code)


def compare_with(
    baseline: Baseline, bench: Bench, margin: float = MARGIN, further: Sequence[float] = ()
) -> AgainstBaseline:
    """Compare time now with time then: by process if both have at least three processes, else by step."""
    names, processes = (baseline.name, "now"), [bench.step_s, *further]
    if min(len(baseline.processes), len(processes)) >= LEAST_PROCESSES:
        then, now = (np.array(times, dtype=float) for times in (baseline.processes, processes))
        compared = compare_processes(then, now, names, margin, bench.alpha)
    else:
        compared = compare_sessions(Times.of(baseline.seconds), bench.times, names, margin, bench.alpha)
    cautions: list[FilledCaution] = [TWO_SESSIONS.fill()]
    changed = _differences(baseline.versions, _versions())
    if changed:
        cautions.append(OTHER_VERSIONS.fill(versions=", ".join(changed)))
    return AgainstBaseline(compared, cautions, (baseline.code, CodeState.now()))


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = sorted({*before, *now})
    return [f"{name} {before.get(name)} → {now.get(name)}" for name in names if before.get(name) != now.get(name)]
