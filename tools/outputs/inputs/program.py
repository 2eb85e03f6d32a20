"""A training program that knows nothing of Fairtrial."""

import argparse
import json
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--note")
parser.add_argument("--out", type=Path, required=True)
args = parser.parse_args()

noise = random.Random(args.seed)
args.out.parent.mkdir(parents=True, exist_ok=True)
with args.out.open("a", buffering=1) as out:
    for step in range(10, 60, 10):
        accuracy = args.lr * step / 60 + 0.02 * noise.random()
        print(json.dumps({"step": step, "eval_accuracy": accuracy, "train_loss": 1 - accuracy}), file=out)
print("trained with a rate of", args.lr)
