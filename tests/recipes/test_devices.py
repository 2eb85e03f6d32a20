"""Recipes run on any device that torch has, and a device that it does not have is refused before anything starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("transformers")
pytest.importorskip("gymnasium")

import fairtrial.plugins  # noqa: E402
from fairtrial.core.errors import InvalidOptions  # noqa: E402
from fairtrial.core.options import TorchOptions, parse_options  # noqa: E402
from fairtrial.core.registry import load_recipe  # noqa: E402
from fairtrial.probe.torch_devices import require_devices  # noqa: E402
from fairtrial.recipes import _adamw  # noqa: E402
from fairtrial.record.store import Store  # noqa: E402
from tests.conftest import link_data  # noqa: E402

MISPLACED = "misplaced: "
ABSENT = "cuda:99"


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory, data_cache: Path) -> dict[str, str | None]:
    """What went wrong on a pretended device, by case; None: nothing. In a process of its own, which it changes."""
    store = link_data(Store(tmp_path_factory.mktemp("devices") / "store"), data_cache)
    program = [sys.executable, "-m", "tests.recipes.device_cases", str(store.root)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_every_recipe_and_every_model_computes_on_another_device_what_it_computes_on_the_cpu(
    problems: dict[str, str | None],
) -> None:
    cases = {name: problem for name, problem in problems.items() if not name.startswith(MISPLACED)}
    assert {name.split()[0] for name in cases} >= {"classify", "distill", "finetune", "ppo", "grpo", "llama", "gpt2"}
    assert not any(cases.values()), "\n".join(f"{name}: {problem}" for name, problem in cases.items() if problem)


@pytest.mark.slow
def test_a_tensor_that_is_left_on_the_cpu_is_noticed(problems: dict[str, str | None]) -> None:
    planted = {name: problem for name, problem in problems.items() if name.startswith(MISPLACED)}
    assert len(planted) == 6
    assert not any(planted.values()), "\n".join(filter(None, planted.values()))


def test_adamw_gives_the_fused_kernel_of_cuda_nothing_but_tensors_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake tensors have a device and a shape, and no values, so that no GPU is needed."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    devices: list[str] = []
    monkeypatch.setattr(
        torch, "_fused_adamw_", lambda *lists, **_: devices.extend(each.device.type for own in lists for each in own)
    )
    with FakeTensorMode():
        tensors = [[torch.zeros(size, device="cuda:0") for size in (5, 7)] for _ in range(4)]
        _adamw.update(*tensors, step=1, rate=0.1, decay=0.0)
    assert devices == ["cuda"] * 10  # values, gradients, two averages and the step number, for each of two tensors


@pytest.mark.parametrize("recipe", ["classify", "distill", "finetune", "ppo", "grpo"])
def test_a_recipe_takes_any_device_by_name(recipe: str) -> None:
    model = load_recipe(recipe).options
    for device in ("cpu", "cuda", "cuda:1", "mps", "xpu:0"):
        assert parse_options(model, {"device": device}, where=recipe).device == device
    assert parse_options(model, {"device": "cpu:0"}, where=recipe).device == "cpu"


@pytest.mark.parametrize("device", ["", "cuda:", "cuda:-1", "CUDA 0", "cpu;rm"])
def test_a_device_is_a_kind_and_perhaps_a_number(device: str) -> None:
    with pytest.raises(InvalidOptions, match="does not name a device"):
        parse_options(TorchOptions, {"device": device, "steps": 1}, where="test")


def test_a_recipe_of_a_user_that_insists_on_the_cpu_still_does_so() -> None:
    with pytest.warns(DeprecationWarning, match="use TorchOptions"):
        model = fairtrial.plugins.CpuOptions
    with pytest.raises(InvalidOptions, match="runs only on the CPU"):
        parse_options(model, {"device": "cuda", "steps": 1}, where="test")


def test_all_devices_that_torch_cannot_use_are_named_at_once() -> None:
    with pytest.raises(InvalidOptions) as raised:
        require_devices(["cpu", ABSENT, "meta", "abacus", ABSENT])
    said = [raised.value.message, *raised.value.problems]
    assert said == [f"device: torch cannot use '{name}' on this machine" for name in (ABSENT, "meta", "abacus")]
    assert raised.value.hint is not None and raised.value.hint.startswith("torch can use: cpu")


@pytest.mark.parametrize("recipe", ["grpo", "ppo"])
def test_train_refuses_a_device_that_this_machine_does_not_have(
    cli: Callable[..., Any], with_data: Store, recipe: str
) -> None:
    answer = cli("train", recipe, "--device", ABSENT, "--store", str(with_data.root))
    assert answer.code == 1
    assert f"device: torch cannot use '{ABSENT}' on this machine" in answer.err and "torch can use: cpu" in answer.err
    assert not list(with_data.root.glob("*/*/metadata.json"))


def test_launch_refuses_such_a_device_before_it_writes_the_study(cli: Callable[..., Any], with_data: Store) -> None:
    chosen = ("--seeds", "2", "--device", ABSENT, "--base-run-name", "far", "--store", str(with_data.root))
    answer = cli("launch", "ppo", *chosen)
    assert answer.code == 1 and f"torch cannot use '{ABSENT}'" in answer.err
    assert not (with_data.root / "far").exists()
