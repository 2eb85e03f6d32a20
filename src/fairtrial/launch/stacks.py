"""How many runs share a process? As few stacks as keep every slot busy, and none larger than pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

LARGEST = 32
"""More runs than this gain no speed, and all of them are lost together when a process is."""

Item = TypeVar("Item")


def divide(items: Sequence[Item], key: Callable[[Item], str | None], slots: int) -> list[list[Item]]:
    """Items in tasks. Those of one key are spread evenly over the slots; an item without a key is its own task.

    The numbers of a run do not depend on its stack, so this is about speed alone.
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
    """Stacks of equal size, as many as a multiple of the slots, none above the largest."""
    rounds = -(-len(items) // (slots * LARGEST))
    count = min(len(items), rounds * slots)
    size, more = divmod(len(items), count)
    sizes = [size + (place < more) for place in range(count)]
    ends = [sum(sizes[: place + 1]) for place in range(count)]
    return [items[end - size : end] for size, end in zip(sizes, ends, strict=True)]
