"""fairtrial alpha"""

from __future__ import annotations

from fairtrial.cli.sweep import range_command

TEXT = """Sweep alpha, the weight of the teacher in distillation, over a range and find the best value.

At 0 the student learns only from labels, at 1 only from the teacher. The result also lists all values that are
statistically indistinguishable from the best one.
"""

command = range_command("alpha", 0.0, 1.0, 0.1, TEXT)
