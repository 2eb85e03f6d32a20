"""Does a test notice when one check, limit or fsync of step 10 is taken out? Tries each of them, one by one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import Figure, exactly
from benchmarks.mended import STEP_10, Mutation, mutations
from benchmarks.trees import copy_tree, run_tests

TITLE = "Mutations of step 10: a named test fails when a check is taken out"
WORKERS = 2


def measure(folder: Path) -> list[Figure]:
    listed = mutations(STEP_10)
    trees = [folder / str(number) for number in range(WORKERS)]
    for tree in trees:
        copy_tree(tree)
    with ThreadPoolExecutor(WORKERS) as pool:
        shares = pool.map(lambda tree, share: [_try(tree, each) for each in share], trees,
                          [listed[number::WORKERS] for number in range(WORKERS)])  # fmt: skip
        figures = sorted((figure for share in shares for figure in share), key=lambda figure: figure.name)
    noticed = sum(figure.value == 1 for figure in figures)
    return [Figure("mutations noticed", noticed, f"of {len(figures)}", goal=exactly(len(figures))), *figures]


def _try(tree: Path, mutation: Mutation) -> Figure:
    path = tree / mutation.file
    original = path.read_text()
    times = original.count(mutation.find)
    name = f"{Path(mutation.file).stem}: {mutation.name}"
    if times != 1:
        return Figure(name, 0, "noticed", goal=exactly(1), note=f"the text to replace is there {times} times")
    path.write_text(original.replace(mutation.find, mutation.replace))
    try:
        problem = run_tests(tree, [mutation.test])[mutation.test]
    finally:
        path.write_text(original)
    note = f"{mutation.test}: {(problem or 'passed')[:120]}"
    noticed = problem is not None and problem != "not run"
    return Figure(name, float(noticed), "noticed", goal=exactly(1), note=note)
