"""Checkpoints: written atomically, identified by their hash, and never unpickled without restrictions.

A state with tensors is stored in torch's format and loaded with `weights_only=True`. A state of plain values is stored
as JSON, and so are the states of programs that do not use torch. The first byte distinguishes the formats.
`state_encoding` converts NumPy arrays and random generators to plain values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.core.canonical import file_hash
from fairtrial.core.durable import make_folder
from fairtrial.core.errors import StoreError
from fairtrial.core.regular_files import open_regular
from fairtrial.record.atomic import replace_file, store_errors
from fairtrial.record.state_encoding import decode_state, encode_state, state_of


@dataclass(frozen=True)
class Checkpoint:
    """A saved state and the step after which it was taken."""

    step: int
    state: Mapping[str, Any]
    details: Mapping[str, Any]


def write_checkpoint(path: Path, step: int, state: Mapping[str, Any], **details: Any) -> str:
    """Write a checkpoint atomically and return the SHA-256 of the file."""
    payload = {"step": step, "state": dict(state_of(state)), **details}
    digest = ""

    def write(temporary: Path) -> None:
        nonlocal digest
        _serialize(temporary, payload)
        digest = file_hash(temporary)

    with store_errors(path):
        make_folder(path.parent)
    replace_file(path, write)
    return digest


def read_checkpoint(path: Path, *, sha256: str | None = None) -> Checkpoint:
    """Read a checkpoint. With `sha256`, raise a StoreError if the file has a different hash."""
    if not path.is_file():
        raise StoreError(f"no checkpoint {path}")
    if sha256 is not None and file_hash(path) != sha256:
        raise StoreError(f"checkpoint {path} does not have the recorded hash", hint="The file was changed or damaged.")
    payload = _deserialize(path)
    return Checkpoint(payload.pop("step"), payload.pop("state"), payload)


def _serialize(path: Path, payload: dict[str, Any]) -> None:
    torch = sys.modules.get("torch")
    encoded = {**payload, "state": encode_state(payload["state"], for_json=torch is None)}
    plain = _as_json(encoded)
    if plain is not None:
        path.write_bytes(plain)
        return
    if torch is None:
        # NaN is written by name and read back, which makes the text differ from the value only in the comparison.
        path.write_bytes(json.dumps(encoded).encode())
        return
    try:
        torch.save(encoded, path)
    except RuntimeError as error:
        raise _disk_error(path) or error from error


def _disk_error(path: Path) -> OSError | None:
    """Return the OSError behind a RuntimeError of `torch.save`, such as a full disk, by writing to the file."""
    try:
        with path.open("ab") as file:
            file.write(b"\0" * 65536)
            file.flush()
    except OSError as error:
        return error
    return None


def _as_json(payload: dict[str, Any]) -> bytes | None:
    """Return the JSON form, or None if it does not round-trip to the same value."""
    try:
        text = json.dumps(payload)
    except (TypeError, ValueError):
        return None
    return text.encode() if json.loads(text) == payload else None


def _deserialize(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            if file.read(1) == b"{":
                file.seek(0)
                payload = json.load(file)
            else:
                import torch

                payload = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError:
        raise
    except Exception as error:
        raise StoreError(f"checkpoint {path} cannot be read: {error}") from error
    if not isinstance(payload, dict) or not {"step", "state"} <= payload.keys():
        raise StoreError(f"{path} is not a Fairtrial checkpoint")
    try:
        payload["state"] = decode_state(payload["state"])
    except StoreError:
        raise
    except Exception as error:  # damaged or made by hand: any part of an encoded value may be wrong
        raise StoreError(f"checkpoint {path} cannot be read: {error}") from error
    return payload
