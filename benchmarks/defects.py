"""Does every defect of step 10 have a test that failed before? Runs them on the old source and on this one."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import Figure, at_least, exactly
from benchmarks.step10 import BEFORE, Defect, defects
from benchmarks.trees import commit_of, copy_tree, run_tests, take_source_of

TITLE = "Defects of step 10: each has a test that fails on the source before it was mended"
IDS = [*(f"A{n}" for n in range(1, 19)), *(f"B{n}" for n in range(19, 24)), *(f"C{n}" for n in range(24, 33))]


def measure(folder: Path) -> list[Figure]:
    listed = defects()
    tests = sorted({test for defect in listed for test in defect.tests})
    before, now = folder / "before", folder / "now"
    for tree in (before, now):
        copy_tree(tree)
    take_source_of(BEFORE, before)
    _fit_to_old_source(before / "tests" / "conftest.py")
    failed_before = _by_file(before, tests)
    fails_now = _by_file(now, tests)
    of_suite = sorted({test for defect in listed if defect.in_suite for test in defect.tests})
    failed_before |= _suite_before(folder / "suite", of_suite)
    fails_now |= run_tests(now, of_suite, nohup=True)
    missing = [name for name in IDS if name not in {defect.id for defect in listed}]
    figures = [_figure(defect, failed_before, fails_now) for defect in listed]
    return [
        Figure("defects with a test", len(set(IDS)) - len(missing), f"of {len(IDS)}", goal=at_least(len(IDS)),
               note=f"without: {', '.join(missing)}" if missing else None),
        *figures,
    ]  # fmt: skip


def _fit_to_old_source(conftest: Path) -> None:
    """A test must fail before because of the defect, not because a fixture of all tests uses a newer name."""
    text = conftest.read_text()
    if "write_event" not in text:
        raise RuntimeError(f"{conftest.name} no longer uses the newer name")
    conftest.write_text(text.replace("Recorder.write_event", "Recorder.event").replace('"write_event"', '"event"'))


def _suite_before(tree: Path, tests: list[str]) -> dict[str, str | None]:
    """A defect of the tests themselves shows where the tests are the old ones too, below `nohup`."""
    copy_tree(tree)
    take_source_of(BEFORE, tree, "src", "tests")
    return run_tests(tree, tests, nohup=True)


def _by_file(tree: Path, tests: list[str]) -> dict[str, str | None]:
    """File by file, so that a module that the old source cannot import spoils no other file's result."""
    files = sorted({test.partition("::")[0] for test in tests})
    outcomes: dict[str, str | None] = {}
    for file in files:
        outcomes |= run_tests(tree, [test for test in tests if test.startswith(f"{file}::")])
    return outcomes


def _figure(defect: Defect, before: dict[str, str | None], now: dict[str, str | None]) -> Figure:
    """Mended where every test passes now and failed before."""
    passed_before = [test for test in defect.tests if before[test] is None]
    failing = [test for test in defect.tests if now[test] is not None]
    first = defect.tests[0]
    details = [
        defect.mend, f"Tests: {', '.join(f'{test} ({commit_of(test)})' for test in defect.tests)}.",
        f"Before: {(before[first] or 'passed')[:200]}",
    ]  # fmt: skip
    details += [f"Passed before: {', '.join(passed_before)}"] if passed_before else []
    details += [f"Fails now: {', '.join(f'{test}: {now[test]}' for test in failing)}"] if failing else []
    mended = not passed_before and not failing
    return Figure(defect.id, float(mended), "mended", goal=exactly(1), note=" ".join(details))
