"""Every recipe keeps the shipped contract, and a recipe that breaks it is caught."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.plugin_registry import RECIPES
from fairtrial.core.registry import load_recipe
from fairtrial.testing import RECIPE_CHECKS, RecipeCase
from fairtrial.testing import recipe_contract as contract

SHORT = {"steps": 12, "eval_every": 5, "log_every": 1, "checkpoint_every": 4}
SMALL = {**SHORT, "labels": 200, "batch_size": 50}
TEACHER = {"teacher_steps": 8, "teacher_width": 4, "student_width": 4, "student": "cnn"}
PLAY = {**SHORT, "rollout": 40, "epochs": 2, "minibatches": 2, "eval_episodes": 2, "report_episodes": 3}
TALK = {
    **SHORT, "steps": 6, "groups": 2, "samples": 3, "horizon": 2, "compact_prompts": True, "eval_episodes": 2,
    "report_episodes": 2, "episode_decisions": 3, "rank": 4,
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fake": ("fake", {**SHORT, "jitter": 0.1}),
    **{f"classify {m}": ("classify", {**SMALL, "model": m}) for m in ("linear", "mlp", "cnn", "gru", "transformer")},
    "classify digits": ("classify", {**SMALL, "data": "digits"}),
    **{
        f"distill {s}": ("distill", {**SMALL, **TEACHER, "strategy": s})
        for s in ("none", "kd", "mse", "attention", "progressive", "combined")
    },
    **{
        f"finetune {m}": ("finetune", {**SMALL, "method": m, "rank": 2, "width": 8, "pretrain_steps": 8})
        for m in ("full", "lora")
    },
    **{
        f"ppo {name}": ("ppo", {**PLAY, **options})
        for name, options in {
            "mlp": {},
            "gru": {"architecture": "gru", "hide_velocity": True, "rollout": 12, "epochs": 1},
            "pendulum": {"env": "Pendulum-v1", "normalize_observations": True, "normalize_rewards": True},
        }.items()
    },
    "grpo": ("grpo", TALK),
    "a file": (str(Path(__file__).parent.parent.parent / "examples/my_recipe.py"), SHORT),
}
PROGRAMS = {"command"}


def test_every_driven_recipe_is_among_the_cases() -> None:
    covered = {word for word, _ in CASES.values()}
    assert set(RECIPES.built_in) - covered == PROGRAMS


@pytest.mark.parametrize("check", RECIPE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CASES)
def test_recipes_keep_their_contract(name: str, check: Callable[[RecipeCase], None], data_cache: Path) -> None:
    check(case_of(name, data_cache))


@cache
def case_of(name: str, data_cache: Path) -> RecipeCase:
    word, options = CASES[name]
    return RecipeCase(word, options, data_cache)


BROKEN = '''
"""A recipe that breaks one rule."""
import random
from fairtrial.core.options import LoopOptions, Role, option
from fairtrial.core.specs import Metric
SUMMARY, REQUIRES, METRIC = "Broken.", (), Metric("accuracy")
class Options(LoopOptions):
    pass
class Broken:
    def __init__(self, streams):
        self.value, self.streams, self.hidden = 0.0, streams, 0
    def step(self, step, watch):
        self.hidden += 1
        self.value += {value}
        return {{"loss": self.value}}
    def evaluate(self, split):
        {evaluate}
        return {{"accuracy": self.value}}
    def state(self):
        return {state}
    def load_state(self, state):
        self.value = state.get("value", 0.0)
def build(options, setting):
    return Broken(setting.streams)
'''
FINE = {"value": "self.streams.seed('order', step) / 2**70", "evaluate": "pass", "state": '{"value": self.value}'}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({}, None),
        ({"value": "1.0"}, contract.check_the_seed_decides),
        ({"value": "self.streams.seed('order', self.hidden) / 2**70"}, contract.check_resuming_is_exact),
        ({"state": "{}"}, contract.check_resuming_is_exact),
        ({"value": "random.random()"}, contract.check_global_generators_are_left_alone),
        ({"value": "1.0 if 'Watcher' in str(watch.observers) else 2.0"}, contract.check_observers_change_nothing),
    ],
)
def test_the_contract_catches_what_it_is_there_for(
    tmp_path: Path, change: dict[str, str], check: Callable[[RecipeCase], None] | None
) -> None:
    path = tmp_path / f"broken_{abs(hash(str(change)))}.py"
    path.write_text(BROKEN.format(**{**FINE, **change}))
    case = RecipeCase(str(path), SHORT)
    assert load_recipe(str(path)).name == path.stem
    if check is None:
        for each in RECIPE_CHECKS:
            each(case)
    else:
        with pytest.raises(AssertionError):
            check(case)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def load_state", "def load", r"the run failed: (UserError: )?build returned a Broken without load_state"),
        ("self.hidden += 1", "1 / 0", "the run failed: ZeroDivisionError: division by zero"),
        (
            '"accuracy": self',
            '"eval_accuracy": self',
            "evaluate returned eval_accuracy; return accuracy: the loop adds",
        ),
    ],
)
def test_the_contract_says_what_is_wrong(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / f"wrong_{abs(hash(old))}.py"
    path.write_text(BROKEN.format(**FINE).replace(old, new))
    case = RecipeCase(str(path), SHORT)
    with pytest.raises(AssertionError, match=message):
        contract.check_a_run_completes(case)
    if "failed" in message:
        for check in (contract.check_the_seed_decides, contract.check_observers_change_nothing):
            with pytest.raises(AssertionError, match=message):
                check(case)
