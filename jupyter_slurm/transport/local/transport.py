"""Local transport, used on a login node: commands and files of this computer."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import stat as stat_module
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jupyter_slurm.transport.base import Completed, Context, DirectoryLock, FileStat, Route, Sent, Sink, Stream
from jupyter_slurm.transport.local.atomic_write import FileDrafts, draft_name
from jupyter_slurm.transport.local.detached import DetachedProcesses, LocalDetachedRun
from jupyter_slurm.transport.local.files import LocalDirectoryLock, lock, make_private, mapped_errors, new_file
from jupyter_slurm.transport.local.live import LiveProcess
from jupyter_slurm.transport.local.processes import communicate, kill_group, start
from jupyter_slurm.transport.local.streams import CommandStream, dial_local
from jupyter_slurm.transport.owned_files import read_owned_file

__all__ = ["LocalTransport"]

T = TypeVar("T")


class LocalTransport:
    """Local transport that never blocks the event loop.

    Parameters
    ----------
    workers : int
        Number of commands and file operations that may run at once.
    """

    def __init__(self, workers: int = 16) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="jupyter-slurm-local")
        self._running: set[subprocess.Popen[bytes]] = set()
        self._live: set[LiveProcess] = set()
        self._held: set[int] = set()
        self._workers, self._drafts = DetachedProcesses(), FileDrafts()

    def close(self) -> None:
        """End the running commands except detached ones, and end the threads."""
        for process in tuple(self._running):
            kill_group(process)
        for live in tuple(self._live):
            live.end()
        while self._held:
            os.close(self._held.pop())
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._workers.close()
        self._drafts.close()

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        context: Context | None = None,
        timeout: float | None = 60.0,
    ) -> Completed:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        started: list[subprocess.Popen[bytes]] = []
        given_up = threading.Event()

        def work() -> Completed:
            pipe = subprocess.PIPE
            process = start(argv, context, stdin=pipe, stdout=pipe, stderr=pipe)
            started.append(process)
            if given_up.is_set():  # cancelled during the start
                kill_group(process)
            self._running.add(process)
            try:
                out, err = communicate(process, stdin, timeout)
            finally:
                self._running.discard(process)
            return Completed(process.returncode, out, err)

        try:
            return await self._in_thread(work)
        except asyncio.CancelledError:
            given_up.set()
            for process in started:
                kill_group(process)
            raise

    async def run_live(
        self,
        argv: Sequence[str],
        text: bytes,
        sink: Sink,
        *,
        time_limit: float,
        context: Context | None = None,
        ahead: Sequence[str] | None = None,
    ) -> int:
        """See :class:`jupyter_slurm.transport.base.Transport`. Nothing starts ahead."""
        live = LiveProcess(argv, text, sink, time_limit, context)
        self._live.add(live)
        try:
            return await self._in_thread(live.run)
        finally:
            self._live.discard(live)
            live.end()

    async def start_detached(
        self,
        prefix: str,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        context: Context | None = None,
        sent: Sent | None = None,
    ) -> LocalDetachedRun:
        """See :class:`jupyter_slurm.transport.base.Transport`. No file has to be sent first."""
        once = LocalDetachedRun(prefix, self._held, self._pool.submit, self._drafts)
        self._workers.run(lambda: once.work(argv, files, context))
        await once.started
        return once

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> bytes:
            with mapped_errors("read", path), open(path, "rb", opener=_open_without_waiting) as file:
                file.seek(offset)
                return file.read(-1 if limit is None else limit)

        return await self._in_thread(work)

    async def read_owned(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> bytes:
            with mapped_errors("read", path):
                return read_owned_file(path, offset, limit)

        return await self._in_thread(work)

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> None:
            draft = os.path.join(os.path.dirname(path), draft_name())
            with mapped_errors("write", path):
                try:
                    with open(new_file(draft, mode), "wb") as file:
                        file.write(data)
                    os.replace(draft, path)
                except BaseException:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(draft)
                    raise

        await self._in_thread(work)

    async def stat(self, path: str) -> FileStat:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> FileStat:
            with mapped_errors("read", path):
                found = os.stat(path)
            return FileStat(found.st_size, found.st_mtime, found.st_uid, found.st_mode)

        return await self._in_thread(work)

    async def stat_all(self, paths: Sequence[str]) -> dict[str, FileStat]:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> dict[str, FileStat]:
            stats = {}
            for path in paths:
                with contextlib.suppress(OSError, ValueError):
                    found = os.stat(path)
                    stats[path] = FileStat(found.st_size, found.st_mtime)
            return stats

        return await self._in_thread(work)

    async def make_dir(self, path: str) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> None:
            with mapped_errors("create the directory", path):
                make_private(path)

        await self._in_thread(work)

    async def list_dir(self, path: str) -> list[str]:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> list[str]:
            with mapped_errors("list", path):
                return os.listdir(path)

        return await self._in_thread(work)

    async def remove(self, path: str) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> None:
            with mapped_errors("remove", path):
                try:
                    if stat_module.S_ISDIR(os.lstat(path).st_mode):
                        shutil.rmtree(path)
                    else:
                        os.unlink(path)
                except FileNotFoundError:
                    return

        await self._in_thread(work)

    async def acquire_lock(self, path: str) -> DirectoryLock | None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> DirectoryLock | None:
            with mapped_errors("lock", path):
                file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)  # NFS locks only writable files
                try:
                    lock(file, fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(file)
                    return None
                except BaseException:
                    os.close(file)
                    raise
            return LocalDirectoryLock(file, self._held, self._pool.submit)

        holding = asyncio.ensure_future(self._in_thread(work))
        try:
            return await asyncio.shield(holding)
        except asyncio.CancelledError:  # the caller is gone and would never release the lock
            holding.add_done_callback(_release)
            raise

    @property
    def generation(self) -> int:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return 0

    def dial(self, host: str, port: int, timeout: float) -> Stream:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return dial_local(host, port, timeout)

    def hops(self) -> Mapping[str, Callable[[], Route]]:
        """See :class:`jupyter_slurm.transport.base.Transport`; a local transport has no jump hosts."""
        return {}

    def pipe(self, argv: Sequence[str], timeout: float, *, env: Mapping[str, str] | None = None) -> Stream:
        """See :class:`jupyter_slurm.transport.base.Transport`; ``env`` is the whole environment."""
        return CommandStream(argv, env)

    def when_full(self, give_up: Callable[[], None]) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`; this computer has no limit."""

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking. A job may have put a FIFO in its place, on which open would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _release(holding: asyncio.Future[DirectoryLock | None]) -> None:
    hold = None if holding.cancelled() or holding.exception() else holding.result()
    if hold is not None:
        hold.release()
