"""Reader for W&B offline runs: `.wandb` files, read without wandb or protobuf, with every checksum verified.

Pitfalls of the format, by version of wandb: the step of a row is its item `_step` (in 0.16, `history.step` is 0 for
rows logged with an explicit step); a nested value is one JSON object (0.16) or items with nested keys (0.19 and later);
since 0.19, each row is followed by two summary records that repeat it, all of which are skipped except the last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from fairtrial.core.errors import UserError
from fairtrial.core.runs import Status
from fairtrial.core.untrusted import DEEPEST
from fairtrial.readers import wire
from fairtrial.readers.configuration import flatten
from fairtrial.readers.contract import ConfigValue, Cursor, SourceFile, SourceRun, clear_errors
from fairtrial.readers.leveldb_log import LogFile
from fairtrial.readers.places import files_below, first_bytes, glance, relative_name
from fairtrial.readers.points import PointCollector, counted

IDENT = b":W&B"
_MAGIC = 0xBEE1
_HEADER_BYTES = 7
_HISTORY, _SUMMARY, _CONFIG, _RUN, _EXIT = 2, 3, 5, 17, 18
_SPECIAL = {b"NaN": math.nan, b"Infinity": math.inf, b"-Infinity": -math.inf, b"-0": -0.0}
_SPECIAL_TEXTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_OWN_KEYS = frozenset({"_step", "_runtime", "_timestamp", "_wandb"})
"""Keys that W&B adds to every row."""
_STEP_ITEM, _RUNTIME_ITEM = b"\x05_step\x82\x01", b"\x12\x06_wandb\x12\x07runtime\x82\x01"


class WandbReader:
    """Each `.wandb` file is a run."""

    name = "wandb"
    title = "W&B offline runs (.wandb files)"

    def recognize(self, place: Path) -> str | None:
        files = [path for path in glance(place, _is_run_file) if first_bytes(path, 4) == IDENT]
        return counted(len(files), "offline run") if files else None

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        files = files_below(place, _is_run_file)
        if not files:
            raise UserError(f"{place} has no W&B offline runs", hint="An offline run is a file named run-ID.wandb.")
        for path in files:
            yield _read_run(path, relative_name(path, place), since or {})


def _is_run_file(name: str) -> bool:
    return name.endswith(".wandb")


@dataclass
class _RunState:
    """The state accumulated from the records of a file."""

    where: str
    points: PointCollector
    name: str | None = None
    project: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    started: float | None = None
    last_time: float | None = None
    bad_records: int = 0
    last_summary: bytes = b""

    def take(self, record: bytes) -> None:
        """Process one record. History and (deferred) summaries, which are nearly all records, have a fast path."""
        position = 0
        if record[:1] == b"\x08":  # the record number
            _, position = wire.varint(record, 1)
        kind, after = wire.varint(record, position)
        if kind == _SUMMARY << 3 | wire.BYTES and (_STEP_ITEM in record or _RUNTIME_ITEM in record):
            if _STEP_ITEM in record:
                self.last_summary = record[after:]
            return  # W&B's own summary of a history row or of the elapsed time
        if kind == _HISTORY << 3 | wire.BYTES:
            length, start = wire.varint(record, after)
            if start + length > len(record):
                raise wire.BadWire("a field is longer than its message")
            self._take_history(record, start, start + length)
            return
        for number, wire_kind, start, end in wire.fields(record):
            if wire_kind != wire.BYTES:
                continue
            if number == _HISTORY:
                self._take_history(record, start, end)
            elif number == _SUMMARY:
                self._take_summary(record[start:end])
            elif number == _CONFIG:
                self._take_config(record[start:end])
            elif number == _RUN:
                self._take_run(record[start:end])
            elif number == _EXIT:
                self._take_exit(record[start:end])

    def _take_history(self, record: bytes, position: int, end: int) -> None:
        keys: list[bytes] = []
        texts: list[bytes] = []
        step = None
        while position < end:
            tag = record[position]
            if tag == 0x0A:  # item
                length = record[position + 1]
                if length < 0x80:
                    position += 2
                else:
                    length, position = wire.varint(record, position + 1)
                after = position + length
                if after > end:
                    raise wire.BadWire("a field is longer than its message")
                # Fast path for the usual item: only a key and a JSON text, each shorter than 128 bytes.
                size = record[position + 1] if position + 1 < after else 0x80
                value = position + 2 + size
                if (
                    size < 0x80
                    and (record[position] == 0x0A or record[position] == 0x12)
                    and value + 3 <= after
                    and record[value] == 0x82
                    and record[value + 1] == 0x01
                    and value + 3 + record[value + 2] == after
                    and record[value + 2] < 0x80
                ):
                    keys.append(record[position + 2 : value])
                    texts.append(record[value + 3 : after])
                else:
                    key, text = _item(record[position:after])
                    keys.append(key)
                    texts.append(text)
                position = after
                continue
            number, kind = tag >> 3, tag & 7
            if number == 2 and kind == wire.BYTES:
                length, position = wire.varint(record, position + 1)
                inner = record[position : position + length]
                step = next((wire.signed(value) for each, kind, value, _ in wire.fields(inner) if each == 1), 0)
                position += length
            else:
                break
        self._take_row(keys, _values(texts), step)

    def _take_row(self, keys: list[bytes], values: list[Any], step: int | None) -> None:
        row = dict(zip(keys, values, strict=True))
        own_step = row.get(b"_step")
        if isinstance(own_step, int | float) and math.isfinite(own_step):
            step = int(own_step)
        if step is None:
            raise wire.BadWire("a row without a step")
        stamp = row.get(b"_timestamp")
        time = float(stamp) if isinstance(stamp, int | float) else math.nan
        if time == time:
            self.last_time = time
        add = self.points.add
        for key, value in row.items():
            if isinstance(value, float):
                if key not in _OWN_BYTES:
                    add(_metric(key), step, value, time)
            elif isinstance(value, int):
                if key not in _OWN_BYTES:
                    add(_metric(key), step, _as_float(value), time)
            elif isinstance(value, dict):
                self._take_nested(_metric(key), value, step, time)
            elif isinstance(value, str) and value in _SPECIAL_TEXTS:
                add(_metric(key), step, _SPECIAL_TEXTS[value], time)

    def _take_nested(self, key: str, value: dict[str, Any], step: int, time: float) -> None:
        """Take a dictionary of numbers. One with a `_type` is an image, a table or another W&B object: ignore it."""
        if "_type" in value or key in _OWN_KEYS:
            return
        for path, each in flatten({key: value}, self.where).items():
            if isinstance(each, str) and each in _SPECIAL_TEXTS:
                each = _SPECIAL_TEXTS[each]
            if isinstance(each, int | float):
                self.points.add(path, step, _as_float(each), time)

    def _take_config(self, config: bytes) -> None:
        for path, value in _updates(config):
            _put(self.config, path, value)

    def _take_run(self, run: bytes) -> None:
        for number, kind, start, end in wire.fields(run):
            if kind != wire.BYTES:
                continue
            if number == 3:
                self.project = wire.text(run, start, end)
            elif number == 4:
                self._take_config(run[start:end])
            elif number == 8:
                self.name = wire.text(run, start, end)
            elif number == 17:
                stamp = run[start:end]
                seconds = {each: value for each, kind, value, _ in wire.fields(stamp) if kind == wire.VARINT}
                self.started = seconds.get(1, 0) + seconds.get(2, 0) / 1e9

    def _take_exit(self, record: bytes) -> None:
        codes = [wire.signed(value) for number, kind, value, _ in wire.fields(record) if (number, kind) == (1, 0)]
        self.exit_code = codes[-1] if codes else 0

    def finish(self) -> None:
        """Apply the last deferred summary: wandb 0.16 writes the whole summary when the run ends."""
        if self.last_summary:
            length, start = wire.varint(self.last_summary, 0)
            self._take_summary(self.last_summary[start : start + length])

    def _take_summary(self, summary: bytes) -> None:
        for path, value in _updates(summary):
            _put(self.summary, path, value)


_OWN_BYTES = frozenset(key.encode() for key in _OWN_KEYS)
_metrics: dict[bytes, str] = {}


def _metric(key: bytes) -> str:
    """Decode a key. The result is cached, because keys repeat in every row."""
    known = _metrics.get(key)
    if known is None:
        try:
            known = key.decode()
        except UnicodeDecodeError:
            raise wire.BadWire("text that is not UTF-8") from None
        if len(_metrics) > 10_000:
            _metrics.clear()
        _metrics[key] = known
    return known


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _item(item: bytes) -> tuple[bytes, bytes]:
    """Return the key and JSON text of an item, whatever the order of its fields."""
    keys: list[bytes] = []
    text = b"null"
    for number, kind, start, end in wire.fields(item):
        if number in (1, 2) and kind == wire.BYTES:
            keys.append(item[start:end])
        elif number == 16 and kind == wire.BYTES:
            text = item[start:end]
    return b".".join(keys), text


def _values(texts: list[bytes]) -> list[Any]:
    """Parse the values of a row at once; one by one if any of them is not JSON, such as NaN, or is −0."""
    try:
        values = orjson.loads(b"[" + b",".join(texts) + b"]")
        if len(values) == len(texts) and b"-0" not in texts:
            return list(values)
    except orjson.JSONDecodeError:
        pass
    return [_value(text) for text in texts]


def _value(text: bytes) -> Any:
    if text in _SPECIAL:
        return _SPECIAL[text]
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    if text.count(b"{") + text.count(b"[") > DEEPEST:
        return None
    try:
        return json.loads(text)  # NaN inside an object, or a number with many digits
    except (ValueError, RecursionError):
        raise wire.BadWire("a value that is not JSON") from None


def _updates(record: bytes) -> Iterator[tuple[list[str], Any]]:
    """Yield the updates of a configuration or summary as the path of keys and the value."""
    for number, kind, start, end in wire.fields(record):
        if number != 1 or kind != wire.BYTES:
            continue
        item = record[start:end]
        path: list[str] = []
        text = b"null"
        for each, each_kind, first, last in wire.fields(item):
            if each in (1, 2) and each_kind == wire.BYTES:
                path.append(wire.text(item, first, last))
            elif each == 16 and each_kind == wire.BYTES:
                text = item[first:last]
        if 0 < len(path) <= DEEPEST:
            yield path, _value(text)


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        inner = values.get(key)
        if not isinstance(inner, dict):
            inner = values[key] = {}
        values = inner
    values[path[-1]] = value


def _read_run(path: Path, run_id: str, since: Mapping[str, Cursor]) -> SourceRun:
    head = first_bytes(path, _HEADER_BYTES)
    notes: list[str] = []
    if head[:4] != IDENT[: len(head)] or (len(head) >= 6 and int.from_bytes(head[4:6], "little") != _MAGIC):
        raise UserError(f"{path} is not a W&B offline run: it does not begin with {IDENT.decode()}")
    if len(head) == _HEADER_BYTES and head[6] != 0:
        raise UserError(f"{path} has version {head[6]} of the W&B format, which is not supported")
    cursor = since.get(run_id)
    inode = path.stat().st_ino
    if cursor is not None and (cursor["inode"] != inode or path.stat().st_size < cursor["offset"]):
        cursor = None
    log = LogFile(path, int(cursor["offset"]) if cursor else _HEADER_BYTES)
    state = _RunState(str(path), PointCollector(str(path)))
    if cursor is not None:
        state.config, state.summary = json.loads(cursor["config"]), json.loads(cursor["summary"])
        state.name, state.started, state.exit_code = cursor["name"], cursor["started"], cursor["exit_code"]
    for record in log.records() if len(head) == _HEADER_BYTES else ():
        try:
            state.take(record)
        except (wire.BadWire, IndexError):
            state.bad_records += 1
    try:
        state.finish()
    except wire.BadWire:
        state.bad_records += 1
    if log.offset <= _HEADER_BYTES and not log.notes:
        notes.append(f"{path.name} has no records yet")
    notes += log.notes
    if state.bad_records:
        notes.append(f"{path.name}: {counted(state.bad_records, 'record')} skipped: not in a known format")
    return SourceRun(
        id=run_id,
        name=state.name or path.stem.removeprefix("run-"),
        series=state.points.series(),
        config=_without_own(flatten(state.config, str(path))),
        summary=_without_own(flatten(state.summary, str(path))),
        status=None if state.exit_code is None else Status.FAILED if state.exit_code else Status.COMPLETED,
        reason=f"exit code {state.exit_code}" if state.exit_code else None,
        started=state.started,
        ended=state.last_time if state.exit_code is not None else None,
        files=(SourceFile(path, log.offset),),
        notes=tuple(notes),
        cursor={
            "offset": log.offset,
            "inode": inode,
            "config": json.dumps(state.config),
            "summary": json.dumps(state.summary),
            "name": state.name,
            "started": state.started,
            "exit_code": state.exit_code,
        },
        continues=cursor is not None,
    )


def _without_own(values: dict[str, ConfigValue]) -> dict[str, ConfigValue]:
    return {key: value for key, value in values.items() if key.split(".", 1)[0] not in _OWN_KEYS}
