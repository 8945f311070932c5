"""HTTP client for one agent, with persistent connections: the overhead of a call must be small.

No HTTP library is used. A cell and its ``sbatch`` wait for a call, after a pause that has emptied the processor's
caches. Then a call through httpx takes 0.5 ms longer and a call through http.client 0.2 ms. Both ends belong to this
package, so ``Content-Length`` suffices. Calls in a loop, and streams, use httpx
(:mod:`jupyter_slurm.agent.client.async_client`).
"""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from jupyter_slurm.agent.client.client_errors import (
    CONNECT_TIMEOUT_S,
    LinkLost,
    broken,
    check_size,
    no_answer,
    stranger,
    too_slow,
)
from jupyter_slurm.agent.hosting.endpoint import Endpoint
from jupyter_slurm.transport.peer_credentials import is_same_user, peer_pid, peer_uid

__all__ = ["HttpAnswer", "HttpClient", "HttpConnection"]

_MAX_IDLE_CONNECTIONS = 8
_MAX_HEAD_BYTES = 65536
_WAIT_STEP_S = 1.5  # seconds
_UNSAFE_CHARACTER = re.compile(r"[^!-~]")


@dataclass(frozen=True)
class HttpAnswer:
    """A complete answer of the agent. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the parsed JSON."""
        return json.loads(self.content)


class HttpConnection:
    """A connection to the agent, whose user is checked before a byte is sent."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        host = endpoint.base_url.removeprefix("http://")
        fixed = {"Host": host, **endpoint.headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        self.sock: socket.socket | None = None

    def connect(self) -> socket.socket:
        """Connect, unless connected."""
        if self.sock is not None:
            return self.sock
        endpoint = self._endpoint
        sock = socket.socket(socket.AF_UNIX if endpoint.port is None else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.settimeout(CONNECT_TIMEOUT_S)
            if endpoint.port is not None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect(endpoint.place.socket if endpoint.port is None else ("127.0.0.1", endpoint.port))
        except OSError as error:
            sock.close()
            raise no_answer() from error
        if not is_same_user(sock):
            uid = peer_uid(sock)
            sock.close()
            raise stranger(uid)
        self.sock = sock
        return sock

    def close(self) -> None:
        """Close the connection; may be called again."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def is_stale(self) -> bool:
        """Return whether the agent has closed the connection: between two calls no data can arrive."""
        return self.sock is None or bool(select.select([self.sock], [], [], 0)[0])

    def exchange(
        self,
        sock: socket.socket,
        method: str,
        target: str,
        content: bytes | None,
        more: Callable[[socket.socket], bytes],
    ) -> HttpAnswer:
        """Send the request and read the answer, whose beginning is read by ``more``."""
        check_size(content)
        size = "" if content is None else f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        sock.sendall(f"{method} {target} HTTP/1.1\r\n{self._head}{size}\r\n".encode("latin-1") + (content or b""))
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += more(sock)
            if len(received) > _MAX_HEAD_BYTES and b"\r\n\r\n" not in received:
                raise ConnectionError("that is not an answer of an agent")
        first, *lines = received[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        pieces, missing = [received[end + 4 :]], int(headers.get("content-length", "0"))
        missing -= len(pieces[0])
        while missing > 0:
            pieces.append(_more(sock))
            missing -= len(pieces[-1])
        if headers.get("connection", "").lower() == "close" or "content-length" not in headers:
            self.close()
        return HttpAnswer(int(first.split(" ", 2)[1]), headers, b"".join(pieces))

    def open_stream(self, path: str, content: bytes, timeout: float) -> tuple[int, bytes, Iterator[bytes]]:
        """POST JSON; return the status, the received beginning of the body, and an iterator over the rest of a stream.

        An answer that is complete, such as a refusal, is in the beginning.
        """
        check_size(content)
        sock = self.connect()
        sock.settimeout(timeout)
        head = f"POST {path} HTTP/1.0\r\n{self._head}Content-Type: application/json\r\n"
        sock.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode("latin-1") + content)
        received = b""
        while b"\r\n\r\n" not in received and len(received) < _MAX_HEAD_BYTES:
            received += _more(sock)
        first, _, body = received.partition(b"\r\n\r\n")
        return int(first.split(b" ", 2)[1]), body, iter(partial(sock.recv, 262144), b"")


def _patiently(on_wait: Callable[[], None], timeout: float | None) -> Callable[[socket.socket], bytes]:
    """Return a reader like :func:`_more` that calls ``meanwhile`` while no data arrives."""

    def more(sock: socket.socket) -> bytes:
        begun, left = time.monotonic(), timeout
        try:
            while True:
                sock.settimeout(_WAIT_STEP_S if left is None else min(_WAIT_STEP_S, max(left, 0.001)))
                try:
                    return _more(sock)
                except TimeoutError:
                    left = None if timeout is None else begun + timeout - time.monotonic()
                    if left is not None and left <= 0:
                        raise
                on_wait()
        finally:
            sock.settimeout(timeout)

    return more


def _more(sock: socket.socket) -> bytes:
    if not (piece := sock.recv(262144)):
        raise ConnectionError("the agent has closed the connection")
    return piece


QueryParameters = Mapping[str, str | int | float]
"""The query of a request."""


class HttpClient:
    """The connections to one agent. Thread safe.

    Parameters
    ----------
    endpoint : Endpoint
        The agent's endpoint.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._idle: list[HttpConnection] = []
        self._is_closed = False
        self._agent: int | None = None  # its process, if the system reports it

    def request(
        self,
        method: str,
        path: str,
        *,
        params: QueryParameters | None = None,
        content: bytes | None = None,
        timeout: float | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> HttpAnswer:
        """Send a request and return its answer, whatever its status.

        Parameters
        ----------
        method, path : str
            Method, and percent-encoded path.
        params : mapping, optional
            The query.
        content : bytes, optional
            JSON.
        timeout : float or None
            Seconds without a byte.
        on_wait : callable, optional
            Called every second or two until the answer.

        Raises
        ------
        LinkLost
            The agent has ended.
        AgentUnreachable
            The time limit is over.
        AgentRefused
            The listener belongs to another user.
        """
        target = f"{path}?{urlencode(params)}" if params else path
        if _UNSAFE_CHARACTER.search(target):
            raise ValueError(f"{target!r} is not a path: it must be percent-encoded")
        connection = self._acquire_connection()
        try:
            sock = self._connected(connection)
            sock.settimeout(timeout)
            more = _more if on_wait is None else _patiently(on_wait, timeout)
            answer = connection.exchange(sock, method, target, content, more)
        except LinkLost:
            raise
        except TimeoutError as error:
            connection.close()
            raise too_slow(path, timeout) from error
        except (OSError, IndexError, ValueError) as error:
            connection.close()
            raise broken(method, path) from error
        except BaseException:  # an interrupt: the answer may still arrive, and must not be read by the next call
            connection.close()
            raise
        self._return_connection(connection)
        return answer

    def open_connection(self) -> HttpConnection:
        """Return a new connection to the same agent, which the caller closes.

        Raises
        ------
        LinkLost
            The agent has ended.
        AgentRefused
            The listener belongs to another user.
        """
        connection = HttpConnection(self._endpoint)
        self._connected(connection)
        return connection

    def close(self) -> None:
        """Close the idle connections now, and the others when they are returned."""
        with self._lock:
            idle, self._idle, self._is_closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def _connected(self, connection: HttpConnection) -> socket.socket:
        """Connect. A successor of the agent does not have the state of the previous one."""
        sock = connection.connect()
        pid = peer_pid(sock)
        with self._lock:
            self._agent = self._agent or pid
            if pid == self._agent:
                return sock
        connection.close()
        raise LinkLost("The agent has ended, and another one has started.", sent=False)

    def _acquire_connection(self) -> HttpConnection:
        with self._lock:
            if self._is_closed:
                raise LinkLost("The agent ended.", sent=False)
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_stale():
                    return connection
                connection.close()
        return HttpConnection(self._endpoint)

    def _return_connection(self, connection: HttpConnection) -> None:
        with self._lock:
            if connection.sock is not None and not self._is_closed and len(self._idle) < _MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()
