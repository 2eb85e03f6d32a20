"""Arrange cells of arm × task × seed into tables of runs × tasks.

Runs on all tasks are the rows of one table. If tasks have separate seeds, as in published results with five runs per
game, each task has its own table. The layout depends only on the names of tasks and seeds, never on scores. A cell that
was never run is not a lost run: its seed is left out and not counted as a loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairtrial.stats.samples import Array

Cells = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Arm → task → seed → score; NaN is a lost run."""
BY_CHANCE = 0.1
"""The largest share of cells whose seeds recur on another task that is attributed to chance."""


@dataclass(frozen=True)
class TaskGrid:
    """Groups of tasks that share their runs, and the runs (seeds) of each arm that have all tasks of a group."""

    groups: Sequence[Sequence[str]]
    rows: Mapping[str, Sequence[Sequence[str]]]
    cells: Cells
    left_out: Sequence[str] = ()
    """Tasks without a run in some arm."""

    @property
    def tasks(self) -> list[str]:
        return [task for group in self.groups for task in group]

    @property
    def shared(self) -> bool:
        """Whether all tasks share their runs."""
        return len(self.groups) == 1

    def tables(self, arm: str) -> list[Array]:
        own = self.cells[arm]
        return [
            np.array([[own[task][seed] for task in group] for seed in seeds], dtype=float).reshape(-1, len(group))
            for group, seeds in zip(self.groups, self.rows[arm], strict=True)
        ]

    def losses(self, arm: str) -> tuple[int, int]:
        """Return the numbers of lost and planned runs, or of lost and planned cells if seeds differ by task.

        A run is lost if any of its tasks is lost. Runs without a lost task that do not have every task are not
        counted.
        """
        own = self.cells[arm]
        if not self.shared:
            scores = [score for task in self.tasks for score in own[task].values()]
            return sum(not np.isfinite(score) for score in scores), len(scores)
        lost = {seed for task in self.tasks for seed, score in own[task].items() if not np.isfinite(score)}
        complete = set.intersection(*(set(own[task]) for task in self.tasks))
        return len(lost), len(lost | complete)

    def incomplete(self, arm: str) -> dict[str, int]:
        """Map each seed that is in no table because of missing tasks to the number of missing tasks."""
        own = self.cells[arm]
        missing: dict[str, int] = {}
        for group in self.groups:
            for seed in dict.fromkeys(seed for task in group for seed in own[task]):
                if absent := sum(seed not in own[task] for task in group):
                    missing[seed] = missing.get(seed, 0) + absent
        return missing


def lay_out(cells: Cells, *, paired: bool) -> TaskGrid:
    """Compute the groups and rows. If `paired`, all arms have the same rows."""
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
    """Return the share of cells whose seed also occurs on another task."""
    count = Counter(seed for task in tasks for seed in own[task])
    return sum(many for many in count.values() if many > 1) / sum(count.values())


def _connected(cells: Cells, tasks: Sequence[str]) -> list[list[str]]:
    """Group tasks that have a seed in common in some arm."""
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
