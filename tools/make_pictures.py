"""Draws every chart from small runs, with two arms and with twelve, all with long names, into docs/pictures.

python tools/make_pictures.py            every picture of docs/pictures.md: about three minutes of CPU
python tools/make_pictures.py forest     only those whose names contain a word

The runs are real and small: the recipe `fake` generates its numbers, so its charts say that they are synthetic;
`compare` and `ablation` train small students. Everything runs in a temporary folder.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from PIL import Image

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
COLORS = 256
"""Colors of a picture file. Charts have few, and a picture with a palette has a quarter of the size."""

TWELVE = (
    "baseline-adamw-lr-0.0003-constant-no-ema",
    "adamw-lr-0.0003-cosine-warmup-2000-steps",
    "adamw-lr-0.0010-cosine-warmup-2000-steps",
    "adamw-lr-0.0003-linear-warmup-0500-steps",
    "sgd-nesterov-momentum-0.9-lr-0.10-cosine",
    "lion-lr-0.00010-cosine-weight-decay-0.10",
    "adamw-lr-0.0003-ema-0.9999-of-parameters",
    "adamw-lr-0.0003-label-smoothing-of-0.100",
    "adamw-lr-0.0003-dropout-0.1-in-attention",
    "adamw-lr-0.0003-gradient-clipping-at-1.0",
    "adamw-lr-0.0003-batch-size-0512-and-bf16",
    "adamw-lr-0.0003-weights-averaged-over-10",
)
"""Names of 40 characters, the control first."""

EFFECTS = (0, 0.03, 0.012, 0.005, -0.04, 0.0, 0.02, 0.008, -0.01, 0.004, -0.003, 0.015)
SMALL_STUDENT = (
    "--runs", "3", "--teacher-steps", "60", "--steps", "60", "--eval-every", "20", "--labels", "200",
    "--student-width", "4",
)  # fmt: skip


@dataclass(frozen=True)
class Workplace:
    """A temporary folder with a store, in which commands run."""

    folder: Path

    def run(self, *words: str) -> None:
        """Run a command. A failed one ends everything with what it said."""
        command = [sys.executable, "-m", "fairtrial", *words, "--store", "runs"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"fairtrial {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")

    def launch(self, study: str, arms: int, **options: Any) -> None:
        """Launch synthetic runs of the first `arms` names."""
        named = list(zip(TWELVE, EFFECTS, strict=True))[:arms]
        plan = {
            "study": study,
            "recipe": "fake",
            "seeds": 5,
            "sesoi": 0.01,
            "options": {"steps": 200, "eval_every": 10, "jitter": 0.006, **options},
            "variants": {name: {"effect": effect, "label": name} for name, effect in named},
        }
        file = self.folder / f"{study}.yaml"
        file.write_bytes(orjson.dumps(plan))
        self.run("launch", file.name)


Draw = Callable[[Workplace, int, str], Mapping[str, str]]
"""Draws in a folder for a number of arms and a word for it; returns the files that were drawn, by picture name."""


def analysis(place: Workplace, arms: int, word: str) -> Mapping[str, str]:
    """Draw what `analyze --plots` writes. Of charts with one file per comparison, the pair's is kept."""
    place.launch(f"study-{word}", arms)
    metrics = [part for name in ("report_accuracy", "eval_accuracy", "train_loss") for part in ("--metric", name)]
    place.run("analyze", f"study-{word}", *metrics, "--plots", word)
    names = ["learning_curves", "bootstrap_distribution", "normality", "radial_profile"]
    names += ["paired_differences", "difference_distribution"] if arms == 2 else ["forest"]
    return {name: f"{word}/{name}.png" for name in names}


def tasks(place: Workplace, arms: int, word: str) -> Mapping[str, str]:
    """Draw performance profiles over four tasks, each a study of its own."""
    studies = [f"task-{task}-{word}" for task in range(1, 5)]
    for study, plateau in zip(studies, (0.5, 0.6, 0.7, 0.8), strict=True):
        place.launch(study, arms, plateau=plateau)
    place.run("analyze", *studies, "--tasks", "--plots", f"tasks-{word}")
    return {"performance_profiles": f"tasks-{word}/performance_profiles.png"}


def variance(place: Workplace, arms: int, word: str) -> Mapping[str, str]:
    """Draw the noise of one arm, which needs no second one."""
    place.launch(f"noise-{word}", arms)
    place.run("variance", f"noise-{word}:{TWELVE[arms - 1]}", "--metric", "eval_accuracy", "--output", f"v-{word}.png")
    return {"variance": f"v-{word}.png"}


def sweep_of_numbers(place: Workplace, arms: int, word: str) -> Mapping[str, str]:
    """Draw a sweep over numbers, which have an axis."""
    values = ",".join(f"{0.005 * value:g}" for value in range(arms))
    place.run("sweep", "fake", "--param", f"effect={values}", "--output", f"sweep-{word}.png")
    return {"sweep": f"sweep-{word}.png"}


def sweep_of_names(place: Workplace, arms: int, word: str) -> Mapping[str, str]:
    """Draw a sweep over names, which are categories."""
    place.run("sweep", "fake", "--param", f"label={','.join(TWELVE[:arms])}", "--output", f"names-{word}.png")
    return {"sweep_of_names": f"names-{word}.png"}


def strategies(place: Workplace, arms: int, word: str) -> Mapping[str, str]:
    """Draw distillation strategies; there are six of them at most, and the baseline has a second form."""
    chosen = ("--strategies", "kd") if arms == 2 else ("--compute-matched",)
    place.run("compare", *chosen, *SMALL_STUDENT, "--study", f"compare-{word}", "--output", f"compare-{word}.png")
    return {"compare": f"compare-{word}.png"}


def ablation(place: Workplace, arms: int, word: str) -> Mapping[str, str]:
    """Draw the effect of one component, or of four and all of their pairs."""
    chosen = ["attention_loss"] if arms == 2 else ["temperature", "attention_loss", "layer_matching", "soft_targets"]
    line = ["ablation", "--components", ",".join(chosen), *(["--all-pairs"] if arms > 2 else [])]
    place.run(*line, *SMALL_STUDENT, "--study", f"ablation-{word}", "--output", f"ablation-{word}.png")
    return {"ablation": f"ablation-{word}.png"}


def frontier(place: Workplace, arms: int, word: str) -> Mapping[str, str]:
    """Draw costs and a metric from a file of configurations."""
    points = [
        {"name": name, "hours": round(2 * 1.3**number, 2), "accuracy": round(0.8 + effect + 0.006 * number, 4),
         "memory": 10 + number}
        for number, (name, effect) in enumerate(zip(TWELVE[:arms], EFFECTS, strict=False))
    ]  # fmt: skip
    (place.folder / f"points-{word}.json").write_bytes(orjson.dumps(points))
    place.run("cost-performance", "--configs", f"points-{word}.json", "--device", "a100-80gb",
              "--output", f"frontier-{word}.png")  # fmt: skip
    return {"cost_performance": f"frontier-{word}.png"}


SCENES: Mapping[Draw, Sequence[str]] = {
    analysis: (
        "learning_curves", "paired_differences", "difference_distribution", "forest", "bootstrap_distribution",
        "normality", "radial_profile",
    ),
    tasks: ("performance_profiles",),
    sweep_of_numbers: ("sweep",),
    sweep_of_names: ("sweep_of_names",),
    strategies: ("compare",),
    ablation: ("ablation",),
    variance: ("variance",),
    frontier: ("cost_performance",),
}  # fmt: skip
ARMS = {"two": 2, "twelve": 12}


def make_small(picture: Path) -> bytes:
    """Return a picture with a palette of few colors, which looks the same and has a fraction of the size."""
    small = io.BytesIO()
    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            small, "PNG", optimize=True
        )
    return small.getvalue()


def draw_all(only: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fairtrial-pictures-"))
    try:
        for draw, names in SCENES.items():
            for word, arms in ARMS.items():
                if any(only in f"{name}-{word}" for name in names):
                    for name, drawn in draw(Workplace(folder), arms, word).items():
                        picture = PICTURES / f"{name}-{word}.png"
                        picture.write_bytes(make_small(folder / drawn))
                        yield picture
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    for written in draw_all(sys.argv[1] if len(sys.argv) > 1 else ""):
        print(f"{written.stat().st_size / 1000:6.0f} kB  {written.name}")
