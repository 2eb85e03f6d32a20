"""fairtrial temperature"""

from __future__ import annotations

from fairtrial.cli.sweep import range_command

TEXT = """Sweep the distillation temperature over a range and find the best value.

Every number comes from a real training run. The result also lists all values that are statistically
indistinguishable from the best one. Repeating the command keeps finished runs and adds only the missing ones.
"""

command = range_command("temperature", 1.0, 8.0, 0.5, TEXT)
