"""Writes tests/stats/golden/rliable.json: scores of many kinds, and what rliable says of them.

Needs rliable's own environment (see benchmarks/oracle/). The tests need only the file. Written anew, it is the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
from numpy.random import Generator
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-rliable/bin/python"
WORKER = ROOT / "benchmarks/oracle/worker.py"
GOLDEN = ROOT / "tests/stats/golden/rliable.json"
SEED = 20240607

Scores = NDArray[numpy.float64]


def main() -> int:
    if not PYTHON.exists():
        print(f"Error: {PYTHON.relative_to(ROOT)} does not exist.\nHint: make golden", file=sys.stderr)
        return 1
    asked = cases(numpy.random.default_rng(SEED))
    oracle = ask({"do": "points", "cases": asked})
    answered = [{**case, "expected": said} for case, said in zip(asked, oracle["answers"], strict=True)]
    GOLDEN.parent.mkdir(parents=True, exist_ok=True)
    GOLDEN.write_text(as_text(oracle["versions"], answered))
    print(f"{GOLDEN.relative_to(ROOT)}: {len(answered)} cases")
    return 0


def cases(rng: Generator) -> list[dict[str, Any]]:
    """Every kind of scores that could be treated wrongly; runs × tasks of scores, and of the other."""
    same = uniform(rng, 4, 5)
    return [
        case("2×1", uniform(rng, 2, 1), uniform(rng, 2, 1)),
        case("3×3", uniform(rng, 3, 3), uniform(rng, 3, 3)),
        case("5×26", uniform(rng, 5, 26), uniform(rng, 5, 26)),
        case("10×6", uniform(rng, 10, 6), uniform(rng, 10, 6), gamma=0.5),
        case("4×20, other has more runs", uniform(rng, 4, 20), uniform(rng, 6, 20)),
        case("7×11, other has fewer runs", uniform(rng, 7, 11), uniform(rng, 3, 11)),
        case("one run", uniform(rng, 1, 8), uniform(rng, 2, 8)),
        case("ties within and between", uniform(rng, 6, 5).round(1), (0.8 * uniform(rng, 9, 5)).round(1)),
        case("constant columns", *constant_columns(rng)),
        case("negative values", rng.normal(-1, 2, (8, 5)), rng.normal(-1.5, 2, (8, 5)), gamma=0.0),
        case("both the same", same, same.copy()),
        case("all above gamma", uniform(rng, 5, 4) + 2, uniform(rng, 5, 4) + 2),
        case("many magnitudes", magnitudes(rng, 10, 3), magnitudes(rng, 7, 3), gamma=1e3),
    ]


def uniform(rng: Generator, runs: int, tasks: int) -> Scores:
    """Human-normalised scores, about: most below 1, some above."""
    return rng.uniform(0, 1.4, (runs, tasks))


def constant_columns(rng: Generator) -> tuple[Scores, Scores]:
    """Tasks on which: nobody differs; each is constant, one better; only one is constant; nobody is."""
    scores, other = uniform(rng, 5, 4), uniform(rng, 4, 4)
    scores[:, 0] = other[:, 0] = scores[:, 2] = 0.5
    scores[:, 1], other[:, 1] = 0.75, 0.25
    return scores, other


def magnitudes(rng: Generator, runs: int, tasks: int) -> Scores:
    """Of either sign, between about 1e-6 and 1e6: sums depend on their order."""
    sign = rng.choice([-1.0, 1.0], (runs, tasks))
    return numpy.asarray(sign * 10 ** rng.uniform(-6, 6, (runs, tasks)), dtype=numpy.float64)


def case(name: str, scores: Scores, other: Scores, gamma: float = 1.0) -> dict[str, Any]:
    return {
        "name": name,
        "gamma": gamma,
        "taus": thresholds(scores),
        "scores": scores.tolist(),
        "other": other.tolist(),
    }


def thresholds(scores: Scores) -> list[float]:
    """Below all, above all, between, and exactly at scores: a score at the threshold is not above it."""
    low, high = float(scores.min()), float(scores.max())
    return sorted({low - 1, low, float(scores[0, 0]), (low + high) / 2, float(scores[-1, -1]), high, high + 1})


def ask(request: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's answer. Isolated, so that nothing of this environment is imported in that one."""
    command = [str(PYTHON), "-I", str(WORKER)]
    done = subprocess.run(command, input=json.dumps(request), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"Error: the worker ended with status {done.returncode}.")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def as_text(versions: Mapping[str, str], answered: list[dict[str, Any]]) -> str:
    """JSON with a case per line: short enough to read, and a diff shows which case changed."""
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in answered)
    return f'{{"versions": {json.dumps(versions)},\n"cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    sys.exit(main())
