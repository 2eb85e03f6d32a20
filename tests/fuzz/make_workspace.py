"""Makes `corpus/workspace`, the valid files that the fuzzer mutates: `python -m tests.fuzz.make_workspace`.

They are kept in the repository, so that the same seed gives the same inputs everywhere. Make them anew when a file
format gains something that the fuzzer should know; older stores must stay readable, so nothing forces one to.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.fuzz.cases import CORPUS, WORKSPACE

SCORES = {"base": (0.71, 0.72, 0.70, 0.73), "new": (0.75, 0.77, 0.74, 0.78)}
STUDY = """\
study: y
recipe: fake
options:
  steps: 20
  noise: 0.02
variants:
  base: {}
  new: {effect: 0.05}
seeds: [1, 2, 3]
metric: report_accuracy
direction: max
summary: {type: last}
sesoi: 0.01
alpha: 0.05
benchmark: {random_score: 0.1, human_score: 0.9}
"""
CONFIGS = """\
points:
  - {name: small, hours: 1.5, accuracy: 0.81, memory: 8, device: a100-80gb, rank: 8}
  - {name: large, hours: 6.0, accuracy: 0.88, memory: 30, device: a100-80gb, accuracies: [0.87, 0.88, 0.89]}
"""
PRICES = """\
as_of: 2026-11-01
valid_until: 2126-03-31
source: our contract
cards:
  a100-80gb: {usd_per_hour: 1.80}
  t4: {usd_per_hour: 0.40}
  our-box: {usd_per_hour: 0.20, memory_gb: 24, performance: 0.5}
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="workspace-") as scratch:
        folder = Path(scratch)
        _tables(folder)
        _store(folder)
        _project(folder)
        for litter in [*folder.rglob(".gitignore"), *folder.rglob(".held-*")]:
            litter.unlink()
        for store in (folder / "runs", folder / "project" / "runs"):  # what a store only caches is made at each start
            shutil.rmtree(store / ".cache")
            (store / "index.json").unlink(missing_ok=True)
        _scrub(folder)
        shutil.rmtree(WORKSPACE, ignore_errors=True)
        shutil.copytree(folder, WORKSPACE)
    _name_registration()


def _name_registration() -> None:
    """A registration is named by its hash, so seeds that name it have to follow."""
    [registration] = (WORKSPACE / "project" / "registrations").glob("*.json")
    seeds = CORPUS / "valid.json"
    seeds.write_text(re.sub(r"[0-9a-f]{64}\.json", registration.name, seeds.read_text()))


def _tables(folder: Path) -> None:
    rows = [
        {"variant": variant, "seed": seed, "step": step, "accuracy": round(score - 0.1 / step, 4)}
        for variant, scores in SCORES.items()
        for seed, score in enumerate(scores, 1)
        for step in (1, 2, 4)
    ]
    for name, separator in (("results.csv", ","), ("results.tsv", "\t")):
        lines = [separator.join(rows[0]), *(separator.join(map(str, row.values())) for row in rows)]
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "results.json").write_text(json.dumps(rows, indent=1))
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "study.yaml").write_text(STUDY)
    (folder / "configs.yaml").write_text(CONFIGS)
    (folder / "configs.csv").write_text("name,hours,accuracy,memory,device\nsmall,1.5,0.81,8,t4\nlarge,6,0.88,30,t4\n")
    (folder / "prices.yaml").write_text(PRICES)
    (folder / "analyze.yaml").write_text("control: base\ncandidate: [new]\nalpha: 0.1\n")


def _store(folder: Path) -> None:
    variants = ["--variant", "base:", "--variant", "new:effect=0.05"]
    _run(folder, "launch", "fake", *variants, "--seeds", "3", "--steps", "20", "--base-run-name", "s", "--jobs", "1")
    _run(folder, "train", "fake", "--steps", "30", "--eval-every", "10", "--seed", "7")
    _run(folder, "analyze", "s")
    for name in ("p", "q"):
        _run(folder, "profile", "rollout", "--smoke", "--profile-name", name)
    _run(folder, "bench", "fake", "--max-batches", "60", "--no-trials", "--save", "baseline.json", "--processes", "1")


def _project(folder: Path) -> None:
    project = folder / "project"
    project.mkdir()
    (project / "notes.txt").write_text("What was tried.\n")
    study = STUDY.replace("study: y", "study: z").replace("[1, 2, 3]", "[1, 2]")
    (project / "z.yaml").write_text(study)
    described = ["--id", "demo", "--title", "A demo", "--type", "experiment", "--author", "Ada Lovelace"]
    _run(project, "research", "init", *described, "--license", "MIT", "--date", "2026-01-15")
    _run(project, "research", "preregister", "artifact.yaml", "--hypothesis", "new is better",
         "--methods", "two variants", "--study", "z.yaml")  # fmt: skip
    _run(project, "launch", "z.yaml", "--jobs", "1")
    _run(project, "analyze", "z")
    _run(project, "research", "add", "notes.txt")
    _run(project, "research", "bundle", "artifact.yaml", "--zip", "--no-charts", "--output", "../bundle.zip")
    with zipfile.ZipFile(folder / "bundle.zip") as archive:
        archive.extractall(folder / "bundle")


def _run(folder: Path, *arguments: str) -> None:
    home = folder.parent / f"{folder.name}-home"
    home.mkdir(exist_ok=True)
    environment = {**os.environ, "HOME": str(home), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "fairtrial", *arguments], cwd=folder, env=environment, check=True)
    shutil.rmtree(home)


def _scrub(folder: Path) -> None:
    """Nothing of the machine that made them: the files are as if made in /workspace."""
    names = {sys.executable: "/usr/bin/python3", str(folder): "/workspace", folder.name: "workspace"}
    for path in (path for path in folder.rglob("*") if path.suffix in (".json", ".jsonl")):
        if path.is_relative_to(folder / "bundle"):  # its hashes are what is verified
            continue
        text = path.read_text()
        for word, instead in names.items():
            text = text.replace(word, instead)
        path.write_text(text)


if __name__ == "__main__":
    main()
