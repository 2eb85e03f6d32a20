"""The key that a person signs with: made on first use, readable by nobody else."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairtrial.core.errors import UserError
from fairtrial.core.paths import public_key, signing_key
from fairtrial.core.registry import require_packages
from fairtrial.core.untrusted import read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

OTHERS = 0o077
"""Rights of everybody but the owner."""
Trust = str | Collection[str] | None
"""Public keys as a person gives them: digits or files, one or several, or none."""
_HEX_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Signer:
    """Signs in a person's name. `public` is the public key in hexadecimal digits."""

    public: str
    private: Ed25519PrivateKey

    def sign(self, message: bytes) -> str:
        return self.private.sign(message).hex()


def load_signer(path: Path | None = None) -> Signer:
    """The person's signer; the key is made where there is none yet, and refused where others can read it."""
    require_packages("signing", ["cryptography"], "research")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = path or signing_key()
    if path == public_key(path):
        raise UserError(
            f"{path} is a name for a public key",
            hint="Name the private one with $FAIRTRIAL_KEY; it is made if missing.",
        )
    if not path.exists():
        _make_key(path)
    if path.stat().st_mode & OTHERS:
        raise UserError(f"others can read the signing key {path}", hint=f"Take their rights away: chmod 600 {path}")
    try:
        private = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise UserError(f"{path} is no Ed25519 key", hint="Name another with $FAIRTRIAL_KEY; it is made if missing.")
    return Signer(private.public_key().public_bytes_raw().hex(), private)


def _make_key(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    content = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(target, "wb") as file:
        file.write(content)
    public_key(path).write_text(private.public_key().public_bytes_raw().hex() + "\n")


def read_trusted(given: Trust) -> frozenset[str] | None:
    """The public keys that a person trusts; None where none was named, which is not the same as none at all."""
    if given is None or (not isinstance(given, str) and not given):
        return None
    return frozenset(map(_read_public, [given] if isinstance(given, str) else given))


def _read_public(given: str) -> str:
    """A public key as a person gives it: its 64 digits, or a file that holds them."""
    text = (_text_of(given) or given).strip().lower()
    if not _HEX_KEY.fullmatch(text):
        raise UserError(
            f"'{given}' is no public key", hint="Give its 64 hexadecimal digits, or the .pub file beside the key."
        )
    return text


def _text_of(given: str) -> str | None:
    """What a file holds, if a person named one."""
    with suppress(OSError, RuntimeError, ValueError):  # no home of such a user, a name that no file can have
        path = Path(given).expanduser()
        return read_file(path).decode(errors="replace") if path.exists() else None
    return None
