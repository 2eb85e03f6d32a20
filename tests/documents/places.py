"""The folders in which documented lines are tried, and what lies in each before the first one is run."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fairtrial
from fairtrial.core.specs import FIXED_SEEDS
from tests.documents.desk import Prepare

REWARD = "overview/reward"
GIT = ("git", "-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")

CONFIG = "strategy: combined\ntemperature: 4.0\nalpha: 0.5\n"
"""A base file as a person who has only read the document writes it."""

POINTS = """\
- {name: LoRA r=8, hours: 2.1, accuracy: 0.845, memory: 12.1, device: a100-80gb, method: LoRA, rank: 8}
- {name: LoRA r=16, hours: 3.2, accuracy: 0.862, memory: 13.0, device: a100-80gb, method: LoRA, rank: 16}
- {name: LoRA r=32, hours: 5.8, accuracy: 0.871, memory: 14.2, device: a100-80gb, method: LoRA, rank: 32,
   learning_rate: 1.0e-4, batch_size: 8}
- {name: LoRA r=64, hours: 10.4, accuracy: 0.878, memory: 22.0, device: a100-80gb, method: LoRA, rank: 64}
- {name: Full fine-tune, hours: 48.2, accuracy: 0.882, memory: 56.0, device: a100-80gb, method: full}
"""
"""The document's own five configurations, with the memory that it gives for one of them and guesses for the others."""

SEEDED = """\
- {name: a, hours: [1.0, 1.1, 1.2], accuracies: [0.850, 0.871, 0.861], seeds: [1, 2, 3], memory: 8, device: t4}
- {name: b, hours: [2.0, 2.1, 2.2], accuracies: [0.862, 0.873, 0.869], seeds: [1, 2, 3], memory: 8, device: t4}
- {name: c, hours: [3.0, 3.1, 3.2], accuracies: [0.859, 0.866, 0.860], seeds: [1, 2, 3], memory: 12, device: t4}
"""

LOSSES = """\
- {name: a, hours: 1.0, accuracy: 0.90, loss: 0.5, memory: 8, device: t4}
- {name: b, hours: 2.0, accuracy: 0.80, loss: 0.3, memory: 8, device: t4}
"""

PRICES = "as_of: 2026-11-01\nsource: our contract\ncards:\n  a100-80gb: {usd_per_hour: 1.80}\n"

STUDY = """\
study: y
recipe: fake
options: {steps: 20, noise: 0.02}
variants:
  base: {}
  new: {effect: 0.05}
seeds: [1, 2, 3]
metric: report_accuracy
direction: max
summary: {type: last}
sesoi: 0.01
alpha: 0.05
benchmark: {random_score: 0.1, human_score: 0.9, best_metric: eval_accuracy, best_metric_mode: max}
"""

RESULTS = "agent,run,task,score,frame\n" + "".join(
    f"{agent},{run},{task},{0.5 + effect + 0.01 * run + 0.002 * ((run * 7 + place) % 5)},{frame}\n"
    for agent, effect in (("old", 0.0), ("new", 0.08))
    for run in (1, 2, 3, 4, 5)
    for place, task in enumerate(("pong", "qbert", "seaquest"))
    for frame in (100,)
)


def lab(folder: Path) -> None:
    (folder / "config.yaml").write_text(CONFIG)


def choice(folder: Path) -> None:
    (folder / "points.yaml").write_text(POINTS)
    (folder / "seeded.yaml").write_text(SEEDED)
    (folder / "losses.yaml").write_text(LOSSES)
    (folder / "prices.yaml").write_text(PRICES)


def nothing(folder: Path) -> None: ...


def pipeline(folder: Path) -> None:
    """Runs of a reward curve under the documents' own names: run1 to run15 are one architecture, run16 to run30 another."""
    for number, seed in enumerate(FIXED_SEEDS, 1):
        _record_rewards(f"run{number}", "vit_reset", seed)
        _record_rewards(f"run{number + len(FIXED_SEEDS)}", "trxl", seed)
    for number, seed in enumerate(FIXED_SEEDS[:3], 1):
        _record_rewards(f"control_run{number}", "vit_reset", seed)
        _record_rewards(f"treatment_run{number}", "trxl", seed)


def _record_rewards(name: str, architecture: str, seed: int) -> None:
    """A script whose reward rises with the steps; seeds differ a little, and the architectures by more."""
    gain, luck = (0.5 if architecture == "trxl" else 0.0), 0.1 * math.sin(seed)
    with fairtrial.run(
        study="rewards", variant=name, seed=seed, config={"architecture": architecture}, metric=REWARD, direction="max"
    ) as run:
        for step in range(1, 11):
            noise = 0.01 * math.cos(seed * step + len(name))
            run.log(step, **{REWARD: 2.0 * (1 - math.exp(-step / 4)) + luck + gain + noise})


def fake(folder: Path) -> None:
    """A study of made-up numbers with a known effect: every option of the analysis can be seen in it."""
    (folder / "y.yaml").write_text(STUDY)
    (folder / "results.csv").write_text(RESULTS)
    for variant, options in {"base": {}, "new": {"effect": 0.05}, "third": {"effect": 0.001}}.items():
        for seed in FIXED_SEEDS[:6]:
            settings = {"steps": 40, "eval_every": 10, "label": variant, "jitter": 0.01, **options}
            fairtrial.train("fake", settings, seed=seed, study="s", variant=variant)


def trained(folder: Path) -> None:
    (folder / "my_recipe.py").write_text(_example("my_recipe.py"))


def git(folder: Path) -> None:
    """A repository with a trainer, one commit, and a study that was launched at it."""
    (folder / "src").mkdir()
    (folder / "src" / "trainer.py").write_text("RATE = 0.1\n")
    (folder / ".gitignore").write_text("runs/\n")
    commit(folder, "first")


def commit(folder: Path, message: str) -> str:
    """Record everything in the folder; returns the commit."""
    if not (folder / ".git").exists():
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    subprocess.run([*GIT, "commit", "--quiet", "--allow-empty", "--message", message], cwd=folder, check=True)
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


OUTPUT = [
    "epoch",
    "log-dir",
    "model-dir",
    "tensorboard-histograms",
    "output-gcs",
    "gcs-bucket",
    "output-s3",
    "s3-bucket",
]
RESUME = [
    "resume-from", "start-epoch", "resume-backbone-from", "resume-policy-head-from", "resume-value-head-from",
    "resume-reachable-head-from", "resume-legal-moves-head-from",
]  # fmt: skip
CONTROL = ["freeze-backbone", "trainable-layers"]
ARCHITECTURE = [
    "vit-embed-dim", "vit-num-layers", "vit-num-heads", "vit-mlp-ratio", "vit-dropout", "gradient-checkpointing",
]  # fmt: skip
STAGES = ["stage1-threshold", "stage2-threshold", "stage1-max-epochs", "stage2-max-epochs"]
STAGE_RATES = ["stage1-batch-size", "stage2-batch-size", "stage1-learning-rate", "stage2-learning-rate"]
TRAINING = ["learning-rate", "batch-size", "optimizer", "loss-weight"]
EXCLUDED = [*OUTPUT, *RESUME, *CONTROL, *ARCHITECTURE, *STAGES, *STAGE_RATES]


def _command(function: str, options: Sequence[str]) -> str:
    flags = "".join(f'@click.option("--{name}", help="Sets {name.replace("-", " ")}.")\n' for name in options)
    return f"@click.command()\n{flags}def {function}(**options): ...\n\n\n"


def sync(folder: Path) -> None:
    """A trainer with every option that the document lists, its benchmark, and one that lacks an optimizer."""
    for package in ("maou", "maou/infra", "maou/infra/console", "maou/interface"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
    console = folder / "maou" / "infra" / "console"
    head = "import click\n\n\n"
    (console / "learn_model.py").write_text(head + _command("learn_model", [*TRAINING, *EXCLUDED]))
    (console / "utility.py").write_text(
        head
        + _command("benchmark_training", [*TRAINING, "warmup-batches"])
        + _command("drifted", [name for name in TRAINING if name != "optimizer"])
    )
    names = ", ".join(name.replace("-", "_") for name in [*TRAINING, "warmup-batches"])
    (folder / "maou" / "interface" / "utility_interface.py").write_text(
        f"def benchmark_training({names}): ...\n\n\ndef narrow(learning_rate): ...\n"
    )
    page = "\n".join(f"- `--{name}`" for name in [*TRAINING, "warmup-batches"])
    (folder / "utility_benchmark_training.md").write_text(page + "\n")
    (folder / "short.md").write_text("- `--learning-rate`\n")
    (folder / "test_pass.py").write_text("def test_it() -> None: ...\n")
    (folder / "all.yaml").write_text("".join(f'"{name}": the document lists it\n' for name in EXCLUDED))


def _example(name: str) -> str:
    return (Path(__file__).parent.parent.parent / "examples" / name).read_text()


def metadata(folder: Path, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "runs" / run / "metadata.json").read_text())
    return found


PLACES: dict[str, Prepare] = {
    "lab": lab, "family": nothing, "choice": choice, "pipeline": pipeline, "fake": fake, "trained": trained, "git": git,
    "sync": sync, "profile": nothing, "research": nothing, "empty": nothing, "practices": git,
}  # fmt: skip
