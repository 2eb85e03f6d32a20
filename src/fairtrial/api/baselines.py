"""Measurements that are kept in a file, to hold later ones against."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.analyse.speed import Speed, SpeedComparison, compare_sessions
from fairtrial.analyse.timing import Times
from fairtrial.api.bench import Bench
from fairtrial.api.bench_runs import MARGIN
from fairtrial.core.cautions import OTHER_VERSIONS, TWO_SESSIONS
from fairtrial.core.errors import InvalidOptions, UserError
from fairtrial.core.findings import FilledCaution
from fairtrial.record.atomic import replace_bytes
from fairtrial.record.environment import machine

KIND = "fairtrial bench"
SCHEMA = 1
HARDWARE = ("cpu", "cpu_count", "memory_bytes", "gpu")


@dataclass(frozen=True)
class Baseline:
    """An earlier measurement: what was measured, where, and the times of its steady steps."""

    name: str
    machine: Mapping[str, Any]
    versions: Mapping[str, Any]
    configuration: Mapping[str, Any]
    seconds: Sequence[float]


@dataclass(frozen=True)
class AgainstBaseline:
    compared: SpeedComparison
    cautions: Sequence[FilledCaution]

    @property
    def regressed(self) -> bool:
        return self.compared.verdict is Speed.SLOWER

    def to_dict(self) -> dict[str, Any]:
        return self.compared.to_dict()


def save_baseline(found: Bench, path: Path) -> None:
    """Keep a measurement. One that was insufficient is not worth keeping."""
    if not found.sufficient:
        raise UserError(f"not saved to {path}: too few steady steps to compare with", hint="Give more --max-batches.")
    document = {
        "kind": KIND, "schema": SCHEMA, **_facts(found), "seconds": [each.seconds for each in found.steady],
        "bench": found.to_dict(),
    }  # fmt: skip
    replace_bytes(path, (json.dumps(document, indent=1) + "\n").encode())


def _facts(found: Bench) -> dict[str, Any]:
    facts = machine()
    return {
        "machine": {name: facts[name] for name in HARDWARE},
        "versions": {"python": facts["python"], **facts["versions"]},
        "configuration": {
            "recipe": found.recipe, **found.options, "run_validation": found.validation,
            "whole_steps": found.whole_steps,
        },
    }  # fmt: skip


def read_baseline(path: Path) -> Baseline:
    """Read before the measurement: a file that is none is refused at once."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"there is no baseline {path}", hint="Make one with --save.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the baseline {path}: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise UserError(f"{path} is no measurement of bench", hint="Make one with --save.")
    if document.get("schema") != SCHEMA:
        raise UserError(f"{path} was made by another version of bench", hint="Make a new one with --save.")
    try:
        seconds = [float(each) for each in document["seconds"]]
        return Baseline(
            str(path), dict(document["machine"]), dict(document["versions"]), dict(document["configuration"]), seconds
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}", hint="Make a new one with --save.") from None


def compare_with(baseline: Baseline, found: Bench, margin: float = MARGIN) -> AgainstBaseline:
    """Time now over time then; refused where machine or configuration are not the same."""
    facts = _facts(found)
    problems = [
        f"{kind}: {told}"
        for kind in ("machine", "configuration")
        for told in _differences(getattr(baseline, kind), facts[kind])
    ]
    if problems:
        raise InvalidOptions(
            f"{baseline.name} cannot be compared with this: {problems[0]}", problems=problems[1:],
            hint="Measure a new baseline here with --save.",
        )  # fmt: skip
    names = (baseline.name, "now")
    compared = compare_sessions(Times.of(baseline.seconds), found.times, names, margin, found.alpha)
    cautions: list[FilledCaution] = [TWO_SESSIONS.fill()]
    changed = _differences(baseline.versions, facts["versions"])
    if changed:
        cautions.append(OTHER_VERSIONS.fill(versions=", ".join(changed)))
    return AgainstBaseline(compared, cautions)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = sorted({*before, *now})
    return [f"{name} {before.get(name)} → {now.get(name)}" for name in names if before.get(name) != now.get(name)]
