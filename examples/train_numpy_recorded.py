"""train_numpy.py with four added lines, each marked with +, for best checkpoints and resuming."""

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import fairtrial  # +

STEPS, EVAL_EVERY, BATCH = 400, 20, 100


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default="metrics.jsonl")
    args = parser.parse_args()

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order] / 16, y[order]
    splits = {"eval": slice(1000, 1297), "report": slice(1297, 1797)}
    step, weights = 0, 0.1 * np.random.default_rng(args.seed).normal(size=(64, 10))
    run = fairtrial.run(seed=args.seed, config={"lr": args.lr}, best_metric="eval_accuracy")  # +
    step, weights = (saved.step, np.array(saved.state["weights"])) if (saved := run.resume()) else (step, weights)  # +

    with args.out.open("a", buffering=1) as out:
        while step < STEPS:
            step += 1
            batch = np.random.default_rng([args.seed, step]).integers(1000, size=BATCH)
            scores = np.exp(x[batch] @ weights)
            chances = scores / scores.sum(1, keepdims=True)
            weights -= args.lr * x[batch].T @ (chances - np.eye(10)[y[batch]]) / BATCH
            if step % EVAL_EVERY == 0:
                row = {"train_loss": -np.log(chances[range(BATCH), y[batch]]).mean()}
                for split, part in splits.items():
                    row[f"{split}_accuracy"] = ((x[part] @ weights).argmax(1) == y[part]).mean()
                print(json.dumps({"step": step, **row}), file=out)
                run.evaluated(step, row, {"weights": weights.tolist()}, save=True)  # +


if __name__ == "__main__":
    main()
