"""`python -m benchmarks [NAME …]`: measures and prints readable tables; without names, all that are not slow."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.figures import missed, show
from benchmarks.registry import BENCHMARKS


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"Error: no benchmark '{unknown[0]}'\nHint: there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    short = []
    for name in names or [name for name, benchmark in BENCHMARKS.items() if not benchmark.slow]:
        figures = BENCHMARKS[name].run()
        show(BENCHMARKS[name].title, figures)
        short += [f"{name}: {figure}" for figure in missed(figures)]
    print("\n".join(f"Missed: {line}" for line in short) or "All goals met.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
