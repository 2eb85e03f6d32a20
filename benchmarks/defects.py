"""Does every defect of a step have a test that failed before? Runs them on the old source and on this one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.figures import Figure, at_least, exactly
from benchmarks.mended import STEP_10, STEP_11, Defect, Step, defects
from benchmarks.trees import commit_of, copy_tree, run_tests, take_source_of

TITLE_10 = "Defects of step 10: each has a test that fails on the source before it was mended"
TITLE_11 = "What the audit found: each case has a test that fails on the source before it was mended"
_IMPORT = re.compile(r"ImportError|ModuleNotFoundError|cannot import name|collection failure|not run")


def measure_10(folder: Path) -> list[Figure]:
    return _measure(folder, STEP_10)


def measure_11(folder: Path) -> list[Figure]:
    return _measure(folder, STEP_11)


def _measure(folder: Path, step: Step) -> list[Figure]:
    listed = defects(step)
    tests = sorted({test for defect in listed for test in defect.tests})
    before, now = folder / "before", folder / "now"
    for tree in (before, now):
        copy_tree(tree)
    take_source_of(step.before, before)
    _fit_to_old_source(before)
    failed_before = _by_file(before, tests)
    fails_now = _by_file(now, tests)
    of_suite = sorted({test for defect in listed if defect.in_suite for test in defect.tests})
    if of_suite:
        failed_before |= _suite_before(folder / "suite", step, of_suite)
        fails_now |= run_tests(now, of_suite, nohup=True)
    missing = [name for name in step.ids if name not in {defect.id for defect in listed}]
    figures = [_figure(step, defect, failed_before, fails_now) for defect in listed]
    return [
        Figure("defects with a test", len(step.ids) - len(missing), f"of {len(step.ids)}", goal=at_least(len(step.ids)),
               note=f"without: {', '.join(missing)}" if missing else None),
        *figures,
    ]  # fmt: skip


def _fit_to_old_source(tree: Path) -> None:
    """A test must fail before because of the defect, not because a fixture of all tests uses a newer name."""
    conftest, recorder = tree / "tests" / "conftest.py", tree / "src" / "fairtrial" / "record" / "recorder.py"
    text = conftest.read_text()
    if "write_event" not in text:
        raise RuntimeError(f"{conftest.name} no longer uses the newer name")
    if "def write_event(" not in recorder.read_text():
        text = text.replace("Recorder.write_event", "Recorder.event").replace('"write_event"', '"event"')
        conftest.write_text(text)


def _suite_before(tree: Path, step: Step, tests: list[str]) -> dict[str, str | None]:
    """A defect of the tests themselves shows where the tests are the old ones too, below `nohup`."""
    copy_tree(tree)
    take_source_of(step.before, tree, "src", "tests")
    return run_tests(tree, tests, nohup=True)


def _by_file(tree: Path, tests: list[str]) -> dict[str, str | None]:
    """File by file, so that a module that the old source cannot import spoils no other file's result."""
    files = sorted({test.partition("::")[0] for test in tests})
    outcomes: dict[str, str | None] = {}
    for file in files:
        outcomes |= run_tests(tree, [test for test in tests if test.startswith(f"{file}::")])
    return outcomes


def _figure(step: Step, defect: Defect, before: Mapping[str, str | None], now: Mapping[str, str | None]) -> Figure:
    """Mended where every test passes now and failed before."""
    passed_before = [test for test in defect.tests if before[test] is None]
    not_imported = [test for test in defect.tests if step.stable_names and _IMPORT.search(before[test] or "")]
    failing = [test for test in defect.tests if now[test] is not None]
    first = defect.tests[0]
    details = [
        defect.mend, f"Tests: {', '.join(f'{test} ({commit_of(test)})' for test in defect.tests)}.",
        f"Before: {(before[first] or 'passed')[:200]}",
    ]  # fmt: skip
    details += [f"Passed before: {', '.join(passed_before)}"] if passed_before else []
    details += [f"Could not be imported before: {', '.join(not_imported)}"] if not_imported else []
    details += [f"Fails now: {', '.join(f'{test}: {now[test]}' for test in failing)}"] if failing else []
    mended = not passed_before and not not_imported and not failing
    return Figure(defect.id, float(mended), "mended", goal=exactly(1), note=" ".join(details))
