"""Tests of the server's event subscription after the end of an agent, and to agents started by others."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_slurm.agent.client import agent_client as clients
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.hosting.launcher import find
from jupyter_slurm.config import Settings
from jupyter_slurm.server import agent_access
from jupyter_slurm.server.agent_access import AgentAccess


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)


async def test_another_agent_is_heard_whoever_started_it_and_none_is_started_to_be_heard(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, agent_access.__name__)
    monkeypatch.setattr(agent_access, "_RETRY_DELAYS_S", (0.2, 0.5))
    names = ("runtime_dir", "state_dir")
    config = Config({"Settings": {"agent_host": "daemon", **{name: str(short_path / name) for name in names}}})
    for name in names:
        (short_path / name).mkdir(mode=0o700)
    settings, heard, numbers = Settings(config=config), [], itertools.count()
    lines = iter(["no JSON", "[", ""])
    take = clients._received
    monkeypatch.setattr(clients, "_received", lambda event, data: take(event, next(lines, "") or data))

    def told(event: str, data: dict[str, Any]) -> None:
        heard.append(data["slurm_conf"])
        raise ValueError("an event that is not understood")

    async def hears(client: AgentClient) -> None:
        """Return whether an event arrives: each cluster that the agent did not know causes one."""
        heard.clear()
        async with asyncio.timeout(60):
            while not heard:
                address = {"slurm_conf": f"/nowhere/{next(numbers)}", "path": None}
                await asyncio.to_thread(client.post, "/v1/clusters", json=address)
                await asyncio.sleep(0.1)

    server = AgentAccess(config, told)
    try:
        await hears(await server.client())
        assert caplog.text.count("asking again: JSONDecodeError") >= 1
        with await asyncio.to_thread(AgentClient.connect, settings) as first:
            os.kill(first.info["pid"], signal.SIGKILL)
        await until(lambda: find(settings) is None)
        with await asyncio.to_thread(AgentClient.connect, settings) as other:
            await hears(other)
            await asyncio.to_thread(other.stop_agent)
        assert "an event of the agent (cluster) was lost: ValueError" in caplog.text
        await until(lambda: find(settings) is None)
        caplog.clear()
        await until(lambda: caplog.text.count("No agent is running") > 3)
        assert find(settings) is None
    finally:
        await server.close()


class Routes:
    """Agent whose session has another port at each request."""

    def __init__(self) -> None:
        self.asked = 0

    async def aget(self, path: str) -> dict[str, Any]:
        self.asked += 1
        return {"port": self.asked, "path": path, "base_url": "/", "token": None}


async def test_the_files_of_a_page_share_a_route_until_something_changes() -> None:
    server, agent = AgentAccess(Config(), lambda *_: None), Routes()
    server._client = agent  # type: ignore[assignment]
    try:
        assert {(await server.session_route("a")).port for _ in range(100)} == {1}
        assert (await server.session_route("b")).port == 2
        server._handle_event("job", {"key": "a"})
        assert [(await server.session_route(key)).port for key in "aba"] == [3, 2, 3]
        assert (await server.session_route("a", newer=True)).port == 4
    finally:
        server._client = None
        await server.close()


async def test_a_route_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    server, agent = AgentAccess(Config(), lambda *_: None), Routes()
    monkeypatch.setattr(agent_access, "_MAX_ROUTE_AGE_S", 0.0)
    server._client = agent  # type: ignore[assignment]
    try:
        assert [(await server.session_route("a")).port for _ in range(2)] == [1, 2]
    finally:
        server._client = None
        await server.close()
