"""Index of the job directories on local disk. It may be deleted at any time: the directories are authoritative."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Iterator

from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile

__all__ = ["JobIndex"]

log = logging.getLogger(__name__)

_SCHEMA = """
create table if not exists job (
    cluster text not null, key text not null, record text not null, primary key (cluster, key)
) without rowid
"""


class JobIndex:
    """Store the records of finished jobs, so that a start does not read a thousand files.

    Parameters
    ----------
    path : str
        The SQLite file; a damaged file is replaced.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self._path = path
        self._database = self._open()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def finished(self, cluster: str) -> dict[str, object]:
        """Return the stored records of a cluster's finished jobs by key; damaged rows are left out."""
        found: dict[str, object] = {}
        with self._repairing():
            rows = self._database.execute("select key, record from job where cluster = ?", (cluster,)).fetchall()
            for key, record in rows:
                with contextlib.suppress(ValueError, TypeError, RecursionError):
                    found[key] = json.loads(record)
        return found

    def remember(self, cluster: str, key: str, record: JobRecordFile) -> None:
        """Store the record of a finished job."""
        with self._repairing(), self._database:
            row = cluster, key, json.dumps(record.to_json())
            self._database.execute("insert or replace into job values (?, ?, ?)", row)

    def forget(self, cluster: str, key: str) -> None:
        """Remove a job."""
        with self._repairing(), self._database:
            self._database.execute("delete from job where cluster = ? and key = ?", (cluster, key))

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            log.warning("%s is damaged (%s): made anew", self._path, error)
            os.unlink(self._path)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        database = sqlite3.connect(self._path, isolation_level="IMMEDIATE", timeout=5)
        try:
            database.execute("pragma synchronous = off")
            database.execute(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database

    @contextlib.contextmanager
    def _repairing(self) -> Iterator[None]:
        """Prevent the index from being the cause of a failure."""
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            log.warning("the index %s cannot be used now: %s", self._path, error)
