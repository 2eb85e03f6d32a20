"""Configurations in a person's own file: wrong shapes are one sentence each, and equal seeds are one seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Answer

Cli = Callable[..., Answer]
HEADER = "name,hours,accuracy,memory,device"


def refused(cli: Cli, name: str, text: str) -> str:
    Path(name).write_text(text)
    done = cli("cost-performance", "--configs", name)
    assert done.code == 1 and "Traceback" not in done.err, done.out + done.err
    return done.err


@pytest.mark.parametrize("header", [f"{HEADER},hours", f"{HEADER}, hours"])
def test_a_duplicate_column_of_configurations_is_refused(cli: Cli, header: str) -> None:
    told = refused(cli, "p.csv", f"{header}\na,1,0.8,10,a100,9\n")
    assert "has the column 'hours' twice, as columns 2 and 6" in told


def test_a_key_twice_in_configurations_is_refused(cli: Cli) -> None:
    row = '{"name": "a", "hours": 1, "hours": 9, "accuracy": 0.8, "memory": 10, "device": "a100"}'
    assert "'hours' twice" in refused(cli, "p.json", f"[{row}]")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hours": True}, "hours is true, not a number"),
        ({"hours": {"x": 1}}, "hours is an object, not a number"),
        ({"hours": [[1]]}, "hours is a list, not a number"),
        ({"hours": "1,5"}, "write decimals with a point"),
        ({"hours": 10**400}, "must be a finite number, not 1000"),
        ({"name": ["a"]}, "name is a list"),
        ({"device": {"a": 1}}, "device is an object"),
        ({"accuracy": None, "accuracies": [0.8, 0.9], "seeds": [1, [2]]}, "a seed is a list"),
        ({"accuracy": None, "accuracies": [0.8, 0.9], "seeds": [1, "1.0"]}, "the same seed twice"),
    ],
)
def test_a_wrong_shape_is_one_sentence(cli: Cli, change: dict[str, Any], told: str) -> None:
    row = {"name": "a", "hours": 1, "accuracy": 0.8, "memory": 10, "device": "a100", **change}
    assert told in refused(cli, "p.json", json.dumps([row]))


def test_more_cells_than_columns_are_refused(cli: Cli) -> None:
    assert "line 2 has 6 cells, but the header has 5" in refused(cli, "p.csv", f"{HEADER}\na,1,5,0.8,10,a100\n")


def test_spaces_and_a_mark_of_bytes_in_a_header_do_not_matter(cli: Cli) -> None:
    Path("p.csv").write_text("\ufeffname, hours ,accuracy,memory,device\na,1,0.8,10,t4\nb,2,0.9,10,t4\n")
    assert cli("cost-performance", "--configs", "p.csv").code == 0
