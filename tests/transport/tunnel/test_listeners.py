"""The local end of a tunnel."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.sockets import until

from jupyter_slurm.errors import TunnelError
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.tunnel.forwarder import Forwarder
from jupyter_slurm.transport.tunnel.local_listeners import listen_on_port, listen_on_socket

_STRANGER = 12345
_LOWEST = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())


def _as_stranger(code: str, *args: str) -> str:
    become = f"import os, socket, sys; os.setgroups([]); os.setgid({_STRANGER}); os.setuid({_STRANGER})\n"
    argv = [sys.executable, "-I", "-c", become + code, *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("kind", ["port", "socket"])
def test_another_user_is_turned_away_before_anything_is_dialled(
    kind: str, short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dialled: list[Any] = []

    def dial() -> Stream:
        dialled.append(None)
        raise TunnelError("nobody is there")

    folder = short_tmp / secrets.token_hex(4)
    folder.mkdir(mode=0o700)
    where = str(folder / "s")
    listener = listen_on_socket(where) if kind == "socket" else listen_on_port(range(18000, 19000), among="")
    forwarder = Forwarder(listener, dial)
    address = where if kind == "socket" else str(forwarder.address)
    if kind == "socket":  # even if all users may connect: the peer is checked
        assert os.stat(where).st_mode & 0o777 == 0o600
        os.chmod(where, 0o666)
        for path in (folder, *folder.parents[:-2]):
            os.chmod(path, os.stat(path).st_mode | 0o011)
    code = (
        "kind, where = sys.argv[1:]\n"
        "sock = socket.socket(socket.AF_UNIX if kind == 'socket' else socket.AF_INET)\n"
        "sock.settimeout(30)\n"
        "try:\n"
        "    sock.connect(where if kind == 'socket' else ('127.0.0.1', int(where)))\n"
        "    sock.sendall(b'GET / HTTP/1.0')\n"
        "    print(sock.recv(100))\n"
        "except ConnectionError as error:\n"
        "    print(type(error).__name__)\n"
    )
    with caplog.at_level("WARNING"):
        said = _as_stranger(code, kind, address)
    forwarder.close()
    assert said in ("ConnectionResetError", "BrokenPipeError", "b''")
    assert dialled == []
    assert f"user {_STRANGER}" in caplog.text


def _listen(sock: socket.socket, address: str, port: int) -> None:
    sock.bind((address, port))
    sock.listen()


def test_a_port_that_somebody_has_is_passed_over_and_ours_is_shared_with_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with listen_on_port([taken, 0], among="") as ours:
            port = ours.getsockname()[1]
            assert port != taken
            for address in ("127.0.0.1", ""):
                rival = socket.socket()
                rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                with rival, pytest.raises(OSError, match="in use"):
                    _listen(rival, address, port)
        with pytest.raises(TunnelError, match="No local port is free: these") as full:
            listen_on_port([taken], among="these")
        assert "--list" in full.value.hint


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.skipif(_LOWEST <= 80, reason="here everybody may listen on low ports")
def test_a_port_that_is_for_root_alone_is_not_taken_for_a_busy_one() -> None:
    os.seteuid(_STRANGER)
    try:
        with pytest.raises(TunnelError, match="no permission to listen on port 80"):
            listen_on_port([80], among="80")
    finally:
        os.seteuid(0)


def test_a_closed_tunnel_gives_its_port_up_and_ends_its_connections() -> None:
    ends = [socket.socketpair() for _ in range(3)]
    waiting = iter(ends)

    class Far:
        def __init__(self, sock: socket.socket) -> None:
            self._sock, self.recv, self.sendall = sock, sock.recv, sock.sendall

        def shutdown_write(self) -> None:
            self._sock.shutdown(socket.SHUT_WR)

        def close(self) -> None:
            self._sock.close()

    forwarder = Forwarder(listen_on_port([0], among=""), lambda: Far(next(waiting)[0]))
    near = [socket.create_connection(("127.0.0.1", forwarder.address), 30) for _ in ends]
    until(lambda: forwarder.connections == 3)
    forwarder.close()
    for _, far in ends:
        far.settimeout(30)
        assert far.recv(1) == b""
        far.close()
    for sock in near:
        sock.close()
    until(lambda: forwarder.connections == 0)
    with listen_on_port([int(forwarder.address)], among=""):
        pass
