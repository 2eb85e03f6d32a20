"""GRPO by TRL: the same model, prompts, samples and optimizer as ours, at its fastest ordinary settings.

Nothing is logged to a service or saved, gradients are not recomputed, numbers are of 32 bits. The token that ends a
text is one that the model does not have, so all samples are equally long; every step checks that they were.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairtrial.recipes._hugging import quiet
from fairtrial.recipes.lm.model import save_model
from fairtrial.recipes.lm.weights import Blueprint

FILLER = 0
"""The token that shorter prompts are filled up with."""


class Peer:
    """A trainer of TRL whose steps are timed from the moment that it has its prompts."""

    def __init__(
        self, folder: Path, blueprint: Blueprint, prompts: Sequence[str], *, samples: int, tokens: int, beta: float,
        rate: float,
    ) -> None:  # fmt: skip
        self.samples, self.tokens, self.rows = samples, tokens, len(prompts) * samples
        save_model(blueprint, blueprint.initial, folder / "model")
        self._folder, self._prompts, self._beta, self._rate = folder, list(prompts), beta, rate
        self._tokenizer = words_tokenizer(blueprint.vocabulary)

    def steps(self, count: int) -> list[float]:
        """CPU seconds of each step of a new training."""
        import torch
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, PrinterCallback

        quiet()
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_pretrained(self._folder / "model", local_files_only=True)
        timer = _timer()
        trainer = importlib.import_module("trl").GRPOTrainer(
            model=model, reward_funcs=self._reward, args=self._arguments(count), processing_class=self._tokenizer,
            train_dataset=Dataset.from_dict({"prompt": self._prompts * count}), callbacks=[timer],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        spent: list[float] = timer.spent
        return spent

    def _arguments(self, count: int) -> Any:
        return importlib.import_module("trl").GRPOConfig(
            output_dir=str(self._folder / "out"), use_cpu=True, bf16=False, gradient_checkpointing=False,
            per_device_train_batch_size=self.rows, gradient_accumulation_steps=1, num_generations=self.samples,
            max_completion_length=self.tokens, temperature=1.0, beta=self._beta, learning_rate=self._rate,
            lr_scheduler_type="constant", max_steps=count, report_to="none", logging_strategy="no", save_strategy="no",
            disable_tqdm=True, shuffle_dataset=False, dataloader_pin_memory=False, optim="adamw_torch_fused",
            weight_decay=0.0,
        )  # fmt: skip

    def _reward(self, completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
        if {len(ids) for ids in completion_ids} != {self.tokens} or len(completion_ids) != self.rows:
            raise AssertionError("the peer did other work than ours")
        return [reward(ids) for ids in completion_ids]


def reward(ids: Sequence[int]) -> float:
    """Trivial, and the same on both sides."""
    return float(sum(token % 2 for token in ids))


def words_tokenizer(vocabulary: int) -> Any:
    """A word per token, `w0`, `w1` …; the token that ends a text lies behind the last one that the model has."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(vocabulary)}
    made = Tokenizer(models.WordLevel({**words, "<end>": vocabulary}, unk_token="w1"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=made, eos_token="<end>", pad_token=f"w{FILLER}", padding_side="left")


def _timer() -> Any:
    from transformers import TrainerCallback

    class Timer(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.spent: list[float] = []
            self._start = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self._start = time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.spent.append(time.process_time() - self._start)

    return Timer()
