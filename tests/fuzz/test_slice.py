"""A fast slice of `make fuzz`: the whole corpus, and a few hundred new inputs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.cases import Case, Expected, kept_cases
from tests.fuzz.children import ESCAPED, LIMIT_BYTES, judged, preload, prepare, resident_bytes, run_case, scratch_folder
from tests.fuzz.generators import KINDS, SHARES, generate, plan, seeds_of

ROOT = Path(__file__).parent.parent.parent
INPUTS = 150


def test_a_slice_of_the_fuzzer_finds_nothing(tmp_path: Path) -> None:
    """In a process of its own: the fuzzer forks, and does so best where little is loaded."""
    failures = tmp_path / "failures"
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--inputs", str(INPUTS), "--workers", "2", "--failures", str(failures)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_kind_has_valid_seeds_and_a_share() -> None:
    assert set(KINDS) == set(SHARES) and sum(SHARES.values()) > 100
    assert all(seeds_of(kind) for kind in KINDS)
    assert len(plan(20_000, list(KINDS))) == 20_000
    stated = [case for case in kept_cases() if case.valid and case.expected.exit_code is not None]
    assert sum(case.expected.exit_code == 0 for case in stated) >= 40, "refusing everything must not pass"


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_same_seed_makes_the_same_input(kind: str) -> None:
    assert generate(kind, 3, 7) == generate(kind, 3, 7)
    assert any(generate(kind, number, 7) != generate(kind, number, 8) for number in range(5))


PROGRAM = """
import time, click
@click.command()
def one(): pass
what = open("what").read()
if what == "hang": time.sleep(15)
if what == "large": kept = b"x" * (500 << 20)
"""


def test_the_fuzzer_sees_what_it_looks_for() -> None:
    """A hang, a process that is too large and a wrong result, each in a real child."""
    preload()
    # A forked child begins with what this process holds, which depends on the tests that ran here before.
    limit_bytes = resident_bytes(os.getpid()) + (250 << 20)
    with scratch_folder() as scratch:
        prepare(Path(scratch))

        def problem(what: str, expected: Expected | None = None, limit_s: float = 60.0) -> str:
            files = {"program.py": PROGRAM.encode(), "what": what.encode()}
            case = Case("test", ("sync", "program.py:one", "program.py:one"), (), files, expected or Expected())
            return run_case(case, Path(scratch), limit_s, limit_bytes).problem or "fine"

        assert problem("fine") == "fine"
        assert problem("hang", limit_s=1.0) == "hang: more than 1 s"
        assert problem("large").startswith("memory")
        assert problem("fine", Expected(3)) == "result: exit code 0, not 3"
        assert problem("fine", Expected(0, ("no such words",))) == "result: does not say 'no such words'"


def test_the_fuzzer_judges_how_a_command_ended() -> None:
    trace = "Traceback (most recent call last):\n  File …\nKeyError: 'step'\n"
    assert judged(1, 0, "Error: no such run\n") is None
    assert judged(ESCAPED, 0, trace) == judged(0, 0, trace) == "traceback: KeyError: 'step'"
    assert judged(4, 0, trace) is None, "the program that was run may show its own"
    assert judged(7, 0, "") == "exit code 7" and judged(-11, 0, "") == "exit code -11"
    assert judged(0, LIMIT_BYTES + 1, "") == "memory: 1024 MB"
