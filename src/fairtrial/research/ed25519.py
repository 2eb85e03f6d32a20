"""Verification of Ed25519 signatures (RFC 8032) in pure Python, so that verifying needs no further package.

All inputs are public, so it need not run in constant time. Signing, which needs a secret, is not implemented here.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)

Point = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z and T with x = X/Z, y = Y/Z and xy = T/Z."""


def _add(a: Point, b: Point) -> Point:
    u, v = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    w, z = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = v - u, z - w, z + w, v + u
    return e * f % P, g * h % P, f * g % P, e * h % P


def _double(a: Point) -> Point:
    xx, yy, zz = a[0] * a[0] % P, a[1] * a[1] % P, 2 * a[2] * a[2] % P
    h, g = xx + yy, xx - yy
    e, f = h - (a[0] + a[1]) ** 2, zz + g
    return e * f % P, g * h % P, f * g % P, e * h % P


def _sum_of_products(first: int, a: Point, second: int, b: Point) -> Point:
    """Return first·a + second·b, processing the bits of both factors together."""
    both = _add(a, b)
    total: Point = (0, 1, 1, 0)
    for bit in range(max(first.bit_length(), second.bit_length()) - 1, -1, -1):
        total = _double(total)
        chosen = first >> bit & 1, second >> bit & 1
        if any(chosen):
            total = _add(total, both if all(chosen) else a if chosen[0] else b)
    return total


def _decode(encoded: bytes) -> Point | None:
    """Decode 32 bytes to a point; return None if they do not encode one."""
    number = int.from_bytes(encoded, "little")
    y, sign = number & ((1 << 255) - 1), number >> 255
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def _has_small_order(point: Point) -> bool:
    """Whether eight times the point is the identity. With such a key one signature would fit many messages."""
    eightfold = _double(_double(_double(point)))
    return eightfold[0] % P == 0 and (eightfold[1] - eightfold[2]) % P == 0


_BASE = _decode((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


@lru_cache(maxsize=1024)
def is_signed(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature of the message is valid for this public key.

    As strict as libsodium: it rejects points of small order and non-canonical encodings.
    """
    if len(public_key) != 32 or len(signature) != 64:
        return False
    key, commitment = _decode(public_key), _decode(signature[:32])
    response = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or response >= ORDER:
        return False
    if _has_small_order(key) or _has_small_order(commitment):
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public_key + message).digest(), "little") % ORDER
    assert _BASE is not None
    minus_key = P - key[0], key[1], 1, P - key[3]
    point = _sum_of_products(response, _BASE, challenge, minus_key)
    return all((point[i] - commitment[i] * point[2]) % P == 0 for i in (0, 1))
