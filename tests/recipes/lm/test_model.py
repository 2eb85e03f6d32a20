"""The hand-written Llama is the one of transformers, and adapters are those of peft."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from fairtrial.recipes.lm.hugging import TransformersReader  # noqa: E402
from fairtrial.recipes.lm.llama_numpy import LlamaReader  # noqa: E402
from fairtrial.recipes.lm.model import (  # noqa: E402
    blueprint_of,
    load_adapter,
    make_transformer,
    model_from,
    save_adapter,
    save_model,
    tiny_model,
)
from fairtrial.recipes.lm.weights import Blueprint  # noqa: E402

VOCABULARY = 40


def llama(**chosen: Any) -> Any:
    """A small Llama with weights large enough for differences to show."""
    config = transformers.LlamaConfig(
        **{
            "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
            "num_attention_heads": 4, "max_position_embeddings": 128, "initializer_range": 0.3, **chosen,
        }
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = transformers.LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for name, each in model.named_parameters():
                if "norm" in name:
                    each.mul_(1 + 0.3 * torch.randn_like(each))
    return model


def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128, initializer_range=0.3,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return transformers.GPT2LMHeadModel(config).eval()


def texts(count: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCABULARY, (count, length))


def logits_of(model: Any, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.numpy()


def stepwise(reader: Any, tokens: np.ndarray, read: int, prefix: int = 0) -> np.ndarray:
    """Logits after each token from `read` on, the earlier ones read at once, these written one by one."""
    past = reader.read(tokens[:1, :prefix])[0] if prefix else None
    pasts = reader.read(tokens[:, prefix:read], past)
    writer = reader.begin(pasts, [1] * len(tokens), tokens.shape[1] - read)
    one = np.ones(len(tokens), np.int64)
    return np.stack([writer.feed(tokens[:, i : i + 1], one) for i in range(read, tokens.shape[1])], axis=1)


SHAPES: list[dict[str, Any]] = [
    {},
    {"num_key_value_heads": 2},
    {"num_key_value_heads": 1, "tie_word_embeddings": True},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rms_norm_eps": 1e-2},
    {"head_dim": 16},
]


@pytest.mark.parametrize("read", [11, 90], ids=["short", "long"])
@pytest.mark.parametrize("chosen", SHAPES, ids=str)
def test_the_hand_written_llama_agrees_with_transformers(chosen: dict[str, Any], read: int) -> None:
    model = llama(**chosen)
    blueprint = blueprint_of(model)
    assert blueprint.llama is not None
    tokens = texts(3, read + 9)
    expected = logits_of(model, tokens)
    found = stepwise(LlamaReader(blueprint.llama, blueprint.initial), tokens, read)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected[:, read:], atol=1e-5 * np.abs(expected).max())


def test_reading_after_a_prefix_is_reading_the_whole() -> None:
    model = llama(num_key_value_heads=2)
    blueprint = blueprint_of(model)
    assert blueprint.llama is not None
    tokens = texts(3, 110)
    tokens[:, :16] = tokens[0, :16]
    found = stepwise(LlamaReader(blueprint.llama, blueprint.initial), tokens, read=100, prefix=16)
    expected = logits_of(model, tokens)
    np.testing.assert_allclose(found, expected[:, 100:], atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "chosen",
    [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
    ],
    ids=str,
)
def test_what_is_not_a_plain_llama_is_left_to_transformers(chosen: dict[str, Any]) -> None:
    assert blueprint_of(llama(**chosen)).llama is None


def test_other_models_go_through_transformers_and_agree_with_it() -> None:
    model = gpt2()
    blueprint = blueprint_of(model)
    assert blueprint.llama is None
    tokens = texts(3, 20)
    found = stepwise(
        TransformersReader(make_transformer(blueprint.config), blueprint.initial, torch.device("cpu")), tokens, read=11
    )
    expected = logits_of(model, tokens)
    np.testing.assert_allclose(found, expected[:, 11:], atol=1e-5 * np.abs(expected).max())


def test_the_tiny_model_follows_from_its_seed_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, second, other = (tiny_model(300, seed).initial for seed in (5, 5, 6))
    assert torch.equal(before, torch.random.get_rng_state())
    assert sum(each.size for each in first.values()) == 120_640
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["lm_head.weight"], other["lm_head.weight"])


def moved(blueprint: Blueprint) -> dict[str, np.ndarray]:
    """Adapters that do something: they begin with none."""
    draw = np.random.default_rng(3)
    return {
        name: value + draw.normal(0, 0.2, value.shape).astype(np.float32) for name, value in blueprint.initial.items()
    }


@pytest.mark.parametrize("make", [lambda: llama(num_key_value_heads=2), gpt2], ids=["llama", "gpt2"])
def test_peft_reads_a_saved_adapter_and_gives_the_same_logits(make: Any, tmp_path: Path) -> None:
    from peft import PeftModel

    blueprint = blueprint_of(make(), method="lora", rank=4)
    values = moved(blueprint)
    save_adapter(blueprint, values, tmp_path)
    loaded = PeftModel.from_pretrained(make(), tmp_path).eval()
    tokens = texts(2, 12)
    merged = make_transformer(blueprint.config)
    merged.load_state_dict({n: torch.from_numpy(v) for n, v in blueprint.effective(values).items()}, strict=False)
    theirs, ours = logits_of(loaded, tokens), logits_of(merged, tokens)
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())
    assert np.abs(theirs - logits_of(make(), tokens)).max() > 0.1
    kept = load_adapter(tmp_path)
    assert kept.keys() == values.keys()
    assert all(np.array_equal(kept[name], values[name]) for name in values)


def test_adapters_stand_beside_every_linear_layer_of_the_blocks_and_nothing_else() -> None:
    blueprint = blueprint_of(llama(), method="lora", rank=4)
    linear = {name for name in blueprint.base if "layers" in name and "norm" not in name}
    assert {adapter.weight for adapter in blueprint.adapters} == linear
    assert set(blueprint.initial) == {name for each in blueprint.adapters for name in (each.down, each.up)}


def test_a_policy_without_adapters_has_none_to_save(tmp_path: Path) -> None:
    blueprint = blueprint_of(llama())
    with pytest.raises(ValueError, match="no adapter"):
        save_adapter(blueprint, blueprint.initial, tmp_path)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_saved_policy_is_a_directory_that_can_be_taken_as_a_model(method: str, tmp_path: Path) -> None:
    blueprint = blueprint_of(llama(tie_word_embeddings=True), method=method, rank=4)
    values = moved(blueprint)
    save_model(blueprint, values, tmp_path)
    again = model_from(tmp_path)
    weights = blueprint.effective(values)
    assert again.llama == blueprint.llama
    assert again.initial.keys() == weights.keys()
    assert all(np.array_equal(again.initial[name], weights[name]) for name in weights)


def test_sampling_needs_neither_torch_nor_transformers_nor_peft(tmp_path: Path) -> None:
    import pickle

    blueprint = tiny_model(VOCABULARY, 1, method="lora", rank=2)
    (tmp_path / "blueprint").write_bytes(pickle.dumps(blueprint))
    code = f"""
import pickle, sys
from fairtrial.recipes.lm.engine import SamplingEngine
from fairtrial.recipes.lm.types import SamplingRequest
blueprint = pickle.loads(open({str(tmp_path / "blueprint")!r}, "rb").read())
engine = SamplingEngine(blueprint, lambda version: blueprint.initial)
assert len(engine.complete([SamplingRequest((1, 2, 3), 7, None, 5)], 0)[0].tokens) == 5
loaded = {{"torch", "transformers", "peft"}} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
