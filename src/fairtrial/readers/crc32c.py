"""CRC-32C (the checksum of TFRecord files) of many records at once, vectorized with NumPy.

A CRC is linear: the checksum of a message is the XOR of the contributions of its bytes, and each contribution depends
only on the byte and its distance from the end. Bytes at the same distance from the end of their records are therefore
processed with one table lookup for all records.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Checksums = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_SEGMENT = 1024
"""Longer messages are split into pieces of this length, whose checksums are then combined."""
_FEW = 48
"""With fewer records, one lookup of all their bytes is faster than one lookup per column."""


def _make_tables() -> Checksums:
    """Return `tables[k, b]`: the contribution of byte b if k bytes follow it."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (np.uint32(_POLYNOMIAL) * (table & np.uint32(1)))
    tables = np.empty((_SEGMENT, 256), dtype=np.uint32)
    tables[0] = table
    for distance in range(1, _SEGMENT):
        previous = tables[distance - 1]
        tables[distance] = table[previous & 0xFF] ^ (previous >> 8)
    return tables


_tables: Checksums | None = None


def masked_crc32c(messages: Bytes) -> Checksums:
    """Return the masked checksums of the rows of a matrix, as TFRecord stores them."""
    crc = crc32c(messages)
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)


def crc32c(messages: Bytes) -> Checksums:
    """Return the checksums of the rows of a matrix: N messages of one length."""
    global _tables
    if _tables is None:
        _tables = _make_tables()
    count, length = messages.shape
    if length < 4:
        return _crc_of_short(messages, _tables[0])
    inverted = messages.copy()
    inverted[:, :4] ^= 0xFF  # equivalent to starting the register with all ones
    if length <= _SEGMENT:
        return ~_contributions(inverted, _tables)
    pieces = -(-length // _SEGMENT)
    padded = np.zeros((count, pieces * _SEGMENT), dtype=np.uint8)  # leading zeros do not change a CRC
    padded[:, -length:] = inverted
    joined = np.zeros(count, dtype=np.uint32)
    parts = _contributions(padded.reshape(count * pieces, _SEGMENT), _tables).reshape(count, pieces)
    for piece in range(pieces):
        joined = _moved(joined, _tables) ^ parts[:, piece]
    return ~joined


def _contributions(messages: Bytes, tables: Checksums) -> Checksums:
    count, length = messages.shape
    if count < _FEW:
        gathered = tables[np.arange(length - 1, -1, -1), messages]
        folded: Checksums = np.bitwise_xor.reduce(gathered, axis=1)
        return folded
    crc = np.zeros(count, dtype=np.uint32)
    for distance, column in zip(range(length - 1, -1, -1), np.ascontiguousarray(messages.T), strict=True):
        crc ^= tables[distance].take(column)
    return crc


def _moved(crc: Checksums, tables: Checksums) -> Checksums:
    """Return a checksum after appending a segment of zeros."""
    moved = np.zeros_like(crc)
    for byte in range(4):
        moved ^= tables[_SEGMENT - 1 - byte].take((crc >> np.uint32(8 * byte)) & np.uint32(0xFF))
    return moved


def _crc_of_short(messages: Bytes, table: Checksums) -> Checksums:
    crc = np.full(len(messages), 0xFFFFFFFF, dtype=np.uint32)
    for column in messages.T:
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> 8)
    return ~crc
