"""Agent whose files were removed, or cannot be written: it leads again, or makes room for the next one."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from plumbing import PlumbingCore

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.hosting import agent_host, launcher
from jupyter_slurm.agent.hosting.agent_host import serve_in_loop
from jupyter_slurm.agent.hosting.leader_election import Leadership
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import AgentUnreachable


class CountingCore(PlumbingCore):
    """Core that counts its stops."""

    def __init__(self) -> None:
        super().__init__()
        self.stops = 0

    async def stop(self) -> None:
        self.stops += 1
        await super().stop()


@pytest.fixture(params=["unix", "tcp"])
async def hosted(request: pytest.FixtureRequest, make_settings: Callable[..., Settings]) -> AsyncIterator[Settings]:
    """Provide settings of an agent in this loop, which checks its files often; it ends with the test."""
    yield make_settings(agent_host="server", agent_socket=request.param, agent_idle_exit=0.2)
    await agent_host.leave_server()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_record(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Leadership, "write_record", write_record)


async def test_an_agent_that_cannot_write_its_files_again_makes_room(
    hosted: Settings, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = CountingCore()
    assert await serve_in_loop(hosted, core) is not None
    with await asyncio.to_thread(AgentClient.connect, hosted, start=False) as client:
        fill_disk(monkeypatch)
        shutil.rmtree(place / "run")
        await until(lambda: agent_host._Server.task is None or agent_host._Server.task.done())
        assert core.stops == 1
        with pytest.raises(AgentUnreachable):
            await asyncio.to_thread(client.get, "/v1/clusters")
        monkeypatch.undo()
        assert await serve_in_loop(hosted, PlumbingCore()) is not None
        assert (await asyncio.to_thread(client.get, "/v1/clusters"))[0]["name"] == "plumbing"


async def test_an_agent_that_cannot_write_its_files_at_its_start_leaves_nothing(
    hosted: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = CountingCore()
    fill_disk(monkeypatch)
    with pytest.raises(AgentUnreachable, match="No space"):
        await serve_in_loop(hosted, core)
    assert core.stops == 1
    assert launcher.find(hosted) is None
    monkeypatch.undo()
    assert await serve_in_loop(hosted, PlumbingCore()) is not None


async def test_connections_from_before_the_loss_of_the_files_end_with_the_agent(hosted: Settings, place: Path) -> None:
    host = await serve_in_loop(hosted, PlumbingCore())
    assert host is not None
    with await asyncio.to_thread(AgentClient.connect, hosted, start=False) as client:
        lost = host._leadership
        shutil.rmtree(place / "run")
        await until(lambda: host._leadership is not lost and launcher.find(hosted) is not None)
        assert await asyncio.to_thread(client.get, "/v1/agent"), "its connection still works"
        await agent_host.leave_server()
        with pytest.raises(AgentUnreachable):
            await asyncio.to_thread(client.get, "/v1/agent")
