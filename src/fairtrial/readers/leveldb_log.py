"""Reader for the LevelDB log format, in which W&B stores its records: 32 KiB blocks of fragments with checksums."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairtrial.core.untrusted import open_file

BLOCK_BYTES = 32 << 10
LARGEST_RECORD_BYTES = 64 << 20
_READ_BYTES = 32 * BLOCK_BYTES
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_TYPE_CHECKSUMS = {kind: zlib.crc32(bytes([kind])) for kind in (_FULL, _FIRST, _MIDDLE, _LAST)}


@dataclass
class LogFile:
    """Iterates over the records of a file from `offset`, which must be the start of a record.

    After the iteration, `offset` is where to resume, and `notes` explain why the end of the file was not reached.
    """

    path: Path
    offset: int
    notes: list[str] = field(default_factory=list)
    _damage: int | None = None
    _lost_bytes: int = 0

    def records(self) -> Iterator[bytes]:
        """Yield all intact records. After a wrong checksum, reading resumes at the next block."""
        parts: list[bytes] = []
        size = 0
        position = self.offset
        begun = self.offset
        skipping = False
        with open_file(self.path) as file:
            file.seek(self.offset)
            data, at = b"", 0
            while True:
                room = BLOCK_BYTES - position % BLOCK_BYTES
                if len(data) - at < room:
                    data, at = data[at:] + file.read(_READ_BYTES), 0
                left = len(data) - at
                if room < _HEADER.size:  # padding at the end of a block
                    if left < room:
                        break
                    at, position = at + room, position + room
                    continue
                if left < _HEADER.size:
                    break
                checksum, length, kind = _HEADER.unpack_from(data, at)
                end = at + _HEADER.size + length
                fits = length <= room - _HEADER.size and kind in _TYPE_CHECKSUMS
                if fits and end > len(data):
                    break
                fragment = data[at + _HEADER.size : end] if fits else b""
                if not fits or zlib.crc32(fragment, _TYPE_CHECKSUMS[kind]) != checksum:
                    self._note_damage(position, min(room, left))
                    parts, size, skipping = [], 0, True
                    at, position = at + min(room, left), position + min(room, left)
                    begun = position
                    if left < room:
                        break
                    continue
                at, position = end, position + _HEADER.size + length
                if kind in (_FULL, _FIRST):
                    if parts:
                        self._note_damage(begun, 0)
                    parts, size, skipping = [fragment], length, False
                    begun = position - _HEADER.size - length
                elif skipping or not parts:
                    self._note_damage(position, length)
                    begun = position
                    continue
                else:
                    parts.append(fragment)
                    size += length
                if size > LARGEST_RECORD_BYTES:
                    self._note_damage(begun, size)
                    parts, size, skipping = [], 0, True
                    begun = position
                elif kind in (_FULL, _LAST):
                    self.offset = begun = position
                    yield fragment if kind == _FULL else b"".join(parts)
                    parts, size = [], 0
            torn = position + len(data) - at - begun
        self.offset = begun
        if self._damage is not None:
            self.notes.append(
                f"{self.path.name} is damaged: wrong checksum from byte {self._damage:,} on; "
                f"{self._lost_bytes:,} bytes skipped"
            )
        if torn > 0:
            self.notes.append(f"{self.path.name} ends inside a record: it is still being written or was truncated")

    def _note_damage(self, position: int, size: int) -> None:
        if self._damage is None:
            self._damage = position
        self._lost_bytes += size
