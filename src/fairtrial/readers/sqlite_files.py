"""Open SQLite databases of other tools read-only and hardened against malicious content."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fairtrial.core.errors import UserError
from fairtrial.core.untrusted import read_file
from fairtrial.readers.places import first_bytes

SIGNATURE = b"SQLite format 3\x00"
_LONGEST_VALUE_BYTES = 64 << 20
_LARGEST_COPY_BYTES = 256 << 20
_OPERATIONS = 1_000_000
_MOST_OPERATIONS = 20_000
"""The limit for a query, in millions of virtual-machine steps; it stops queries that loop on a damaged index."""

_PROBLEMS = (sqlite3.Error, OverflowError, MemoryError, UnicodeDecodeError)
"""UnicodeDecodeError is included because SQLite's error message quotes a damaged schema byte by byte."""


def _sentence(error: Exception) -> str:
    return "its tables are damaged" if isinstance(error, UnicodeDecodeError) else str(error)


class Database:
    """An open database: the names of its tables (without views), and the rows of queries."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        listed = self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = frozenset(str(name) for (name,) in listed)

    def columns(self, table: str) -> list[str]:
        return [str(row[1]) for row in self.rows(f'PRAGMA table_info("{table}")')]

    def rows(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query, values)
        except _PROBLEMS as error:
            raise UserError(
                f"{self.path} cannot be read: {_sentence(error)}",
                hint="It may be damaged, or locked by a writer.",
            ) from None


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open a database read-only, but not `immutable`: in WAL mode, the newest rows of a writer are in its log."""
    if first_bytes(path, 16) != SIGNATURE:
        raise UserError(f"{path} is not an SQLite database")
    try:
        connection = _connect(path)
    except _PROBLEMS as error:
        raise UserError(f"{path} cannot be opened: {_sentence(error)}") from None
    try:
        left = _MOST_OPERATIONS

        def go_on() -> int:
            nonlocal left
            left -= 1
            return left < 0

        connection.set_progress_handler(go_on, _OPERATIONS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
        connection.text_factory = lambda content: content.decode(errors="replace")
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA query_only = ON")
        except _PROBLEMS as error:
            raise UserError(f"{path} cannot be opened: {_sentence(error)}") from None
        yield Database(connection, path)
    finally:
        connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    if (content := _resting_content(path)) is not None:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(content)
        return connection
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None)


def _resting_content(path: Path) -> bytes | None:
    """Return the content of a database in WAL mode without a writer; None for all others.

    Opening such a file directly, even read-only, makes SQLite create two files next to it and leave them there.
    """
    log = companions(path)[1]
    if first_bytes(path, 20)[18:20] != b"\x02\x02" or log.exists() or path.stat().st_size > _LARGEST_COPY_BYTES:
        return None
    before = path.stat()
    content = bytearray(read_file(path, most=_LARGEST_COPY_BYTES))
    after = path.stat()
    if log.exists() or (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        return None  # a writer appeared in the meantime
    content[18:20] = b"\x01\x01"  # without a log, the file is valid in rollback-journal mode
    return bytes(content)


def has_tables(path: Path, *names: str) -> bool:
    """Return whether a file is an SQLite database with these tables."""
    if first_bytes(path, 16) != SIGNATURE:
        return False
    try:
        with open_database(path) as database:
            return database.tables >= set(names)
    except UserError:
        return False


def companions(path: Path) -> list[Path]:
    """Return the paths of the database and of its write-ahead log."""
    return [path, path.with_name(f"{path.name}-wal")]
