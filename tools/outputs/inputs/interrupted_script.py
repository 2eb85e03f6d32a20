"""A script that records itself and is interrupted after its third step, having saved every step."""

import fairtrial

try:
    with fairtrial.run(seed=4, config={"lr": 0.1}, study="scripts", variant="v", best_metric="eval_loss") as run:
        for step in range(1, 4):
            run.log(step, train_loss=1 / step)
            run.evaluated(step, {"eval_loss": 1 / step})
            run.save(step, {"weights": [0.5 * step, -1.0], "step": step})
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("was interrupted")
