"""The signature of a bundle, in a file next to the manifest. It signs the manifest's hash and thereby every file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from fairtrial.research.ed25519 import is_signed

if TYPE_CHECKING:
    from fairtrial.research.keys import Signer

_HEX = {"signer": 64, "signature": 128}


def sign_manifest(sha256: str, signer: Signer) -> bytes:
    return _spelled(signer.public, signer.sign(_signed_text(sha256)))


def signer_of(content: bytes, sha256: str) -> str | None:
    """Return the key that signed a manifest with this hash; None if the signature is invalid or was changed."""
    try:
        document = json.loads(content)
        parts = {name: str(document[name]) for name in _HEX}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if any(not re.fullmatch(rf"[0-9a-f]{{{length}}}", parts[name]) for name, length in _HEX.items()):
        return None
    if content != _spelled(parts["signer"], parts["signature"]):
        return None
    fits = is_signed(bytes.fromhex(parts["signer"]), _signed_text(sha256), bytes.fromhex(parts["signature"]))
    return parts["signer"] if fits else None


def _signed_text(sha256: str) -> bytes:
    return f"fairtrial bundle 1\n{sha256}\n".encode()


def _spelled(signer: str, signature: str) -> bytes:
    return (json.dumps({"signer": signer, "signature": signature}, indent=2) + "\n").encode()
