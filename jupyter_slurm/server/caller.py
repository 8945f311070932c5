"""How a session is asked: on its local port, as long as that is one of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from jupyter_slurm.agent.link import check_peer

__all__ = ["Caller"]

_CONNECT = 30.0  # a tunnel takes a connection at once
_KEPT = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5.0)


class Caller:
    """Asks, with connections that are kept for a while. It keeps no cookies and follows nothing."""

    def __init__(self) -> None:
        self._transport = httpx.AsyncHTTPTransport(verify=False, trust_env=False, limits=_KEPT)

    @asynccontextmanager
    async def ask(
        self, port: int, method: str, target: str, *, headers: Sequence[tuple[str, str]], body: bytes
    ) -> AsyncIterator[httpx.Response]:
        """Ask, and yield the answer, whose body is still to come.

        Raises
        ------
        httpx.TransportError
            Nobody answers, or no longer.
        AgentRefused
            Somebody else's program listens there; it was told nothing.
        """
        request = httpx.Request(
            method,
            httpx.URL(scheme="http", host="127.0.0.1", port=port, raw_path=target.encode("latin-1")),
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            content=body or None,
            extensions={"timeout": httpx.Timeout(None, connect=_CONNECT).as_dict(), "trace": check_peer},
        )
        answer = await self._transport.handle_async_request(request)
        try:
            yield answer
        finally:
            await answer.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
