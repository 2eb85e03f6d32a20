"""Fine-tuning: what learns and what stays, where it starts from, and a model from a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairtrial import train
from fairtrial.core.errors import FairtrialError
from fairtrial.record.store import Store

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

TINY: dict[str, Any] = {
    "steps": 6, "eval_every": 0, "checkpoint_every": 3, "labels": 200, "batch_size": 50, "width": 8, "pretrain_steps": 8,
}  # fmt: skip


def trained(store: Store, **options: Any) -> Any:
    """The metadata of one run, and its last checkpoint."""
    done = train("finetune", {**TINY, **options}, store=store.root)
    return done.run.metadata, torch.load(done.run.paths.last, weights_only=True)["state"]


def test_lora_trains_few_parameters_and_saves_only_those(with_data: Store) -> None:
    full, everything = trained(with_data, method="full")
    small, added = trained(with_data, method="lora", rank=2)
    assert full["resources"]["trainable_parameters"] == full["resources"]["parameters"]
    adapters = 2 * sum(2 * (i + o) for i, o in ((8, 24), (8, 8), (8, 16), (16, 8)))  # two blocks, four layers, rank 2
    head = 10 * 80 + 10
    assert small["resources"]["trainable_parameters"] == adapters + head
    assert small["resources"]["parameters"] == full["resources"]["parameters"] + adapters
    assert sum(each.numel() for each in added["trained"].values()) == adapters + head
    assert sum(each.numel() for each in everything["trained"].values()) == full["resources"]["parameters"]
    assert small["resources"]["tensor_bytes"]["optimizer"] == 8 * (adapters + head)
    assert small["resources"]["flops_per_step"] > 0 and small["timings"]["wall_s"] > 0


def test_frozen_weights_stay_and_adapters_move(with_data: Store) -> None:
    _, state = trained(with_data, method="lora", rank=2)
    moved = [name for name, each in state["trained"].items() if "lora_B" in name and each.abs().max() > 0]
    assert len(moved) == 8, "every pair has learned; they begin at zero"


def test_all_variants_start_from_one_base_that_is_trained_once(with_data: Store) -> None:
    first, _ = trained(with_data, method="full")
    second, _ = trained(with_data, method="lora", rank=2)
    assert first["lineage"]["base"] == second["lineage"]["base"]
    assert "one base model" in {caution["code"] for caution in first["cautions"]}


def test_options_that_reach_nothing_are_named(with_data: Store) -> None:
    metadata, _ = trained(with_data, method="full", rank=16)
    told = [caution["text"] for caution in metadata["cautions"] if caution["code"] == "inert option"]
    assert len(told) == 1 and told[0].startswith("rank has no effect")


def test_the_scale_of_the_additions_changes_the_numbers(with_data: Store) -> None:
    usual, _ = trained(with_data, method="lora", rank=2)
    strong, _ = trained(with_data, method="lora", rank=2, lora_alpha=32)
    assert usual["final"]["train_loss"] != strong["final"]["train_loss"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with random weights, as Hugging Face saves it."""
    from transformers import LlamaConfig, LlamaModel

    folder = tmp_path_factory.mktemp("model")
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=32,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaModel(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_hugging_face_directory_can_be_adapted(with_data: Store, directory: Path, method: str) -> None:
    metadata, state = trained(with_data, method=method, rank=2, model=str(directory))
    assert len(metadata["lineage"]["base"]["weights_sha256"]) == 64
    assert metadata["final"]["report_accuracy"] >= 0
    names = set(state["trained"])
    assert any(name.startswith("ends.embed") for name in names)
    assert any("lora_" in name for name in names) == (method == "lora")
    codes = {caution["code"]: caution["text"] for caution in metadata["cautions"]}
    assert "width has no effect" in codes["inert option"] or "pretrain_steps has no effect" in codes["inert option"]


def test_what_is_no_model_directory_is_refused(with_data: Store, tmp_path: Path) -> None:
    with pytest.raises(FairtrialError, match="neither 'transformer' nor a folder"):
        trained(with_data, model=str(tmp_path))


def test_pickled_weights_in_a_directory_are_not_read(with_data: Store, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(FairtrialError, match="cannot load a model"):
        trained(with_data, model=str(tmp_path))
