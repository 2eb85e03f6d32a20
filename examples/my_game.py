"""A custom game for `fairtrial train grpo --game ./examples/my_game.py`: reach a sum."""

from dataclasses import dataclass

REQUIRES, EXTRA = (), None


@dataclass(frozen=True)
class Sum:
    """Reach the target by adding ones, twos and threes, without exceeding it."""

    target: int
    value: int = 0
    phase = "add"

    @property
    def over(self):
        return self.value >= self.target

    def legal(self):
        return () if self.over else ("1", "2", "3")

    def prompt(self, *, compact):
        return f"Sum {self.value}/{self.target}\n" if compact else f"Sum.\nAt {self.value}, go to {self.target}.\n"

    def play(self, order):
        if order not in self.legal():
            raise ValueError(order)
        after = Sum(self.target, self.value + int(order))
        return after, 1.0 if after.value == self.target else -0.1

    def snapshot(self):
        return {"target": self.target, "value": self.value}


class SumGame:
    phases, decisions = ("add",), 12

    def rules(self, *, compact):
        return "Sum " if compact else "Sum.\n"

    def open(self, seed):
        return Sum(8 + seed % 5)

    def restore(self, snapshot):
        return Sum(**snapshot)


def make():
    return SumGame()
