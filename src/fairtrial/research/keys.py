"""The user's signing key: created on first use, readable only by the user."""

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
"""Public keys as given by the user: hexadecimal digits or files, one or several, or none."""
_HEX_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Signer:
    """Signs with the user's key. `public` is the public key in hexadecimal digits."""

    public: str
    private: Ed25519PrivateKey

    def sign(self, message: bytes) -> str:
        return self.private.sign(message).hex()


def load_signer(path: Path | None = None) -> Signer:
    """Return the user's signer. Create the key if it does not exist; refuse it if others can read it."""
    require_packages("signing", ["cryptography"], "research")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = path or signing_key()
    if path == public_key(path):
        raise UserError(
            f"{path} has the name of a public key file",
            hint="Set $FAIRTRIAL_KEY to the path of the private key; it is created if missing.",
        )
    if not path.exists() and not path.is_symlink():
        _make_key(path)
    content = read_owned(path, "the signing key", private=True)
    try:
        private = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise UserError(
            f"{path} is not an Ed25519 key", hint="Set $FAIRTRIAL_KEY to another path; the key is created if missing."
        )
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
        sync_path(unfinished)  # a partial key after a crash would be refused forever
        if not _put_in_place(unfinished, path):
            return
    finally:
        unfinished.unlink(missing_ok=True)
    public_key(path).unlink(missing_ok=True)  # it may belong to a lost key, or be a link planted by someone else
    create(public_key(path), f"{private.public_key().public_bytes_raw().hex()}\n".encode())
    sync_path(path.parent)  # a key that a crash loses could never sign again


def _put_in_place(unfinished: Path, path: Path) -> bool:
    """Move a new key into place unless another process was faster. An existing key is never replaced."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return False
    except OSError:  # the file system has no hard links
        if path.exists():
            return False
        unfinished.rename(path)
    return True


def read_trusted(given: Trust) -> frozenset[str] | None:
    """Return the public keys that the user trusts. None means that the option was not given, unlike an empty set."""
    if given is None or (not isinstance(given, str) and not given):
        return None
    return frozenset(map(_read_public, [given] if isinstance(given, str) else given))


def _read_public(given: str) -> str:
    """Parse a public key, given as 64 hexadecimal digits or as a file that contains them."""
    text = (_text_of(given) or given).strip().lower()
    if not _HEX_KEY.fullmatch(text):
        raise UserError(
            f"'{given}' is not a public key", hint="Pass its 64 hexadecimal digits, or the .pub file next to the key."
        )
    return text


def _text_of(given: str) -> str | None:
    """Return the content of the file, or None if the word does not name a file."""
    with suppress(OSError, RuntimeError, ValueError):  # unknown user in ~user, or an invalid file name
        path = Path(given).expanduser()
        return read_file(path).decode(errors="replace") if path.exists() else None
    return None
