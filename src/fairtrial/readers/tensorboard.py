"""Reader for TensorBoard event files: scalars written by PyTorch, tensorboardX, TensorFlow, Keras and other tools.

It has no dependencies: `tfrecord` reads records, and `wire` reads messages. Nearly all events of a file are scalars
that differ only in time, step and value, so events of one length are decoded together. The first of them is parsed and
becomes a template; events that equal it except for these three numbers are decoded as columns.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.readers import wire
from fairtrial.readers.configuration import flatten
from fairtrial.readers.contract import ConfigValue, Cursor, MetricSeries, SourceFile, SourceRun, clear_errors
from fairtrial.readers.crc32c import Bytes
from fairtrial.readers.places import files_below, glance, relative_name
from fairtrial.readers.points import LONGEST_METRIC, MOST_METRICS, MOST_POINTS, counted
from fairtrial.readers.tfrecord import RecordFile, Records

MARK = "tfevents"
_MOST_TEMPLATES = 64
"""The maximum number of templates per event length. If more metrics share a length, the rest is parsed one by one."""
_HPARAMS_FOLDER = re.compile(r"\d{9,11}(\.\d+)?")
"""`SummaryWriter.add_hparams` creates a folder named after the current time."""
_LONGEST_TEXT_BYTES = 1 << 20
_HPARAM_STATUS = {1: Status.COMPLETED, 2: Status.FAILED, 3: Status.RUNNING}
FLOAT32 = "values are float32, as TensorBoard stores them"

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class TensorBoardReader:
    """Each folder with event files is a run, as in TensorBoard itself."""

    name = "tensorboard"
    title = "TensorBoard event files"

    def recognize(self, place: Path) -> str | None:
        files = glance(place, is_event_file)
        if not files:
            return None
        folders = {path.parent for path in files}
        where = "" if folders == {place} or place.is_file() else f" in {counted(len(folders), 'folder')}"
        return f"{counted(len(files), 'event file')}{where}"

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        folders: dict[Path, list[Path]] = {}
        for path in files_below(place, is_event_file):
            folders.setdefault(path.parent, []).append(path)
        if not folders:
            raise UserError(f"{place} has no TensorBoard event files", hint="Their names contain 'tfevents'.")
        hparams = {folder: files for folder, files in folders.items() if _belongs_to_parent(folder, folders)}
        for folder, files in folders.items():
            if folder not in hparams:
                extra = [file for each, more in hparams.items() if each.parent == folder for file in more]
                yield from _runs_of_folder(place, folder, files, extra, since or {})


def is_event_file(name: str) -> bool:
    return MARK in name and not name.endswith((".tmp", ".profile-empty"))


def _belongs_to_parent(folder: Path, folders: Mapping[Path, Any]) -> bool:
    return folder.parent in folders and _HPARAMS_FOLDER.fullmatch(folder.name) is not None


# One file


@dataclass
class _Points:
    """The points of one metric in a file, in pieces as decoded; `order` is the file offset of each point."""

    order: list[Ints] = field(default_factory=list)
    steps: list[Ints] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    times: list[Floats] = field(default_factory=list)


@dataclass
class _Template:
    """An event with one scalar, and the positions of its numbers."""

    tag: str
    time_at: int
    step_at: int
    step_bytes: int
    value_at: int
    value_type: str
    mask: Bytes
    expected: Bytes


@dataclass
class _EventFile:
    """The content of one event file."""

    path: Path
    offset: int = 0
    inode: int = 0
    points: dict[str, _Points] = field(default_factory=dict)
    restarts: list[tuple[int, int]] = field(default_factory=list)
    """Offset and step of each `SessionLog.START`: earlier points in the file at or after that step are void."""
    config: dict[str, ConfigValue] = field(default_factory=dict)
    status: Status | None = None
    first_time: float = math.inf
    last_time: float = -math.inf
    has_float32: bool = False
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    count: int = 0

    def read(self) -> None:
        try:
            self.inode = self.path.stat().st_ino
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror or error}") from None
        records = RecordFile(self.path, self.offset)
        templates: dict[int, list[_Template]] = {}
        for groups in records.batches():
            for group in groups:
                self._decode(group, templates.setdefault(group.payloads.shape[1], []))
        self.offset = records.offset
        self.notes += records.notes
        if self.skipped:
            self.notes.append(f"{self.path.name}: {counted(self.skipped, 'record')} skipped: not in a known format")

    def _decode(self, group: Records, templates: list[_Template]) -> None:
        offsets, payloads = group.offsets, group.payloads
        for template in templates:
            if not len(payloads):
                return
            offsets, payloads = self._take(template, offsets, payloads)
        while len(payloads):
            made = _template_of(payloads[0]) if len(templates) < _MOST_TEMPLATES else None
            if made is not None:
                templates.append(made)
                offsets, payloads = self._take(made, offsets, payloads)
                continue
            try:
                self._take_event(int(offsets[0]), payloads[0].tobytes())
            except (wire.BadWire, struct.error):
                self.skipped += 1
            offsets, payloads = offsets[1:], payloads[1:]

    def _take(self, template: _Template, offsets: Ints, payloads: Bytes) -> tuple[Ints, Bytes]:
        """Decode the events that match a template, and return the others."""
        fits = ((payloads & template.mask) == template.expected).all(axis=1)
        if not fits.any():
            return offsets, payloads
        whole = bool(fits.all())
        taken = payloads if whole else payloads[fits]
        steps = np.zeros(len(taken), dtype=np.uint64)
        for byte in range(template.step_bytes):
            steps |= (taken[:, template.step_at + byte] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * byte)
        width = 4 if template.value_type == "<f4" else 8
        values = _column(taken, template.value_at, width).view(template.value_type)[:, 0].astype(np.float64)
        times = _column(taken, template.time_at, 8).view("<f8")[:, 0]
        self._add(template.tag, offsets if whole else offsets[fits], steps.view(np.int64), values, times)
        self.has_float32 |= width == 4
        return (offsets[:0], payloads[:0]) if whole else (offsets[~fits], payloads[~fits])

    def _add(self, tag: str, order: Ints, steps: Ints, values: Floats, times: Floats) -> None:
        points = self.points.get(tag)
        if points is None:
            if len(self.points) >= MOST_METRICS or len(tag) > LONGEST_METRIC:
                raise UserError(f"{self.path} has too many metrics, or metrics whose names are too long")
            points = self.points[tag] = _Points()
        self.count += len(order)
        if self.count > MOST_POINTS:
            raise UserError(f"{self.path} has more than {MOST_POINTS:,} points")
        points.order.append(order)
        points.steps.append(steps)
        points.values.append(values)
        points.times.append(times)
        self._seen(float(times.min()), float(times.max()))

    def _seen(self, first: float, last: float) -> None:
        self.first_time = min(self.first_time, first)
        self.last_time = max(self.last_time, last)

    def _take_event(self, offset: int, event: bytes) -> None:
        """Decode one event of any kind, field by field."""
        time, step, summaries = 0.0, 0, []
        for number, kind, start, end in wire.fields(event):
            if number == 1 and kind == wire.FIXED64:
                time = wire.double(event, start)
            elif number == 2 and kind == wire.VARINT:
                step = wire.signed(start)
            elif number == 5 and kind == wire.BYTES:
                summaries.append(event[start:end])
            elif number == 7 and kind == wire.BYTES and _is_start(event[start:end]):
                self.restarts.append((offset, step))
        if time:
            self._seen(time, time)
        for summary in summaries:
            for number, kind, start, end in wire.fields(summary):
                if number == 1 and kind == wire.BYTES:
                    self._take_value(offset, step, time, summary[start:end])

    def _take_value(self, offset: int, step: int, time: float, value: bytes) -> None:
        tag, number_found, metadata, tensor = "", None, b"", None
        for number, kind, start, end in wire.fields(value):
            if number == 1 and kind == wire.BYTES:
                tag = wire.text(value, start, end)
            elif number == 2 and kind == wire.FIXED32:
                number_found = wire.single(value, start)
                self.has_float32 = True
            elif number == 8 and kind == wire.BYTES:
                tensor = value[start:end]
            elif number == 9 and kind == wire.BYTES:
                metadata = value[start:end]
        plugin, content = _plugin_of(metadata)
        if plugin == "hparams":
            self._take_hparams(content)
            return
        if number_found is None and tensor is not None:
            if plugin == "text":
                self._take_text(tensor)
            elif plugin in ("scalars", ""):
                number_found, is_float32 = _scalar_in(tensor)
                self.has_float32 |= is_float32
        if number_found is not None:
            one = np.array([offset]), np.array([step]), np.array([number_found]), np.array([time])
            self._add(tag, *one)

    def _take_hparams(self, content: bytes) -> None:
        for number, kind, start, end in wire.fields(content):
            if number == 3 and kind == wire.BYTES:
                self.config.update(flatten(_hparams_in(content[start:end]), str(self.path)))
            elif number == 4 and kind == wire.BYTES:
                info = content[start:end]
                status = next((value for each, kind, value, _ in wire.fields(info) if (each, kind) == (1, 0)), 0)
                self.status = _HPARAM_STATUS.get(status)

    def _take_text(self, tensor: bytes) -> None:
        """Take options from a text summary: many programs log them as a JSON object or a two-column Markdown table."""
        if len(tensor) <= _LONGEST_TEXT_BYTES:
            texts = [tensor[start:end] for number, kind, start, end in wire.fields(tensor) if (number, kind) == (8, 2)]
            for text in texts:
                options = _options_in(text.decode(errors="replace"))
                self.config.update(flatten(options, str(self.path)))

    def series(self) -> dict[str, tuple[Ints, MetricSeries]]:
        """Return the points of each metric in file order, without those that a restart within the file made void."""
        by_tag = {}
        for tag, points in self.points.items():
            order = np.concatenate(points.order)
            steps = np.concatenate(points.steps)
            values, times = np.concatenate(points.values), np.concatenate(points.times)
            self.points[tag] = _Points()  # free the pieces
            keep = np.argsort(order, kind="stable")
            for offset, step in self.restarts:
                keep = keep[~((order[keep] < offset) & (steps[keep] >= step))]
            if len(keep):
                by_tag[tag] = order[keep], MetricSeries(steps[keep], values[keep], times[keep])
        return by_tag


def _column(rows: Bytes, start: int, width: int) -> Bytes:
    return np.ascontiguousarray(rows[:, start : start + width])


def _template_of(row: Bytes) -> _Template | None:
    """Build a template from an event; None if it is not an event with a time and exactly one scalar."""
    event = row.tobytes()
    try:
        parts = list(wire.fields(event))
        if not parts or parts[0][:2] != (1, wire.FIXED64) or parts[-1][:2] != (5, wire.BYTES):
            return None
        time_at = parts[0][2]
        step_at = step_bytes = 0
        if len(parts) == 3 and parts[1][:2] == (2, wire.VARINT):
            step_at, step_bytes = time_at + 9, parts[1][3] - (time_at + 9)
        elif len(parts) != 2:
            return None
        summary_at, summary_end = parts[-1][2:]
        summary = event[summary_at:summary_end]
        values = list(wire.fields(summary))
        if len(values) != 1 or values[0][:2] != (1, wire.BYTES):
            return None
        scalar = _scalar_place(summary[values[0][2] : values[0][3]])
    except (wire.BadWire, struct.error):
        return None
    if scalar is None or len(scalar[0]) > LONGEST_METRIC:
        return None
    tag, place, value_type = scalar
    value_at = summary_at + values[0][2] + place
    mask = np.full(len(row), 0xFF, dtype=np.uint8)
    mask[time_at : time_at + 8] = 0
    mask[value_at : value_at + (4 if value_type == "<f4" else 8)] = 0
    mask[step_at : step_at + step_bytes] = 0x80  # same varint length: compare only the continuation bits
    if step_bytes == 10:
        mask[step_at + 9] = 0xFF  # the tenth byte of a varint has only one bit
    return _Template(tag, time_at, step_at, step_bytes, value_at, value_type, mask, row & mask)


def _scalar_place(value: bytes) -> tuple[str, int, str] | None:
    """Return tag, position and type of the only number of a summary value; None if it has another form."""
    tag, place, value_type, metadata = None, None, "", b""
    for number, kind, start, end in wire.fields(value):
        if number == 1 and kind == wire.BYTES and tag is None:
            tag = wire.text(value, start, end)
        elif number == 2 and kind == wire.FIXED32 and place is None:
            place, value_type = start, "<f4"
        elif number == 8 and kind == wire.BYTES and place is None:
            content = _tensor_place(value[start:end])
            if content is None:
                return None
            place, value_type = start + content[0], content[1]
        elif number == 9 and kind == wire.BYTES:
            metadata = value[start:end]
        else:
            return None
    if tag is None or place is None or _plugin_of(metadata)[0] not in ("scalars", ""):
        return None
    return tag, place, value_type


_TENSOR_TYPES = {1: ("<f4", 5), 2: ("<f8", 6)}
"""dtype → the NumPy type, and the field with the values if `tensor_content` is not used."""


def _tensor_place(tensor: bytes) -> tuple[int, str] | None:
    """Return position and type of the number in a one-element float or double tensor; None for other tensors."""
    dtype, content, elements = 0, None, 1
    for number, kind, start, end in wire.fields(tensor):
        if number == 1 and kind == wire.VARINT:
            dtype = start
        elif number == 2 and kind == wire.BYTES:
            elements = _elements(tensor[start:end])
        elif number in (4, 5, 6):
            content = None if content else (number, start, end)
    if dtype not in _TENSOR_TYPES or content is None or elements != 1:
        return None
    value_type, field_number = _TENSOR_TYPES[dtype]
    number, start, end = content
    width = 4 if dtype == 1 else 8
    return (start, value_type) if number in (4, field_number) and end - start == width else None


_OTHER_TENSORS = {3: "<i4", 4: "<u1", 5: "<i2", 6: "<i1", 9: "<i8", 10: "?", 17: "<u2", 19: "<f2", 22: "<u4", 23: "<u8"}
_VARINT_FIELDS = {7, 10, 11, 16, 17}


def _scalar_in(tensor: bytes) -> tuple[float | None, bool]:
    """Return the number of a one-element tensor (None for other tensors), and whether it is a float32."""
    place = _tensor_place(tensor)
    if place is not None:
        value = np.frombuffer(tensor, dtype=place[1], count=1, offset=place[0])[0]
        return float(value), place[1] == "<f4"
    dtype, elements, numbers = 0, 1, []
    for number, kind, start, end in wire.fields(tensor):
        if number == 1 and kind == wire.VARINT:
            dtype = start
        elif number == 2 and kind == wire.BYTES:
            elements = _elements(tensor[start:end])
        elif number == 4 and kind == wire.BYTES and dtype in _OTHER_TENSORS:
            value_type = np.dtype(_OTHER_TENSORS[dtype])
            numbers += [float(value_type.type(0) + each) for each in _numbers(tensor[start:end], value_type)]
        elif number in _VARINT_FIELDS and kind == wire.VARINT:
            numbers.append(float(wire.signed(start) if number in (7, 10) else start))
        elif number in _VARINT_FIELDS and kind == wire.BYTES and start < end:
            value, after = wire.varint(tensor, start)
            numbers += [float(wire.signed(value) if number in (7, 10) else value)] if after == end else [0.0, 0.0]
    return (numbers[0] if len(numbers) == 1 and elements == 1 else None), False


def _numbers(content: bytes, value_type: np.dtype[Any]) -> list[Any]:
    return list(np.frombuffer(content, dtype=value_type)) if len(content) == value_type.itemsize else []


def _elements(shape: bytes) -> int:
    """Return the number of elements of a tensor of this shape."""
    count = 1
    for number, kind, start, end in wire.fields(shape):
        if number == 2 and kind == wire.BYTES:
            dim = shape[start:end]
            count *= sum(value for each, kind, value, _ in wire.fields(dim) if (each, kind) == (1, wire.VARINT))
    return count


def _is_start(session_log: bytes) -> bool:
    return any((number, kind, value) == (1, wire.VARINT, 1) for number, kind, value, _ in wire.fields(session_log))


def _plugin_of(metadata: bytes) -> tuple[str, bytes]:
    """Return the name and content of the plug-in data of a summary value."""
    name, content = "", b""
    for number, kind, start, end in wire.fields(metadata):
        if number == 1 and kind == wire.BYTES:
            data = metadata[start:end]
            for each, each_kind, first, last in wire.fields(data):
                if each == 1 and each_kind == wire.BYTES:
                    name = wire.text(data, first, last)
                elif each == 2 and each_kind == wire.BYTES:
                    content = data[first:last]
    return name, content


def _hparams_in(session_start: bytes) -> dict[str, ConfigValue]:
    """Return the hyperparameters: names to values of `google.protobuf.Value`."""
    hparams: dict[str, ConfigValue] = {}
    for number, kind, start, end in wire.fields(session_start):
        if number == 1 and kind == wire.BYTES:
            entry = session_start[start:end]
            name, value = "", None
            for each, each_kind, first, last in wire.fields(entry):
                if each == 1 and each_kind == wire.BYTES:
                    name = wire.text(entry, first, last)
                elif each == 2 and each_kind == wire.BYTES:
                    value = _plain(entry[first:last])
            hparams[name] = value
    return hparams


def _plain(value: bytes) -> ConfigValue:
    for number, kind, start, end in wire.fields(value):
        if number == 2 and kind == wire.FIXED64:
            return wire.double(value, start)
        if number == 3 and kind == wire.BYTES:
            return wire.text(value, start, end)
        if number == 4 and kind == wire.VARINT:
            return bool(start)
    return None


def _options_in(text: str) -> dict[str, Any]:
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            document = orjson.loads(stripped)
        except orjson.JSONDecodeError:
            return {}
        return document if isinstance(document, dict) else {}
    lines = [line.strip().strip("|").split("|") for line in stripped.splitlines()]
    if len(lines) < 3 or any(len(cells) != 2 for cells in lines) or not re.fullmatch(r"[-:| ]+", "|".join(lines[1])):
        return {}
    return {key.strip(): value.strip() for key, value in lines[2:]}


# One folder


@dataclass
class _Chain:
    """Consecutive event files of one folder: a run and its restarts."""

    id: str
    files: list[_EventFile] = field(default_factory=list)
    last_time: float = -math.inf
    known: dict[str, float] = field(default_factory=dict)
    """Metric → the last step already delivered, for a run that continues."""


def _runs_of_folder(
    place: Path, folder: Path, files: list[Path], extra: list[Path], since: Mapping[str, Cursor]
) -> Iterator[SourceRun]:
    name = relative_name(files[0] if place.is_file() else folder, place)
    chains = {cursor_id: _continued(cursor_id, since) for cursor_id in since if _is_of(cursor_id, name, files)}
    known = {path: (chain, at) for chain, cursor in chains.values() for path, at in _known_files(cursor, files)}
    read: list[_EventFile] = []
    for path in files:
        at = known[path][1] if path in known else 0
        events = _EventFile(path, offset=at)
        events.read()
        read.append(events)
    ordered = sorted(read, key=lambda each: (each.first_time, each.path.name))
    open_chains = [chain for chain, _ in chains.values()]
    for events in ordered:
        if events.path in known:
            chain = known[events.path][0]
        else:
            chain = next((each for each in open_chains if _follows(each, events)), None) or _Chain(
                name if not open_chains else f"{name}/{events.path.name}"
            )
        if chain not in open_chains:
            open_chains.append(chain)
        chain.files.append(events)
        chain.last_time = max(chain.last_time, events.last_time)
    hparams = [_EventFile(path) for path in extra]
    for events in hparams:
        events.read()
    for chain in open_chains:
        yield _run_of_chain(chain, hparams, since.get(chain.id), several=len(open_chains) > 1)


def _is_of(cursor_id: str, name: str, files: list[Path]) -> bool:
    return cursor_id == name or any(cursor_id == f"{name}/{path.name}" for path in files)


def _continued(cursor_id: str, since: Mapping[str, Cursor]) -> tuple[_Chain, Cursor]:
    cursor = since[cursor_id]
    last_time = -math.inf if cursor["last_time"] is None else float(cursor["last_time"])
    return _Chain(cursor_id, last_time=last_time, known=dict(cursor["last_steps"])), cursor


def _known_files(cursor: Cursor, files: list[Path]) -> Iterator[tuple[Path, int]]:
    for path in files:
        entry = cursor["files"].get(path.name)
        if entry and path.stat().st_ino == entry["inode"] and path.stat().st_size >= entry["offset"]:
            yield path, int(entry["offset"])


def _follows(chain: _Chain, events: _EventFile) -> bool:
    """Return whether a file may be a restart of a chain: it begins later, or logs other metrics."""
    earlier = {tag for each in chain.files for tag in each.points} | chain.known.keys()
    return events.first_time >= chain.last_time or not earlier & events.points.keys()


def _run_of_chain(chain: _Chain, hparams: list[_EventFile], cursor: Cursor | None, *, several: bool) -> SourceRun:
    joined: dict[str, list[MetricSeries]] = {}
    rewound: dict[str, int | float] = {}
    repeated = 0
    last_steps: dict[str, float] = dict(chain.known)
    for events in chain.files:
        by_tag = events.series()
        if events.restarts:
            voided = _void_from(joined, min(step for _, step in events.restarts))
            repeated += voided
            for tag, last in chain.known.items():
                step = min(step for _, step in events.restarts)
                if last >= step:
                    rewound[tag] = min(step, rewound.get(tag, step))
        is_new = cursor is None or events.path.name not in cursor["files"]
        for tag, (_, series) in by_tag.items():
            first = int(series.steps[0])
            if is_new and joined.get(tag):
                repeated += _drop_from(joined[tag], first)
            if is_new and tag in chain.known and chain.known[tag] >= first and not joined.get(tag):
                rewound[tag] = min(first, rewound.get(tag, first))
            joined.setdefault(tag, []).append(series)
            last_steps[tag] = int(series.steps[-1])
    files = [*chain.files, *hparams]
    notes = [note for each in files for note in each.notes]
    if repeated or rewound:
        notes.append("restarted: points that a restart logged again were replaced")
    if several:
        notes.append("event files of this folder were written at the same time: each writer is a separate run")
    if any(each.has_float32 for each in files):
        notes.append(FLOAT32)
    config = {key: value for each in files for key, value in each.config.items()}
    known_files = dict(cursor["files"]) if cursor else {}
    known_files |= {each.path.name: {"offset": each.offset, "inode": each.inode} for each in chain.files}
    first_time = min((each.first_time for each in chain.files), default=math.inf)
    return SourceRun(
        id=chain.id,
        name=chain.id,
        series={tag: _joined(parts) for tag, parts in joined.items() if parts},
        config=config,
        summary={tag: float(series.values[-1]) for each in hparams for tag, (_, series) in each.series().items()},
        status=next((each.status for each in reversed(files) if each.status), None),
        started=first_time if math.isfinite(first_time) and cursor is None else None,
        files=tuple(SourceFile(each.path, each.offset) for each in files),
        notes=tuple(notes),
        cursor={
            "files": known_files,
            "last_time": chain.last_time if math.isfinite(chain.last_time) else None,
            "last_steps": last_steps,
        },
        continues=cursor is not None,
        rewound=rewound,
    )


def _void_from(joined: dict[str, list[MetricSeries]], step: int) -> int:
    return sum(_drop_from(parts, step) for parts in joined.values())


def _drop_from(parts: list[MetricSeries], step: int) -> int:
    """Drop the points from a step on, which a restart logs again. Return how many were dropped."""
    dropped = 0
    for at, series in enumerate(parts):
        keep = series.steps < step
        if not keep.all():
            dropped += int((~keep).sum())
            times = None if series.times is None else series.times[keep]
            parts[at] = MetricSeries(series.steps[keep], series.values[keep], times)
    parts[:] = [series for series in parts if len(series)]
    return dropped


def _joined(parts: list[MetricSeries]) -> MetricSeries:
    if len(parts) == 1:
        return parts[0]
    times = [each.times for each in parts if each.times is not None]
    return MetricSeries(
        np.concatenate([each.steps for each in parts]),
        np.concatenate([each.values for each in parts]),
        np.concatenate(times) if len(times) == len(parts) else None,
    )
