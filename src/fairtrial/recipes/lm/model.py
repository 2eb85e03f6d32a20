"""Create and save policies: a tiny Llama or a model from a directory, with adapters or with all weights trained.

Only this module needs `transformers` and `peft` for that. It returns a `Blueprint` of plain values, with which other
processes run a Llama without those packages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairtrial.recipes._hugging import load_directory, quiet
from fairtrial.recipes._seeding import cpu_seeded
from fairtrial.recipes.lm.types import Values
from fairtrial.recipes.lm.weights import Adapter, Blueprint, Llama

if TYPE_CHECKING:
    import torch
    from torch import nn

WIDTH, INNER, LAYERS, HEADS, LONGEST = 64, 128, 2, 4, 2048
WRAPPER = "base_model.model."
"""The prefix that `peft` adds to the name of every layer."""


def tiny_model(vocabulary: int, seed: int, *, method: str = "full", rank: int = 8, lora_seed: int = 0) -> Blueprint:
    """Create a Llama of about 120,000 parameters with random weights that depend only on the seed."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, max_position_embeddings=LONGEST, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with cpu_seeded(seed):
        module = LlamaForCausalLM(config)
    return blueprint_of(module, method=method, rank=rank, lora_seed=lora_seed)


def model_from(folder: Path, *, method: str = "full", rank: int = 8, lora_seed: int = 0) -> Blueprint:
    """Load the causal language model in a Hugging Face directory."""
    from transformers import AutoModelForCausalLM

    module = load_directory(folder, AutoModelForCausalLM, seed=0)
    return blueprint_of(module, method=method, rank=rank, lora_seed=lora_seed, name=str(folder))


def blueprint_of(
    module: nn.Module, *, method: str = "full", rank: int = 8, lora_seed: int = 0, name: str | None = None
) -> Blueprint:
    """Convert a model of `transformers` to plain values. With LoRA, `lora_seed` initializes the adapters."""
    config: Any = module.config
    weights = {key: _plain(value) for key, value in module.named_parameters()}
    kept = {key: _plain(value) for key, value in module.named_buffers() if key in module.state_dict()}
    llama = _plain_llama(config, weights)
    longest = int(getattr(config, "max_position_embeddings", LONGEST))
    described = {**config.to_dict(), "architectures": [type(module).__name__]}
    known: dict[str, Any] = {"config": described, "vocabulary": int(config.vocab_size), "longest": longest}
    if method == "full":
        return Blueprint(llama=llama, base=kept, initial=weights, **known)
    adapters, initial, adapter_config = _low_rank(module, rank, lora_seed, name)
    return Blueprint(
        llama=llama, base={**kept, **weights}, initial=initial, adapters=adapters,
        scale=adapter_config["lora_alpha"] / rank, adapter_config=adapter_config, **known,
    )  # fmt: skip


def _plain(value: Any) -> np.ndarray:
    array: np.ndarray = value.detach().numpy().copy()
    return array


def _plain_llama(config: Any, weights: Values) -> Llama | None:
    """Return the dimensions of a Llama, or None if the model differs from what the built-in forward pass computes."""
    if config.model_type != "llama" or config.hidden_act != "silu" or config.attention_bias or config.mlp_bias:
        return None
    rope = config.rope_parameters
    if rope.get("rope_type", "default") != "default" or set(rope) - {"rope_type", "rope_theta"}:
        return None
    llama = Llama(
        vocabulary=config.vocab_size, width=config.hidden_size, inner=config.intermediate_size,
        layers=config.num_hidden_layers, heads=config.num_attention_heads, key_heads=config.num_key_value_heads,
        head_width=config.head_dim, theta=float(rope["rope_theta"]), epsilon=config.rms_norm_eps,
        tied=bool(config.tie_word_embeddings),
    )  # fmt: skip
    per_layer, around = 9, 2 if llama.tied else 3
    return llama if len(weights) == per_layer * llama.layers + around else None


def _low_rank(
    module: nn.Module, rank: int, seed: int, name: str | None
) -> tuple[tuple[Adapter, ...], Values, dict[str, Any]]:
    """Create LoRA adapters for every linear layer of the blocks with `peft`."""
    from peft import LoraConfig, get_peft_model
    from transformers.pytorch_utils import Conv1D

    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        fan_in_fan_out=any(isinstance(each, Conv1D) for each in module.modules()),
    )
    with cpu_seeded(seed):
        adapted = get_peft_model(module, config)
    layers = {path: each for path, each in adapted.named_modules() if hasattr(each, "lora_A")}
    adapters = tuple(_adapter(path, isinstance(each.base_layer, Conv1D)) for path, each in layers.items())
    initial: dict[str, np.ndarray] = {}
    for adapter, layer in zip(adapters, layers.values(), strict=True):
        lora_layer: Any = layer
        initial[adapter.down] = _plain(lora_layer.lora_A["default"].weight)
        initial[adapter.up] = _plain(lora_layer.lora_B["default"].weight)
    document: dict[str, Any] = config.to_dict()
    return adapters, initial, _as_json({**document, "base_model_name_or_path": name, "inference_mode": True})


def _adapter(path: str, transposed: bool) -> Adapter:
    weight = f"{path.removeprefix(WRAPPER)}.weight"
    return Adapter(weight, f"{path}.lora_A.weight", f"{path}.lora_B.weight", transposed)


def _as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a config to plain JSON values: sets become sorted lists, and enumerations their values."""
    document: dict[str, Any] = json.loads(json.dumps(config, default=lambda each: sorted(each)))
    return document


def save_adapter(blueprint: Blueprint, values: Values, folder: Path) -> None:
    """Save adapters in the format of `peft`, which `PeftModel.from_pretrained` reads."""
    from safetensors.numpy import save_file

    if blueprint.adapter_config is None:
        raise ValueError("a fully trained policy has no adapter; use save_model")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(blueprint.adapter_config, indent=2, sort_keys=True))
    save_file(_laid_out(values), folder / "adapter_model.safetensors", metadata={"format": "pt"})


def save_values(values: Values, folder: Path) -> None:
    """Save all weights of a version without adapters, for other processes that read them with `load_adapter`."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(_laid_out(values), folder / "adapter_model.safetensors")


def load_adapter(folder: Path) -> dict[str, np.ndarray]:
    """Load the values that `save_adapter`, `save_values` or `peft` wrote to a folder."""
    from safetensors.numpy import load_file

    return load_file(folder / "adapter_model.safetensors")


def save_model(blueprint: Blueprint, values: Values, folder: Path) -> None:
    """Save the policy, with its adapters merged, as a Hugging Face directory."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(blueprint.config, indent=2, sort_keys=True))
    save_file(_laid_out(blueprint.effective(values)), folder / "model.safetensors", metadata={"format": "pt"})


def _laid_out(values: Values) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in values.items()}


def make_transformer(config: Mapping[str, Any], device: str | torch.device = "cpu") -> nn.Module:
    """Create a model of `transformers` from its config on a device, to be called with the caller's weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    quiet()
    named = dict(config)
    with torch.random.fork_rng(devices=[]):
        made = AutoConfig.for_model(named.pop("model_type"), **named)
        module = AutoModelForCausalLM.from_config(made).to(device)
    module.tie_weights()  # moving a model separates tied weights on devices with their own type of tensor
    transformer: nn.Module = module.eval()
    return transformer
