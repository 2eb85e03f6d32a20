"""Load models from Hugging Face directories: safetensors only, no remote code, and no missing weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairtrial.core.regular_files import open_regular
from fairtrial.plugins import UserError
from fairtrial.recipes._seeding import cpu_seeded


def quiet() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def model_folder_or(built_in: str) -> Callable[[str], str]:
    """Return a validator for an option that is either the built-in model or a model directory."""

    def check(model: str) -> str:
        if model != built_in and not (Path(model) / "config.json").is_file():
            raise ValueError(f"{model} is neither '{built_in}' nor a folder with a config.json")
        return model

    return check


def load_directory(folder: Path, kind: Any, seed: int, *, unused: str | None = None) -> Any:
    """Load a model with the class `kind` of `transformers`, such as `AutoModel`.

    Weights whose name contains `unused` may be missing; they are initialized from `seed`.
    """
    import torch

    quiet()
    with cpu_seeded(seed):
        try:
            model, loading_info = kind.from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except (OSError, ValueError) as error:
            raise UserError(f"cannot load a model from {folder}: {error}".splitlines()[0]) from None
    missing = sorted(name for name in loading_info["missing_keys"] if unused is None or unused not in name)
    if missing:
        raise UserError(f"{folder} lacks {len(missing)} weights that its config.json requires, such as {missing[0]}")
    return model


TOKENIZER = (
    "tokenizer*.json",
    "tokenizer.model",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
)


def hash_files(folder: Path, *, tokenizer: bool = False) -> str:
    """Return a hash of a model directory: its config, its weights and, on request, its tokenizer."""
    digest = hashlib.sha256()
    words = [path for pattern in TOKENIZER for path in folder.glob(pattern)] if tokenizer else []
    for path in sorted({folder / "config.json", *folder.glob("*.safetensors"), *words}):
        digest.update(path.name.encode())
        with open_regular(path) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
