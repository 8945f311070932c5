"""Tests of terminals of a cluster through a Jupyter server: start, WebSocket, reattachment, and who is refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

pytestmark = pytest.mark.slurm


@pytest.fixture
def client(walked: Any) -> Iterator[httpx.Client]:
    """Provide a client with the token."""
    server = walked[0]
    with httpx.Client(headers={"Authorization": f"token {server.token}"}, timeout=60) as client:
        yield client


class Viewer:
    """A WebSocket, and the output that it got."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket, self.output, self.code = socket, "", None

    async def send(self, *message: Any) -> None:
        await self._socket.write_message(json.dumps(message))

    async def _read(self) -> bool:
        try:
            async with asyncio.timeout(60):
                message = await asyncio.ensure_future(self._socket.read_message())
        except TimeoutError:
            pytest.fail(f"no message after {self.output!r}")
        if message is None:
            return False
        kind, *content = json.loads(message)
        self.output += content[0] if kind == "stdout" else ""
        self.code = content[0] if kind == "disconnect" else self.code
        return True

    async def wait(self, pattern: str) -> None:
        while not re.search(pattern, self.output):
            assert await self._read(), self.output

    async def end(self) -> Any:
        while await self._read():
            pass
        self._socket.close()
        return self.code

    async def close(self) -> None:
        """Close it, and wait for the end of its connection."""
        self._socket.close()
        await self.end()


def place(server: Any, client: httpx.Client) -> str:
    (cluster,) = client.get(server.api("v1/clusters")).json()
    return f"{server.url}jupyter-slurm/api/server/clusters/{cluster['id']}/terminals"


async def view(server: Any, url: str, **headers: str) -> Viewer:
    given = headers or {"Authorization": f"token {server.token}"}
    return Viewer(await websocket_connect(HTTPRequest(url.replace("http", "ws", 1), headers=given)))


async def test_a_terminal_outlives_its_page(walked: Any, client: httpx.Client) -> None:
    server = walked[0]
    answer = client.post(place(server, client), json={"job": None})
    assert answer.status_code == 201, answer.text
    url = f"{place(server, client)}/websocket/{answer.json()['id']}"
    first = await view(server, url)
    await first.send("set_size", 31, 101, 600, 800)
    await first.wait("[#$%>] ")  # start-up files may drop what is typed before
    await first.send("stdin", "stty size; printf '%s-\\303\\251\\n' $((6 * 7))\r")
    await first.wait("31 101\r\n42-é\r\n")
    holds = client.get(server.api("v1/agent")).json()["holds"]
    assert holds["terminals"] == 1
    await first.close()
    second = await view(server, url)
    await second.wait("42-é\r\n")
    await second.send("stdin", "exit 5\r")
    assert await second.end() == 5
    assert "exit code 5" in second.output
    late = await view(server, url)  # of a page that was reloaded after the end
    assert await late.end() == 0
    assert "has ended" in late.output
    assert answer.json()["id"] not in server.log or server.token not in server.log


async def test_who_is_refused(walked: Any, client: httpx.Client) -> None:
    server = walked[0]
    url = f"{place(server, client)}/websocket/0123abcd"
    with httpx.Client(follow_redirects=True, timeout=60) as browser:
        browser.get(server.url, params={"token": server.token})
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    for headers in ({"Accept": "*/*"}, {"Cookie": "x=y"}, {"Cookie": cookies, "Origin": "https://evil.example"}):
        with pytest.raises(HTTPClientError) as refused:
            await view(server, url, **headers)
        assert refused.value.code == 403
    await (await view(server, url, Cookie=cookies, Origin=server.url.rstrip("/"))).close()
    bad = await view(server, url)
    await bad.send({"stdin": 1})
    await bad.end()
    for body in ({}, {"job": "-x"}, {"job": None, "argv": ["sh"]}):
        assert client.post(place(server, client), json=body).status_code == 400
    gone = client.post(place(server, client), json={"job": "999999"})
    assert gone.status_code == 404
    assert gone.json()["hint"]


def test_without_terminals_of_jupyter_there_are_none(start_jupyter: Callable[..., Any]) -> None:
    server = start_jupyter("server", "--ServerApp.terminals_enabled=False")
    with httpx.Client(headers={"Authorization": f"token {server.token}"}, timeout=60) as client:
        assert client.post(place(server, client), json={"job": None}).status_code == 404
        (cluster,) = client.get(server.api("v1/clusters")).json()
        size = {"job": None, "columns": 80, "rows": 24}
        passed_on = client.post(server.api(f"v1/clusters/{cluster['id']}/terminals"), json=size)
        assert passed_on.status_code in (404, 405)
