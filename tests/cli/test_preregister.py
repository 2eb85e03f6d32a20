"""`research preregister --command`: a command line is parsed and planned, and nothing of it is carried out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.api.lab.ablation import plan_ablation
from fairtrial.api.lab.arms import LabConfig
from fairtrial.api.lab.compare import plan_compare
from fairtrial.api.lab.sweep import plan_range_sweep, plan_sweep
from fairtrial.api.running.launch import plan_launch, plan_launch_of_file
from fairtrial.cli._preregister import PLANNED, study_of_command
from fairtrial.core.errors import UsageError
from fairtrial.plan.study import Study
from fairtrial.record.store import Store
from fairtrial.record.studies import load_plan
from tests.conftest import Answer

TWO = "study: q\nrecipe: fake\nseeds: 3\nvariants: {a: {effect: 0}, b: {effect: 0.1}}\n"
THREE = LabConfig(runs=3)
COMMANDS: dict[str, Callable[[], Study]] = {
    "launch fake --base-run-name x --variant a:effect=0 --variant b:effect=1 --seeds 3": lambda: plan_launch(
        "fake", study="x", variants={"a": {"effect": "0"}, "b": {"effect": "1"}}, seeds=3
    ),
    "launch q.yaml --seeds 4,5 --detach": lambda: plan_launch_of_file("q.yaml", seeds=[4, 5]),
    "fairtrial temperature --start 2 --end 4 --step 1 --confirm 2": lambda: plan_range_sweep(
        "temperature", 2, 4, 1, terms=THREE
    ),
    "alpha --steps 50": lambda: plan_range_sweep("alpha", 0, 1, 0.1, options={"steps": "50"}, terms=THREE),
    "sweep fake --param effect=0,0.1": lambda: plan_sweep("fake", ["effect=0,0.1"], terms=THREE),
    "compare --strategies kd,mse --runs 3": lambda: plan_compare(["kd", "mse"], terms=THREE),
    "ablation --components temperature": lambda: plan_ablation(["temperature"], terms=THREE),
}


def test_every_command_that_makes_a_study_is_planned_here() -> None:
    assert {line.removeprefix("fairtrial ").split()[0] for line in COMMANDS} == set(PLANNED)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_line_gives_the_study_that_its_verb_plans(line: str) -> None:
    Path("q.yaml").write_text(TWO)
    assert study_of_command(line) == COMMANDS[line]()
    assert not Path(os.environ["FAIRTRIAL_STORE"]).exists(), "planning writes nothing"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["launch fake --base-run-name x --seeds 2 --steps 4", "sweep fake --param effect=0,0.1 --runs 2 --steps 4"]
)
def test_what_is_planned_is_what_is_launched(cli: Callable[..., Answer], store: Store, line: str) -> None:
    planned = study_of_command(line)
    assert cli(*line.split(), "--jobs", "1", "--store", str(store.root)).code == 0
    assert load_plan(store, planned.study) == planned.to_dict()


@pytest.mark.parametrize("line", ["temperature --help", "launch fake --base-run-name x --help"])
def test_help_plans_nothing(line: str) -> None:
    with pytest.raises(UsageError, match="does not launch a study"):
        study_of_command(line)
