"""Copies between a stream and a file descriptor, in the kernel of Linux where the stream has files (splice(2))."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from typing import Final, TypeGuard

from jupyter_slurm.transport.base import FileStream, Stream, has_files

__all__ = ["copy_from", "copy_to"]

_CHUNK_BYTES: Final = 256 << 10


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
        left = memoryview(data)
        while left:
            left = left[os.write(target, left) :]


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


def _splice(source: int, target: int) -> Generator[int, None, None]:
    output, entry = os.pipe()
    with contextlib.suppress(OSError):  # a user has only so many large pipes
        fcntl.fcntl(entry, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)
    try:
        while size := os.splice(source, entry, _CHUNK_BYTES):
            yield size
            left = size
            while left:
                left -= os.splice(output, target, left)
    finally:
        os.close(output)
        os.close(entry)
