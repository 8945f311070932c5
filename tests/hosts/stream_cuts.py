"""A connection that breaks once after some bytes, by whatever way they are copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_slurm.transport import rsync

__all__ = ["cut_once"]


def cut_once(desk: Any, monkeypatch: pytest.MonkeyPatch, after: int) -> list[int]:
    """Break the connection of a desk's cluster once, after so many bytes in either direction; return their list."""
    transport, carried = desk.core.cluster(desk.id).client.transport, list[int]()
    pipe, is_cut = transport.pipe, list[bool]()

    def count(stream: Any, size: int) -> None:
        carried.append(size)
        if sum(carried) > after and not is_cut:
            is_cut.append(True)
            stream.close()

    def counted_pipe(*args: Any, **more: Any) -> Any:
        stream = pipe(*args, **more)
        sendall, recv = stream.sendall, stream.recv

        def counted_sendall(data: bytes) -> None:
            count(stream, len(data))
            sendall(data)

        def counted_recv(size: int) -> bytes:
            data: bytes = recv(size)
            count(stream, len(data))
            return data

        stream.sendall, stream.recv = counted_sendall, counted_recv
        return stream

    def counted_copy(copy: Callable[..., Iterator[int]], stream_at: int) -> Callable[..., Iterator[int]]:
        def copied(*ends: Any) -> Iterator[int]:
            for size in copy(*ends):
                count(ends[stream_at], size)
                yield size

        return copied

    monkeypatch.setattr(transport, "pipe", counted_pipe)
    monkeypatch.setattr(rsync, "copy_from", counted_copy(rsync.copy_from, 0))
    monkeypatch.setattr(rsync, "copy_to", counted_copy(rsync.copy_to, 1))
    monkeypatch.setattr("jupyter_slurm.services.transfers.transfers._MAX_ATTEMPTS", 1)
    return carried
