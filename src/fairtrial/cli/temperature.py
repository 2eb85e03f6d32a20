"""fairtrial temperature"""

from __future__ import annotations

from fairtrial.cli.sweep import range_command

TEXT = """Distil at every temperature of a range and say which is best.

Every number comes from a training that happened. The best value comes with those that cannot be told apart from
it. The same command again keeps what is finished and fills in the rest.
"""

command = range_command("temperature", 1.0, 8.0, 0.5, TEXT)
