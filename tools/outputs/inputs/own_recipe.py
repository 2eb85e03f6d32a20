"""A recipe of one's own, without torch: a walk that drifts upwards, and may be interrupted as by Ctrl-C."""

import os
import signal
from pathlib import Path

try:
    from fairtrial.plugins import LoopOptions, Metric, Role, option
except ImportError:  # versions before there were public names for this
    from fairtrial.core.options import LoopOptions, Role, option
    from fairtrial.core.specs import Metric

SUMMARY, REQUIRES, EXTRA = "A walk that drifts upwards.", (), None
METRIC = Metric("height", "max")


class Options(LoopOptions):
    rate: float = option(0.1, "How fast it drifts.", role=Role.TRAINING, ge=0)
    stop_at: int = option(0, "Step at which Ctrl-C comes, once; 0: never.", role=Role.OUTPUT, ge=0)


def build(options, setting):
    return Walk(options, setting)


class Walk:
    def __init__(self, options, setting):
        self.options, self.streams, self.height = options, setting.streams, 0.0

    def step(self, step, watch):
        marker = Path("stopped-once")
        if step == self.options.stop_at and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGINT)
        with watch.phase("forward"):
            self.height += self.options.rate + 0.1 * float(self.streams.numpy("order", step).normal())
        return {"height": self.height}

    def evaluate(self, split):
        return {"height": self.height + (0.01 if split == "report" else 0.0)}

    def state(self):
        return {"height": self.height}

    def load_state(self, state):
        self.height = state["height"]
