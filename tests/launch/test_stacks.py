"""Runs in stacks: none lost, none mixed, none too large, every slot busy."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.launch.stacks import LARGEST, divide

Item = tuple[int, str | None]


def key_of(item: Item) -> str | None:
    return item[1]


@st.composite
def many_items(draw: st.DrawFn) -> list[Item]:
    """Numbered items with few keys; at times far more of one key than a stack holds."""
    keys = draw(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=60))
    keys += ["a"] * draw(st.sampled_from([0, 0, LARGEST, 100, 257]))
    return list(enumerate(draw(st.permutations(keys)) if len(keys) < 80 else keys))


slots_of = st.integers(1, 9)


@given(items=many_items(), slots=slots_of)
def test_every_item_is_in_exactly_one_stack(items: list[Item], slots: int) -> None:
    tasks = divide(items, key_of, slots)
    assert sorted(item for task in tasks for item in task) == sorted(items, key=lambda item: item[0])
    assert all(tasks)


@given(items=many_items(), slots=slots_of)
def test_stacks_hold_one_key_and_items_without_one_are_alone(items: list[Item], slots: int) -> None:
    for task in divide(items, key_of, slots):
        assert len({item[1] for item in task}) == 1
        if task[0][1] is None:
            assert len(task) == 1


@given(items=many_items(), slots=slots_of)
def test_stacks_of_one_key_are_even_and_none_is_too_large(items: list[Item], slots: int) -> None:
    sizes = defaultdict(list)
    for task in divide(items, key_of, slots):
        if task[0][1] is not None:
            sizes[task[0][1]].append(len(task))
    for each in sizes.values():
        assert max(each) - min(each) <= 1
        assert max(each) <= LARGEST


@given(items=many_items(), slots=slots_of)
def test_every_slot_has_as_many_stacks_as_the_others(items: list[Item], slots: int) -> None:
    """As few rounds as the size of a stack allows; fewer items than that are one by one."""
    found: dict[str | None, int] = defaultdict(int)
    for task in divide(items, key_of, slots):
        found[task[0][1]] += 1
    for key in {item[1] for item in items if item[1] is not None}:
        count = sum(item[1] == key for item in items)
        rounds = -(-count // (slots * LARGEST))
        assert found[key] == (rounds * slots if count >= rounds * slots else count)
        assert found[key] % slots == 0 or found[key] == count < slots * rounds


@given(items=many_items(), slots=slots_of)
def test_what_comes_first_is_started_first(items: list[Item], slots: int) -> None:
    tasks = divide(items, key_of, slots)
    heads = [task[0][0] for task in tasks]
    assert heads == sorted(heads)
    assert all(task == sorted(task, key=lambda item: item[0]) for task in tasks)


@pytest.mark.parametrize(
    ("count", "slots", "sizes"),
    [
        (45, 2, [23, 22]),
        (3, 4, [1, 1, 1]),
        (64, 2, [32, 32]),
        (65, 2, [17, 16, 16, 16]),
        (1, 1, [1]),
        (33, 1, [17, 16]),
    ],
)
def test_stacks_of_one_shape_are_as_few_as_keep_every_slot_busy(count: int, slots: int, sizes: list[int]) -> None:
    assert [len(task) for task in divide(range(count), lambda _: "k", slots)] == sizes


def test_nothing_is_no_stack() -> None:
    nothing: list[Item] = []
    assert divide(nothing, key_of, 2) == []
