"""`make test-fast` leaves out what is slow, and no room."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conftest import FULL_ONLY, fast_of


def counted(items: list[pytest.Item]) -> Counter[str]:
    """How many tests each folder has."""
    files = [item.nodeid.partition("::")[0].split("/") for item in items]
    return Counter(parts[1] for parts in files if len(parts) > 2)


def test_every_room_that_is_tested_is_tested_in_the_inner_loop(request: pytest.FixtureRequest) -> None:
    """Of what this session collected: `make test` asks it of all rooms."""
    if request.config.option.keyword or any("::" in each or each.endswith(".py") for each in request.config.args):
        pytest.skip("only a part of a room was collected")
    fast = counted(fast_of(request.session.items))
    for room, tests in counted(request.session.items).items():
        assert room in FULL_ONLY or fast[room] >= min(tests, 5), f"{room}: {fast[room]} of {tests}"


def test_of_many_cases_the_first_is_fast(request: pytest.FixtureRequest) -> None:
    kept = {item.nodeid for item in fast_of(request.session.items)}
    ours = [item.nodeid for item in request.session.items if "test_with_cases" in item.nodeid]
    assert [name.endswith("[1]") for name in ours if name in kept] == [True] * any(
        name.endswith("[1]") for name in ours
    )


@pytest.mark.parametrize("case", [1, 2])
def test_with_cases(case: int) -> None:
    assert case in (1, 2)


@pytest.mark.slow
def test_a_slow_test_is_left_out(request: pytest.FixtureRequest) -> None:
    assert request.node not in fast_of(request.session.items)
