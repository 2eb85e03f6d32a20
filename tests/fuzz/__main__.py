"""`python -m tests.fuzz`: run inputs of every kind, and say which of them the program could not take.

It replays the corpus first: kept inputs must not fail, and valid ones must still give their results. Then it runs new
inputs, made from the seed. Whatever fails is written to a folder, with the command that shows it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.cases import Case, kept_cases
from tests.fuzz.children import LIMIT_S, Outcome, preload, prepare, run_case, scratch_folder
from tests.fuzz.generators import KINDS, generate, plan

INPUTS = 20_000
SEED = 10
CORPUS_KIND = "corpus"


@dataclass
class Tally:
    """What came of the inputs of one kind."""

    inputs: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    failures: int = 0
    warnings: int = 0
    slowest_s: float = 0.0
    peak_bytes: int = 0

    def add(self, outcome: Outcome) -> None:
        self.inputs += 1
        self.codes[outcome.exit_code] += 1
        self.failures += outcome.problem is not None
        self.warnings += outcome.warning is not None
        self.slowest_s = max(self.slowest_s, outcome.seconds)
        self.peak_bytes = max(self.peak_bytes, outcome.peak_bytes)


@dataclass
class Campaign:
    """All that was found: a tally by kind, and the inputs that failed."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    failures: list[tuple[Case, Outcome]] = field(default_factory=list)
    open_defects: list[tuple[Case, Outcome]] = field(default_factory=list)
    """Kept inputs that are known to fail, with an owner."""
    warnings: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def count(self, word: str) -> int:
        return sum((outcome.problem or "").startswith(word) for _, outcome in self.failures)

    @property
    def inputs(self) -> int:
        return sum(tally.inputs for tally in self.tallies.values())


Task = tuple[str, int]
"""A kind with the number of an input; of the corpus, the place of a case in it."""


def run_campaign(
    inputs: int = INPUTS,
    seed: int = SEED,
    kinds: Sequence[str] = tuple(KINDS),
    workers: int = 2,
    *,
    corpus: bool = True,
    show: bool = False,
) -> Campaign:
    """Run the corpus and so many inputs. A time limit that was passed is tried again when nothing else runs."""
    begun = time.monotonic()
    kept = list(kept_cases())
    tasks: list[Task] = [(CORPUS_KIND, place) for place in range(len(kept))] if corpus else []
    tasks += plan(inputs, kinds)
    campaign = Campaign()
    preload()
    with scratch_folder() as scratch:
        prepare(Path(scratch))
        late: list[Task] = []
        for done, (task, outcome) in enumerate(_outcomes(tasks, seed, workers, Path(scratch)), 1):
            if (outcome.problem or "").startswith("hang"):
                late.append(task)
            else:
                _note(campaign, task, outcome, seed, kept)
            if show and done % 500 == 0:
                failed = len(campaign.failures)
                print(f"{done:,} of {len(tasks):,} inputs, {failed} failed", file=sys.stderr, flush=True)
        for task in late:
            _note(campaign, task, run_case(_case(task, seed, kept), Path(scratch)), seed, kept)
    campaign.seconds = time.monotonic() - begun
    return campaign


def _case(task: Task, seed: int, kept: Sequence[Case]) -> Case:
    kind, number = task
    return kept[number] if kind == CORPUS_KIND else generate(kind, number, seed)


def _note(campaign: Campaign, task: Task, outcome: Outcome, seed: int, kept: Sequence[Case]) -> None:
    campaign.tallies.setdefault(task[0], Tally()).add(outcome)
    if outcome.warning:
        campaign.warnings[outcome.warning] += 1
    if outcome.problem is None:
        return
    case = _case(task, seed, kept)
    (campaign.open_defects if case.owner else campaign.failures).append((case, outcome))


def _outcomes(tasks: Sequence[Task], seed: int, workers: int, scratch: Path) -> Iterator[tuple[Task, Outcome]]:
    """From forked workers, each with every n-th input; in the order in which they are done."""
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[tuple[Task, Outcome] | None] = context.Queue()
    processes = [
        context.Process(target=_work, args=(tasks[number::workers], seed, scratch, queue)) for number in range(workers)
    ]
    for process in processes:
        process.start()
    left = len(processes)
    while left:
        found = queue.get()
        if found is None:
            left -= 1
        else:
            yield found
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError("a worker of the fuzzer failed: see above")


def _work(
    tasks: Sequence[Task], seed: int, scratch: Path, queue: multiprocessing.Queue[tuple[Task, Outcome] | None]
) -> None:
    kept = list(kept_cases())
    try:
        for task in tasks:
            queue.put((task, run_case(_case(task, seed, kept), scratch)))
    finally:
        queue.put(None)


# What is shown and kept


def report(campaign: Campaign) -> str:
    head = f"{'kind':<12}{'inputs':>8}{'failed':>8}{'slowest':>10}{'memory':>10}  exit codes"
    rows = [head]
    for kind, tally in campaign.tallies.items():
        codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(tally.codes.items()))
        memory = f"{tally.peak_bytes >> 20} MB"
        rows.append(f"{kind:<12}{tally.inputs:>8,}{tally.failures:>8,}{tally.slowest_s:>8.1f} s{memory:>10}  {codes}")
    rows.append(
        f"{campaign.inputs:,} inputs in {campaign.seconds:,.0f} s: {campaign.count('traceback')} tracebacks, "
        f"{campaign.count('hang')} hangs above {LIMIT_S:g} s, {campaign.count('memory')} above 1 GB, "
        f"{campaign.count('exit code')} undocumented exit codes, {campaign.count('result')} wrong results, "
        f"{len(campaign.open_defects)} known defects."
    )
    groups = Counter(outcome.problem for _, outcome in campaign.failures)
    rows += [f"  {count:>5} × {problem}" for problem, count in groups.most_common(40)]
    rows += [f"  known, {case.owner}: {outcome.problem} ({case.name})" for case, outcome in campaign.open_defects]
    rows += [f"  warning, {count:,} ×: {line}" for line, count in campaign.warnings.most_common(10)]
    return "\n".join(rows)


def keep_failures(campaign: Campaign, folder: Path) -> None:
    """Each failing input as a case that can be put into the corpus, with what it printed."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (case, outcome) in enumerate(campaign.failures):
        path = folder / f"{case.kind}-{number:04}.json"
        again = f"python -m tests.fuzz --replay {shlex.quote(str(path))}"
        said = {**case.to_dict(), "problem": outcome.problem, "again": again, "command": case.command()}
        path.write_text(json.dumps(said, indent=1, ensure_ascii=False))
        path.with_suffix(".txt").write_text(f"{case.command()}\n{outcome.problem}\n\n{outcome.detail}")


def replay(path: Path) -> int:
    """One kept input again, with what it prints."""
    case = Case.from_dict(json.loads(path.read_text()), path.stem)
    preload()
    with scratch_folder() as scratch:
        prepare(Path(scratch))
        outcome = run_case(case, Path(scratch))
    print(case.command(), f"{outcome.problem or 'fine'}, exit code {outcome.exit_code}", outcome.detail, sep="\n")
    return int(outcome.problem is not None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="Only this kind; repeat it for more.")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="Where failing inputs go.")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="Run one kept input again, and nothing else.")
    given = parser.parse_args()
    if given.replay:
        return replay(given.replay)
    campaign = run_campaign(given.inputs, given.seed, given.kind or tuple(KINDS), given.workers, show=True)
    print(report(campaign))
    if campaign.failures:
        keep_failures(campaign, given.failures)
        print(f"Failing inputs are in {given.failures}.")
    return int(bool(campaign.failures))


if __name__ == "__main__":
    sys.exit(main())
