"""Index of the job directories on local disk. It may be deleted at any time: the directories are authoritative."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from jupyter_slurm.services.jobdir.index_file import IndexFile, RowKey
from jupyter_slurm.services.jobdir.job_written_files import parse_record

__all__ = ["IndexedRecord", "JobIndex"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_ANSWER_TIMEOUT_S = 10.0  # seconds; on a network file system that hangs, the directories are read instead
_RETRY_S = 30.0

_HINTS = {
    errno.ENOSPC: "Free some space: `jupyter slurm clean` removes old job directories.",
    errno.EDQUOT: "Your quota is used up: `jupyter slurm clean` removes old job directories.",
}
_FULL = sqlite3.SQLITE_FULL
_OTHER_HINT = "Check the permissions of the file, or set c.JupyterSlurm.state_dir to another directory."


class IndexedRecord(Protocol):
    """Record that can be stored."""

    def to_json(self) -> dict[str, Any]:
        """Return the document."""


class JobIndex:
    """Store the records of finished jobs, so that a start does not read a thousand files.

    A change is kept in memory until the file has it. If the file cannot be used, everything else works, and the file
    is tried again with the next change.

    Parameters
    ----------
    path : str
        The SQLite file. It is used by one thread, which no caller waits for unless it reads.
    """

    def __init__(self, path: str) -> None:
        self._file = IndexFile(path)
        self._changes: dict[RowKey, IndexedRecord | None] = {}
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.problem = ""  # why the file cannot be used, and what to do; empty: it can

    async def open(self) -> None:
        """Open the file; :attr:`problem` says if that is not possible."""
        await self._answer(lambda: self._used(self._file.check), None)

    async def close(self) -> None:
        """Write the last changes, and close the file."""
        with self._lock:
            self._is_closed = True
        if self._thread is not None:
            await self._answer(self._end, None)
            self._tasks.put(None)

    async def finished(self, cluster: str) -> dict[str, object]:
        """Return the stored records of a cluster's finished jobs by key; damaged rows are left out."""
        return await self._answer(lambda: self._read(cluster), {})

    def remember(self, cluster: str, key: str, record: IndexedRecord) -> None:
        """Store the record of a finished job."""
        self._change((cluster, key), record)

    def forget(self, cluster: str, key: str) -> None:
        """Remove a job."""
        self._change((cluster, key), None)

    # -- in the caller's thread

    def _change(self, row: RowKey, record: IndexedRecord | None) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._changes[row] = record
        self._run(self._flush)

    def _run(self, task: Callable[[], None]) -> None:
        self._tasks.put(task)
        with self._lock:
            if self._thread is None:
                # A daemon: a file system that hangs must not delay the end of the process.
                thread = threading.Thread(target=self._work, name="jupyter-slurm-index", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread is left now: the next change tries again
                    thread.start()
                    self._thread = thread

    async def _answer(self, act: Callable[[], T], otherwise: T) -> T:
        """Return what a function returns in the thread, or a default after a while."""
        done: Future[T] = Future()

        def task() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(act())
                except Exception as error:
                    log.exception("the index %s", self._file.path)
                    done.set_exception(error)

        self._run(task)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return await asyncio.wrap_future(done)
        except Exception:  # noqa: BLE001 - the index is never the cause of a failure
            return otherwise

    # -- in the thread

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=_RETRY_S if self._changes else None)
            except queue.Empty:
                task = self._flush
            if task is None:
                break
            try:
                task()
            except Exception:
                log.exception("the index %s", self._file.path)

    def _end(self) -> None:
        self._flush()
        self._changes.clear()
        self._file.close()

    def _read(self, cluster: str) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, record in (self._used(lambda: self._file.read(cluster)) or {}).items():
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                found[key] = parse_record(record)
        with self._lock:
            changes = {key: record for (name, key), record in self._changes.items() if name == cluster}
        for key, changed in changes.items():
            found.pop(key, None)
            if changed is not None:
                found[key] = changed.to_json()
        return found

    def _flush(self) -> None:
        with self._lock:
            changes = dict(self._changes)
        texts: dict[RowKey, str | None] = {}
        for row, record in changes.items():
            texts[row] = None  # a record that cannot be written is read from its directory
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                texts[row] = None if record is None else json.dumps(record.to_json())
        if not texts or not self._used(lambda: self._file.write(texts)):
            return
        if self.problem:
            log.info("the index %s can be used again", self._file.path)
            self.problem = ""
        with self._lock:
            for row, record in changes.items():
                if self._changes.get(row, self) is record:
                    del self._changes[row]

    def _used(self, act: Callable[[], T]) -> T | None:
        """Return what a use of the file returns; None, and :attr:`problem`, if it cannot be used."""
        try:
            return act()
        except (sqlite3.Error, OSError) as error:
            if not self.problem:
                self.problem = _problem(self._file.path, error)
                log.warning("%s", self.problem)
            return None


def _problem(path: str, error: sqlite3.Error | OSError) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == _FULL:
        number = errno.ENOSPC
    why = (error.strerror if isinstance(error, OSError) else str(error)) or str(error)
    return (
        f"The index of finished jobs {path} cannot be used now ({why}), so the agent keeps it in memory. "
        + _HINTS.get(number or 0, _OTHER_HINT)
    )
