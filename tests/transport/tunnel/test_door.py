"""TLS door of a session: the holder of its key gets in and knows the door; no other program does."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.errors import TunnelError, TunnelUnproven
from jupyter_slurm.runner.session import tls_door
from jupyter_slurm.runner.session.tls_door import TlsConnection, TlsDoor, context_of
from jupyter_slurm.transport.local.transport import LocalTransport
from jupyter_slurm.transport.tunnel.accepted_peer import enter, new_pem

MB = 1_000_000
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def pem() -> bytes:
    return new_pem()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listener:
        yield listener


@pytest.fixture
def new_door(tmp_path: Path) -> Iterator[Callable[..., TlsDoor]]:
    made: list[TlsDoor] = []

    def make(pem: bytes, port: int, first: int = 20_000, last: int = 32_000) -> TlsDoor:
        path = tmp_path / f"door{len(made)}.pem"
        path.write_bytes(pem)
        made.append(TlsDoor(str(path), (first, last), port))
        made[-1].open()
        return made[-1]

    yield make
    for door in made:
        door.close()


@pytest.fixture
def knock(pem: bytes) -> Iterator[Callable[..., Any]]:
    """Return a function: ``knock(port, timeout=10)`` is a stream through the door at the port."""
    transport = LocalTransport()
    with contextlib.ExitStack() as opened:

        def come(port: int, timeout: float = 30.0) -> Any:
            stream = transport.dial(HOST, port, 30)
            opened.callback(stream.close)
            return enter(stream, pem, timeout, "it")

        yield come
    transport.close()


def received(stream: Any) -> bytes:
    data = b""
    while piece := stream.recv(1 << 18):
        data += piece
    return data


def test_much_goes_through_both_ways_at_once_and_each_end_is_told(
    pem: bytes, server: socket.socket, new_door: Callable[..., TlsDoor], knock: Callable[..., Any]
) -> None:
    door, up, down = new_door(pem, server.getsockname()[1]), os.urandom(8 * MB), os.urandom(8 * MB)
    stream = knock(door.port)
    inner, _ = server.accept()
    with inner, ThreadPoolExecutor() as pool:
        answered = pool.submit(lambda: (inner.sendall(down), inner.shutdown(socket.SHUT_WR)))
        asked = pool.submit(lambda: (stream.sendall(up), stream.shutdown_write()))
        heard = pool.submit(received, inner)
        assert received(stream) == down
        assert heard.result(30) == up
        answered.result(30)
        asked.result(30)


def test_what_breaks_behind_it_is_no_proper_end(
    pem: bytes, server: socket.socket, new_door: Callable[..., TlsDoor], knock: Callable[..., Any]
) -> None:
    stream = knock(new_door(pem, server.getsockname()[1]).port)
    inner, _ = server.accept()
    inner.sendall(b"begun")
    assert stream.recv(100) == b"begun"
    inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    inner.close()
    with pytest.raises((ConnectionError, ssl.SSLError)):
        received(stream)


def test_who_has_taken_the_port_is_found_out_before_anything_is_said(
    pem: bytes, server: socket.socket, new_door: Callable[..., TlsDoor], knock: Callable[..., Any]
) -> None:
    with pytest.raises(TunnelUnproven, match="it does not belong to this session"):
        knock(new_door(new_pem(), server.getsockname()[1]).port)  # with another key
    for answer in (b"HTTP/1.1 200 OK\r\n\r\n", b""):
        with socket.create_server((HOST, 0)) as stranger:
            heard: list[bytes] = []

            def serve(stranger: socket.socket = stranger, answer: bytes = answer, heard: list[bytes] = heard) -> None:
                sock, _ = stranger.accept()
                with sock:
                    heard.append(sock.recv(65_536))
                    sock.sendall(answer)
                    while piece := sock.recv(65_536) if not answer else b"":
                        heard.append(piece)

            serving = threading.Thread(target=serve)
            serving.start()
            with pytest.raises(TunnelError):
                knock(stranger.getsockname()[1], timeout=0.5)
            serving.join()
            assert heard[0][0] == 22, "a handshake"
            assert len(heard) == 1


def test_who_cannot_read_the_file_does_not_come_in(
    pem: bytes, server: socket.socket, new_door: Callable[..., TlsDoor], knock: Callable[..., Any]
) -> None:
    door = new_door(pem, server.getsockname()[1])
    text = pem.decode()
    certificate = text[text.index("-----BEGIN CERTIFICATE") :]  # which the door shows to every client
    for secret in (hashlib.sha256(certificate.encode()).digest(), b""):
        with socket.create_connection((HOST, door.port), 30) as sock:
            guest = TlsConnection(sock, context_of(certificate, is_server=False), is_server=False)
            if secret:
                guest.sendall(secret)
            else:
                guest.shutdown_write()
            with pytest.raises((ConnectionError, ssl.SSLError)):
                guest.recv(1)
    with socket.create_connection((HOST, door.port), 30) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer = sock.recv(100)
        assert not answer.startswith(b"HTTP")
    knock(door.port).sendall(b"it is me")
    with server.accept()[0] as first:  # nothing else has connected
        assert first.recv(100) == b"it is me"


def test_strangers_on_all_connections_make_room_for_the_owner_the_oldest_first(
    pem: bytes,
    server: socket.socket,
    new_door: Callable[..., TlsDoor],
    knock: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls_door, "_MAX_CONNECTIONS", 4)
    monkeypatch.setattr(tls_door, "_HANDSHAKE_TIMEOUT_S", 3600)
    door = new_door(pem, server.getsockname()[1])
    stream = knock(door.port)
    with server.accept()[0] as inner, contextlib.ExitStack() as held:
        strangers = [held.enter_context(socket.create_connection((HOST, door.port), 30)) for _ in range(3)]
        second = knock(door.port)
        with server.accept()[0] as other:
            second.sendall(b"in, too")
            assert other.recv(100) == b"in, too"
            assert strangers[0].recv(1) == b"", "the oldest one was dismissed"
            strangers[2].settimeout(0.1)
            with pytest.raises(TimeoutError):
                strangers[2].recv(1)
        for _ in range(5):
            held.enter_context(socket.create_connection((HOST, door.port), 30))
        stream.sendall(b"still in")
        assert inner.recv(100) == b"still in"


def test_a_byte_now_and_then_does_not_lengthen_the_time_for_the_proof(
    pem: bytes, server: socket.socket, new_door: Callable[..., TlsDoor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_door, "_HANDSHAKE_TIMEOUT_S", 1)
    door = new_door(pem, server.getsockname()[1])
    with socket.create_connection((HOST, door.port), 0.2) as sock:
        sock.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03")  # a greeting of 16 KiB begins
        for _ in range(100):
            try:
                sock.sendall(b"\0")
                assert sock.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            return
    pytest.fail("the door waits for as long as the bytes come")


def test_a_range_that_is_used_up_is_told(pem: bytes, server: socket.socket, new_door: Callable[..., TlsDoor]) -> None:
    port = server.getsockname()[1]
    with pytest.raises(OSError, match=f"all ports from {port} to {port} are taken"):
        new_door(pem, port, port, port)
