"""Connections to the agent: httpx over its Unix socket or port, and who is at the other end checked on each new one."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx

from jupyter_slurm.agent.endpoint import Endpoint
from jupyter_slurm.agent.peers import is_ours, peer_uid
from jupyter_slurm.errors import AgentRefused, AgentUnreachable, SlurmError, from_problem

__all__ = [
    "LinkLost",
    "as_error",
    "async_client",
    "encode",
    "exchange",
    "lost",
    "repetition",
    "sync_client",
    "timeouts",
]

_CONNECTED = (".connect_unix_socket.complete", ".connect_tcp.complete")
_CONNECT_TIMEOUT = 5.0
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=600)


class LinkLost(AgentUnreachable):
    """The agent went away. ``sent`` is False when it cannot have seen the request."""

    def __init__(self, message: str, *, sent: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.sent = sent


def sync_client(endpoint: Endpoint) -> httpx.Client:
    """Return a client for this endpoint. Proxies and .netrc of the environment are no business of ours, nor is TLS."""
    uds = endpoint.place.socket if endpoint.port is None else None
    return httpx.Client(
        base_url=endpoint.base_url,
        headers=endpoint.headers,
        transport=httpx.HTTPTransport(uds=uds, verify=False, trust_env=False, limits=_LIMITS),
        trust_env=False,
    )


def async_client(endpoint: Endpoint) -> httpx.AsyncClient:
    """Return an asynchronous client for this endpoint, to be used in one loop."""
    uds = endpoint.place.socket if endpoint.port is None else None
    return httpx.AsyncClient(
        base_url=endpoint.base_url,
        headers=endpoint.headers,
        transport=httpx.AsyncHTTPTransport(uds=uds, verify=False, trust_env=False, limits=_LIMITS),
        trust_env=False,
    )


def check_peer(name: str, info: Mapping[str, Any]) -> None:
    """Refuse a server of another user before a byte is sent (httpx's ``trace`` extension)."""
    if name.endswith(".connect_unix_socket.started"):
        _probe(info["path"])
    if name.endswith(_CONNECTED):
        stream = info["return_value"]
        connection = stream.get_extra_info("socket")
        if not is_ours(connection):
            uid = peer_uid(connection)
            stream.close()
            raise _stranger(uid)


def _probe(path: str) -> None:
    """Connect once before httpcore does: its socket stays open, until it is collected, when nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_TIMEOUT)
        try:
            probe.connect(path)
        except OSError as error:
            raise _no_answer() from error


def _no_answer() -> LinkLost:
    hint = "`jupyter slurm agent status` shows what is known of it."
    return LinkLost("The agent does not answer.", sent=False, hint=hint)


async def check_peer_async(name: str, info: Mapping[str, Any]) -> None:
    """Do the same on an asynchronous connection."""
    if name.endswith(_CONNECTED):
        stream = info["return_value"]
        connection = stream.get_extra_info("socket")
        if not is_ours(connection):
            uid = peer_uid(connection)
            await stream.aclose()
            raise _stranger(uid)


def _stranger(uid: int | None) -> AgentRefused:
    return AgentRefused(
        f"What listens at the agent's address belongs to user {uid}, not to you; nothing was sent.",
        hint="Tell the administrator; set Settings.runtime_dir to a folder of yours.",
    )


def encode(value: Any) -> bytes:
    """Return JSON in ASCII: file names that are no UTF-8 (PEP 383) travel as escapes."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def timeouts(read: float | None) -> httpx.Timeout:
    """Return time limits: connecting is local and quick, an answer may take ``read`` seconds."""
    return httpx.Timeout(read, connect=_CONNECT_TIMEOUT, pool=_CONNECT_TIMEOUT)


@contextlib.contextmanager
def exchange(drop: Callable[[], None], method: str, path: str, read: float | None) -> Iterator[None]:
    """Turn what goes wrong in an exchange into what it means for us; ``drop`` is called when the agent has ended."""
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
    """Return what a failed exchange means for us."""
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return _no_answer()
    if isinstance(error, httpx.TimeoutException):
        return AgentUnreachable(
            f"The agent gave no answer to {path} within {read} s.",
            hint="`jupyter slurm agent logs` shows what it does.",
        )
    if method == "GET":
        return LinkLost(f"The agent ended while it answered {path}.", sent=True, hint="Ask again: another one starts.")
    return LinkLost(
        f"The agent ended while it worked on {path}; whether that was done is not known.",
        sent=True,
        hint="Look before you repeat it: `jupyter slurm jobs`, %squeue.",
    )


def as_error(status: int, body: bytes) -> SlurmError:
    """Return the error that a response stands for."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and "detail" in document:
        return from_problem(document)
    return AgentRefused(
        f"The agent answered {status} without saying why.", hint="`jupyter slurm agent logs` may show more."
    )


def repetition(repeat: bool) -> dict[str, Any]:
    """How a call is repeated when the agent has ended: always if it was not sent, else if it may be repeated."""
    from tenacity import retry_if_exception, stop_after_attempt, wait_random_exponential

    def may_repeat(error: BaseException) -> bool:
        return isinstance(error, LinkLost) and (repeat or not error.sent)

    return {
        "retry": retry_if_exception(may_repeat),
        "stop": stop_after_attempt(4),
        "wait": wait_random_exponential(0.05, max=1.0),
        "reraise": True,
    }
