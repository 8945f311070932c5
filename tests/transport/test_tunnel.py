"""Tunnels: a local port that leads to a port of a machine behind SSH, for its user only."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import SshHost

from jupyter_slurm.errors import SlurmError, TunnelError
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.tunnel.forwarder import Forwarder
from jupyter_slurm.transport.tunnel.listeners import listen_on_port, listen_on_socket

_ECHO = """
import socket, sys, threading
def serve(connection):
    with connection:
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
server = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=256)
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def new_forwarder() -> Iterator[Callable[..., Forwarder]]:
    """``new_forwarder(dial, ports=…)``; it is closed after the test."""
    made: list[Forwarder] = []

    def make(dial: Callable[[], Stream], ports: Any = range(18000, 19000), **options: Any) -> Forwarder:
        made.append(Forwarder(listen_on_port(ports, among="those of the test"), dial, **options))
        return made[-1]

    yield make
    for forwarder in made:
        forwarder.close()


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., int]]:
    """``serve(host, code, *args)``: a program of the host's user there, which prints its port; returns that."""
    running: list[subprocess.Popen[str]] = []

    def start(host: SshHost, code: str = _ECHO, *args: str, user: str | None = None) -> int:
        argv = host.command("/usr/bin/python3", "-c", code, *(args or ("0",)), user=user or host.user)
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True))
        assert running[-1].stdout is not None
        return int(running[-1].stdout.readline())

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)  # it is a child of what has entered the host
        process.communicate()


async def connected(connect: Callable[..., Any], host: SshHost, **options: Any) -> Any:
    there = connect(host, **options)
    await there.link.connect()
    return there


def ask(port: int, data: bytes) -> bytes:
    """Send all, say so, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sender = threading.Thread(target=lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR)))
        sender.start()
        answer = b"".join(iter(lambda: sock.recv(1 << 18), b""))
        sender.join()
    return answer


@pytest.mark.root
async def test_a_port_of_the_login_node_is_brought_here(
    connect: Callable[..., Any], login_node: SshHost, serve: Callable[..., int], new_forwarder: Callable[..., Forwarder]
) -> None:
    """Both directions at once, half-closed in the end, byte for byte."""
    port = serve(login_node)
    there = await connected(connect, login_node)
    forwarder = new_forwarder(lambda: there.transport.dial("127.0.0.1", port, 10))
    data = secrets.token_bytes(20_000_000)
    answer = await asyncio.to_thread(ask, forwarder.address, data)
    assert hashlib.sha256(answer).digest() == hashlib.sha256(data).digest()
