"""Output on its way from a thread to the event loop, in bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import Final

__all__ = ["OutputQueue"]

_MAX_WAITING_BYTES: Final = 1 << 20
_MAX_PIECE_BYTES: Final = 1 << 18


class OutputQueue:
    """Queue whose writer waits while it is full. Made in the loop of its reader."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._changed = threading.Condition()
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._is_closed = False

    def put(self, stream: int, data: bytes) -> None:
        """Append output; called in a thread, which waits while the queue is full.

        Raises
        ------
        BrokenPipeError
            There is no reader any more.
        """
        with self._changed:
            while self._size >= _MAX_WAITING_BYTES and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                raise BrokenPipeError("the reader has gone")
            if not data:
                return
            self._pieces.append((stream, data))
            self._size += len(data)
        self._wake()

    async def take(self) -> tuple[int, bytes] | None:
        """Wait for output, and return the next piece of one stream; None: the queue was ended and is empty."""
        while True:
            self._ready.clear()
            with self._changed:
                if self._pieces:
                    return self._join()
                if self._is_closed:
                    return None
            await self._ready.wait()

    def close(self) -> None:
        """Accept no more output, from any thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._wake()

    def _join(self) -> tuple[int, bytes]:
        stream, data = self._pieces.popleft()
        parts, size = [data], len(data)
        while self._pieces and self._pieces[0][0] == stream and size < _MAX_PIECE_BYTES:
            parts.append(self._pieces.popleft()[1])
            size += len(parts[-1])
        self._size -= size
        self._changed.notify_all()
        return stream, b"".join(parts)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the reader with it
            self._loop.call_soon_threadsafe(self._ready.set)
