"""A family adjustment: Bonferroni. `fairtrial analyze STUDY --family bonferroni`"""

from fairtrial.plugins import Adjustment

BONFERRONI = Adjustment(
    adjust=lambda p_values: [min(1.0, len(p_values) * p) for p in p_values],
    levels=lambda p_values, alpha: [alpha / len(p_values)] * len(p_values),
)
