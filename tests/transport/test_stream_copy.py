"""Copies between a stream and a file descriptor, with the streams of a real command."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_slurm.transport.local.streams import CommandStream
from jupyter_slurm.transport.stream_copy import copy_from, copy_to

DATA = os.urandom(3_000_001)


@pytest.fixture(params=["in the kernel", "splice is refused", "without splice"])
def copying(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways: a sandbox or an old kernel may refuse splice(2), and other systems do not have it."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    if request.param == "without splice":
        monkeypatch.delattr(os, "splice")
    elif request.param == "splice is refused":
        monkeypatch.setattr(os, "splice", refuse)
        monkeypatch.delattr(fcntl, "F_SETPIPE_SZ")
    return str(request.param)


@pytest.fixture
def cat() -> Iterator[CommandStream]:
    stream = CommandStream(["cat"], None)
    yield stream
    stream.close()


@pytest.mark.usefixtures("copying")
def test_all_bytes_are_copied_and_counted(tmp_path: Path, cat: CommandStream) -> None:
    (tmp_path / "source").write_bytes(DATA)
    sent = list[int]()

    def send() -> None:
        with open(tmp_path / "source", "rb") as source:
            sent.extend(copy_to(source.fileno(), cat))
        cat.shutdown_write()

    sending = threading.Thread(target=send)
    sending.start()
    received = list[int]()
    with open(tmp_path / "target", "wb") as target, pytest.raises(ConnectionResetError, match="ended"):
        received.extend(copy_from(cat, target.fileno()))
    sending.join()
    assert (tmp_path / "target").read_bytes() == DATA
    assert sum(sent) == sum(received) == len(DATA)


@pytest.mark.usefixtures("copying")
def test_a_piece_is_announced_before_it_is_written(tmp_path: Path, cat: CommandStream) -> None:
    """Check that a reader who stops in time, such as at a limit, has not written the piece."""
    cat.sendall(b"too much")
    with open(tmp_path / "target", "wb") as target:
        sizes = copy_from(cat, target.fileno())
        assert next(sizes) == len(b"too much")
        sizes.close()
    assert (tmp_path / "target").read_bytes() == b""


@pytest.mark.usefixtures("copying")
def test_the_error_of_the_command_ends_the_copy(tmp_path: Path) -> None:
    stream = CommandStream(["sh", "-c", "printf abc; echo no such disk >&2; exit 3"], None)
    with open(tmp_path / "target", "wb") as target, pytest.raises(ConnectionResetError, match="no such disk"):
        list(copy_from(stream, target.fileno()))
    stream.close()
    assert (tmp_path / "target").read_bytes() == b"abc"


@pytest.mark.usefixtures("copying")
def test_a_closed_stream_ends_both_copies(tmp_path: Path) -> None:
    """Check a command that neither reads nor writes, when its connection is given up."""
    stream = CommandStream(["sleep", "600"], None)
    (tmp_path / "source").write_bytes(DATA)
    ended = list[str]()

    def send() -> None:
        with open(tmp_path / "source", "rb") as source, contextlib.suppress(OSError):
            list(copy_to(source.fileno(), stream))
        ended.append("sent")

    def receive() -> None:
        with open(tmp_path / "target", "wb") as target, contextlib.suppress(OSError):
            list(copy_from(stream, target.fileno()))
        ended.append("received")

    threads = [threading.Thread(target=act, daemon=True) for act in (send, receive)]
    for thread in threads:
        thread.start()
    stream.close()
    for thread in threads:
        thread.join(30)
    assert sorted(ended) == ["received", "sent"]
