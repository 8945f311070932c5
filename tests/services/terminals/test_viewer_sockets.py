"""Tests of the sockets of viewers: one connection each, and none remains."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_slurm.client.clusters.terminal import TerminalViewer, frame
from jupyter_slurm.services.terminals.viewer_sockets import ViewerSockets
from jupyter_slurm.transport.local.streams import CommandStream, SocketStream


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connect(path: str) -> socket.socket:
    viewer = socket.socket(socket.AF_UNIX)
    viewer.settimeout(30)
    viewer.connect(path)
    return viewer


def threads() -> int:
    return sum(one.name == "jupyter-slurm-tunnel" for one in threading.enumerate())


def test_a_socket_ends_with_its_viewer(tmp_path: Path) -> None:
    sockets, before = ViewerSockets(str(tmp_path / "sockets")), threads()
    for _ in range(5):
        near, far = socket.socketpair()
        with far:
            far.settimeout(30)
            with connect(path := sockets.open(SocketStream(near))) as viewer:
                viewer.sendall(b"typed")
                assert far.recv(10) == b"typed"
                assert (sockets.viewers, sockets.count) == (1, 1)
                with connect(path) as second:
                    assert second.recv(1) == b""
        wait(lambda: sockets.count == 0)
        assert not os.path.exists(path)
    wait(lambda: threads() == before)
    assert os.listdir(tmp_path / "sockets") == []


@pytest.fixture
def command() -> Iterator[CommandStream]:
    """Return the streams of a command that prints what it gets."""
    stream = CommandStream(["cat"], None)
    yield stream
    stream.close()


def test_a_viewer_gets_the_files_of_a_connection(tmp_path: Path, command: CommandStream) -> None:
    """Bytes pass beside the agent: it would carry those that a viewer writes to the socket."""
    sockets = ViewerSockets(str(tmp_path / "sockets"))
    viewer = TerminalViewer(path := sockets.open(command), has_files=True)
    assert viewer.source is not viewer.sock
    assert not viewer.source.get_inheritable()
    assert not viewer.sink.get_inheritable()
    viewer.send(b"typed")
    viewer.source.settimeout(30)
    assert viewer.source.recv(100) == frame(b"i", b"typed")
    assert (sockets.viewers, sockets.count) == (1, 1)
    viewer.source.shutdown(socket.SHUT_WR)  # the command ends
    assert viewer.source.recv(1) == b""
    viewer.close()
    wait(lambda: sockets.count == 0)
    assert not os.path.exists(path)


def test_a_command_ends_with_the_viewer_that_has_its_files(tmp_path: Path, command: CommandStream) -> None:
    sockets = ViewerSockets(str(tmp_path / "sockets"))
    viewer = TerminalViewer(sockets.open(command), has_files=True)
    viewer.source.settimeout(30)
    viewer.sock.shutdown(socket.SHUT_RDWR)
    assert viewer.source.recv(1) == b""
    viewer.close()
    wait(lambda: sockets.count == 0)


def test_the_agent_ends_a_viewer_that_has_the_files(tmp_path: Path, command: CommandStream) -> None:
    sockets = ViewerSockets(str(tmp_path / "sockets"))
    viewer = TerminalViewer(sockets.open(command), has_files=True)
    sockets.close()
    for sock in (viewer.sock, viewer.source):
        sock.settimeout(30)
        assert sock.recv(1) == b""
    viewer.close()


@pytest.mark.parametrize("first", [b"typed", b"f", frame(b"i", b"x")])
def test_the_agent_carries_the_bytes_of_a_viewer_that_asks_for_no_files(
    tmp_path: Path, command: CommandStream, first: bytes
) -> None:
    sockets = ViewerSockets(str(tmp_path / "sockets"))
    with connect(sockets.open(command)) as viewer:
        viewer.sendall(first)
        assert viewer.recv(100) == first


def test_the_last_output_arrives(tmp_path: Path) -> None:
    sockets, output = ViewerSockets(str(tmp_path / "sockets")), os.urandom(1 << 20)
    near, far = socket.socketpair()
    with connect(sockets.open(SocketStream(near))) as viewer, far:
        threading.Thread(target=lambda: (far.sendall(output), far.close()), daemon=True).start()
        read = bytearray()
        while data := viewer.recv(1 << 16):
            read += data
    assert bytes(read) == output


def test_a_socket_without_a_viewer_is_closed_with_its_stream(tmp_path: Path) -> None:
    sockets = ViewerSockets(str(tmp_path / "sockets"), timeout=0.2)
    near, far = socket.socketpair()
    sockets.open(SocketStream(near))
    wait(lambda: sockets.count == 0)
    with far:
        far.settimeout(30)
        assert far.recv(1) == b""


def test_all_are_closed_at_the_end(tmp_path: Path) -> None:
    near, far = socket.socketpair()
    sockets = ViewerSockets(str(tmp_path / "sockets"))
    with far, connect(sockets.open(SocketStream(near))) as viewer:
        viewer.sendall(b"x")
        far.recv(1)
        sockets.close()
        assert viewer.recv(1) == b""
        assert sockets.count == 0
