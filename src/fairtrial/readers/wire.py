"""Decoder for the Protocol Buffers wire format: fields of a message, without a schema or dependencies."""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
Payload = bytes | memoryview


class BadWire(ValueError):
    """Raised for bytes that are not a message. Readers convert it to a note or a UserError."""


def fields(message: Payload) -> Iterator[tuple[int, int, int, int]]:
    """Yield each field as (number, wire type, start, end): a varint's value is `start`, others `message[start:end]`."""
    position, size = 0, len(message)
    while position < size:
        key, position = varint(message, position)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise BadWire("field 0")
        if kind == VARINT:
            value, position = varint(message, position)
            yield number, kind, value, position
            continue
        if kind == BYTES:
            length, position = varint(message, position)
        elif kind == FIXED64:
            length = 8
        elif kind == FIXED32:
            length = 4
        else:
            raise BadWire(f"wire type {kind}")
        start, position = position, position + length
        if position > size:
            raise BadWire("a field is longer than its message")
        yield number, kind, start, position


def varint(message: Payload, position: int) -> tuple[int, int]:
    """Return the unsigned number at a position, and the position after it."""
    value = shift = 0
    for position in range(position, min(position + _LONGEST_VARINT, len(message))):  # noqa: B020
        byte = message[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + 1
        shift += 7
    raise BadWire("a number without an end")


def signed(value: int) -> int:
    """Reinterpret a varint as a signed int64 or int32."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(message: Payload, start: int, end: int) -> str:
    try:
        return bytes(message[start:end]).decode()
    except UnicodeDecodeError:
        raise BadWire("text that is not UTF-8") from None


def double(message: Payload, start: int) -> float:
    return float(struct.unpack_from("<d", message, start)[0])


def single(message: Payload, start: int) -> float:
    return float(struct.unpack_from("<f", message, start)[0])
