"""Tests of a viewer's terminal whose agent ends and is started again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.client.clusters.terminal import frame
from jupyter_slurm.errors import AgentUnreachable, UsageError
from jupyter_slurm.server import terminals
from jupyter_slurm.server.terminals import TerminalSocketHandler


class RestartedAgent:
    """Agent that ends at each attachment in ``ends``, and then knows no site profile before its registration."""

    def __init__(self, socket: Path, ends: int) -> None:
        self._socket, self._ends = socket, ends
        self._profiles: set[str] = set()
        self.registered = 0

    async def client(self) -> RestartedAgent:
        return self

    def post(self, path: str, *, json: Any = None) -> dict[str, Any]:
        if path == "/v1/clusters":
            self._profiles.add(json["profile"])
            self.registered += 1
            return {"id": json["profile"]}
        assert path == "/v1/clusters/p/terminals/0123abcd/attach"
        if self._ends:
            self._ends -= 1
            self._profiles.clear()
            raise AgentUnreachable("The agent ended.", hint="Try again.")
        if "p" not in self._profiles:
            raise UsageError("There is no cluster 'p'.", hint="Register it first.")
        return {"socket": str(self._socket), "has_files": False}


class Viewer(TerminalSocketHandler):
    """Handler without a browser, which keeps the messages."""

    def __init__(self, access: Any) -> None:
        self.initialize(access)
        self.messages: list[str] = []

    async def write_message(self, message: Any, binary: bool = False) -> None:  # type: ignore[override]
        self.messages.append(str(message))

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        self.messages.append("closed")


async def test_a_terminal_is_attached_again_by_the_next_agent(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "_RETRY_DELAYS_S", (0.01, 0.02))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(b"o", b"alive\r\n") + frame(b"x", b"5"))
        await writer.drain()
        writer.close()

    agent = RestartedAgent(short_path / "viewer", ends=2)
    viewer = Viewer(agent)
    server = await asyncio.start_unix_server(serve, short_path / "viewer")
    async with server, asyncio.timeout(60):
        await viewer._show("p", "0123abcd")
    shown = "".join(viewer.messages)
    assert "alive" in shown, shown
    assert '["disconnect", 5]' in shown
    assert "There is no cluster" not in shown
    assert agent.registered == 3
