"""HTTP on the wire: requests that the package's clients never send, but others may."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_slurm.agent.api.app import MAX_BODY_BYTES
from jupyter_slurm.agent.hosting import discovery
from jupyter_slurm.agent.hosting.endpoint import endpoint_at
from jupyter_slurm.config import Settings

JOBS = "/v1/clusters/local/jobs"
CANCEL = f"{JOBS}/12/cancel"


class Raw:
    """A connection for handwritten bytes."""

    def __init__(self, settings: Settings) -> None:
        endpoint = endpoint_at(discovery.search_locations(settings)[0])
        assert endpoint is not None
        self.sock = socket.socket(socket.AF_UNIX if endpoint.port is None else socket.AF_INET)
        self.sock.connect(endpoint.place.socket if endpoint.port is None else ("127.0.0.1", endpoint.port))
        self.sock.settimeout(20)
        self.headers = {"Host": endpoint.base_url.removeprefix("http://"), **endpoint.headers}

    def head(self, line: str, **more: str) -> bytes:
        headers = {**self.headers, **{name.replace("_", "-"): value for name, value in more.items()}}
        return "\r\n".join([line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode("latin-1")

    def all(self) -> bytes:
        """Return all bytes until the agent ends the connection."""
        return b"".join(iter(lambda: self.sock.recv(65536), b""))

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read one answer."""
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._more()
        head, _, body = got.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += self._more()
        return int(first.split()[1]), headers, body

    def _more(self) -> bytes:
        piece = self.sock.recv(65536)
        assert piece, "the agent has closed the connection"
        return piece


@pytest.fixture
def raw(agent: object, settings: Settings) -> Iterator[Raw]:
    connection = Raw(settings)
    with connection.sock:
        yield connection


def test_a_connection_serves_one_request_after_the_other(raw: Raw) -> None:
    for _ in range(3):
        raw.sock.sendall(raw.head("GET /v1/agent HTTP/1.1"))
        status, headers, body = raw.answer()
        assert (status, "connection" in headers) == (200, False)
        assert json.loads(body)["name"] == "jupyter-slurm"


def test_a_body_may_come_in_chunks_and_byte_by_byte(raw: Raw, core: Any) -> None:
    body = json.dumps({"signal": "USR1"}).encode()
    chunks = b"".join(b"%x\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body))) + b"0\r\n\r\n"
    head = raw.head(f"POST {CANCEL} HTTP/1.1", Transfer_Encoding="chunked", Content_Type="application/json")
    for byte in head + chunks:
        raw.sock.sendall(bytes([byte]))
    assert raw.answer()[0] == 200
    assert core.calls == [("cancel", "local", "12", "USR1")]


def test_who_does_not_wait_for_the_first_answer_gets_no_second(raw: Raw, core: Any) -> None:
    raw.sock.sendall(raw.head("GET /v1/agent HTTP/1.1") + raw.head(f"POST {CANCEL} HTTP/1.1", Content_Length="0"))
    said = raw.all()
    assert said.startswith(b"HTTP/1.1 200 OK")
    assert (said.count(b"HTTP/1.1"), core.calls) == (1, [])


def test_a_client_of_the_last_century(raw: Raw) -> None:
    raw.sock.sendall(raw.head("GET /v1/agent HTTP/1.0"))
    head, _, body = raw.all().partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert json.loads(body)["name"] == "jupyter-slurm"


def test_who_says_close_is_closed(raw: Raw) -> None:
    raw.sock.sendall(raw.head("HEAD /v1/openapi.yaml HTTP/1.1", Connection="close"))
    head, _, body = raw.all().partition(b"\r\n\r\n")
    assert (head.split()[1], body) in ((b"200", b""), (b"405", b""))


def test_who_says_close_may_send_the_body_later(raw: Raw, core: Any) -> None:
    asks = {"Connection": "close", "Content_Type": "application/json", "Content_Length": "2"}
    raw.sock.sendall(raw.head(f"POST {CANCEL} HTTP/1.1", **asks))
    time.sleep(0.1)
    raw.sock.sendall(b"{}")
    assert raw.all().startswith(b"HTTP/1.1 200 ")
    assert core.calls == [("cancel", "local", "12", None)]


def test_who_asks_before_a_large_body_is_told_to_go_on_or_not(raw: Raw, core: Any) -> None:
    asks = {"Expect": "100-continue", "Content_Type": "application/json"}
    raw.sock.sendall(raw.head(f"POST {CANCEL} HTTP/1.1", Content_Length="2", **asks))
    assert raw.sock.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    raw.sock.sendall(b"{}")
    assert raw.answer()[0] == 200
    raw.sock.sendall(raw.head(f"POST {CANCEL} HTTP/1.1", Content_Length=str(MAX_BODY_BYTES + 1), **asks))
    said = raw.all()
    assert said.startswith(b"HTTP/1.1 413 ")
    assert core.calls == [("cancel", "local", "12", None)]


def test_no_other_protocol_is_spoken(raw: Raw) -> None:
    raw.sock.sendall(raw.head("GET /v1/agent HTTP/1.1", Connection="Upgrade", Upgrade="websocket") + b"\x81\x05hello")
    said = raw.all()
    assert said.startswith(b"HTTP/1.1 200 OK")
    assert said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "said",
    [
        b"hello\r\n\r\n",
        b"GET /v1/agent HTTP/1.1\r\nHost: HOST\r\nno colon\r\n\r\n",
        b"GET /v1/agent HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n",
        b"GET /v1/agent HTTP/1.1\r\n\r\n",
        b"GET /v1/agent HTTP/9.9\r\nHost: HOST\r\n\r\n",
        b"GET /v1/\xe9 HTTP/1.1\r\nHost: HOST\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"POST /v1/agent HTTP/1.1\r\nHost: HOST\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/agent HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/agent HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/agent HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(raw: Raw, said: bytes) -> None:
    raw.sock.sendall(said.replace(b"HOST", raw.headers["Host"].encode()))
    answer = raw.all()
    assert answer.split()[1] == b"400", answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_chunk_without_size_is_refused(raw: Raw, core: Any) -> None:
    head = raw.head(f"POST {CANCEL} HTTP/1.1", Transfer_Encoding="chunked", Content_Type="application/json")
    raw.sock.sendall(head + b"no size\r\n")
    assert raw.all().startswith(b"HTTP/1.1 400 ")
    assert core.calls == []


def test_a_head_without_end_is_refused(raw: Raw) -> None:
    raw.sock.sendall(b"GET /v1/agent HTTP/1.1\r\nHost: x\r\n")
    lines = (b"X-%d: %b\r\n" % (number, b"x" * 100) for number in range(100_000))
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        raw.sock.sendall(b"".join(lines))


def test_another_host_is_refused(raw: Raw) -> None:
    raw.sock.sendall(raw.head("GET /v1/agent HTTP/1.1", Host="evil.example"))
    assert raw.answer()[0] == 421


def test_an_unknown_method_is_refused(raw: Raw) -> None:
    raw.sock.sendall(raw.head("BREW /v1/agent HTTP/1.1"))
    status, headers, _ = raw.answer()
    assert (status, headers["allow"]) == (405, "GET")


def test_a_body_without_end_is_cut_off(raw: Raw, core: Any) -> None:
    raw.sock.sendall(raw.head(f"POST {JOBS} HTTP/1.1", Transfer_Encoding="chunked", Content_Type="application/json"))
    piece = b"%x\r\n%b\r\n" % (1 << 20, b"x" * (1 << 20))
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        raw.sock.sendall(piece * 200)
    assert core.calls == []


def test_a_client_that_has_gone_is_no_accident(
    raw: Raw, agent: object, core: Any, caplog: pytest.LogCaptureFixture, wait_for: Callable[..., Any]
) -> None:
    """Check a client that leaves in the middle of a body, of an answer, and before it."""
    begun = []

    async def wait(*args: object, **more: object) -> None:
        begun.append(args)
        await asyncio.sleep(0.2)

    core.local.jobs.describe = wait
    raw.sock.sendall(raw.head(f"GET {JOBS}/12 HTTP/1.1"))
    wait_for(lambda: begun, "the question")
    raw.sock.close()
    wait_for(lambda: not agent._host._server.connections, "the end of the connection")  # type: ignore[attr-defined]
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
