"""The Ed25519 check: what it refuses that a lenient check accepts, and that it agrees with `cryptography`."""

from __future__ import annotations

import hashlib
import random

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fairtrial.research.ed25519 import ORDER, P, is_signed

MESSAGE = b"fairtrial"
Y_OF_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
"""y of four of the eight points whose order divides 8; the other four have y or x = 0."""


def small_order_points() -> list[bytes]:
    """The eight points of small order, as RFC 8032 encodes them."""
    ys = (1, P - 1, 0, 0, Y_OF_ORDER_8, Y_OF_ORDER_8, P - Y_OF_ORDER_8, P - Y_OF_ORDER_8)
    signs = (0, 0, 0, 1, 0, 1, 0, 1)
    return [(y | sign << 255).to_bytes(32, "little") for y, sign in zip(ys, signs, strict=True)]


def non_canonical_points() -> list[bytes]:
    """Encodings of the same points that RFC 8032 forbids: y ≥ p, or x = 0 with a sign."""
    large = [(y + P | sign << 255).to_bytes(32, "little") for y in (0, 1) for sign in (0, 1)]
    return [*large, (1 | 1 << 255).to_bytes(32, "little"), (P - 1 | 1 << 255).to_bytes(32, "little")]


def signed(seed: int, message: bytes = MESSAGE) -> tuple[bytes, bytes]:
    private = Ed25519PrivateKey.from_private_bytes(random.Random(seed).randbytes(32))
    return private.public_key().public_bytes_raw(), private.sign(message)


@pytest.mark.parametrize("point", small_order_points(), ids=lambda point: point.hex()[:8])
def test_a_key_of_small_order_signs_nothing(point: bytes) -> None:
    """With such a key one signature (R of small order, S = 0) fits about every eighth message, whoever wrote it."""
    forged = [
        is_signed(point, bytes([number]), commitment + bytes(32))
        for number in range(16)
        for commitment in small_order_points()
    ]
    assert not any(forged)


def test_a_commitment_of_small_order_is_refused() -> None:
    """The owner of a key can make one: S = h·a fits R = 0. No honest signer does."""
    secret = random.Random(1).randbytes(32)
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    scalar = int.from_bytes(hashlib.sha512(secret).digest()[:32], "little") & ((1 << 254) - 8) | 1 << 254
    neutral = small_order_points()[0]
    challenge = int.from_bytes(hashlib.sha512(neutral + public + MESSAGE).digest(), "little")
    response = challenge * scalar % ORDER
    assert not is_signed(public, MESSAGE, neutral + response.to_bytes(32, "little"))


def test_other_encodings_of_points_are_refused() -> None:
    public, signature = signed(2)
    for point in non_canonical_points():
        assert not is_signed(point, MESSAGE, signature)
        assert not is_signed(point, MESSAGE, small_order_points()[0] + bytes(32))
        assert not is_signed(public, MESSAGE, point + signature[32:])


def test_a_second_signature_cannot_be_made_from_a_first_by_adding_the_order() -> None:
    public, signature = signed(3)
    assert is_signed(public, MESSAGE, signature)
    for times in range(1, 8):
        other = int.from_bytes(signature[32:], "little") + times * ORDER
        assert not is_signed(public, MESSAGE, signature[:32] + other.to_bytes(32, "little"))


def by_cryptography(public: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def test_it_agrees_with_cryptography_on_valid_and_changed_signatures() -> None:
    """Each corpus entry is one signature, as it is or with one bit of key, message or signature turned."""
    chance = random.Random(8032)
    answers = []
    for number in range(60):
        message = chance.randbytes(chance.randrange(80)) or b"\0"
        parts = [*signed(number, message), message]
        changed = chance.randrange(-3, 3)
        if changed >= 0:
            content = bytearray(parts[changed])
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            parts[changed] = bytes(content)
        public, signature, message = parts
        ours = is_signed(public, message, signature)
        assert ours == by_cryptography(public, message, signature), (public, signature, message)
        answers.append(ours)
    assert {True, False} == set(answers)
