"""A connection to a database file. Everything that the driver raises leaves it as one of our errors."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from evalbus_server.errors import Reason, ServerError, StoreTrouble

APPLICATION = 0x65766C62
"""Stands in the header of our files: `evlb`."""
VERSION = 1
"""How many migrations there are; stands in the header too."""

_OLDEST = (3, 37)  # STRICT tables.

Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Sequence[object] | Mapping[str, object]

_WAIT = 1000
"""Milliseconds that a call waits for another one that writes the file."""


class Connection:
    """A connection; used by one thread at a time."""

    def __init__(self, path: Path, raw: sqlite3.Connection) -> None:
        """Wrap a connection of the driver."""
        self.path = path
        self.raw = raw
        self.note_commit: Callable[[], None] = lambda: None
        """Called after each commit."""

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query: the cursor is at its end, so no read transaction stays open."""
        try:
            return self.raw.execute(sql, parameters).fetchall()
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise trouble(error, self.path) from error

    def row(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query that gives at most one."""
        found = self.rows(sql, parameters)
        return found[0] if found else None

    def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Change something inside a transaction; returns how many rows."""
        try:
            return self.raw.execute(sql, parameters).rowcount
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise trouble(error, self.path) from error

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Do the same for many rows."""
        try:
            self.raw.executemany(sql, rows)
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise trouble(error, self.path) from error

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """Do what is inside as a whole or not at all; *durable*: it survives a power cut too.

        It begins IMMEDIATE: a transaction that reads first and writes later could not go on if another program wrote
        in between.
        """
        if durable:
            self.execute("PRAGMA synchronous = FULL")
        try:
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.execute("COMMIT")
                self.note_commit()
            except BaseException:
                self.roll_back()
                raise
        finally:
            if durable:
                self.execute("PRAGMA synchronous = NORMAL")

    def begin(self, *, at_once: bool) -> None:
        """Begin a transaction to write; *at_once*: fail, and do not wait, while somebody else writes.

        Raises:
            sqlite3.OperationalError: SQLITE_BUSY: somebody else writes.
        """
        if not at_once:
            self.raw.execute("BEGIN IMMEDIATE")
            return
        self.raw.execute("PRAGMA busy_timeout = 0")
        try:
            self.raw.execute("BEGIN IMMEDIATE")
        finally:
            self.raw.execute(f"PRAGMA busy_timeout = {_WAIT}")

    def roll_back(self) -> None:
        """Undo what the open transaction did; never hides the error behind it."""
        with contextlib.suppress(sqlite3.Error):
            if self.raw.in_transaction:  # SQLite rolls back by itself when the disk is full.
                self.raw.execute("ROLLBACK")

    def cut_log(self) -> bool:
        """Move the log into the file and cut it to nothing, if nobody prevents it just now; whether it is done."""
        self.execute("PRAGMA busy_timeout = 0")
        try:
            return not self.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        finally:
            self.execute(f"PRAGMA busy_timeout = {_WAIT}")

    def close(self) -> None:
        """Close it; nothing can be asked of it afterwards."""
        self.raw.close()


def check_place(path: Path) -> None:
    """Refuse a path where no database can be, and an SQLite that cannot make ours, in words that it does not have."""
    if sqlite3.sqlite_version_info < _OLDEST:
        needed = ".".join(map(str, _OLDEST))
        raise StoreTrouble(
            Reason.DATABASE_INVALID,
            f"this Python has SQLite {sqlite3.sqlite_version}: {needed} or a newer one is needed",
        )
    if not path.parent.is_dir():
        raise StoreTrouble(Reason.DATABASE_INVALID, f"there is no folder {path.parent} for the database")
    if path.is_dir():
        raise StoreTrouble(Reason.DATABASE_INVALID, f"{path} is a folder, not a database")


def connect_writing(path: Path) -> Connection:
    """Open the file for writing: make it, or bring it up to date. The caller holds the lock."""
    try:
        if not path.exists():
            _make(path)
        raw = sqlite3.connect(
            path, timeout=_WAIT / 1000, isolation_level=None, check_same_thread=False, cached_statements=256
        )
    except (sqlite3.Error, OSError) as error:
        raise trouble(error, path) from error
    try:
        _refuse_foreign(raw, path)
        raw.execute("PRAGMA journal_mode = WAL").fetchall()
        for pragma in (
            "synchronous = NORMAL",
            "wal_autocheckpoint = 0",
            "journal_size_limit = 67108864",  # To cut the log takes long on some disks; when idle it is cut anyway.
            "foreign_keys = ON",
            "trusted_schema = OFF",
            "temp_store = MEMORY",
            "cache_size = -8000",
            "secure_delete = ON",  # What is purged must be gone from the disk, also where rows were moved before.
        ):
            raw.execute(f"PRAGMA {pragma}").fetchall()
        if _header(raw, "user_version") < VERSION:
            _migrate(raw)
    except BaseException as error:
        raw.close()
        if isinstance(error, sqlite3.Error):
            raise trouble(error, path) from error
        raise
    return Connection(path, raw)


def _make(path: Path) -> None:
    """Make the file under another name and rename it when it is whole: a process that is killed leaves none or all."""
    new = path.with_name(f"{path.name}-new")
    for left in (new, *_beside(new), *_beside(path)):  # A log without its file would be taken for that of the new one.
        left.unlink(missing_ok=True)
    try:
        os.close(
            os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        )  # Prompts and answers are private.
        with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as raw:
            _migrate(raw)
        os.rename(new, path)
    except BaseException:
        for left in (new, *_beside(new)):
            left.unlink(missing_ok=True)
        raise


def _beside(path: Path) -> list[Path]:
    """The files that SQLite makes beside a database."""
    return [path.with_name(f"{path.name}-{kind}") for kind in ("journal", "wal", "shm")]


def connect_reading(path: Path) -> Connection:
    """Open the file for reading only."""
    check_place(path)
    if not path.exists():
        raise StoreTrouble(Reason.DATABASE_INVALID, f"there is no database {path}")
    try:
        raw = _connect_read_only(path)
    except sqlite3.Error as error:
        raise trouble(error, path) from error
    try:
        _refuse_foreign(raw, path)
        version = _header(raw, "user_version")
        if not version:
            message = (
                f"{path} is empty: a command that writes makes it a database, such as evalbus run FILE --db {path}"
            )
            raise StoreTrouble(Reason.DATABASE_INVALID, message)
        if version < VERSION:
            message = f"{path} was made by an older evalbus: a command that writes brings it up to date"
            raise StoreTrouble(Reason.DATABASE_INVALID, message)
        for pragma in ("query_only = ON", "trusted_schema = OFF", "temp_store = MEMORY", "cache_size = -8000"):
            raw.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException as error:
        raw.close()
        if isinstance(error, sqlite3.Error):
            raise trouble(error, path) from error
        raise
    return Connection(path, raw)


def trouble(error: Exception, path: Path) -> ServerError:
    """What a driver's error means."""
    if isinstance(error, OSError):
        return _file_trouble(error, path)
    if not isinstance(error, sqlite3.Error):
        return StoreTrouble(Reason.INTERNAL, f"a value cannot be stored: {error}")
    code = getattr(error, "sqlite_errorcode", None)
    reason, meaning = _MEANINGS.get(code, (None, "")) if code is not None else (None, "")
    if reason is None and code is not None:
        reason, meaning = _MEANINGS.get(code & 0xFF, (None, ""))
    if reason is None:
        return StoreTrouble(Reason.INTERNAL, f"{path}: {error}")
    return StoreTrouble(reason, f"{path} {meaning}")


def is_repetition(error: sqlite3.Error) -> bool:
    """Whether a row was refused because it is there already."""
    return error.sqlite_errorcode in (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE)


_MEANINGS = {
    sqlite3.SQLITE_BUSY: (Reason.DATABASE_LOCKED, "is locked by another program"),
    sqlite3.SQLITE_LOCKED: (Reason.DATABASE_LOCKED, "is locked by another program"),
    sqlite3.SQLITE_READONLY: (Reason.DATABASE_READ_ONLY, "cannot be written: it is read-only"),
    sqlite3.SQLITE_READONLY_DBMOVED: (Reason.DATABASE_LOST, "was moved or deleted while it was open"),
    sqlite3.SQLITE_FULL: (Reason.DATABASE_FULL, "cannot grow: the disk is full"),
    sqlite3.SQLITE_IOERR_WRITE: (
        Reason.DATABASE_FULL,
        "cannot grow: the disk is full, or a limit on file sizes is met",
    ),
    sqlite3.SQLITE_IOERR_SHMSIZE: (Reason.DATABASE_FULL, "cannot grow: the disk is full"),
    sqlite3.SQLITE_IOERR: (Reason.DATABASE_LOST, "cannot be read or written any more: the disk reports an error"),
    sqlite3.SQLITE_NOTADB: (Reason.DATABASE_INVALID, "is not a database"),
    sqlite3.SQLITE_CORRUPT: (Reason.DATABASE_INVALID, "is damaged: restore it from a copy"),
    sqlite3.SQLITE_CANTOPEN: (Reason.DATABASE_INVALID, "cannot be opened: is it a file, and may you read it?"),
    sqlite3.SQLITE_PERM: (Reason.DATABASE_READ_ONLY, "may not be used by you"),
    sqlite3.SQLITE_AUTH: (Reason.DATABASE_READ_ONLY, "may not be used by you"),
}


def _file_trouble(error: OSError, path: Path) -> StoreTrouble:
    if isinstance(error, PermissionError):
        return StoreTrouble(Reason.DATABASE_READ_ONLY, f"{path} cannot be written: {error.strerror}")
    return StoreTrouble(Reason.DATABASE_INVALID, f"{path} cannot be opened: {error.strerror}")


def _connect_read_only(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(path))}?mode=ro"
    raw = sqlite3.connect(address, uri=True, timeout=_WAIT / 1000, isolation_level=None, check_same_thread=False)
    try:
        raw.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.Error as error:
        raw.close()
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        if os.access(path.parent, os.W_OK) or not os.access(path, os.R_OK) or os.path.exists(f"{path}-wal"):
            raise
        # Nobody writes it, and its folder does not let us make the files beside it that reading a log needs.
        return sqlite3.connect(address + "&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    return raw


def _refuse_foreign(raw: sqlite3.Connection, path: Path) -> None:
    if _header(raw, "application_id") != APPLICATION and raw.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
        raise StoreTrouble(Reason.DATABASE_INVALID, f"{path} is the database of another program")
    version = _header(raw, "user_version")
    if version > VERSION:
        raise StoreTrouble(
            Reason.DATABASE_NEWER, f"{path} was written by a newer evalbus (schema {version}, this one knows {VERSION})"
        )


def _header(raw: sqlite3.Connection, name: str) -> int:
    return int(raw.execute(f"PRAGMA {name}").fetchall()[0][0])


def _migrate(raw: sqlite3.Connection) -> None:
    from evalbus_server.store import migrations  # here, since sqlite-utils takes a quarter of a second to load

    raw.execute(f"PRAGMA application_id = {APPLICATION}")
    migrations.migrate(raw)
