"""Tunnels to jobs on a real site: laptop -> gateway with a one-time code -> login node -> compute node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site as RealSite

from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import JobError, SlurmError, TunnelError, TunnelUnproven, UsageError
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


async def served(core: Core, name: str = "far", env: dict[str, str] | None = None) -> tuple[dict[str, Any], int]:
    """A job that serves on a port of its node's loopback."""
    key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
    context = {} if env is None else {"env": env, "cwd": "/tmp"}
    asked = {"key": key, "kind": "script", "text": _SERVER, "options": [], "args": [], "context": context}
    job = await core.submit(name, {**asked, "python": None, "dry_run": False})

    async def port() -> int | None:
        with contextlib.suppress(SlurmError):
            said = (await core.output(name, key, "stdout", 0, None))[0]
            now = await core.job(name, key)
            return int(said) if said.endswith(b"\n") and now["state"] == "RUNNING" and now["nodes"] else None
        return None

    return job, await until(port)


def ask(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(1 << 18), b""))


@contextlib.contextmanager
def stranger(site: RealSite, node: str, user: str) -> Iterator[int]:
    """The port on which another user listens on a node; what that one hears is nothing."""
    listen = (
        "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True)\n"
        "while True: print(s.accept()[0].recv(100), flush=True)"
    )
    argv = site.nodes[node].command("/usr/bin/python3", "-c", listen, user=user)
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        assert process.communicate()[0] in ("", "b''\n")


@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
@pytest.mark.parametrize("by", ["ssh", "step"])
async def test_a_port_of_a_job_is_brought_here(
    by: str, carrier: str, tmp_path: Path, ssh_site: RealSite, alice: str
) -> None:
    more = f'carrier = "{carrier}"\n[tunnels]\nways = ["{by}"]\nports = [18100, 18200]\n'
    async with connected(tmp_path, ssh_site, more) as core:
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
        with stranger(ssh_site, tunnel["node"], alice) as taken, pytest.raises(TunnelUnproven, match="another user"):
            await core.open_tunnel("far", {"job": job["key"], "port": taken})
        assert len(core.list_tunnels("far")) == 1
        await core.cancel("far", job["key"])
        if (by, carrier) != ("ssh", "paramiko"):
            return

        async def is_gone() -> bool:
            return not core.list_tunnels("far")

        await until(is_gone)
        with pytest.raises(ConnectionRefusedError):
            ask(tunnel["local_port"], b"")


async def test_where_nodes_take_no_ssh_a_step_does_it_and_that_is_told(tmp_path: Path, ssh_site: RealSite) -> None:
    async with connected(tmp_path, ssh_site, "[tunnels]\nports = [18100, 18200]\n") as core:
        job, port = await served(core)
        node = ssh_site.nodes[(await core.job("far", job["key"]))["nodes"]]
        node.stop()
        try:
            tunnel = await core.open_tunnel("far", {"job": job["key"], "port": port})
            assert tunnel["way"] == "step"
            assert "port 22" in tunnel["failed"]["ssh"]
            answer = await asyncio.to_thread(ask, tunnel["local_port"], b"x" * 1000)
            assert answer.endswith(b"x" * 1000)
        finally:
            node.start()
        await core.cancel("far", job["key"])


async def test_after_a_restart_and_a_break_it_is_there_on_the_same_port(tmp_path: Path, ssh_site: RealSite) -> None:
    more = "[tunnels]\nports = [18100, 18200]\n"
    async with connected(tmp_path, ssh_site, more) as core:
        job, port = await served(core)
        tunnel = await core.open_tunnel("far", {"job": job["key"], "port": port})
        local = tunnel["local_port"]
        assert (await core.open_tunnel("far", {"job": job["key"], "port": port}))["id"] == tunnel["id"]
        with socket.create_connection(("127.0.0.1", local), 60) as sock:
            assert await asyncio.to_thread(sock.recv, 4) == b"node"
            ssh_site.gateway.kill_sessions()
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(lambda: b"".join(iter(lambda: sock.recv(1 << 18), b"")))
        # Made while the link is down, it waits, here for another one-time code.
        assert (await asyncio.to_thread(ask, local, b"again")).endswith(b" again")
    state = tmp_path / "state" / "tunnels.json"
    assert state.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConnectionRefusedError):
        ask(local, b"")
    async with connected(tmp_path, ssh_site, more) as core:
        (found,) = core.list_tunnels("far")
        assert (found["id"], found["local_port"]) == (tunnel["id"], local)
        assert (await asyncio.to_thread(ask, local, b"once more")).endswith(b" once more")
        assert core.list_tunnels("far")[0]["proven"]
        closed = await core.close_tunnel("far", tunnel["id"])
        assert closed["state"] == "closed"
        assert core.list_tunnels("far") == []
        await core.cancel("far", job["key"])


async def test_a_way_that_can_prove_nothing_is_not_used(tmp_path: Path, ssh_site: RealSite, alice: str) -> None:
    more = '[tunnels]\nways = ["direct"]\nports = [18100, 18200]\n'
    async with connected(tmp_path, ssh_site, more) as core:
        job, _ = await served(core)
        node = (await core.job("far", job["key"]))["nodes"]
        with stranger(ssh_site, node, alice) as taken, pytest.raises(TunnelUnproven, match="cannot be proven"):
            await core.open_tunnel("far", {"job": job["key"], "port": taken})
        await core.cancel("far", job["key"])


def two_free() -> int:
    """The first of two ports that nobody has, outside those that the system gives by itself."""
    while True:
        first = random.randrange(20000, 30000)
        pair = [("127.0.0.1", port) for port in (first, first + 1)]
        with contextlib.suppress(OSError), socket.create_server(pair[0]), socket.create_server(pair[1]):
            return first


async def test_what_cannot_be_is_told(tmp_path: Path, ssh_site: RealSite) -> None:
    first = two_free()
    async with connected(tmp_path, ssh_site, f"[tunnels]\nports = [{first}, {first + 1}]\n") as core:
        job, port = await served(core)
        with pytest.raises(TunnelError, match="nothing listens on port 9 of node"):
            await core.open_tunnel("far", {"job": job["key"], "port": 9})
        for _ in range(2):  # the second has the first one's port: nothing is left behind
            with pytest.raises(TunnelError, match="nothing listens"):
                await core.open_tunnel("far", {"job": job["key"], "port": 9, "local_port": first})
        others = [socket.create_server(("127.0.0.1", taken)) for taken in (first, first + 1)]
        with others[0], others[1], pytest.raises(TunnelError, match=f"all from {first} to {first + 1} are taken"):
            await core.open_tunnel("far", {"job": job["key"], "port": port})
        with pytest.raises(UsageError, match="is not on elsewhere"):
            await core.open_tunnel("far", {"job": job["key"], "port": port, "node": "elsewhere"})
        tunnel = await core.open_tunnel("far", {"job": job["key"], "port": port, "socket": True})
        assert tunnel["local_port"] is None
        assert Path(tunnel["socket"]).stat().st_mode & 0o777 == 0o600
        await core.cancel("far", job["key"])

        async def is_over() -> bool:
            return bool((await core.job("far", job["key"]))["finished"])

        await until(is_over)
        with pytest.raises(JobError, match="does not run"):
            await core.open_tunnel("far", {"job": job["key"], "port": port})


async def test_a_port_of_the_login_node_is_brought_here(tmp_path: Path, ssh_site: RealSite) -> None:
    async with connected(tmp_path, ssh_site, "[tunnels]\nports = [18100, 18200]\n") as core:
        login = ssh_site.logins["login1"]
        argv = login.command("/usr/bin/python3", "-c", _SERVER, user=ssh_site.user)
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            tunnel = await core.open_tunnel("far", {"port": port})
            assert (tunnel["way"], tunnel["proven"], tunnel["job"]) == ("login", True, None)
            assert await asyncio.to_thread(ask, tunnel["local_port"], b"x") == b"login1 x"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


async def test_on_a_login_node_itself(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    """No SSH on the way; the node of the embedded cluster takes none either."""
    settings = Settings(
        job_root=str(tmp_path / "jobs"), state_dir=str(tmp_path / "state"), runtime_dir=str(tmp_path / "run")
    )
    core = Core(settings)
    await core.start()
    try:
        env = cluster.env()
        name = (await core.register_cluster(env["SLURM_CONF"], env["PATH"]))["id"]
        job, port = await served(core, name=name, env=env)
        tunnel = await core.open_tunnel(name, {"job": job["key"], "port": port})
        assert tunnel["way"] == "step"
        assert (await asyncio.to_thread(ask, tunnel["local_port"], b"x" * 9)).endswith(b" " + b"x" * 9)
        await core.cancel(name, job["key"])
    finally:
        await core.stop()
