"""A recipe file as a person may write it, to be completed: a class `Own`, and what else differs."""

PLAIN = """
from fairtrial.core.options import LoopOptions, Role, TorchOptions, option
from fairtrial.core.scores import References
from fairtrial.core.specs import Metric

SUMMARY, REQUIRES, EXTRA, METRIC = "A recipe of one's own.", (), None, Metric("accuracy", "max")
Options = LoopOptions

class Plain:
    def __init__(self, options, setting):
        self.options, self.streams = options, setting.streams

    def evaluate(self, split):
        return {"accuracy": 0.5}

    def state(self):
        return {}

    def load_state(self, state):
        pass

def build(options, setting):
    return Own(options, setting)
"""
