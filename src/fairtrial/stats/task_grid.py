"""Which runs were on which tasks: cells of arm × task × seed become tables of runs × tasks.

Runs that were on all tasks are the rows of one table. Where tasks have seeds of their own, as in published results
with five runs per game, each task is a table by itself. The layout is decided by the names of tasks and seeds, never
by scores. A cell that was never run is not a lost one: its run is left out, and not counted as a loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairtrial.stats.samples import Array

Cells = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Arm → task → seed → score; NaN where the run was lost."""
BY_CHANCE = 0.1
"""A share of cells up to which seeds that occur on two tasks may be there by chance."""


@dataclass(frozen=True)
class TaskGrid:
    """Groups of tasks that share their runs, and the runs (seeds) of each arm that were on all tasks of a group."""

    groups: Sequence[Sequence[str]]
    rows: Mapping[str, Sequence[Sequence[str]]]
    cells: Cells
    left_out: Sequence[str] = ()
    """Tasks that some arm has no run of."""

    @property
    def tasks(self) -> list[str]:
        return [task for group in self.groups for task in group]

    @property
    def shared(self) -> bool:
        """Whether runs were on all tasks."""
        return len(self.groups) == 1

    def tables(self, arm: str) -> list[Array]:
        own = self.cells[arm]
        return [
            np.array([[own[task][seed] for task in group] for seed in seeds], dtype=float).reshape(-1, len(group))
            for group, seeds in zip(self.groups, self.rows[arm], strict=True)
        ]

    def losses(self, arm: str) -> tuple[int, int]:
        """Lost and planned: runs, of which one lost task is enough, or cells where seeds differ by task.

        Runs that no task lost, but that were not on every task, are not counted.
        """
        own = self.cells[arm]
        if not self.shared:
            scores = [score for task in self.tasks for score in own[task].values()]
            return sum(not np.isfinite(score) for score in scores), len(scores)
        lost = {seed for task in self.tasks for seed, score in own[task].items() if not np.isfinite(score)}
        complete = set.intersection(*(set(own[task]) for task in self.tasks))
        return len(lost), len(lost | complete)

    def incomplete(self, arm: str) -> dict[str, int]:
        """Seed → on how many tasks it was not run, for runs that are in no table because of that."""
        own = self.cells[arm]
        missing: dict[str, int] = {}
        for group in self.groups:
            for seed in dict.fromkeys(seed for task in group for seed in own[task]):
                if absent := sum(seed not in own[task] for task in group):
                    missing[seed] = missing.get(seed, 0) + absent
        return missing


def lay_out(cells: Cells, *, paired: bool) -> TaskGrid:
    """Groups and rows; paired, the rows of all arms are the same."""
    every = list(next(iter(cells.values())))
    tasks = [task for task in every if all(own[task] for own in cells.values())]
    groups = _groups(cells, tasks, paired)
    rows: dict[str, list[list[str]]] = {arm: [] for arm in cells}
    for group in groups:
        complete = {arm: set.intersection(*(set(own[task]) for task in group)) for arm, own in cells.items()}
        shared = set.intersection(*complete.values())
        for arm in cells:
            rows[arm].append(sorted(shared if paired else complete[arm]))
    return TaskGrid(groups, rows, cells, [task for task in every if task not in tasks])


def _groups(cells: Cells, tasks: Sequence[str], paired: bool) -> list[list[str]]:
    if not tasks:
        return []
    complete = [set.intersection(*(set(own[task]) for task in tasks)) for own in cells.values()]
    fewest = len(set.intersection(*complete)) if paired else min(map(len, complete))
    if len(tasks) == 1 or fewest >= 2:
        return [list(tasks)]
    if max(_recurring(own, tasks) for own in cells.values()) <= BY_CHANCE:
        return [[task] for task in tasks]
    return _connected(cells, tasks)


def _recurring(own: Mapping[str, Mapping[str, float]], tasks: Sequence[str]) -> float:
    """The share of cells whose seed also occurs on another task."""
    count = Counter(seed for task in tasks for seed in own[task])
    return sum(many for many in count.values() if many > 1) / sum(count.values())


def _connected(cells: Cells, tasks: Sequence[str]) -> list[list[str]]:
    """Tasks that have a seed in common, in some arm, belong together."""
    groups: list[tuple[list[str], set[tuple[str, str]]]] = []
    for task in tasks:
        names = {(arm, seed) for arm, own in cells.items() for seed in own[task]}
        joined: list[str] = []
        for group in [group for group in groups if group[1] & names]:
            groups.remove(group)
            joined += group[0]
            names |= group[1]
        groups.append(([*joined, task], names))
    order = {task: number for number, task in enumerate(tasks)}
    return sorted((sorted(group, key=order.__getitem__) for group, _ in groups), key=lambda group: order[group[0]])
