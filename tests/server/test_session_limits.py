"""Tests of limits on the size of pages and WebSocket messages of a session, with real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tornado import httpserver, netutil, web, websocket

from jupyter_slurm.server.session_proxy import http_client
from jupyter_slurm.server.session_proxy.http_client import SessionHttpClient, page_of

MB = 1 << 20


class Endless(web.RequestHandler):
    """Sends a page until nobody reads it any more."""

    async def get(self) -> None:
        for _ in range(1000):
            self.write(b"x" * MB)
            await self.flush()


class Sizes(websocket.WebSocketHandler):
    """Answers a number with a message of that many bytes."""

    def on_message(self, message: str | bytes) -> None:
        self.write_message(b"x" * int(message), binary=True)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = httpserver.HTTPServer(web.Application([("/page", Endless), ("/socket", Sizes)]))
    (listener,) = netutil.bind_sockets(0, "127.0.0.1")
    server.add_socket(listener)
    yield listener.getsockname()[1]
    server.stop()
    await server.close_all_connections()


async def test_a_page_without_an_end_is_an_error_that_names_the_limit(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_MAX_PAGE_BYTES", 8 * MB)
    caller = SessionHttpClient()
    async with caller.request(port, "GET", "/page", headers=[], body=b"") as answer:
        with pytest.raises(web.HTTPError, match="larger than 8 MiB") as caught:
            await page_of(answer.stream)  # type: ignore[arg-type]
    assert caught.value.status_code == 502
    await caller.close()


async def test_a_message_over_the_limit_closes_the_connection_and_says_why(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(http_client, "_MAX_MESSAGE_BYTES", 8 * MB)
    caller = SessionHttpClient()
    channel = await caller.connect(port, "/socket", headers=[], subprotocols=None)
    async with asyncio.timeout(60):
        await channel.write_message(str(8 * MB))
        assert len(await channel.read_message() or b"") == 8 * MB
        await channel.write_message(str(8 * MB + 1))
        assert await channel.read_message() is None
    assert (channel.close_code, channel.close_reason) == (1009, "A message is larger than 8 MiB.")
    assert "Save large data to a file" in caplog.text
    channel.close()
    await caller.close()
