"""A page of another site cannot use a tunnel under its own name; whatever is not HTTP passes unchanged."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_slurm.transport.local.transport import LocalTransport
from jupyter_slurm.transport.tunnel.forwarder import Forwarder
from jupyter_slurm.transport.tunnel.host_check import HostCheck
from jupyter_slurm.transport.tunnel.local_listeners import listen_on_socket

LOCAL = ["127.0.0.1", "localhost", "LOCALHOST.", "[::1]", "127.8.9.1", "20260101-000000-0123.localhost"]
FOREIGN = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "192.0.2.1",
    "[2001:db8::1]",
    "notlocalhost",
    "",
]


class Program(http.server.BaseHTTPRequestHandler):
    """Program on a node that trusts everybody who reaches it."""

    protocol_version = "HTTP/1.1"
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"secret")

    do_POST = do_FOO = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def program() -> Iterator[int]:
    Program.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Program) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def tunnel(program: int, new_forwarder: Callable[..., Forwarder]) -> Forwarder:
    transport = LocalTransport()
    return new_forwarder(lambda: transport.dial("127.0.0.1", program, 30))


def ask(port: int, host: str | None, method: str = "GET", body: bytes = b"", path: str = "/a") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize("port", ["", ":80", None])
def test_only_requests_for_this_computer_reach_the_program(tunnel: Forwarder, port: str | None) -> None:
    suffix = f":{tunnel.address}" if port is None else port
    for host in LOCAL:
        assert ask(tunnel.address, host + suffix) == (200, b"secret"), host  # type: ignore[arg-type]
    Program.asked.clear()
    for host in FOREIGN:
        for method, body in (("GET", b""), ("POST", bytes(300_000)), ("FOO", b"")):
            status, said = ask(tunnel.address, host + suffix, method, body)  # type: ignore[arg-type]
            assert (status, b"127.0.0.1" in said) == (403, True), (host, method)
    assert ask(tunnel.address, "evil.example", path="/" + "a" * 100_000)[0] == 403  # type: ignore[arg-type]
    assert Program.asked == []
    assert ask(tunnel.address, None) == (200, b"secret")  # type: ignore[arg-type]  # no browser leaves it out


def test_a_proxy_on_this_computer_does_not_lead_to_the_program(tunnel: Forwarder) -> None:
    """As jupyter-server-proxy, whose requests keep the host and the port of the Jupyter server."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.create_server(("127.0.0.1", 0)) as other:
        port, free = proxy.getsockname()[1], other.getsockname()[1]
        other.close()
        for host in LOCAL:
            assert ask(tunnel.address, f"{host}:{port}")[0] == 403, host  # type: ignore[arg-type]
        assert Program.asked == []
        # The port of another computer, from which `ssh -L` leads to this one.
        assert ask(tunnel.address, f"localhost:{free}") == (200, b"secret")  # type: ignore[arg-type]


def test_a_socket_that_no_browser_reaches_is_not_checked(program: int, tmp_path: Any) -> None:
    transport = LocalTransport()
    tmp_path.chmod(0o700)
    forwarder = Forwarder(listen_on_socket(str(tmp_path / "s")), lambda: transport.dial("127.0.0.1", program, 30))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(tmp_path / "s"))
        sock.sendall(b"GET / HTTP/1.0\r\nHost: any.example\r\n\r\n")
        assert sock.recv(15) == b"HTTP/1.1 200 OK"
    forwarder.close()


REQUEST = b"GET /a HTTP/1.1\r\nAccept: */*\r\nhost:  localhost:8000 \r\n\r\nbody\r\nHost: evil.example\r\n\r\n"


@pytest.mark.parametrize(
    "data", [REQUEST, b"GET /a HTTP/1.0\r\n\r\nHost: evil.example\r\n", b"GET /ab", b"x /a HTTP/1.1"]
)
def test_pieces_pass_in_order_and_complete(data: bytes) -> None:
    for size in (1, 2, 7, len(data)):
        check, passed = HostCheck(), b""
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            passed += piece if check.is_done else check.feed(piece)
        assert passed + check.rest() == data


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n", b"\x16\x03\x01\x02\x00", b"jslk\x01", b"PING\r\n", b"hello", b"GET", b"get a\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /a\r\n", b"USER me\r\n", b"EHLO evil.example\r\n", b"\r\n", b"\0",
        b"RFB 003.008\n", b"*1\r\n$4\r\nPING\r\n", b"CONNECT x", bytes(range(128, 228)),
    ],
)  # fmt: skip
def test_other_protocols_are_not_delayed(data: bytes) -> None:
    check = HostCheck()
    assert check.feed(data) == data
    assert check.is_done
