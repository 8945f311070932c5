"""tar archives between a local folder and a transport's directory, over the existing connection.

For hosts without rsync. What a host sends is checked: only entries that were asked for, of the kind that was listed,
below one directory that is opened without following links.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import secrets
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Final, cast

from jupyter_slurm.domain.storage.transfer_rules import DIRECTORY, FILE, LINK, Entry
from jupyter_slurm.errors import CommandError, TransportError
from jupyter_slurm.transport.base import Stream, Transport

__all__ = ["Archive"]

_CONNECT_TIMEOUT_S: Final = 60.0
_BLOCK_BYTES: Final = 1 << 18
_MAX_HEADER_BYTES: Final = 1 << 14
_MAX_TIME_S: Final = 1 << 62
_GROWTH_BYTES: Final = 1 << 30
_EARLY_ENDS: Final = ("unexpected end of data", "truncated header", "empty file")  # words of tarfile
"""Bytes by which the files may have grown since they were listed."""
# tar --format=gnu has headers of these kinds, and those with a long name or target.
_KINDS: Final = {DIRECTORY: tarfile.DIRTYPE, FILE: tarfile.REGTYPE, LINK: tarfile.SYMTYPE}
_HEADERS: Final = (*_KINDS.values(), tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The shell before the empty line may have read the bytes sent before the line. A command that ends looks like a broken
# stream, so each prints a random word at its end.
_UNPACK: Final = 'cd -- "$1" && echo && tar -xof - && printf %s "$2"'
_PACK: Final = """
cd -- "$1" && echo || exit
tar -cf - --format=gnu --hard-dereference --no-recursion --null -T -
[ $? -le 1 ] && printf %s "$2"  # 1: a file has changed meanwhile
"""


class Archive:
    """Files between a local folder and a directory of a host, as one tar stream.

    Parameters
    ----------
    transport : Transport
        Transport to the host.
    local_path, remote_path : str
        Absolute folders: local, and remote.
    moved : callable
        Called with the number of bytes, whenever it grows.
    """

    def __init__(self, transport: Transport, local_path: str, remote_path: str, moved: Callable[[int], None]) -> None:
        self._transport, self._local_path, self._remote_path = transport, local_path, remote_path
        self._moved, self._done = moved, 0
        self._stream: Stream | None = None
        self._end = secrets.token_hex(16).encode("ascii")
        self._is_stopped = False

    async def run(self, entries: Mapping[str, Entry], *, is_pull: bool) -> None:
        """Send the entries, or with ``is_pull`` receive them. A cancellation ends the stream.

        Raises
        ------
        TransportError
            The connection broke. The run may be repeated.
        CommandError
            tar failed, or the host has sent something else than was asked for.
        """
        running = asyncio.ensure_future(asyncio.to_thread(self._run, entries, is_pull))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._is_stopped = True
            if self._stream is not None:
                self._stream.close()
            with contextlib.suppress(Exception):
                await running
            raise

    def _run(self, entries: Mapping[str, Entry], is_pull: bool) -> None:
        script = _PACK if is_pull else _UNPACK
        argv = ["/bin/sh", "-c", script, "sh", self._remote_path, self._end.decode()]
        stream = self._stream = self._transport.pipe(argv, _CONNECT_TIMEOUT_S)
        try:
            if self._is_stopped:
                return
            _recv(stream, 1)
            if is_pull:
                self._receive(stream, entries)
            else:
                self._send(stream, entries)
        except (OSError, tarfile.TarError, RecursionError) as error:
            raise _as_error(error) from error
        finally:
            stream.close()

    # -- to the host

    def _send(self, stream: Stream, entries: Mapping[str, Entry]) -> None:
        writer = cast("IO[bytes]", _Writer(stream, self._count))
        with (
            tarfile.open(
                fileobj=writer, mode="w|", bufsize=_BLOCK_BYTES, format=tarfile.GNU_FORMAT, encoding="utf-8"
            ) as archive,
            _Directories(self._local_path) as directories,
        ):
            for path in sorted(entries):
                _add(archive, directories, path)
        with _breaking():
            stream.shutdown_write()
        _read_end(stream, self._end)

    def _count(self, size: int) -> None:
        self._done += size
        self._moved(self._done)

    # -- from the host

    def _receive(self, stream: Stream, entries: Mapping[str, Entry]) -> None:
        missing, paths = dict(entries), sorted(entries)  # directories come before their files
        asked = "".join(f"./{path}\0" for path in paths).encode("utf-8", "surrogateescape")
        sending = threading.Thread(target=_send_names, args=(stream, asked), name="jupyter-slurm-tar", daemon=True)
        sending.start()
        most = sum(entry.size for entry in entries.values() if entry.kind == FILE) + _GROWTH_BYTES
        reader = _Reader(stream, self._end, self._count)
        with (
            tarfile.open(
                fileobj=cast("IO[bytes]", reader), mode="r|", bufsize=_BLOCK_BYTES, encoding="utf-8", tarinfo=_Member
            ) as archive,
            _Directories(self._local_path, makes=True) as directories,
        ):
            for member in archive:
                path = posixpath.normpath(member.name)
                most -= member.size
                if most < 0 or not _is_asked(member, missing.pop(path, None)):
                    raise _Refused(path)
                _extract(archive, member, directories, path)
        _read_end(stream, self._end, reader.tail)
        sending.join()


class _Member(tarfile.TarInfo):
    """Header of an archive, which Python reads whole: of few kinds, and with texts of a limited size."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        is_text = self.type not in _KINDS.values()
        if self.type not in _HEADERS or (is_text and self.size > _MAX_HEADER_BYTES):
            raise _Refused(self.name)
        return cast("tarfile.TarInfo", super()._proc_member(archive))  # type: ignore[misc]


def _is_asked(member: tarfile.TarInfo, entry: Entry | None) -> bool:
    if entry is None or member.type != _KINDS[entry.kind] or member.size < 0 or abs(member.mtime) > _MAX_TIME_S:
        return False
    return not member.issym() or member.linkname == entry.target


class _Refused(OSError):
    """The host has sent an entry that was not asked for."""


class _Directories:
    """Open directories below a folder, of which the last is kept. No link is followed.

    With ``makes``, missing directories are made: those of the destination itself are not sent.
    """

    def __init__(self, folder: str, *, makes: bool = False) -> None:
        self._makes = makes
        self._top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._last: tuple[str, int] | None = None

    def __enter__(self) -> _Directories:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_last()
        os.close(self._top)

    def at(self, path: str) -> tuple[int, str]:
        """Return the directory of a path, and the name of the path in it."""
        folder, name = posixpath.split(path)
        if not folder:
            return self._top, name
        if self._last is None or self._last[0] != folder:
            self._close_last()
            self._last = folder, _open_below(self._top, folder.split("/"), self._makes)
        return self._last[1], name

    def _close_last(self) -> None:
        if self._last is not None:
            os.close(self._last[1])
            self._last = None


def _open_below(top: int, parts: Sequence[str], makes: bool) -> int:
    file = os.dup(top)
    for part in parts:
        try:
            if makes:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=file)
            inner = os.open(part, _FLAGS, dir_fd=file)
        finally:
            os.close(file)
        file = inner
    return file


def _add(archive: tarfile.TarFile, directories: _Directories, path: str) -> None:
    at, name = directories.at(path)
    found = os.lstat(name, dir_fd=at)
    member = tarfile.TarInfo(f"./{path}")
    member.mtime, member.mode = int(found.st_mtime), found.st_mode & 0o777
    if stat.S_ISDIR(found.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISLNK(found.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=at)
        archive.addfile(member)
    else:
        with _open_file(name, at) as file:
            member.size = os.fstat(file.fileno()).st_size
            archive.addfile(member, file)


def _open_file(name: str, at: int) -> IO[bytes]:
    return os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at), "rb")


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, directories: _Directories, path: str) -> None:
    at, name = directories.at(path)
    if member.isdir():
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, (member.mode & 0o777) | 0o700, dir_fd=at)  # less the umask, as rsync does it
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=at)  # the beginning of an earlier run
    if member.issym():
        os.symlink(member.linkname, name, dir_fd=at)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    source = cast("IO[bytes]", archive.extractfile(member))
    with os.fdopen(os.open(name, flags, member.mode & 0o777, dir_fd=at), "wb") as file:
        for data in _blocks(source):
            file.write(data)
        file.flush()
        os.utime(file.fileno(), (member.mtime, member.mtime))


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while data := file.read(_BLOCK_BYTES):
        yield data


class _Broken(OSError):
    """The stream broke: the text is that of the command, if it has printed any."""


@contextlib.contextmanager
def _breaking() -> Iterator[None]:
    """Tell an error of the stream from one of a local file."""
    try:
        yield
    except OSError as error:
        raise _Broken(str(error)) from error


def _recv(stream: Stream, size: int) -> bytes:
    with _breaking():
        if data := stream.recv(size):
            return data
        raise ConnectionResetError("it ended early")


class _Writer:
    def __init__(self, stream: Stream, count: Callable[[int], None]) -> None:
        self._stream, self._count = stream, count

    def write(self, data: bytes) -> int:
        try:
            with _breaking():
                self._stream.sendall(data)
        except _Broken:
            _recv(self._stream, 1)  # its error has the text of the command
            raise
        self._count(len(data))
        return len(data)


class _Reader:
    """Stream in blocks of the requested size; the last bytes are kept for :func:`_read_end`."""

    def __init__(self, stream: Stream, end: bytes, count: Callable[[int], None]) -> None:
        self._stream, self._end, self._count, self.tail = stream, end, count, b""

    def read(self, size: int) -> bytes:
        parts, missing = list[bytes](), size
        while missing and not self.tail.endswith(self._end):
            data = _recv(self._stream, missing)
            parts.append(data)
            missing -= len(data)
            self.tail = (self.tail + data)[-len(self._end) :]
            self._count(len(data))
        return b"".join(parts)


def _read_end(stream: Stream, end: bytes, tail: bytes = b"") -> None:
    """Read a stream to the end of its command.

    Raises
    ------
    OSError
        The command failed, or the stream broke.
    """
    while not tail.endswith(end):
        tail = (tail + _recv(stream, _BLOCK_BYTES))[-len(end) :]


def _send_names(stream: Stream, names: bytes) -> None:
    with contextlib.suppress(OSError):  # the reader of the archive notices it, too
        stream.sendall(names)
        stream.shutdown_write()


def _as_error(error: OSError | tarfile.TarError | RecursionError) -> CommandError | TransportError:
    # Headers that announce headers; and what newer versions of Python refuse themselves, such as a negative size.
    if isinstance(error, _Refused | RecursionError) or (
        isinstance(error, tarfile.TarError) and str(error) not in _EARLY_ENDS
    ):
        return CommandError(
            "The cluster sent a file that was not asked for, or one of another kind. The transfer was stopped.",
            hint="Check who can write to the directory on the cluster.",
        )
    if isinstance(error, _Broken):
        said = str(error)
        if "tar:" in said:
            return CommandError(
                f"The cluster could not unpack or pack files: {said[:500]}", hint="Check its free space: `%slurm room`."
            )
        return TransportError(
            f"The connection for tar broke: {said}", hint="Run the command again: complete files are not sent twice."
        )
    if isinstance(error, tarfile.TarError):
        return TransportError(
            f"The archive of the cluster ended early: {error}.",
            hint="Run the command again: complete files are not sent twice.",
        )
    return CommandError(
        f"A file could not be copied: {error.strerror or error}.", hint="Check the free space and the permissions."
    )
