"""Fine-tuning: what learns and what stays, where it starts from, and a model from a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairtrial import train
from fairtrial.core.errors import FairtrialError
from fairtrial.record.store import Store
from tests.harness import request_for

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
    from fairtrial.core.training import LoopEvents

    run = built(with_data, method="lora", rank=2)
    before = {name: each.detach().clone() for name, each in run.module.named_parameters()}
    for step in range(1, 4):
        run.step(step, LoopEvents())
    moved = {name for name, each in run.module.named_parameters() if not torch.equal(each, before[name])}
    trained_ = {name for name, each in run.module.named_parameters() if each.requires_grad}
    assert moved == trained_ and 0 < len(moved) < len(before)
    assert all("lora_" in name or name.startswith("output") for name in moved)


def built(store: Store, **options: Any) -> Any:
    """A run that is ready to take steps."""
    from fairtrial.core.registry import load_recipe
    from fairtrial.core.streams import Streams
    from fairtrial.core.training import RunContext
    from fairtrial.plan.cells import resolve

    recipe = load_recipe("finetune")
    job = request_for(store, "finetune", **{**TINY, **options})
    resolved = resolve(recipe, {**TINY, **options}, where="test")
    needs = {name: store.paths.run(*where) for name, where in job.needs.items()}
    place = store.paths.run("s", "v")
    return recipe.build(
        resolved, RunContext(Streams(1), "v", place, store.cache, recipe.data(resolved, store.cache), needs)
    )


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
    names = set(state["trained"])
    assert any(name.startswith("ends.embed") for name in names)
    assert any("lora_" in name for name in names) == (method == "lora")
    codes = {caution["code"]: caution["text"] for caution in metadata["cautions"]}
    assert "width has no effect" in codes["inert option"] or "pretrain_steps has no effect" in codes["inert option"]


def test_other_weights_in_a_directory_make_another_run(with_data: Store, directory: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    own = tmp_path / "own"
    shutil.copytree(directory, own)
    first = request_for(with_data, "finetune", **{**TINY, "model": str(own)}).spec.fingerprint
    weights = load_file(own / "model.safetensors")
    save_file({name: each + 1 for name, each in weights.items()}, own / "model.safetensors", metadata={"format": "pt"})
    assert request_for(with_data, "finetune", **{**TINY, "model": str(own)}).spec.fingerprint != first


def test_words_that_signals_never_reach_are_not_trained(with_data: Store, directory: Path) -> None:
    run = built(with_data, method="full", model=str(directory))
    still = [name for name, each in run.module.named_parameters() if not each.requires_grad]
    assert still == ["backbone.embed_tokens.weight"]


def test_a_directory_that_lacks_weights_is_refused(with_data: Store, directory: Path, tmp_path: Path) -> None:
    import json
    import shutil

    own = tmp_path / "own"
    shutil.copytree(directory, own)
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3, "layer_types": None}))
    with pytest.raises(FairtrialError, match="lack"):
        trained(with_data, model=str(own))


def test_what_is_no_model_directory_is_refused(with_data: Store, tmp_path: Path) -> None:
    with pytest.raises(FairtrialError, match="neither 'transformer' nor a folder"):
        trained(with_data, model=str(tmp_path))


def test_pickled_weights_in_a_directory_are_not_read(with_data: Store, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(FairtrialError, match="cannot load a model"):
        trained(with_data, model=str(tmp_path))
