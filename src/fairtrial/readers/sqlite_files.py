"""SQLite databases of other tools, opened so that they can neither be changed nor do anything but be read."""

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
"""Times a million virtual-machine steps: a query that a damaged index sends round in circles ends too."""

_PROBLEMS = (sqlite3.Error, OverflowError, MemoryError, UnicodeDecodeError)
"""UnicodeDecodeError: SQLite quotes a damaged schema in its own message, whatever bytes that has."""


def _sentence(error: Exception) -> str:
    return "its tables are damaged" if isinstance(error, UnicodeDecodeError) else str(error)


class Database:
    """An open database: the real tables that it has, and rows of queries."""

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
                hint="It may be damaged, or in use by a writer.",
            ) from None


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Read-only, and never `immutable`: a database in WAL mode may have a writer whose newest rows are in its log."""
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
    """The content of a database in WAL mode that nobody writes to; None for all others.

    SQLite would make two files next to such a database, even for a reader, and leave them there.
    """
    log = companions(path)[1]
    if first_bytes(path, 20)[18:20] != b"\x02\x02" or log.exists() or path.stat().st_size > _LARGEST_COPY_BYTES:
        return None
    before = path.stat()
    content = bytearray(read_file(path, most=_LARGEST_COPY_BYTES))
    after = path.stat()
    if log.exists() or (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        return None  # a writer has come meanwhile
    content[18:20] = b"\x01\x01"  # without a log, the file is one of the plain kind
    return bytes(content)


def has_tables(path: Path, *names: str) -> bool:
    """Whether a file is a database with these tables; False for whatever else it is."""
    if first_bytes(path, 16) != SIGNATURE:
        return False
    try:
        with open_database(path) as database:
            return database.tables >= set(names)
    except UserError:
        return False


def companions(path: Path) -> list[Path]:
    """The database and the log of its writer."""
    return [path, path.with_name(f"{path.name}-wal")]
