"""Tests of the sockets of viewers: one connection each, and none remains."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_slurm.services.terminals.viewer_sockets import ViewerSockets
from jupyter_slurm.transport.local.streams import SocketStream


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
