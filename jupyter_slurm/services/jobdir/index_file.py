"""SQLite file of the index. Its methods block: they are called in the thread of the index."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import sqlite3
import stat
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

__all__ = ["IndexFile", "RowKey"]

RowKey = tuple[str, str]
T = TypeVar("T")

_SCHEMA = """
create table if not exists job (
    cluster text not null, key text not null, record text not null, primary key (cluster, key)
) without rowid
"""
_LOCK_TIMEOUT_S = 2.0
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PARTS = ("", "-journal", "-wal", "-shm")  # a journal that stays behind would be rolled back into the next file


class IndexFile:
    """Rows of the index in a file, which is opened when it is needed.

    Parameters
    ----------
    path : str
        The file. It is created if missing, and set aside if it is damaged.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # device and inode

    def close(self) -> None:
        """Close the file."""
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def read(self, cluster: str) -> dict[str, bytes]:
        """Return the records of a cluster by key.

        Raises
        ------
        sqlite3.Error, OSError
            The file cannot be used now.
        """
        query = "select key, record from job where cluster = ?"
        rows = self._try(lambda database: database.execute(query, (cluster,)).fetchall())
        return {key.decode("utf-8", "replace"): record for key, record in rows if isinstance(record, bytes)}

    def write(self, changes: Mapping[RowKey, str | None]) -> bool:
        """Write records, or remove them (None), all or none; return True.

        Raises
        ------
        sqlite3.Error, OSError
            The file cannot be used now.
        """

        def act(database: sqlite3.Connection) -> bool:
            with database:
                for (cluster, key), record in changes.items():
                    if record is None:
                        database.execute("delete from job where cluster = ? and key = ?", (cluster, key))
                    else:
                        database.execute("insert or replace into job values (?, ?, ?)", (cluster, key, record))
            return True

        return self._try(act)

    def check(self) -> None:
        """Open the file, and create it if missing.

        Raises
        ------
        sqlite3.Error, OSError
            The file cannot be used now.
        """
        self._try(lambda database: None)

    def _try(self, act: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return act(self._connected())
        except (sqlite3.Error, OSError) as error:
            self.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGE:
                raise
        self._set_aside()
        return act(self._connected())

    def _connected(self) -> sqlite3.Connection:
        if self._database is not None and self._opened != _identity(self.path):
            self.close()  # the file was removed or replaced
        if self._database is None:
            self._database = self._connect()
            self._opened = _identity(self.path)
        return self._database

    def _connect(self) -> sqlite3.Connection:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        except FileExistsError:  # not opened: closing a file releases the locks of all its connections in this process
            found = os.lstat(self.path)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "not a file of yours", self.path) from None
        database = sqlite3.connect(
            self.path, isolation_level="IMMEDIATE", timeout=_LOCK_TIMEOUT_S, check_same_thread=False
        )
        try:
            database.text_factory = bytes  # a record that is not UTF-8 must not hide the others
            database.execute("pragma synchronous = off")
            database.execute(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database

    def _set_aside(self) -> None:
        """Rename a damaged file; OSError if another process has it open."""
        file = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not _is_only_opener(file):
                raise OSError(errno.EBUSY, "damaged, and in use by another process", self.path)
            for part in reversed(_PARTS):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(self.path + part, f"{self.path}.damaged{part}")
        finally:
            os.close(file)


def _identity(path: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


def _is_only_opener(file: int) -> bool:
    """Return whether no one else has a file open. Where leases are missing: whether no one else has it locked."""
    try:
        if sys.platform == "linux":
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # ignored; SIGIO would end this process
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            return True
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EBUSY):
            return False
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
