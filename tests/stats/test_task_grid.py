"""Which runs were on which tasks: decided by names, never by scores."""

from __future__ import annotations

import math

import numpy as np

from fairtrial.stats.task_grid import Cells, lay_out


def arm(cells: dict[str, list[str]], lost: tuple[str, str] | None = None) -> dict[str, dict[str, float]]:
    return {task: {seed: math.nan if (task, seed) == lost else 1.0 for seed in seeds} for task, seeds in cells.items()}


def test_runs_on_all_tasks_make_one_table() -> None:
    cells: Cells = {name: arm({"x": ["1", "2", "3"], "y": ["3", "2", "1"]}) for name in "ab"}
    grid = lay_out(cells, paired=True)
    assert grid.groups == [["x", "y"]] and grid.rows["a"] == [["1", "2", "3"]]
    assert grid.shared and grid.losses("a") == (0, 3)
    assert [table.shape for table in grid.tables("a")] == [(3, 2)]


def test_a_cell_that_was_never_run_is_not_a_loss() -> None:
    full = arm({"x": ["1", "2", "3"], "y": ["1", "2", "3"]})
    grid = lay_out({"a": full, "b": arm({"x": ["1", "2", "3"], "y": ["1", "2"]})}, paired=True)
    assert grid.rows["a"] == grid.rows["b"] == [["1", "2"]]
    assert grid.losses("b") == (0, 2) and grid.losses("a") == (0, 3)
    assert grid.incomplete("b") == {"3": 1} and grid.incomplete("a") == {}
    assert all(np.isfinite(table).all() for table in grid.tables("b"))


def test_a_lost_cell_makes_its_run_a_lost_one_and_stays_in_the_table() -> None:
    seeds = {"x": ["1", "2", "3"], "y": ["1", "2", "3"]}
    grid = lay_out({"a": arm(seeds), "b": arm(seeds, lost=("y", "2"))}, paired=True)
    assert grid.losses("b") == (1, 3) and grid.losses("a") == (0, 3)
    assert np.isnan(grid.tables("b")[0][1, 1])


def test_a_run_that_lost_one_task_and_was_never_on_another_is_lost() -> None:
    own = arm({"x": ["1", "2", "3", "4"], "y": ["1", "2", "3"]}, lost=("x", "4"))
    grid = lay_out({"a": own, "b": own}, paired=False)
    assert grid.losses("a") == (1, 4)


def test_tasks_with_seeds_of_their_own_are_tables_of_their_own() -> None:
    cells: Cells = {
        name: arm({f"t{t}": [str(100 * t + s) for s in range(5)] for t in range(55)}, lost=("t3", "301"))
        for name in "ab"
    }
    grid = lay_out(cells, paired=True)
    assert len(grid.groups) == 55 and not grid.shared
    assert {table.shape for table in grid.tables("a")} == {(5, 1)}
    assert grid.losses("a") == (1, 275) and grid.incomplete("a") == {}


def test_a_seed_that_two_tasks_share_by_chance_does_not_join_them() -> None:
    seeds = {f"t{t}": [str(100 * t + s) for s in range(5)] for t in range(20)}
    seeds["t1"][0] = "0"
    grid = lay_out({"a": arm(seeds), "b": arm(seeds)}, paired=False)
    assert len(grid.groups) == 20


def test_tasks_that_share_runs_stay_together_beside_others_with_runs_of_their_own() -> None:
    seeds = {"x": ["1", "2", "3"], "y": ["1", "2", "3"], "late": ["11", "12", "13"]}
    grid = lay_out({"a": arm(seeds), "b": arm(seeds)}, paired=True)
    assert grid.groups == [["x", "y"], ["late"]]
    assert [table.shape for table in grid.tables("b")] == [(3, 2), (3, 1)]


def test_tasks_that_an_arm_was_never_run_on_are_left_out_for_all() -> None:
    both = {"x": ["1", "2"], "y": ["1", "2"]}
    grid = lay_out({"a": arm({**both, "z": ["1", "2"]}), "b": arm({**both, "z": []})}, paired=True)
    assert grid.tasks == ["x", "y"] and grid.left_out == ["z"]
