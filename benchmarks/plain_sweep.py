"""The sweep as people write it: a plain PyTorch loop per training, in two processes, with the teacher's logits at hand.

`python -m benchmarks.plain_sweep DATA LOGITS [--fused] [--trainings N]` trains the students of the default temperature
sweep, 15 values × 3 seeds or the first N of them, and prints how long the slower process trained, and the accuracies.
Same model, data, batch size, loss, steps and evaluations as `fairtrial temperature`; nothing is recorded and nothing
can be resumed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROCESSES = 2
VALUES = [1 + n / 2 for n in range(15)]
SEEDS = (1072, 2043, 3014)
BATCH = 100
RATE = 5e-3
ALPHA = 0.5
EVAL_EVERY = 250
LOG_EVERY = 10


def main() -> None:
    arguments = _arguments()
    if arguments.part is not None:
        print(json.dumps(_train_part(arguments)))
        return
    argv = [sys.executable, "-m", "benchmarks.plain_sweep", *sys.argv[1:], "--part"]
    children = [subprocess.Popen([*argv, str(part)], stdout=subprocess.PIPE, text=True) for part in range(PROCESSES)]
    outputs = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        sys.exit(1)
    parts = [json.loads(output) for output in outputs]
    accuracies = [row for part in parts for row in part["accuracies"]]
    print(json.dumps({"training_s": max(part["training_s"] for part in parts), "accuracies": accuracies}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("logits", type=Path)
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--trainings", type=int, default=len(SEEDS) * len(VALUES))
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--part", type=int)
    return parser.parse_args()


def _train_part(arguments: argparse.Namespace) -> dict[str, Any]:
    import numpy
    import torch

    torch.set_num_threads(1)
    arrays = {
        name: torch.from_numpy(numpy.load(arguments.data / f"{name}.npy"))
        for name in ("train_x", "train_y", "eval_x", "eval_y", "report_x", "report_y")
    }
    logits = torch.from_numpy(numpy.load(arguments.logits))
    settings = [(value, seed) for seed in SEEDS for value in VALUES][: arguments.trainings][arguments.part :: PROCESSES]
    start = time.perf_counter()
    accuracies = [
        (value, seed, _train(arrays, logits, value, seed, steps=arguments.steps, fused=arguments.fused))
        for value, seed in settings
    ]
    return {"training_s": time.perf_counter() - start, "accuracies": accuracies}


def _train(arrays, logits, temperature: float, seed: int, *, steps: int, fused: bool) -> float:  # type: ignore[no-untyped-def]
    import torch
    from torch.nn import functional

    from fairtrial.recipes.models.mlp import MLP

    torch.manual_seed(seed)
    model = MLP(40, 10, 100)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=fused)
    x, y = arrays["train_x"], arrays["train_y"]
    losses: list[float] = []
    order = torch.randperm(len(y))
    for step in range(steps):
        place = step * BATCH % len(y)
        if place == 0:
            order = torch.randperm(len(y))
        chosen = order[place : place + BATCH]
        guess, wanted = model(x[chosen]), logits[chosen]
        taught = functional.kl_div(
            functional.log_softmax(guess / temperature, 1),
            functional.log_softmax(wanted / temperature, 1),
            reduction="batchmean",
            log_target=True,
        )
        loss = (1 - ALPHA) * functional.cross_entropy(guess, y[chosen]) + ALPHA * temperature**2 * taught
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % LOG_EVERY == 0:
            losses.append(loss.item())
        if step % EVAL_EVERY == 0:
            _accuracy(model, arrays, "eval")
    return _accuracy(model, arrays, "report")


def _accuracy(model, arrays, split: str) -> float:  # type: ignore[no-untyped-def]
    import torch

    with torch.no_grad():
        right = model(arrays[f"{split}_x"]).argmax(1) == arrays[f"{split}_y"]
    return float(right.float().mean())


if __name__ == "__main__":
    main()
