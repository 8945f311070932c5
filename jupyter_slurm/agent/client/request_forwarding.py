"""Forwarding of a request to the agent unchanged, and of its answer as it arrives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from jupyter_slurm.agent.client.async_client import async_client, check_peer, lost, timeouts
from jupyter_slurm.agent.hosting.endpoint import Endpoint

__all__ = ["ForwardedAnswer", "forward"]

# An answer may take as long as a Slurm command; a stream sends a heartbeat every 15 s. A login takes as long as the
# user needs, and the agent limits that time.
_ANSWER_TIMEOUT_S = 120.0

_REQUEST_HEADERS = ("accept", "content-type")
_RESPONSE_HEADERS = (
    *("content-type", "content-disposition", "x-total-size", "x-version"),
    *("allow", "cache-control", "retry-after", "x-content-type-options"),
)


@dataclass(frozen=True)
class ForwardedAnswer:
    """The agent's answer: status, the headers that may be forwarded, and the body as it arrives."""

    status: int
    headers: dict[str, str]
    chunks: AsyncIterator[bytes]


@asynccontextmanager
async def forward(
    endpoint: Endpoint, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> AsyncIterator[ForwardedAnswer]:
    """Send one request; see :meth:`jupyter_slurm.agent.client.agent_client.AgentClient.forward`."""
    target = path + ("?" + query if query else "")
    if not path.startswith("/v1/") or not target.isascii() or any(character <= " " for character in target):
        raise ValueError(f"not an address of the API: {path!r}")
    patience = None if path.endswith("/connect") else _ANSWER_TIMEOUT_S
    given = {name.lower(): value for name, value in headers.items()}
    async with async_client(endpoint) as client:
        request = client.build_request(
            method,
            client.base_url.copy_with(raw_path=target.encode("ascii")),
            headers={name: given[name] for name in _REQUEST_HEADERS if name in given},
            content=body,
            timeout=timeouts(patience),
            extensions={"trace": check_peer},
        )
        try:
            response = await client.send(request, stream=True)
        except httpx.TransportError as error:
            raise lost(error, method, path, patience) from error
        try:
            kept = {name: response.headers[name] for name in _RESPONSE_HEADERS if name in response.headers}
            yield ForwardedAnswer(response.status_code, kept, _chunks(response, method, path))
        finally:
            await response.aclose()


async def _chunks(response: httpx.Response, method: str, path: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except httpx.TransportError as error:
        raise lost(error, method, path, _ANSWER_TIMEOUT_S) from error
