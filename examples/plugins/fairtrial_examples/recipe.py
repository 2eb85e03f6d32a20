"""A recipe: gradient descent on a noisy bowl. `fairtrial train bowl --momentum 0.9`"""

import numpy as np

from fairtrial.plugins import LoopOptions, Metric, Role, option

SUMMARY = "Gradient descent on a noisy quadratic bowl."
REQUIRES = ("numpy",)
EXTRA = None
METRIC = Metric("height", "min")
EXAMPLE = {"variants": {"plain": {}, "momentum": {"momentum": 0.9}}}


class Options(LoopOptions):
    momentum: float = option(0.0, "Share of the previous update that is kept.", role=Role.TRAINING, ge=0, lt=1)


class Bowl:
    def __init__(self, options, streams):
        self.options, self.streams = options, streams
        self.place = streams.numpy("init").normal(size=8)
        self.update = 0 * self.place

    def step(self, step, events):
        with events.phase("forward"):
            gradient = self.place + self.streams.numpy("order", step).normal(size=8)
        with events.phase("optimizer"):
            self.update = self.options.momentum * self.update - 0.01 * gradient
            self.place = self.place + self.update
        return {"height": self.place @ self.place}

    def evaluate(self, _split):
        return {"height": self.place @ self.place}

    def state(self):
        return {"place": self.place.tolist(), "update": self.update.tolist()}

    def load_state(self, state):
        self.place, self.update = np.array(state["place"]), np.array(state["update"])


def build(options, context):
    return Bowl(options, context.streams)
