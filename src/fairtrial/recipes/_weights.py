"""Weights of a finished run, for runs that build on it: read once per process, known by their hash."""

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
    """The weights in a checkpoint and their hash."""
    if not path.is_file():
        raise UserError(f"{whose} checkpoint {path} is missing", hint="Launch again to train it anew.")
    return _read(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> tuple[dict[str, Tensor], str]:
    """Read once per process; a run that was made anew is another one."""
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
