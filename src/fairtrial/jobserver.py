"""Entry point of job processes, for example `python -m fairtrial.jobserver errand PLACE NAME`.

Task files and queued jobs refer to this module by name, so it must not be renamed. The code is in `jobs/`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fairtrial.jobs.remote import run_remote_job
from fairtrial.jobs.server import run_once, serve


def main(arguments: Sequence[str]) -> int:
    mode, *rest = arguments
    if mode == "errand":
        return run_remote_job(*rest)
    if mode == "serve":
        serve(rest)
    return run_once(int(rest[0]), rest[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
