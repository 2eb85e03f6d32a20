"""Divide runs into stacks that share a process: few stacks, but enough to keep every slot busy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

LARGEST = 32
"""Maximum runs per stack: more give no speedup, and a process that dies takes all of its runs with it."""

Item = TypeVar("Item")


def divide(items: Sequence[Item], key: Callable[[Item], str | None], slots: int) -> list[list[Item]]:
    """Divide items into tasks. Items with equal keys are spread evenly over the slots; one without a key is alone.

    A run's results do not depend on its stack, so that this only affects speed.
    """
    groups: dict[str, list[Item]] = {}
    tasks: list[list[Item]] = []
    for item in items:
        shared = key(item)
        if shared is None:
            tasks.append([item])
        else:
            groups.setdefault(shared, []).append(item)
    for group in groups.values():
        tasks += _even(group, slots)
    order = {id(item): place for place, item in enumerate(items)}
    return sorted(tasks, key=lambda task: order[id(task[0])])


def _even(items: list[Item], slots: int) -> list[list[Item]]:
    """Return stacks of nearly equal size, at most LARGEST each; their number is a multiple of `slots` if possible."""
    rounds = -(-len(items) // (slots * LARGEST))
    count = min(len(items), rounds * slots)
    size, more = divmod(len(items), count)
    sizes = [size + (place < more) for place in range(count)]
    ends = [sum(sizes[: place + 1]) for place in range(count)]
    return [items[end - size : end] for size, end in zip(sizes, ends, strict=True)]
