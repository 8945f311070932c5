"""Programs and clients at the ends of tunnels."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["ECHO", "POUR", "ask", "reset", "until"]

POUR = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    try:
        connection.sendall(bytes(60_000_000))
    except OSError:
        pass
    connection.close()
"""
ECHO = """
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


def ask(port: int, data: bytes) -> bytes:
    """Send all bytes, end the direction, and return the answer."""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sender = threading.Thread(target=lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR)))
        sender.start()
        answer = b"".join(iter(lambda: sock.recv(1 << 18), b""))
        sender.join()
    return answer


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def until(true: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found
