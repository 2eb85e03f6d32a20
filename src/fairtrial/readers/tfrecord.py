"""Reader for TFRecord files: records with a length and two checksums, read in blocks that fit the CPU cache."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fairtrial.core.untrusted import open_file
from fairtrial.readers.crc32c import Bytes, masked_crc32c

BLOCK_BYTES = 256 << 10
LARGEST_RECORD_BYTES = 256 << 20
"""A limit above any record that a training run logs, including images, audio and graphs."""
FRAME_BYTES = 16
_LENGTH = struct.Struct("<Q").unpack_from
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """Records of one payload length, in the order of the file. `payloads` has one row per record."""

    offsets: Offsets
    payloads: Bytes


@dataclass
class RecordFile:
    """Iterates over the records of a file from `offset`.

    After the iteration, `offset` is where to resume, and `notes` explain why the end of the file was not reached.
    """

    path: Path
    offset: int = 0
    notes: list[str] = field(default_factory=list)
    damaged: int = 0
    """The number of records with a wrong checksum, which are skipped."""
    first_damaged: int = 0

    def batches(self) -> Iterator[list[Records]]:
        """Yield all intact records, block by block, grouped by length within a block."""
        with open_file(self.path) as file:
            file.seek(self.offset)
            block, ended = b"", False
            while not ended:
                more = file.read(max(BLOCK_BYTES, self._missing(block)))
                ended = not more
                block += more
                starts, lengths, used, stopped = self._walk(block)
                if starts:
                    groups, sound_bytes = self._checked(block, starts, lengths)
                    yield groups
                    used, stopped = (used, stopped) if sound_bytes is None else (sound_bytes, True)
                self.offset += used
                block = block[used:]
                if stopped:
                    self._note_stop()
                    return
            if block:
                self.notes.append(
                    f"{self.path.name} ends inside a record ({len(block):,} bytes): "
                    "it is still being written or was truncated"
                )
        if self.damaged:
            self._note_damaged()

    def _missing(self, block: bytes) -> int:
        """Return how many bytes are missing from the record at the beginning of a block."""
        if len(block) < 12:
            return 0
        length = _LENGTH(block)[0]
        return int(length) + FRAME_BYTES - len(block) if length <= LARGEST_RECORD_BYTES else 0

    def _walk(self, block: bytes) -> tuple[list[int], list[int], int, bool]:
        """Return starts and lengths of the complete records of a block, their end, and whether reading must stop."""
        starts: list[int] = []
        lengths: list[int] = []
        position, end = 0, len(block) - FRAME_BYTES
        while position <= end:
            length = _LENGTH(block, position)[0]
            if length > end - position:
                break
            starts.append(position)
            lengths.append(length)
            position += length + FRAME_BYTES
        stopped = len(block) - position >= 12 and not _length_is_sound(block[position : position + 12])
        return starts, lengths, position, stopped

    def _checked(self, block: bytes, starts: list[int], lengths: list[int]) -> tuple[list[Records], int | None]:
        """Return the intact records by length, and the position of the first length with a wrong checksum, if any.

        Reading must stop there, because the start of the next record is unknown.
        """
        content = np.frombuffer(block, dtype=np.uint8)
        begin = np.array(starts, dtype=np.int64)
        length = np.array(lengths, dtype=np.int64)
        heads = _rows(content, begin, 12)
        sound = masked_crc32c(heads[:, :8]) == heads[:, 8:].copy().view("<u4")[:, 0]
        sound_bytes = None
        if not sound.all():
            first = int(np.argmin(sound))
            sound_bytes = int(begin[first])
            begin, length = begin[:first], length[:first]
        groups = []
        order = np.argsort(length, kind="stable")
        edges = np.flatnonzero(np.diff(length[order])) + 1
        for members in np.split(order, edges) if len(order) else []:
            size = int(length[members[0]])
            framed = _rows(content, begin[members] + 12, size + 4)
            payloads = framed[:, :size]
            good = masked_crc32c(payloads) == framed[:, size:].copy().view("<u4")[:, 0]
            if not good.all():
                bad = begin[members][~good] + self.offset
                self.first_damaged = min(int(bad[0]), self.first_damaged) if self.damaged else int(bad[0])
                self.damaged += len(bad)
                payloads, members = payloads[good], members[good]
            groups.append(Records(begin[members] + self.offset, payloads))
        return groups, sound_bytes

    def _note_stop(self) -> None:
        if self.damaged:
            self._note_damaged()
        self.notes.append(
            f"{self.path.name} is damaged: the record at byte {self.offset:,} has a length with a wrong checksum; "
            "the rest is not read"
        )

    def _note_damaged(self) -> None:
        records = "1 record" if self.damaged == 1 else f"{self.damaged:,} records"
        self.notes.append(
            f"{self.path.name} is damaged: {records} with a wrong checksum skipped, the first at byte "
            f"{self.first_damaged:,}"
        )


def _length_is_sound(head: bytes) -> bool:
    row = np.frombuffer(head, dtype=np.uint8)[None, :]
    stored = int.from_bytes(head[8:12], "little")
    return int(masked_crc32c(row[:, :8])[0]) == stored and _LENGTH(head)[0] <= LARGEST_RECORD_BYTES


def _rows(content: Bytes, starts: Offsets, width: int) -> Bytes:
    """Return `width` bytes from each start, as the rows of a matrix."""
    windows = np.lib.stride_tricks.sliding_window_view(content, width)
    return np.ascontiguousarray(windows[starts])
