"""Run every recipe and model on the CPU and on a pretended device, and print as JSON what went wrong in each case.

Usage: python -m tests.recipes.device_cases STORE [PART OF A CASE'S NAME]
"""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from fairtrial.core.options import parse_options
from fairtrial.core.registry import load_recipe
from fairtrial.core.streams import Streams
from fairtrial.core.training import LoopEvents, RunContext
from fairtrial.probe.torch_devices import require_devices, usable_devices
from fairtrial.recipes import _adamw
from fairtrial.recipes.lm.building import RemotePlayer
from fairtrial.recipes.lm.engine import SamplingEngine
from fairtrial.recipes.lm.learner import GrpoConfig, Learner
from fairtrial.recipes.lm.types import Sample
from fairtrial.recipes.rl.actions import actions_of
from fairtrial.recipes.rl.modules import make_net
from fairtrial.recipes.rl.physics import Space
from fairtrial.record.store import Store
from tests.harness import request_for
from tests.recipes.lm.test_model import gpt2, llama
from tests.recipes.lm_stand_ins import game_requests
from tests.recipes.pretend_device import NAME, PretendDevice, PretendModule, WrongDevice

SMALL = {"labels": 200, "batch_size": 20}
TEACHER = {"teacher_steps": 4, "teacher_width": 4, **SMALL}
ROLLOUT = {"rollout": 12, "envs": 4, "epochs": 2, "eval_episodes": 2, "episode_limit": 20}
PENDULUM = {"env": "Pendulum-v1", "normalize_observations": True, "normalize_rewards": True}
GAME = {
    "groups": 2, "samples": 3, "horizon": 2, "compact_prompts": True, "rank": 4, "eval_episodes": 2,
    "episode_decisions": 3,
}  # fmt: skip
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"classify {model}": ("classify", {"model": model, **SMALL}) for model in ("linear", "mlp", "gru", "cnn")},
    "classify transformer": ("classify", {"model": "transformer", "width": 8, **SMALL}),
    "classify mlp accumulated": ("classify", {"model": "mlp", "accumulate": 2, **SMALL}),
    "distill kd": ("distill", {"strategy": "kd", **TEACHER}),
    "distill mse": ("distill", {"strategy": "mse", **TEACHER}),
    "distill progressive": ("distill", {"strategy": "progressive", **TEACHER}),
    "distill combined": ("distill", {"strategy": "combined", "student": "cnn", "student_width": 4, **TEACHER}),
    "finetune full": ("finetune", {"method": "full", "width": 8, "pretrain_steps": 4, **SMALL}),
    "finetune lora": ("finetune", {"method": "lora", "rank": 2, "width": 8, "pretrain_steps": 4, **SMALL}),
    "finetune directory": ("finetune", {"method": "lora", "rank": 2, "model": "{directory}", **SMALL}),
    "ppo mlp": ("ppo", {"minibatches": 2, "entropy_weight": 0.01, **ROLLOUT}),
    "ppo mlp pendulum": ("ppo", {**PENDULUM, **ROLLOUT}),
    "ppo gru": ("ppo", {"architecture": "gru", "minibatches": 2, **ROLLOUT}),
    "ppo gru pendulum": ("ppo", {"architecture": "gru", **PENDULUM, **ROLLOUT}),
    "ppo transformer": ("ppo", {"architecture": "transformer", **ROLLOUT}),
    "grpo lora": ("grpo", {**GAME}),
    "grpo full": ("grpo", {"method": "full", "temperature": 1.3, **GAME}),
}


def build(store: Store, recipe: str, options: Mapping[str, Any], device: str) -> Any:
    """Return a run before its first step. The runs that it needs are trained on the CPU."""
    loaded = load_recipe(recipe)
    job = request_for(store, recipe, **options)
    parsed = parse_options(loaded.options, {**job.spec.options, "device": device}, where="test")
    needs = {name: store.paths.run(*where) for name, where in job.needs.items()}
    paths = store.paths.run("s", device)
    return loaded.build(
        parsed, RunContext(Streams(1), "v", paths, store.cache, loaded.data(parsed, store.cache), needs)
    )


def follow(make: Callable[[], Any]) -> list[dict[str, float]]:
    """Take three steps, the last of them with a new run that loads the state of the first one, and evaluate it."""
    run = make()
    told = [_floats(run.step(step, LoopEvents())) for step in (1, 2)]
    _check_state(run)
    again = make()
    again.load_state(run.state())
    told += [_floats(again.step(3, LoopEvents())), _floats(again.evaluate("eval"))]
    if hasattr(run, "batch_gradients"):
        tensors, _ = run.batch_gradients(np.random.default_rng(0))
        told.append({"gradients": math.fsum(float(each.square().sum()) for each in tensors)})
    return told


def _floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def _check_state(run: Any) -> None:
    """Check that everything that the run trains with is on its device."""
    tensors = [tensor for group in run.tensor_groups().values() for tensor in group]
    assert tensors and all(tensor.device.type == run.device.type for tensor in tensors), (
        "the run has tensors on another device"
    )
    wait = run.synchronize
    assert (wait is None) == (run.device.type == "cpu")
    if wait is not None:
        before = PretendModule.waits
        wait()
        assert PretendModule.waits == before + 1, "the run does not wait for its device"


def compare(store: Store, recipe: str, options: Mapping[str, Any]) -> None:
    """Raise if a run on the pretended device differs from the run on the CPU by more than rounding."""
    expected = follow(lambda: build(store, recipe, options, "cpu"))
    with PretendDevice():
        found = follow(lambda: build(store, recipe, options, NAME))
    for number, (ours, cpu) in enumerate(zip(found, expected, strict=True)):
        assert ours.keys() == cpu.keys()
        apart = {name: (ours[name], cpu[name]) for name in cpu if not _close(ours[name], cpu[name])}
        assert not apart, f"differs from the CPU in part {number}: {apart}"


def _close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=2e-3, abs_tol=2e-4) or (math.isnan(first) and math.isnan(second))


def sample_and_learn(model: Any, method: str) -> None:
    """Sample completions and train on them, with a model of `transformers` on both devices."""
    from fairtrial.recipes.lm.model import blueprint_of

    blueprint = blueprint_of(model, method=method, rank=2)
    results = {}
    for device, mode in (("cpu", contextlib.nullcontext()), (NAME, PretendDevice())):
        with mode:
            engine = SamplingEngine(blueprint, lambda _: blueprint.initial, prefixes=2, device=device)
            completions = engine.complete(game_requests(groups=3, samples=2), 0)
            learner = Learner(blueprint, GrpoConfig(), device)
            pairs = zip(game_requests(groups=3, samples=2), completions, strict=True)
            samples = [Sample(each.prompt, own, None, 0.5 - n % 2) for n, (each, own) in enumerate(pairs)]
            likelihoods = [*learner.policy_logprobs(samples), *learner.reference_logprobs(samples)]
            steps = [learner.step(samples, LoopEvents()) for _ in range(2)]
            results[device] = [each.tokens for each in completions], steps, np.concatenate(likelihoods)
    assert results["cpu"][0] == results[NAME][0], "the completions differ"
    cpu, ours = results["cpu"][1][0], results[NAME][1][0]  # Adam enlarges rounding where a gradient is almost 0
    assert all(_close(cpu[name], ours[name]) for name in cpu), (cpu, ours)
    np.testing.assert_allclose(results["cpu"][2], results[NAME][2], rtol=2e-3, atol=2e-4)


def see_images() -> None:
    """Compute outputs, values and gradients of the policy for images, which needs no environment."""
    space = Space((4, 84, 84), 3, None, None)
    obs = torch.randn(2, 2, 4, 84, 84, generator=torch.Generator().manual_seed(1))
    found = []
    for device, mode in (("cpu", contextlib.nullcontext()), (NAME, PretendDevice())):
        with mode:
            net = make_net("cnn", space, 8, actions_of(space), Streams(1)).to(device)
            outputs, values = net.unroll(obs.to(device), np.zeros((2, 2), bool), net.memory(2))
            acted, _ = net.act(obs[0].to(device), net.memory(2))
            loss = (
                outputs.square().sum() + values.sum() + acted.sum() + net.expect(obs[0].to(device), net.memory(2)).sum()
            )
            gradients = torch.autograd.grad(loss, list(net.parameters()))
            found.append([float(loss), *(float(each.square().sum()) for each in gradients)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4)


def play_in_a_worker(store: Store) -> None:
    """Play a part of a rollout with the player that a rollout worker builds."""
    options = {**GAME, "buffer_depth": 1}
    with PretendDevice():
        run = build(store, "grpo", options, NAME)
        run._save_versions()
        remote = RemotePlayer(
            "orders", run.vocabulary, run.blueprint, run.context.run, run.play_config, run.streams, run.learner.config,
            run.options.device,
        )  # fmt: skip
        there = pickle.loads(pickle.dumps(remote))().part(1, 0, 0, LoopEvents())
        here = run.player.part(1, 0, 0, LoopEvents())
    assert [each.total for each in there.trajectories] == [each.total for each in here.trajectories]


def update_without_a_fused_kernel() -> None:
    """Compare AdamW made of single operations with the fused kernel."""
    draws = torch.Generator().manual_seed(1)
    start = [torch.randn(3, 5, generator=draws), torch.randn(7, generator=draws)]
    gradients = [[torch.randn(each.shape, generator=draws) for each in start] for _ in range(5)]

    def trained() -> list[torch.Tensor]:
        values, averages, squares = [each.clone() for each in start], [], []
        averages, squares = ([torch.zeros_like(each) for each in start] for _ in range(2))
        for step, own in enumerate(gradients, 1):
            _adamw.update(values, own, averages, squares, step=step, rate=0.1, decay=0.3)
        return [*values, *averages, *squares]

    fused = trained()
    with mock.patch.object(_adamw, "FUSED", ()):
        plain = trained()
    for one, other in zip(fused, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert not torch.equal(fused[0], start[0])


def report_devices() -> None:
    assert usable_devices() == ["cpu", f"{NAME}:0"]
    require_devices(["cpu", NAME, f"{NAME}:0"])


def stacks_run_together(store: Store) -> None:
    """Step two runs of a stack on the device; each must be what it is alone."""
    for recipe in ("classify", "ppo"):
        options = RECIPES[f"{recipe} mlp"][1]
        with PretendDevice():
            alone = [_floats(build(store, recipe, options, NAME).step(1, LoopEvents())) for _ in range(2)]
            stack = load_recipe(recipe).stack([build(store, recipe, options, NAME) for _ in range(2)])
            assert [_floats(each) for each in stack.step({0: 1, 1: 1}, LoopEvents()).values()] == alone


MISPLACED = {
    "causal mask of the policy": ("grpo lora", "fairtrial.recipes.lm.gradients._ahead"),
    "memory of a GRU": ("ppo gru", "fairtrial.recipes.rl.modules.GRUNet.memory"),
    "loss weights of a stack": ("distill kd", "fairtrial.recipes._stacked._Weights._each"),
    "rotary factors": ("grpo full", "fairtrial.recipes.lm.llama_torch.LlamaForward._make_rope"),
    "settings of ppo": ("ppo mlp", "fairtrial.recipes.rl.perceptron.Perceptron._column"),
    "examples": ("classify cnn", "fairtrial.recipes._supervised._load_array"),
}
"""Functions whose result is left on the CPU, to see that the cases above would notice."""


def notice(store: Store, case: str, function: str) -> None:
    """Raise unless a tensor that this function leaves on the CPU is noticed."""
    recipe, options = RECIPES[case]
    original = pkgutil.resolve_name(function)

    def left_on_the_cpu(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs).cpu()

    with mock.patch(function, left_on_the_cpu), PretendDevice():
        try:
            follow(lambda: build(store, recipe, options, NAME))
        except RuntimeError as error:
            if isinstance(error, WrongDevice) or "not at the same device" in str(error):  # `nn.GRU` has its own check
                return
            raise
    raise AssertionError(f"nobody noticed that {function} left a tensor on the CPU")


def cases(store: Store) -> Iterator[tuple[str, Callable[[], None]]]:
    folder = Path(store.root) / "small-llama"
    llama().model.save_pretrained(folder)
    for name, (recipe, options) in RECIPES.items():
        filled = {key: str(folder) if value == "{directory}" else value for key, value in options.items()}
        yield name, lambda recipe=recipe, filled=filled: compare(store, recipe, filled)
    for method in ("lora", "full"):
        yield f"llama {method}", lambda method=method: sample_and_learn(llama(), method)
        yield f"gpt2 {method}", lambda method=method: sample_and_learn(gpt2(), method)
    yield "AdamW without a fused kernel", update_without_a_fused_kernel
    yield "ppo for images", see_images
    yield "rollout worker", lambda: play_in_a_worker(store)
    yield "devices that torch reports", report_devices
    yield "stacks", lambda: stacks_run_together(store)
    for what, (case, function) in MISPLACED.items():
        yield f"misplaced: {what}", lambda case=case, function=function: notice(store, case, function)


def run_cases(store: Store, only: str = "") -> dict[str, str | None]:
    torch.set_num_threads(1)
    problems: dict[str, str | None] = {}
    for name, run in cases(store):
        if only not in name:
            continue
        try:
            run()
            problems[name] = None
        except Exception:  # noqa: BLE001 — every problem of a case is reported
            problems[name] = traceback.format_exc()
    return problems


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # stdout is for the result
        problems = run_cases(Store.at(sys.argv[1]), *sys.argv[2:])
    print(json.dumps(problems))
