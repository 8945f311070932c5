"""Questions and answers of one agent, on connections that are kept: a call must cost little beside what it asks for.

The standard library's HTTP client, because a call through httpx takes more than twice as long (0.85 against 0.4 ms,
both to the same agent); what waits in a loop, or streams, goes through httpx (:mod:`jupyter_slurm.agent.link`).
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from jupyter_slurm.agent.endpoint import Endpoint
from jupyter_slurm.agent.failures import CONNECT_TIMEOUT, LinkLost, broken, no_answer, stranger, too_slow
from jupyter_slurm.transport.peers import is_ours, peer_uid

__all__ = ["Answer", "Wire"]

_KEPT = 8


@dataclass(frozen=True)
class Answer:
    """One answer of the agent, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    content: bytes

    def json(self) -> Any:
        """Return what it says."""
        return json.loads(self.content)


class _Connection(http.client.HTTPConnection):
    """A connection to the agent: who is at the other end is asked before a byte is sent."""

    def __init__(self, endpoint: Endpoint) -> None:
        place = endpoint.base_url.removeprefix("http://")
        super().__init__(place, timeout=CONNECT_TIMEOUT)
        self._socket_path = endpoint.place.socket if endpoint.port is None else None

    def connect(self) -> None:
        try:
            if self._socket_path is None:
                super().connect()
            else:
                self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self.sock.settimeout(CONNECT_TIMEOUT)
                self.sock.connect(self._socket_path)
        except OSError as error:
            self.close()
            raise no_answer() from error
        if not is_ours(self.sock):
            uid = peer_uid(self.sock)
            self.close()
            raise stranger(uid)

    def is_stale(self) -> bool:
        """Tell whether the agent has closed it: between two calls nothing else can have come."""
        return self.sock is None or bool(select.select([self.sock], [], [], 0)[0])

    def exchange(self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Ask and read the answer."""
        self.request(method, target, body=content, headers=dict(headers))
        response = self.getresponse()
        return Answer(response.status, response.headers, response.read())


class Wire:
    """The connections to one agent. Thread safe.

    Parameters
    ----------
    endpoint : Endpoint
        Where it listens.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._is_closed = False

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send one request and return its answer, whatever its status.

        Parameters
        ----------
        method, path : str
            The path is percent-encoded.
        params : mapping, optional
            The query.
        content : bytes, optional
            JSON.
        timeout : float or None
            Seconds without a byte.

        Raises
        ------
        LinkLost
            The agent has ended.
        AgentUnreachable
            It took too long.
        AgentRefused
            What listens there belongs to somebody else.
        """
        headers = dict(self._endpoint.headers)
        if content is not None:
            headers["Content-Type"] = "application/json"
        connection = self._take()
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(timeout)
            answer = connection.exchange(method, f"{path}?{urlencode(params)}" if params else path, content, headers)
        except LinkLost:
            raise
        except TimeoutError as error:
            connection.close()
            raise too_slow(path, timeout) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise broken(method, path) from error
        except BaseException:  # an interrupt: the answer may still come, and is of no use to the next call
            connection.close()
            raise
        self._give_back(connection)
        return answer

    def close(self) -> None:
        """Close the connections that nobody uses now, and the others when they are given back."""
        with self._lock:
            idle, self._idle, self._is_closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def _take(self) -> _Connection:
        with self._lock:
            if self._is_closed:
                raise LinkLost("The agent ended.", sent=False)
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_stale():
                    return connection
                connection.close()
        return _Connection(self._endpoint)

    def _give_back(self, connection: _Connection) -> None:
        with self._lock:
            if connection.sock is not None and not self._is_closed and len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()
