"""A complete custom recipe: does label smoothing help a small network on scikit-learn's digits?"""

import copy

import torch
from torch import nn

from fairtrial.plugins import Metric, Role, TorchOptions, option
from fairtrial.recipes.data import load_data

SUMMARY = "A small network on digits, with label smoothing."
REQUIRES = ("torch", "sklearn")
METRIC = Metric("accuracy", "max")


class Options(TorchOptions):
    smoothing: float = option(0.0, "Share of a label that is spread over all classes.", role=Role.TRAINING, ge=0, lt=1)


def data(_options, cache):
    return load_data("digits", cache)


def warm():  # optional: runs once per launch, so that no run has to wait for it
    torch.optim.SGD(nn.Linear(1, 1).parameters())


def build(options, context):
    return Digits(options, context)


class Digits:
    def __init__(self, options, context):
        self.streams = context.streams
        self.splits = {
            s: [torch.tensor(context.data.array(f"{s}_{p}"), device=options.device) for p in "xy"]
            for s in ("train", "eval", "report")
        }
        self.loss = nn.CrossEntropyLoss(label_smoothing=options.smoothing)
        with torch.random.fork_rng(devices=[]):  # leaves the global generator unchanged
            torch.manual_seed(self.streams.seed("init"))
            self.model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(options.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def step(self, step, events):
        x, y = self.splits["train"]
        chosen = self.streams.numpy("order", step).integers(len(y), size=100)
        with events.phase("forward"):
            loss = self.loss(self.model(x[chosen]), y[chosen])
        with events.phase("backward"):
            self.optimizer.zero_grad()
            loss.backward()
        with events.phase("optimizer"):
            self.optimizer.step()
        return {"loss": loss.detach()}

    def evaluate(self, split):
        x, y = self.splits[split]
        return {"accuracy": (self.model(x).argmax(1) == y).float().mean()}

    def state(self):
        return copy.deepcopy({"model": dict(self.model.state_dict()), "optimizer": self.optimizer.state_dict()})

    def load_state(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
