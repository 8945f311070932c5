"""Files of the far side, through its shell: one execution for each small thing, chunks for large ones.

There is no SFTP in it. Three of its round trips, or five, are one here; a stream is as fast; and it works where SFTP
is switched off and where the server allows two sessions.
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
from jupyter_slurm.transport.local.files import told
from jupyter_slurm.transport.ssh.shell.calls import ShellAnswer, number

__all__ = ["RemoteFiles", "failure", "percent_b"]

_CHUNK: Final = 4 << 20  # bytes; what a broken connection costs at most
_LEAST: Final = 256 << 10  # bytes of a chunk that is written
_MOMENT: Final = 1.0  # seconds
_INLINE: Final = 8 << 10  # bytes that travel as an argument: some shells read their commands byte by byte
_AT_ONCE: Final = 100  # files that one command looks at

# What coreutils say in the C locale, and two phrases of dash.
_ERRORS: Final = {os.strerror(number): number for number in errno.errorcode} | {
    "Directory nonexistent": errno.ENOENT,
    "No such file": errno.ENOENT,
    "cannot overwrite existing file": errno.EEXIST,
    "I/O error": errno.ENOSPC,  # dash says that of every write that fails: mostly no room is left
}


class RemoteCall(Protocol):
    """Calls a function of the far shell; all calls here may be made twice."""

    def __call__(self, words: Sequence[str], stdin: memoryview | None = None) -> Awaitable[ShellAnswer]: ...


def percent_b(data: bytes) -> str:
    """Return bytes as ``printf %b`` takes them: a shell's words hold no NUL."""
    return data.replace(b"\\", b"\\\\").replace(b"\0", b"\\0000").decode("utf-8", "surrogateescape")


def failure(answer: ShellAnswer, action: str, path: str) -> Exception:
    """Return the error that the far side's complaint stands for."""
    said = answer.stderr.decode("utf-8", "replace").strip()
    reason = said.splitlines()[-1].rpartition(": ")[2] if said else "it failed without a word"
    number = next((number for text, number in _ERRORS.items() if reason.endswith(text)), None)
    try:
        with told(action, path):
            if number is None:
                raise TransportError(f"cannot {action} {path}: {reason}", path=path)
            raise OSError(number, os.strerror(number), path)
    except (OSError, TransportError) as error:
        return error


def _file_stat(said: bytes) -> FileStat:
    """Read size and time as stat(1) tells them."""
    size, _, mtime = said.decode("ascii", "replace").strip().partition(" ")
    for part in mtime.removeprefix("-").split("."):
        number(part)
    return FileStat(number(size), float(mtime))


class RemoteFiles:
    """The file methods of :class:`jupyter_slurm.transport.base.Transport`.

    Parameters
    ----------
    call : callable
        Calls a function of the far shell, and again when the connection broke.
    """

    def __init__(self, call: RemoteCall) -> None:
        self._call = call

    async def read(self, path: str, offset: int, limit: int | None) -> bytes:
        """Read in chunks; a broken connection costs one of them."""
        data = bytearray()
        while limit is None or len(data) < limit:
            want = _CHUNK if limit is None else min(_CHUNK, limit - len(data))
            answer = await self._call(["js_read", path, str(offset + len(data)), str(want)])
            if answer.value != "0":
                raise failure(answer, "read", path)
            data += answer.stdout[:want]
            if len(answer.stdout) < want:
                break
        return bytes(data)

    async def bring(self, contents: Mapping[str, bytes], sent: Sent | None) -> None:
        """Write new files, 0600, by path; where that fails or is cancelled, none of them stays."""
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
        if len(data) <= _INLINE:
            await self._done(["js_put", draft, path, f"{mode:04o}", percent_b(data)], "write", path)
            return
        try:
            await self._fill(draft, data, path, lambda _: None)
            await self._done(["js_settle", draft, path, f"{mode:04o}"], "write", path)
        except BaseException:
            with contextlib.suppress(TransportError):
                await self._call(["js_do", "rm", "-f", "--", draft])
            raise

    async def _fill(self, draft: str, data: bytes, path: str, arrived: Callable[[int], None]) -> None:
        """Write a file that nobody reads yet, chunk by chunk: as much at once as goes in a moment."""
        view, at, size = memoryview(data), 0, _LEAST
        while part := view[at : at + size]:
            begun = time.monotonic()
            # Each chunk goes to its place, so that it does not matter if an earlier connection wrote it too.
            answer = await self._call(["js_take", draft, str(at), str(len(part))], part)
            if answer.value != "0":
                raise failure(answer, "write", path)
            at += len(part)
            size = min(2 * size, _CHUNK) if time.monotonic() - begun < _MOMENT else max(size // 2, _LEAST)
            arrived(len(part))

    async def stat(self, path: str) -> FileStat:
        """Look at a file."""
        answer = await self._done(["js_do", "stat", "-L", "-c", "%s %.9Y", "--", path], "look at", path)
        return _file_stat(answer.stdout)

    async def stat_all(self, paths: Sequence[str]) -> dict[str, FileStat]:
        """Look at many files."""
        found: dict[str, FileStat] = {}
        for at in range(0, len(paths), _AT_ONCE):
            some = paths[at : at + _AT_ONCE]
            answer = await self._call(["js_do", "stat", "-L", "--printf", r"%s %.9Y %n\0", "--", *some])
            for line in answer.stdout.split(b"\0")[:-1]:
                size, _, rest = line.partition(b" ")
                mtime, _, name = rest.partition(b" ")
                found[os.fsdecode(name)] = _file_stat(size + b" " + mtime)
        return found

    async def make_dir(self, path: str) -> None:
        """Make a directory and its parents, 0700."""
        await self._done(["js_make", path], "make the folder", path)

    async def list_dir(self, path: str) -> list[str]:
        """List names, whatever is in them."""
        answer = await self._done(["js_list", path], "list", path)
        return [os.fsdecode(name) for name in answer.stdout.split(b"\0")[:-1]]

    async def remove(self, path: str) -> None:
        """Remove a file or a tree."""
        await self._done(["js_do", "rm", "-rf", "--", path.rstrip("/") or "/"], "remove", path)

    async def _done(self, words: Sequence[str], action: str, path: str) -> ShellAnswer:
        answer = await self._call(words)
        if answer.value != "0":
            raise failure(answer, action, path)
        return answer
