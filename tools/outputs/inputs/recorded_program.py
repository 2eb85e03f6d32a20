"""A training program that records itself."""

import argparse
import random

import fairtrial

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

with fairtrial.run(best_metric="eval_accuracy", metric="report_accuracy") as run:
    noise = random.Random(run.seed)
    for step in range(1, 7):
        accuracy = args.lr * step / 6 + 0.02 * noise.random()
        run.log(step, train_loss=1 - accuracy)
        if step % 2 == 0:
            run.evaluated(step, {"eval_accuracy": accuracy})
            run.save(step, {"accuracy": accuracy})
    run.log(6, report_accuracy=accuracy)
