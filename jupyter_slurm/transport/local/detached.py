"""Commands on this computer that run once and outlive this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

from jupyter_slurm.transport.base import Completed, Context
from jupyter_slurm.transport.local.atomic_write import FileDrafts
from jupyter_slurm.transport.local.files import LocalDirectoryLock, content, lock, mapped_errors, new_file
from jupyter_slurm.transport.local.processes import start

__all__ = ["DetachedProcesses", "LocalDetachedRun"]

_QUIET_PERIOD_S = 0.25  # seconds after a start without other work, in favour of the waiting caller


class DetachedProcesses:
    """Reusable daemon threads that do not delay the interpreter's exit: their calls may hang for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = 0
        self._closed = False
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def run(self, work: Callable[[], None]) -> None:
        """Run a function in a thread at once; it must not raise."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._serve, name="jupyter-slurm-once", daemon=True).start()
        self._work.put(work)

    def close(self) -> None:
        """End the idle threads now, and the others when they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                if self._closed:
                    return
                self._idle += 1


class LocalDetachedRun:
    """See :class:`jupyter_slurm.transport.base.DetachedRun`.

    All steps run in one thread, because each change of threads costs a noticeable part of the time of sbatch itself.
    """

    def __init__(
        self, prefix: str, held: set[int], run_later: Callable[[Callable[[], None]], object], drafts: FileDrafts
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._prefix, self._held, self._run_later, self._drafts = prefix, held, run_later, drafts
        self.lock: LocalDirectoryLock | None = None
        self.started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[Completed] = self._loop.create_future()

    async def result(self, timeout: float | None) -> Completed | None:
        """Wait for the command's end."""
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(self._ended)
        except TimeoutError:
            return None

    def work(self, argv: Sequence[str], files: Mapping[str, bytes] | None, context: Context | None) -> None:
        """Create the directory, start the command, wait for its end, and read its output. Runs in a thread."""
        try:
            process = self._start(argv, files, context)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            reason = error
            self._notify(lambda: None if self.started.done() else self.started.set_exception(reason))
            return
        self._notify(lambda: None if self.started.done() else self.started.set_result(None))
        exit_code = process.wait()
        with contextlib.suppress(OSError):  # another process may remove the directory meanwhile
            done = Completed(exit_code, content(f"{self._prefix}.out"), content(f"{self._prefix}.err"))
            self._notify(lambda: None if self._ended.done() else self._ended.set_result(done))
        if files is not None:
            self._notify(lambda: self._loop.call_later(_QUIET_PERIOD_S, self._prepare))

    def _start(
        self, argv: Sequence[str], files: Mapping[str, bytes] | None, context: Context | None
    ) -> subprocess.Popen[bytes]:
        if files is None:
            return _spawn(self._prefix, argv, context)
        folder, name = os.path.split(self._prefix)
        with mapped_errors("create the directory", folder):
            held, out, err = self._drafts.new_folder(folder, files, [f"{name}.out", f"{name}.err"])
        try:
            process = _start_on(out, err, argv, context)
        except BaseException:
            os.close(held)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.lock = LocalDirectoryLock(held, self._held, self._run_later)
        return process

    def _prepare(self) -> None:
        parent = os.path.dirname(os.path.dirname(self._prefix))
        with contextlib.suppress(RuntimeError):  # the executor is shut down
            self._run_later(lambda: self._drafts.prepare(parent))

    def _notify(self, act: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed; the files have all results
            self._loop.call_soon_threadsafe(act)


def _spawn(prefix: str, argv: Sequence[str], context: Context | None) -> subprocess.Popen[bytes]:
    with mapped_errors("write", prefix):
        out = new_file(f"{prefix}.out")
        try:
            err = new_file(f"{prefix}.err")
        except BaseException:
            os.close(out)
            raise
    return _start_on(out, err, argv, context)


def _start_on(out: int, err: int, argv: Sequence[str], context: Context | None) -> subprocess.Popen[bytes]:
    """Start a command on files that outlive this process; with the open file, the command inherits its lock."""
    try:
        lock(out)
        return start(argv, context, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    finally:
        os.close(out)
        os.close(err)
