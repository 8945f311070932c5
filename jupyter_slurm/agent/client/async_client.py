"""Connections to the agent in a loop: httpx over its Unix socket or port, with a check of each peer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx

from jupyter_slurm.agent.client.client_errors import CONNECT_TIMEOUT_S, LinkLost, broken, no_answer, stranger, too_slow
from jupyter_slurm.agent.hosting.endpoint import Endpoint
from jupyter_slurm.errors import AgentRefused, AgentUnreachable
from jupyter_slurm.transport.peer_credentials import is_same_user, peer_uid

__all__ = ["async_client", "check_peer", "exchange", "lost", "refuse_stranger", "timeouts"]

_CONNECTED = (".connect_unix_socket.complete", ".connect_tcp.complete")


def async_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """Return a client for this endpoint, to be used in one loop.

    Proxies and .netrc of the environment are ignored, and TLS is not used.
    """
    uds = endpoint.place.socket if endpoint.port is None else None
    return httpx.AsyncClient(
        base_url=endpoint.base_url,
        headers=endpoint.headers,
        transport=httpx.AsyncHTTPTransport(uds=uds, verify=False, trust_env=False),
        trust_env=False,
    )


async def check_peer(name: str, info: Mapping[str, Any]) -> None:
    """Refuse a server of another user before a byte is sent (httpx's ``trace`` extension)."""
    if name.endswith(_CONNECTED):
        stream = info["return_value"]
        try:
            refuse_stranger(stream.get_extra_info("socket"))
        except AgentRefused:
            await stream.aclose()
            raise


def refuse_stranger(connection: Any) -> None:
    """Raise AgentRefused if the peer of a socket is a server of another user."""
    if not is_same_user(connection):
        raise stranger(peer_uid(connection))


def timeouts(read: float | None) -> httpx.Timeout:
    """Return time limits: connecting is local and fast, an answer may take ``read`` seconds."""
    return httpx.Timeout(read, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S)


@contextlib.contextmanager
def exchange(drop: Callable[[], None], method: str, path: str, read: float | None) -> Iterator[None]:
    """Convert exceptions of an exchange to errors of this package; ``drop`` is called if the agent has ended."""
    try:
        yield
    except LinkLost:
        drop()
        raise
    except httpx.TransportError as error:
        meaning = lost(error, method, path, read)
        if isinstance(meaning, LinkLost):
            drop()
        raise meaning from error


def lost(error: httpx.TransportError, method: str, path: str, read: float | None) -> LinkLost | AgentUnreachable:
    """Return the error for a failed exchange."""
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return no_answer()
    if isinstance(error, httpx.TimeoutException):
        return too_slow(path, read)
    return broken(method, path)
