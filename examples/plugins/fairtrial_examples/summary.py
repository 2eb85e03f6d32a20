"""A summary: the mean of the second half of a curve.

`fairtrial analyze STUDY --metric train_height --summary.type second_half`
"""

from fairtrial.plugins import SummaryType


def mean_of_second_half(steps, values, _rule, _direction):
    return float(values[steps >= (steps[0] + steps[-1]) / 2].mean())


SECOND_HALF = SummaryType(
    mean_of_second_half, "late {metric}", "mean of the second half", over_steps=True, depends_on_density=True
)
