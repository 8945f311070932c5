"""Commands and files of this machine: the transport of a login node."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import signal
import stat as stat_module
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from jupyter_slurm.errors import CommandMissing, CommandTimeout, TransportError
from jupyter_slurm.transport.base import Completed, Context, FileStat, Hold
from jupyter_slurm.transport.limits import soft_limits

__all__ = ["LocalTransport"]

T = TypeVar("T")

_HINTS = {
    errno.ENOSPC: "The disk is full: free some space (`jupyter slurm clean` removes old job directories).",
    errno.EDQUOT: "Your quota is used up: free some space (`jupyter slurm clean` removes old job directories).",
    errno.EROFS: "The file system is read-only: set Settings.job_root to a folder that can be written.",
    errno.EACCES: "Set Settings.job_root to a folder of your own that the compute nodes see too.",
}

# Lustre mounted without flock, NFS without its lock daemon.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})


@contextlib.contextmanager
def _told(action: str, path: str) -> Iterator[None]:
    """Map errors of the operating system; a missing file and a directory that exists stay what they are."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "")
        raise TransportError(f"cannot {action} {path}: {error.strerror or error}", hint=hint, path=path) from error


class _Hold:
    """See :class:`jupyter_slurm.transport.base.Hold`."""

    def __init__(self, file: int, held: set[int], pool: ThreadPoolExecutor) -> None:
        self._file, self._held, self._pool = file, held, pool
        held.add(file)

    def release(self) -> None:
        if self._file not in self._held:
            return
        self._held.discard(self._file)
        try:
            self._pool.submit(os.close, self._file)  # on a network file system it takes a while
        except RuntimeError:  # the pool is closed
            os.close(self._file)


class LocalTransport:
    """Run commands and touch files here, without ever blocking the event loop.

    Parameters
    ----------
    workers : int
        How many commands and file operations may run at once.
    """

    def __init__(self, workers: int = 16) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="jupyter-slurm-local")
        self._running: set[subprocess.Popen[bytes]] = set()
        self._held: set[int] = set()

    def close(self) -> None:
        """End the commands under way, but for the detached ones, and let the threads go."""
        for process in tuple(self._running):
            _kill_group(process)
        while self._held:
            os.close(self._held.pop())
        self._pool.shutdown(wait=False, cancel_futures=True)

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

        def work() -> Completed:
            pipe = subprocess.PIPE
            process = _start(argv, context, stdin=pipe, stdout=pipe, stderr=pipe)
            started.append(process)
            self._running.add(process)
            try:
                out, err = _communicate(process, stdin, timeout)
            finally:
                self._running.discard(process)
            return Completed(process.returncode, out, err)

        try:
            return await self._in_thread(work)
        except asyncio.CancelledError:
            for process in started:
                _kill_group(process)
            raise

    async def run_once(
        self, prefix: str, argv: Sequence[str], *, context: Context | None = None, timeout: float | None = 60.0
    ) -> Completed | None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()
        ended: asyncio.Future[Completed] = loop.create_future()

        def tell(act: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be gone; the files tell everything
                loop.call_soon_threadsafe(act)

        def work() -> None:
            try:
                process = _start_once(prefix, argv, context)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                reason = error
                tell(lambda: None if started.done() else started.set_exception(reason))
                return
            tell(lambda: None if started.done() else started.set_result(None))
            exit_code = process.wait()
            with contextlib.suppress(OSError):  # whoever removes the folder meanwhile does not want to know
                done = Completed(exit_code, _content(f"{prefix}.out"), _content(f"{prefix}.err"))
                tell(lambda: None if ended.done() else ended.set_result(done))

        # A daemon thread, not one of the pool: a frozen command must not keep the interpreter from leaving.
        threading.Thread(target=work, name="jupyter-slurm-once", daemon=True).start()
        await started
        try:
            async with asyncio.timeout(timeout):
                return await ended
        except TimeoutError:
            return None

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> bytes:
            with _told("read", path), open(path, "rb") as file:
                file.seek(offset)
                return file.read(-1 if limit is None else limit)

        return await self._in_thread(work)

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> None:
            draft = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.tmp")
            with _told("write", path):
                try:
                    with open(_new_file(draft, mode), "wb") as file:
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
            with _told("look at", path):
                found = os.stat(path)
            return FileStat(found.st_size, found.st_mtime)

        return await self._in_thread(work)

    async def make_dir(self, path: str) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> None:
            with _told("make the folder", path):
                _make_private(path)

        await self._in_thread(work)

    async def new_folder(self, path: str, files: Mapping[str, bytes]) -> Hold:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> Hold:
            with _told("make the folder", path):
                return _Hold(_new_folder(path, files), self._held, self._pool)

        return await self._in_thread(work)

    async def list_dir(self, path: str) -> list[str]:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> list[str]:
            with _told("list", path):
                return os.listdir(path)

        return await self._in_thread(work)

    async def remove(self, path: str) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> None:
            with _told("remove", path):
                try:
                    if stat_module.S_ISDIR(os.lstat(path).st_mode):
                        shutil.rmtree(path)
                    else:
                        os.unlink(path)
                except FileNotFoundError:
                    return

        await self._in_thread(work)

    async def hold(self, path: str) -> Hold | None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""

        def work() -> Hold | None:
            with _told("lock", path):
                file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)  # NFS locks what can be written only
                try:
                    _lock(file, fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(file)
                    return None
                except BaseException:
                    os.close(file)
                    raise
            return _Hold(file, self._held, self._pool)

        return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _start(argv: Sequence[str], context: Context | None, **streams: Any) -> subprocess.Popen[bytes]:
    context = context or Context()
    try:
        return subprocess.Popen(
            _limited(argv, context.limits or {}),
            cwd=context.cwd,
            env=None if context.env is None else dict(context.env),
            umask=-1 if context.umask is None else context.umask,
            start_new_session=True,
            **streams,
        )
    except FileNotFoundError as error:
        if context.cwd is not None and not os.path.isdir(context.cwd):
            raise TransportError(
                f"the working directory {context.cwd} is not there", hint="Change to a folder that exists (%cd)."
            ) from error
        raise CommandMissing(
            f"{argv[0]} is not on the PATH",
            hint="Can Slurm be used from this machine? `module load slurm`, or start Jupyter where it is on the PATH.",
            argv=list(argv),
        ) from error
    except (OSError, ValueError) as error:
        raise TransportError(f"{argv[0]} cannot be started: {error}", argv=list(argv)) from error


def _start_once(prefix: str, argv: Sequence[str], context: Context | None) -> subprocess.Popen[bytes]:
    """Start a command on files that it keeps when we are gone; the lock is the open file's, so that it inherits it."""
    with _told("write", prefix):
        out = _new_file(f"{prefix}.out")
    try:
        _lock(out)
        with _told("write", prefix):
            err = _new_file(f"{prefix}.err")
        try:
            return _start(argv, context, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        finally:
            os.close(err)
    finally:
        os.close(out)


def _limited(argv: Sequence[str], limits: Mapping[str, str]) -> list[str]:
    """Put the soft limits in front that differ from our own; only the shell can set them without a race."""
    own = soft_limits()
    wanted = [f"{letter}={value}" for letter, value in limits.items() if own.get(letter) not in (value, None)]
    if not wanted:
        return list(argv)
    script = 'for l in $1; do ulimit -S "-${l%%=*}" "${l#*=}" 2>/dev/null; done; shift; exec "$@"'
    return ["/bin/sh", "-c", script, "sh", " ".join(wanted), *argv]


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _new_file(path: str, mode: int = 0o600) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def _communicate(process: subprocess.Popen[bytes], stdin: bytes, timeout: float | None) -> tuple[bytes, bytes]:
    try:
        return process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        _kill_group(process)
        process.communicate()
        argv = [os.fsdecode(a) for a in process.args] if isinstance(process.args, list) else []
        raise CommandTimeout(
            f"{argv[0] if argv else 'the command'} gave no answer within {timeout:g} s", argv=argv
        ) from error


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _make_private(path: str) -> None:
    """Make a directory 0700 with its parents (``os.makedirs`` gives the mode to the last one only)."""
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        _make_private(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def _lock(file: int, how: int = 0) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | how)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _new_folder(path: str, files: Mapping[str, bytes]) -> int:
    """Make a directory under another name and give it its own; return the first file of it, open and locked."""
    draft = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(4)}")
    held: int | None = None
    os.mkdir(draft, 0o700)
    try:
        for name, data in files.items():
            file = _new_file(os.path.join(draft, name))
            if held is None:
                held = file
                _lock(file)
            with open(file, "wb", closefd=file is not held) as stream:
                stream.write(data)
        if held is None:
            raise ValueError("a folder without files cannot be held")
        os.rename(draft, path)
    except BaseException as error:
        if held is not None:
            os.close(held)
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError) and error.errno == errno.ENOTEMPTY:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        raise
    return held
