"""Tests of terminals without a cluster: the end of a terminal whose program does not end."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from jupyter_slurm.runner.terminal.keeper import HEAD
from jupyter_slurm.services.terminals import terminals
from jupyter_slurm.transport.local.streams import SocketStream


class Host:
    """A cluster whose terminal goes on sending or is silent, whatever it is asked."""

    def __init__(self) -> None:
        self.client = self.submitter = self.location = self.transport = self
        self.commands: dict[str, Any] = {}
        self.environment: dict[str, str] = {}
        self.far: list[socket.socket] = []

    async def prepare(self) -> None: ...

    def runner_path(self, name: str) -> str:
        return name

    def pipe(self, argv: list[str], timeout: float, env: Any) -> SocketStream:
        near, far = socket.socketpair()
        self.far.append(far)
        far.sendall(argv[-1].encode() + b"\n")
        return SocketStream(near)

    async def run(self, argv: list[str], context: Any) -> Any:
        return type("Done", (), {"exit_code": 0, "stdout": b"[]\n", "stderr": b""})


async def test_a_terminal_that_ignores_its_end_keeps_no_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Else the agent has no thread left after some of them."""
    monkeypatch.setattr(terminals, "_HANG_UP_TIMEOUT_S", 0.2)
    host: Any = Host()
    kept = terminals.Terminals(lambda name: host, str(tmp_path))
    assert await kept.close("mycluster", "0123abcd") == []
    (far,) = host.far
    far.settimeout(10)
    assert await asyncio.to_thread(far.recv, 100) == HEAD.pack(b"k", 0)
    try:
        assert await asyncio.to_thread(far.recv, 1) == b""
    finally:
        far.close()
    kept.stop()
