"""Copies between a stream and a file descriptor, in the kernel of Linux where the stream has files (splice(2))."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Generator, Iterator
from typing import Final, TypeGuard

from jupyter_slurm.transport.base import FileStream, Stream, has_files

__all__ = ["copy_from", "copy_to"]

_CHUNK_BYTES: Final = 256 << 10
_REFUSED: Final = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)


def copy_from(stream: Stream, target: int) -> Generator[int, None, None]:
    """Copy what a stream receives into a file, to the stream's end. Yield the bytes of each piece before it is written.

    Raises
    ------
    OSError
        The stream broke, or the file takes no more.
    """
    if _can_splice(stream):
        output, entry = stream.duplicates()
        with output, entry, contextlib.suppress(ConnectionResetError):  # the command ended with unread input
            yield from _splice(output.fileno(), target)
    while data := stream.recv(_CHUNK_BYTES):  # after splice, it tells how the stream ended
        yield len(data)
        _write(target, data)


def copy_to(source: int, stream: Stream) -> Generator[int, None, None]:
    """Copy a file into a stream, to the file's end. Yield the bytes of each piece before it is sent.

    Raises
    ------
    OSError
        The stream broke.
    """
    if _can_splice(stream):
        output, entry = stream.duplicates()
        with output, entry:
            yield from _splice(source, entry.fileno())
        return
    while data := os.read(source, _CHUNK_BYTES):
        yield len(data)
        stream.sendall(data)


def _can_splice(stream: Stream) -> TypeGuard[FileStream]:
    return hasattr(os, "splice") and has_files(stream)


def _splice(source: int, target: int) -> Iterator[int]:
    """Copy by splice(2). A sandbox or an old kernel may refuse it; the bytes are then read and written."""
    output, entry = os.pipe()
    try:
        with contextlib.suppress(OSError, AttributeError):  # a user has only so many large pipes
            fcntl.fcntl(entry, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)
        try:
            size = os.splice(source, entry, _CHUNK_BYTES)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            yield from _read_and_write(source, target)
            return
        while size:
            yield size
            while size:
                size -= os.splice(output, target, size)
            size = os.splice(source, entry, _CHUNK_BYTES)
    finally:
        os.close(output)
        os.close(entry)


def _read_and_write(source: int, target: int) -> Iterator[int]:
    while data := os.read(source, _CHUNK_BYTES):
        yield len(data)
        _write(target, data)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
