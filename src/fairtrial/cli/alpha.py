"""fairtrial alpha"""

from __future__ import annotations

from fairtrial.cli.sweep import range_command

TEXT = """Distil with every weight of the teacher in a range and say which is best.

At 0 the student learns from labels alone, at 1 from the teacher alone. The best value comes with those that
cannot be told apart from it.
"""

command = range_command("alpha", 0.0, 1.0, 0.1, TEXT)
