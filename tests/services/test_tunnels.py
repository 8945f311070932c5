"""Tunnels to jobs on a real site: laptop -> gateway with a one-time code -> login node -> compute node."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site as RealSite

from jupyter_slurm.config import Settings
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.core import Core

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]

_SERVER = """#!/usr/bin/python3
import os, socket, threading
def serve(connection):
    with connection:
        try:
            connection.sendall(os.uname().nodename.encode() + b" ")
            while data := connection.recv(65536):
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
server = socket.create_server(("127.0.0.1", 0), backlog=256)
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


@contextlib.asynccontextmanager
async def connected(folder: Path, site: RealSite, more: str = "") -> AsyncIterator[Core]:
    """A core that is logged in; its state stays in ``folder``."""
    (folder / "sites").mkdir(exist_ok=True)
    login = f'[login]\nhost = "login"\nssh_config = "{site.ssh_config}"\n'
    (folder / "sites" / "far.toml").write_text(login + more)
    settings = Settings(
        job_root=str(folder / "jobs"),
        state_dir=str(folder / "state"),
        runtime_dir=str(folder / "run"),
        sites=[str(folder / "sites")],
    )
    core = Core(settings)
    await core.start()
    answering = asyncio.create_task(_answer(core, site))
    try:
        await core.register_cluster(None, None, "far")
        await core.connect("far")
        yield core
    finally:
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering
        await core.stop()


async def _answer(core: Core, site: RealSite) -> None:
    answered: set[str] = set()
    while True:
        for prompt in core.prompts():
            if prompt["id"] not in answered:
                answered.add(prompt["id"])
                core.answer(prompt["id"], [site.codes.next() for _ in prompt["questions"]])
        await asyncio.sleep(0.05)


async def until(true: Callable[[], Awaitable[Any]], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := await true()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return found


async def served(core: Core, *options: str, text: str = _SERVER) -> tuple[dict[str, Any], int]:
    """A job that serves on a port of its node's loopback."""
    key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
    asked = {"key": key, "kind": "script", "text": text, "options": [*options], "args": [], "context": {}}
    job = await core.submit("far", {**asked, "python": None})

    async def port() -> int | None:
        with contextlib.suppress(SlurmError):
            said = (await core.output("far", key, "stdout", 0, None))[0]
            now = await core.job("far", key)
            return int(said) if said.endswith(b"\n") and now["state"] == "RUNNING" and now["nodes"] else None
        return None

    return job, await until(port)


def ask(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(1 << 18), b""))


@pytest.mark.parametrize("by", ["ssh", "step"])
async def test_a_port_of_a_job_is_brought_here(by: str, tmp_path: Path, ssh_site: RealSite) -> None:
    async with connected(tmp_path, ssh_site, f'[tunnels]\nways = ["{by}"]\nports = [18100, 18200]\n') as core:
        job, port = await served(core)
        tunnel = await core.open_tunnel("far", {"job": job["key"], "port": port})
        assert (tunnel["way"], tunnel["proven"], tunnel["state"]) == (by, True, "open")
        assert 18100 <= tunnel["local_port"] <= 18200
        assert tunnel["url"] == f"http://127.0.0.1:{tunnel['local_port']}/"
        data = secrets.token_bytes(3_000_000)
        answer = await asyncio.to_thread(ask, tunnel["local_port"], data)
        node, _, rest = answer.partition(b" ")
        assert node.decode() == tunnel["node"]
        assert rest == data
        assert core.holds()["tunnels"] == 1
        await core.cancel("far", job["key"])

        async def is_gone() -> bool:
            return not core.list_tunnels("far")

        await until(is_gone)
        with pytest.raises(ConnectionRefusedError):
            ask(tunnel["local_port"], b"")
