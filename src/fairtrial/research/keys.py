"""The key that a person signs with: made on first use, readable by nobody else."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairtrial.core.durable import make_folder, sync_path
from fairtrial.core.errors import UserError
from fairtrial.core.paths import public_key, signing_key
from fairtrial.core.private_files import create, read_owned
from fairtrial.core.registry import require_packages
from fairtrial.core.untrusted import read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
    if not path.exists() and not path.is_symlink():
        _make_key(path)
    content = read_owned(path, "the signing key", private=True)
    try:
        private = serialization.load_pem_private_key(content, password=None)
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
    make_folder(path.parent, mode=0o700)
    unfinished = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        create(unfinished, content, mode=0o600)
        sync_path(unfinished)  # half a key would be refused ever after
        if not _put_in_place(unfinished, path):
            return
    finally:
        unfinished.unlink(missing_ok=True)
    public_key(path).unlink(missing_ok=True)  # of a key that is gone, or a link that somebody else has put there
    create(public_key(path), f"{private.public_key().public_bytes_raw().hex()}\n".encode())
    sync_path(path.parent)  # a signature by a key that is lost could never be made again


def _put_in_place(unfinished: Path, path: Path) -> bool:
    """Give a new key its name, unless another process was quicker: a key is never replaced."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return False
    except OSError:  # no hard links here
        if path.exists():
            return False
        unfinished.rename(path)
    return True


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
