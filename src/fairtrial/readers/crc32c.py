"""CRC-32C of many records at once: what TFRecord files are protected with, at the speed of NumPy.

A CRC is linear: the checksum of a message is the XOR of what each byte contributes by itself, and that depends on the
byte and its distance from the end alone. So a column of bytes that lie at the same distance from the end of their
records is one look-up in a table for all records together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Checksums = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_SEGMENT = 1024
"""Longer messages are cut into pieces of this length, whose checksums are then joined."""
_FEW = 48
"""Below so many records, one gathering of all their bytes is faster than one per column."""


def _make_tables() -> Checksums:
    """`tables[k, b]`: what the byte b contributes when k bytes follow it."""
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
    """The masked checksums, as TFRecord stores them, of the rows of a matrix."""
    crc = crc32c(messages)
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)


def crc32c(messages: Bytes) -> Checksums:
    """The checksums of the rows of a matrix: N messages of one length."""
    global _tables
    if _tables is None:
        _tables = _make_tables()
    count, length = messages.shape
    if length < 4:
        return _crc_of_short(messages, _tables[0])
    inverted = messages.copy()
    inverted[:, :4] ^= 0xFF  # the register starts with ones; that equals inverting the first four bytes
    if length <= _SEGMENT:
        return ~_contributions(inverted, _tables)
    pieces = -(-length // _SEGMENT)
    padded = np.zeros((count, pieces * _SEGMENT), dtype=np.uint8)  # zeros in front change nothing
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
    """A checksum after a segment of zeros has followed."""
    moved = np.zeros_like(crc)
    for byte in range(4):
        moved ^= tables[_SEGMENT - 1 - byte].take((crc >> np.uint32(8 * byte)) & np.uint32(0xFF))
    return moved


def _crc_of_short(messages: Bytes, table: Checksums) -> Checksums:
    crc = np.full(len(messages), 0xFFFFFFFF, dtype=np.uint32)
    for column in messages.T:
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> 8)
    return ~crc
