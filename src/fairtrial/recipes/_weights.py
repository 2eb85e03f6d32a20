"""Load and hash the weights of a finished run, for runs that start from it or learn from it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fairtrial.plugins import UserError

if TYPE_CHECKING:
    from torch import Tensor


def load_weights(path: Path, whose: str) -> tuple[dict[str, Tensor], str]:
    """Return the weights in a checkpoint and their hash. `whose` starts the error message, as in "the teacher's"."""
    if not path.is_file():
        raise UserError(f"{whose} checkpoint {path} is missing", hint="Launch again to retrain it.")
    return _read(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> tuple[dict[str, Tensor], str]:
    """Read a checkpoint, once per process. `_changed` is part of the cache key, so that a retrained run is reread."""
    import torch

    payload = torch.load(path, map_location="cpu", weights_only=True)
    weights: dict[str, Tensor] = payload["state"]["module"]
    return weights, hash_weights(weights)


def hash_weights(weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].numpy().tobytes())
    return digest.hexdigest()
