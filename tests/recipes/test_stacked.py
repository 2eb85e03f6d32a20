"""A run in a stack is the run that it would have been alone, bit for bit, whatever happens to the others."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss

from fairtrial.core.runs import EXIT_CLAIMED, Outcome, Status
from fairtrial.core.specs import Job, RunSpec
from fairtrial.core.training import LoopEvents
from fairtrial.jobs.run_session import run_cell, run_stack
from fairtrial.recipes._stacked import LossTerms, StackedRun
from fairtrial.record.claims import Claim
from fairtrial.record.store import Store
from tests.conftest import link_data
from tests.harness import eventually, forked, request_for, series_of, wait
from tests.recipes.test_pairing import build

SHORT = {"steps": 30, "eval_every": 10, "log_every": 1, "checkpoint_every": 10, "labels": 200}
TEACHER = {"teacher_steps": 10, "teacher_width": 4}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "classify mlp": ("classify", {"model": "mlp"}),
    "classify mlp 33": ("classify", {"model": "mlp", "width": 33, "batch_size": 37}),
    "classify linear": ("classify", {"model": "linear"}),
    "classify digits": ("classify", {"model": "mlp", "data": "digits"}),
    "distill none": ("distill", {**TEACHER, "strategy": "none"}),
    "distill kd": ("distill", {**TEACHER, "strategy": "kd"}),
    "distill kd linear": ("distill", {**TEACHER, "strategy": "kd", "student": "linear"}),
    "distill mse": ("distill", {**TEACHER, "strategy": "mse"}),
    "distill progressive": ("distill", {**TEACHER, "strategy": "progressive"}),
    "distill all": ("distill", {**TEACHER, "strategy": "combined", "attention_loss": False}),
}
TERMS = {
    "none": {},
    "kd": {"strategy": "kd"},
    "mse": {"strategy": "mse"},
    "progressive": {"strategy": "progressive"},
    "all": {"strategy": "combined", "attention_loss": False, "matching_weight": 0.3},
}
Endings = dict[str, tuple[int, Outcome | None]]


def stack(jobs: Sequence[Job], **settings: Any) -> Endings:
    endings: Endings = {}

    def ended(spec: RunSpec, code: int, outcome: Outcome | None) -> None:
        assert spec.run_id not in endings, f"{spec.run_id} ended twice"
        endings[spec.run_id] = code, outcome

    run_stack(jobs, ended, **settings)
    return endings


def requests_for(store: Store, recipe: str, options: Mapping[str, Any], changes: Mapping[str, Any]) -> list[Job]:
    """One request per named set of changes; a leading `seed` among them is the run's seed."""
    return [
        request_for(store, recipe, variant=name, **{"seed": 1, **SHORT, **options, **changed})
        for name, changed in changes.items()
    ]


@pytest.fixture
def alone(tmp_path: Path, data_cache: Path) -> Store:
    """Another store, for the runs that have no company."""
    return link_data(Store(tmp_path / "alone"), data_cache)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        *((kind, size) for kind in KINDS for size in (2, 7)),
        *((kind, 45) for kind in ("classify mlp", "classify linear", "distill kd")),
    ],
)
def test_a_run_is_the_same_in_any_company(with_data: Store, alone: Store, kind: str, size: int) -> None:
    recipe, options = KINDS[kind]
    short = {**options, "steps": 12} if size == 45 else options
    company = {f"v{number}": _change(recipe, number) for number in range(size)}
    endings = stack(requests_for(with_data, recipe, short, company))
    assert {outcome and outcome.status for _, outcome in endings.values()} == {Status.COMPLETED}
    for number in {0, size // 2, size - 1}:
        name = f"v{number}"
        [job] = requests_for(alone, recipe, short, {name: company[name]})
        run_cell(job)
        run = f"{name}.seed{job.spec.seed}"
        assert series_of(with_data, run=run) == series_of(alone, run=run)


def _change(recipe: str, number: int) -> dict[str, Any]:
    """Runs that differ in every number that may differ, and in none that changes a shape."""
    change: dict[str, Any] = {
        "seed": 1 + number % 3,
        "learning_rate": 0.005 * (1 + number % 4),
        "weight_decay": 0.1 * (number % 2),
        "schedule": ("constant", "cosine")[number % 5 == 4],
    }
    if recipe == "distill":
        change |= {"temperature": 1 + number / 4, "alpha": (number % 11) / 10}
    return change


def test_runs_of_different_length_leave_one_after_another(with_data: Store, alone: Store) -> None:
    lengths = {f"v{steps}": {"steps": steps} for steps in (7, 30, 19, 30, 11)}
    options = {**TEACHER, "strategy": "progressive"}
    stack(requests_for(with_data, "distill", options, lengths))
    for name in lengths:
        run_cell(*requests_for(alone, "distill", options, {name: lengths[name]}))
        assert series_of(with_data, run=f"{name}.seed1") == series_of(alone, run=f"{name}.seed1")


def test_a_stack_that_is_killed_goes_on_in_other_stacks(with_data: Store, alone: Store) -> None:
    options = {**TEACHER, "strategy": "kd", "steps": 200, "checkpoint_every": 10, "eval_every": 100}
    company = {f"v{number}": _change("distill", number) for number in range(6)}
    jobs = requests_for(with_data, "distill", options, company)
    pid = forked(lambda: stack(jobs))
    first = with_data.paths.run("s", jobs[0].spec.run_id)
    eventually(lambda: first.checkpoints.is_dir() and len(list(first.checkpoints.glob("step-*.pt"))) > 3)
    os.kill(pid, signal.SIGKILL)
    assert wait(pid) == -signal.SIGKILL
    run_cell(jobs[5])
    stack(jobs[3:5])
    stack([jobs[2], jobs[0], jobs[1]])
    for job in jobs:
        run = with_data.run("s", job.spec.run_id)
        assert run and run.status is Status.COMPLETED and run.metadata["lineage"]["resumed"]
        [single] = requests_for(alone, "distill", options, {job.spec.variant: company[job.spec.variant]})
        run_cell(single)
        assert series_of(with_data, run=job.spec.run_id) == series_of(alone, run=job.spec.run_id)


def test_stopping_a_stack_saves_every_run(with_data: Store) -> None:
    jobs = requests_for(with_data, "classify", {}, {"a": {}, "b": {"seed": 2}})
    asked = iter(range(10**9))
    endings = stack(jobs, should_stop=lambda: next(asked) > 12)
    assert [outcome and outcome.status for _, outcome in endings.values()] == [Status.INTERRUPTED] * 2
    for job in jobs:
        assert with_data.paths.run("s", job.spec.run_id).last.is_file()


def test_a_run_that_diverges_does_not_disturb_the_others(with_data: Store, alone: Store) -> None:
    company = {"good": {}, "bad": {"learning_rate": 1e30}, "other": {"seed": 2}}
    endings = stack(requests_for(with_data, "classify", {}, company))
    outcome = endings["bad.seed1"][1]
    assert outcome and outcome.status is Status.DIVERGED
    for name, seed in (("good", 1), ("other", 2)):
        run_cell(*requests_for(alone, "classify", {}, {name: company[name]}))
        assert series_of(with_data, run=f"{name}.seed{seed}") == series_of(alone, run=f"{name}.seed{seed}")


def test_a_run_that_cannot_be_built_fails_alone(with_data: Store) -> None:
    jobs = requests_for(with_data, "classify", {}, {"good": {}, "bad": {"labels": 9000}})
    endings = stack(jobs)
    assert [outcome and outcome.status for _, outcome in endings.values()] == [Status.FAILED, Status.COMPLETED]
    assert "the data set has 4000 examples" in str(endings["bad.seed1"][1])


def test_cells_that_are_done_or_taken_are_left_out(with_data: Store) -> None:
    jobs = requests_for(with_data, "classify", {}, {"done": {}, "taken": {}, "new": {}})
    run_cell(jobs[0])
    claim = Claim(with_data.paths.run("s", jobs[1].spec.run_id))
    endings = stack(jobs)
    claim.release()
    done, taken, new = (endings[job.spec.run_id] for job in jobs)
    assert done[1] and done[1].already_done
    assert taken == (EXIT_CLAIMED, None)
    assert new[1] and not new[1].already_done


def test_a_run_with_company_knows_no_time_of_its_own(with_data: Store) -> None:
    company = {"a": {}, "b": {"seed": 2}, "c": {"seed": 3}}
    stack(requests_for(with_data, "classify", {}, company))
    run_cell(*requests_for(with_data, "classify", {}, {"d": {"seed": 4}}))
    shared, own = (with_data.run("s", name) for name in ("a.seed1", "d.seed4"))
    assert shared and own
    assert shared.metadata["timings"] | {"stacked": 3, "wall_s": None, "cpu_s": None} == shared.metadata["timings"]
    assert own.metadata["timings"]["stacked"] == 1 and own.metadata["timings"]["wall_s"] > 0
    assert "peak_process_bytes" not in shared.metadata["resources"]
    assert shared.metadata["resources"]["flops_per_step"] == own.metadata["resources"]["flops_per_step"] == 8_200_000
    assert "a.seed1" in (with_data.paths.run("s", "b.seed2").log).read_text()


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("student", ["mlp", "linear"])
def test_gradients_and_losses_are_those_of_autograd(with_data: Store, student: str, terms: str) -> None:
    if student == "linear" and terms in ("progressive", "all"):
        pytest.skip("a linear model has no hidden layers to match")
    options = {"strategy": "none", **TERMS[terms]}
    run = build(with_data, "distill", student=student, temperature=3.0, alpha=0.3, **TEACHER, **options, **SHORT)
    assert isinstance(run, StackedRun)
    weights = {name: value.requires_grad_() for name, value in run.layout.unpack(run.values).items()}
    for step in (1, 16):
        run.load_state({**run.state(), **_split(weights)})
        loss = float(run.step(step, LoopEvents())["loss"])
        expected = _loss(run, weights, torch.from_numpy(run.batches.at(step)), run.loss_terms.stage(step, 30))
        for value in weights.values():
            value.grad = None
        expected.backward()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        for name, value in weights.items():
            found = run.layout.view(run.stack.engine.gradients, name)[0]
            wanted = torch.zeros_like(found) if value.grad is None else value.grad
            assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-6), name


def _split(weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    own = {name: value.detach() for name, value in weights.items()}
    matched = {name: value for name, value in own.items() if name.startswith("projections")}
    return {"module": {name: value for name, value in own.items() if name not in matched}, "projections": matched}


def _loss(run: StackedRun, weights: Mapping[str, Any], chosen: torch.Tensor, stage: int) -> torch.Tensor:
    """The loss of a run, written down again in terms of autograd."""

    def affine(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    x, y = (tensor[chosen] for tensor in run.splits["train"])
    layers = []
    if run.model == "mlp":
        layers.append(affine("first", x).relu())
        layers.append(layers[0] + affine("second", layers[0]).relu())
    logits = affine("output", layers[-1] if layers else x)
    loss_terms: LossTerms = run.loss_terms
    total = loss_terms.labels * cross_entropy(logits, y)
    if loss_terms.soft is not None and loss_terms.teacher is not None:
        t = loss_terms.temperature
        wanted = log_softmax(loss_terms.teacher[chosen] / t, 1)
        total = total + loss_terms.soft * t * t * kl_div(
            log_softmax(logits / t, 1), wanted, reduction="batchmean", log_target=True
        )
    if loss_terms.regression is not None and loss_terms.teacher is not None:
        total = total + loss_terms.regression * mse_loss(logits, loss_terms.teacher[chosen])
    if loss_terms.matching is not None:
        guess = affine(f"projections.{stage}", layers[stage])
        total = total + loss_terms.matching * mse_loss(guess, loss_terms.layers[stage][chosen])
    return total


class _Falls:
    """A stack whose step fails for all of its runs."""

    def step(self, due: Mapping[int, int], events: LoopEvents) -> Any:
        raise MemoryError("no room")


def test_a_step_that_fails_for_all_blames_none_of_them(with_data: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = requests_for(with_data, "classify", {}, {"a": {}, "b": {"seed": 2}})
    monkeypatch.setattr("fairtrial.recipes.classify.stack", lambda runs: _Falls())
    endings = stack(jobs)
    for job in jobs:
        outcome = endings[job.spec.run_id][1]
        assert outcome and outcome.status is Status.INTERRUPTED and "no room" in str(outcome.reason)
        assert outcome.hint and "--no-stack" in outcome.hint
        run = with_data.run("s", job.spec.run_id)
        assert run and run.status is Status.INTERRUPTED and "no room" in str(run.reason)
        assert "MemoryError" in with_data.paths.run("s", job.spec.run_id).log.read_text()
    monkeypatch.undo()
    assert {o and o.status for _, o in stack(jobs).values()} == {Status.COMPLETED}, "and they can be made again"


def test_a_run_whose_folder_is_taken_away_ends_alone(with_data: Store, alone: Store) -> None:
    jobs = requests_for(with_data, "classify", {}, {"gone": {"eval_every": 15}, "good": {"seed": 2}})
    gone = with_data.paths.run("s", jobs[0].spec.run_id).root
    steps = iter(range(10**9))

    def remove_in_the_middle() -> bool:
        if next(steps) == 12:
            shutil.rmtree(gone)
        return False

    endings = stack(jobs, should_stop=remove_in_the_middle)
    first, second = (endings[job.spec.run_id][1] for job in jobs)
    assert first and first.status is not Status.COMPLETED
    assert second and second.status is Status.COMPLETED
    run_cell(*requests_for(alone, "classify", {}, {"good": {"seed": 2}}))
    assert series_of(with_data, run="good.seed2") == series_of(alone, run="good.seed2")
