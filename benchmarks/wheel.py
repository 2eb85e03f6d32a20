"""The wheel as people install it: in a new environment without extras, then with each extra that adds a command."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, exactly

TITLE = "The wheel in a new environment"
ROOT = Path(__file__).resolve().parent.parent
SCORES = {"base": (0.81, 0.80, 0.83, 0.79, 0.82), "new": (0.85, 0.83, 0.88, 0.84, 0.85)}
ROWS = [f"{name},{seed},{score}" for name, scores in SCORES.items() for seed, score in enumerate(scores)]


@dataclass(frozen=True)
class Promise:
    """What an extra adds: a command, the words that its output has, and the file that it writes."""

    extra: str
    command: tuple[str, ...]
    says: str
    writes: str | None = None


WITHOUT = Promise("", ("analyze", "--from", "results.csv"), "new is better than base")
PROMISES = (
    WITHOUT,
    Promise("charts", ("analyze", "--from", "results.csv", "--output", "verdict.png"), "", "verdict.png"),
    Promise("train", ("train", "classify", "--steps", "20", "--store", "runs"), "completed"),
    Promise("rl", ("train", "ppo", "--env", "CartPole-v1", "--steps", "256", "--store", "runs"), "completed"),
)
REFUSALS = {
    "charts": ("analyze", "--from", "results.csv", "--output", "early.png"),
    "train": ("train", "classify", "--steps", "20", "--store", "early"),
}
"""Extra → a command that needs it. Without the extra, the message must name it."""


def measure(folder: Path) -> list[Figure]:
    wheel = build_wheel(folder)
    environment = Environment(folder / "environment")
    environment.install(str(wheel))
    (folder / "results.csv").write_text("\n".join(["variant,seed,accuracy", *ROWS, ""]))
    figures = [
        Figure(f"without extras: message names fairtrial[{extra}]", float(names_extra(environment, folder, extra)), "",
               goal=exactly(1))
        for extra in REFUSALS
    ]  # fmt: skip
    for promise in PROMISES:
        if promise.extra:
            environment.install(f"{wheel}[{promise.extra}]")
        kept = is_kept(environment, folder, promise)
        name = f"with [{promise.extra}]" if promise.extra else "without extras"
        figures.append(Figure(f"{name}: fairtrial {' '.join(promise.command[:3])}", float(kept), "", goal=exactly(1)))
    return figures


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(folder / "wheel"), str(ROOT)], check=True)
    [wheel] = (folder / "wheel").glob("fairtrial-*.whl")
    return wheel


class Environment:
    """A new virtual environment that sees neither the source nor the packages of this one."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"

    def install(self, what: str) -> None:
        pip = [str(self.bin / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), what], env=self._clean(), check=True)

    def fairtrial(self, words: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
        argv = [str(self.bin / "fairtrial"), *words]
        return subprocess.run(argv, cwd=folder, env=self._clean(), capture_output=True, text=True, check=False)

    def _clean(self) -> dict[str, str]:
        hidden = ("PYTHONPATH", "VIRTUAL_ENV")
        return {name: value for name, value in os.environ.items() if name not in hidden and "FAIRTRIAL" not in name}


def is_kept(environment: Environment, folder: Path, promise: Promise) -> bool:
    done = environment.fairtrial(promise.command, folder)
    wrote = promise.writes is None or (folder / promise.writes).stat().st_size > 1000
    return done.returncode == 0 and promise.says in done.stdout and wrote


def names_extra(environment: Environment, folder: Path, extra: str) -> bool:
    done = environment.fairtrial(REFUSALS[extra], folder)
    return done.returncode != 0 and f"fairtrial[{extra}]" in done.stderr and "Traceback" not in done.stderr
