"""Files on the remote host, through its shell: one execution for a small action, chunks for large files.

SFTP is not used. Three to five of its round trips are one execution of the shell, and a stream is as fast. The shell
also works if SFTP is disabled or the server allows two sessions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import FileStat, Sent
from jupyter_slurm.transport.local.files import mapped_errors
from jupyter_slurm.transport.owned_files import UNTRUSTED, untrusted_file
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.protocols import AnswerTooLarge
from jupyter_slurm.transport.ssh.shell.calls import ShellAnswer, number

__all__ = ["RemoteFiles", "failure", "percent_b"]

_MAX_CHUNK_BYTES: Final = 4 << 20  # bytes; the most that a broken connection costs
_MAX_FILE_BYTES: Final = 256 << 20  # bytes of a file that is read without a limit: a hostile host has no end of them
_MIN_CHUNK_BYTES: Final = 256 << 10  # bytes of the smallest written chunk
_CHUNK_DURATION_S: Final = 1.0  # seconds
_MAX_INLINE_BYTES: Final = 8 << 10  # bytes sent as an argument: some shells read their commands byte by byte
_FILES_PER_COMMAND: Final = 100  # files in one command

# Messages of coreutils in the C locale, and two phrases of dash.
_ERRORS: Final = {os.strerror(number): number for number in errno.errorcode} | {
    "Directory nonexistent": errno.ENOENT,
    "No such file": errno.ENOENT,
    "cannot overwrite existing file": errno.EEXIST,
    "I/O error": errno.ENOSPC,  # dash prints this for every failed write: mostly the disk is full
}


class RemoteCall(Protocol):
    """Caller of a function in the remote shell; all calls of this module may run twice."""

    def __call__(self, arguments: Sequence[str], stdin: memoryview | None = None) -> Awaitable[ShellAnswer]: ...


def percent_b(data: bytes) -> str:
    """Return bytes in the form of ``printf %b``, because a shell's words cannot contain NUL."""
    return data.replace(b"\\", b"\\\\").replace(b"\0", b"\\0000").decode("utf-8", "surrogateescape")


def failure(answer: ShellAnswer, action: str, path: str) -> Exception:
    """Return the error that a remote error message stands for."""
    said = answer.stderr.decode("utf-8", "replace").strip()
    reason = said.splitlines()[-1].rpartition(": ")[2] if said else "it failed without a word"
    number = next((number for text, number in _ERRORS.items() if reason.endswith(text)), None)
    try:
        with mapped_errors(action, path):
            if number is None:
                raise TransportError(
                    f"Cannot {action} {path}: {reason}.",
                    hint="Check the path, its permissions and the free space on the cluster.",
                    path=path,
                )
            raise OSError(number, os.strerror(number), path)
    except (OSError, TransportError) as error:
        return error


def _file_stat(output: bytes) -> FileStat:
    """Parse size and time in the output of stat(1)."""
    size, _, mtime = output.decode("ascii", "replace").strip().partition(" ")
    for part in mtime.removeprefix("-").split("."):
        number(part)
    return FileStat(number(size), float(mtime))


class RemoteFiles:
    """The file methods of :class:`jupyter_slurm.transport.base.Transport`.

    Parameters
    ----------
    call : callable
        Calls a function of the remote shell, and repeats the call after a break.
    """

    def __init__(self, call: RemoteCall) -> None:
        self._call = call

    async def read(self, path: str, offset: int, limit: int | None, function: str = "js_read") -> bytes:
        """Read in chunks; a break costs at most one chunk. ``js_read_owned`` checks the owner with each of them."""
        data = bytearray()
        while limit is None or len(data) < limit:
            want = _MAX_CHUNK_BYTES if limit is None else min(_MAX_CHUNK_BYTES, limit - len(data))
            answer = await self._call([function, path, str(offset + len(data)), str(want)])
            if answer.value == str(UNTRUSTED):
                raise untrusted_file(path, printable(answer.stderr.decode("utf-8", "replace").strip()))
            if answer.value != "0":
                raise failure(answer, "read", path)
            data += answer.stdout[:want]
            if len(answer.stdout) < want:
                break
            if limit is None and len(data) > _MAX_FILE_BYTES:
                raise AnswerTooLarge(
                    f"{path} was not read, because it is larger than {_MAX_FILE_BYTES >> 20} MiB.",
                    hint=f"Check the file on the login node: `ls -l {path}`.",
                    path=path,
                )
        return bytes(data)

    async def write_new_files(self, contents: Mapping[str, bytes], sent: Sent | None) -> None:
        """Write new files with mode 0600, by path. After a failure or a cancellation, none of them remains."""
        done, total = 0, sum(map(len, contents.values()))

        def arrived(size: int) -> None:
            nonlocal done
            done += size
            if sent is not None:
                sent(done, total)

        try:
            for path, data in contents.items():
                arrived(0)
                await self._fill(path, data, path, arrived)
        except BaseException:
            with contextlib.suppress(TransportError):
                await self._call(["js_do", "rm", "-f", "--", *contents])
            raise

    async def write(self, path: str, data: bytes, mode: int) -> None:
        """Write a draft beside the file, and rename it."""
        draft = posixpath.join(posixpath.dirname(path), f".{secrets.token_hex(8)}.tmp")
        if len(data) <= _MAX_INLINE_BYTES:
            await self._run(["js_put", draft, path, f"{mode:04o}", percent_b(data)], "write", path)
            return
        try:
            await self._fill(draft, data, path, lambda _: None)
            await self._run(["js_settle", draft, path, f"{mode:04o}"], "write", path)
        except BaseException:
            with contextlib.suppress(TransportError):
                await self._call(["js_do", "rm", "-f", "--", draft])
            raise

    async def _fill(self, draft: str, data: bytes, path: str, arrived: Callable[[int], None]) -> None:
        """Write a file that has no readers yet, in chunks that each take about a moment."""
        view, at, size = memoryview(data), 0, _MIN_CHUNK_BYTES
        while part := view[at : at + size]:
            begun = time.monotonic()
            # Each chunk has its position, so a repeated write after a break does no harm.
            answer = await self._call(["js_take", draft, str(at), str(len(part))], part)
            if answer.value != "0":
                raise failure(answer, "write", path)
            at += len(part)
            size = (
                min(2 * size, _MAX_CHUNK_BYTES)
                if time.monotonic() - begun < _CHUNK_DURATION_S
                else max(size // 2, _MIN_CHUNK_BYTES)
            )
            arrived(len(part))

    async def stat(self, path: str) -> FileStat:
        """Return size and times of a file."""
        answer = await self._run(["js_do", "stat", "-L", "-c", "%s %.9Y", "--", path], "look at", path)
        return _file_stat(answer.stdout)

    async def stat_all(self, paths: Sequence[str]) -> dict[str, FileStat]:
        """Return the status of many files."""
        found: dict[str, FileStat] = {}
        for at in range(0, len(paths), _FILES_PER_COMMAND):
            some = paths[at : at + _FILES_PER_COMMAND]
            answer = await self._call(["js_do", "stat", "-L", "--printf", r"%s %.9Y %n\0", "--", *some])
            for line in answer.stdout.split(b"\0")[:-1]:
                size, _, rest = line.partition(b" ")
                mtime, _, name = rest.partition(b" ")
                found[os.fsdecode(name)] = _file_stat(size + b" " + mtime)
        return found

    async def make_dir(self, path: str) -> None:
        """Create a directory and its parents with mode 0700."""
        await self._run(["js_make", path], "make the folder", path)

    async def list_dir(self, path: str) -> list[str]:
        """List names with arbitrary characters."""
        answer = await self._run(["js_list", path], "list", path)
        return [os.fsdecode(name) for name in answer.stdout.split(b"\0")[:-1]]

    async def remove(self, path: str) -> None:
        """Remove a file or a tree."""
        await self._run(["js_do", "rm", "-rf", "--", path.rstrip("/") or "/"], "remove", path)

    async def _run(self, arguments: Sequence[str], action: str, path: str) -> ShellAnswer:
        answer = await self._call(arguments)
        if answer.value != "0":
            raise failure(answer, action, path)
        return answer
