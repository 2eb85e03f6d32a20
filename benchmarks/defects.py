"""Does every defect of a step have a test that failed before? Runs them on the old source and on this one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.figures import Figure, at_least, exactly
from benchmarks.mended import STEP_10, STEP_11, Defect, Step, defects
from benchmarks.trees import check_out, commit_of, copy_tree, run_tests, take_source_of

TITLE_10 = "Defects of step 10: each has a test that fails on the source before it was mended"
TITLE_11 = "What the audit found: each case has a test that fails on the source before it was mended"
_IMPORT = re.compile(r"ImportError|ModuleNotFoundError|cannot import name|collection failure|not run")


def measure_10(folder: Path) -> list[Figure]:
    return _measure(folder, STEP_10)


def measure_11(folder: Path) -> list[Figure]:
    return _measure(folder, STEP_11)


def _measure(folder: Path, step: Step) -> list[Figure]:
    """Tests as they were written for the defects run on the source before, today's tests on today's source.

    Modules were renamed since: today's tests could not even be imported on the old source.
    """
    before, now = folder / "before", folder / "now"
    check_out(step.tests_of, before)
    listed_then, listed = {each.id: each for each in defects(step, before)}, defects(step)
    take_source_of(step.before, before)
    _fit_to_old_source(before)
    copy_tree(now)
    outcomes_before = _by_file(before, _tests(listed_then.values()))
    outcomes_now = _by_file(now, _tests(listed))
    if any(defect.in_suite for defect in listed):
        of_suite = _tests(defect for defect in listed_then.values() if defect.in_suite)
        outcomes_before |= _suite_before(folder / "suite", step, of_suite)
        outcomes_now |= run_tests(now, _tests(defect for defect in listed if defect.in_suite), nohup=True)
    missing = [name for name in step.ids if name not in {defect.id for defect in listed}]
    figures = [_figure(step, defect, listed_then[defect.id], outcomes_before, outcomes_now) for defect in listed]
    return [
        Figure("defects with a test", len(step.ids) - len(missing), f"of {len(step.ids)}", goal=at_least(len(step.ids)),
               note=f"without: {', '.join(missing)}" if missing else None),
        *figures,
    ]  # fmt: skip


def _tests(listed: Iterable[Defect]) -> list[str]:
    return sorted({test for defect in listed for test in defect.tests})


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
    check_out(step.tests_of, tree)
    take_source_of(step.before, tree, "src", "tests")
    return run_tests(tree, tests, nohup=True)


def _by_file(tree: Path, tests: list[str]) -> dict[str, str | None]:
    """File by file, so that a module that the old source cannot import spoils no other file's result."""
    files = sorted({test.partition("::")[0] for test in tests})
    outcomes: dict[str, str | None] = {}
    for file in files:
        outcomes |= run_tests(tree, [test for test in tests if test.startswith(f"{file}::")])
    return outcomes


def _figure(
    step: Step, defect: Defect, then: Defect, before: Mapping[str, str | None], now: Mapping[str, str | None]
) -> Figure:
    """Mended where every test passes now and every test of then failed before."""
    passed_before = [test for test in then.tests if before[test] is None]
    not_imported = [test for test in then.tests if step.stable_names and _IMPORT.search(before[test] or "")]
    failing = [test for test in defect.tests if now[test] is not None]
    details = [
        defect.mend, f"Tests: {', '.join(f'{test} ({commit_of(test)})' for test in defect.tests)}.",
        f"Before: {(before[then.tests[0]] or 'passed')[:200]}",
    ]  # fmt: skip
    details += [f"Passed before: {', '.join(passed_before)}"] if passed_before else []
    details += [f"Could not be imported before: {', '.join(not_imported)}"] if not_imported else []
    details += [f"Fails now: {', '.join(f'{test}: {now[test]}' for test in failing)}"] if failing else []
    mended = not passed_before and not not_imported and not failing
    return Figure(defect.id, float(mended), "mended", goal=exactly(1), note=" ".join(details))
