"""Owners of the listening ports of this machine."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys

import pytest

from jupyter_slurm.transport.listening_ports import first_free, listeners

_LISTEN = """
import socket, sys
server = socket.create_server(("", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("family", "address", "counts"),
    [
        (socket.AF_INET, "127.0.0.1", True),
        (socket.AF_INET, "0.0.0.0", True),
        (socket.AF_INET, "127.8.8.8", True),
        (socket.AF_INET6, "::ffff:127.0.0.1", True),
        (socket.AF_INET6, "::1", False),
    ],
)
def test_listeners_are_found(family: socket.AddressFamily, address: str, counts: bool) -> None:
    with socket.socket(family) as server:
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip("no IPv6 here")
        server.listen()
        port = server.getsockname()[1]
        assert (listeners().get(port) == os.getuid()) == counts
    assert port not in listeners()


@pytest.mark.root
def test_they_have_owners(alice: str) -> None:
    python = f"/usr/bin/python3.{sys.version_info.minor}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([python, "-c", _LISTEN], user=alice, cwd="/", text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(process.stdout.readline())
        assert listeners()[port] == pwd.getpwnam(alice).pw_uid
        assert first_free(port, port) is None
        process.stdin.close()
    assert first_free(port, port) == port


def test_the_first_free_one_comes_first() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert first_free(port, port) is None
        assert first_free(port, 65535) not in (None, port)
