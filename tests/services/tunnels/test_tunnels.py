"""Tests of tunnels to jobs on a real site: laptop -> gateway with a one-time code -> login node -> compute node."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import os
import random
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from ssh_hosts import Site as RealSite
from ssh_hosts import SshHost
from ssh_hosts.machine import run
from ssh_hosts.sockets import ask

from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import JobError, SlurmError, TunnelError, TunnelUnproven, UsageError
from jupyter_slurm.services.agent_core import Core
from jupyter_slurm.services.tunnels import local_tunnels as tunnels
from jupyter_slurm.services.tunnels.login_routes import RouteTarget

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]

_SERVER = """#!/usr/bin/python3
import os, socket, sys, threading
def serve(connection):
    with connection:
        try:
            connection.sendall(os.uname().nodename.encode() + b" ")
            while data := connection.recv(65536):
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
address = sys.argv[1] if sys.argv[1:] else "127.0.0.1"
family = socket.AF_INET6 if ":" in address else socket.AF_INET
server = socket.create_server((address, 0), family=family, backlog=256)
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


_HOST_KEYS: list[str] = []  # hosts with a prompt about their key


@contextlib.asynccontextmanager
async def connected(
    folder: Path, site: RealSite, more: str = "", *, config: Path | None = None, accepts: Sequence[str] = ()
) -> AsyncIterator[Core]:
    """Provide a logged-in core; its state is in ``folder``. Unknown hosts with the given prefixes are accepted."""
    (folder / "sites").mkdir(exist_ok=True)
    login = f'[login]\nhost = "login"\nssh_config = "{config or site.ssh_config}"\n'
    (folder / "sites" / "far.toml").write_text(login + more)
    settings = Settings(
        job_root=str(folder / "jobs"),
        state_dir=str(folder / "state"),
        runtime_dir=str(folder / "run"),
        sites=[str(folder / "sites")],
    )
    core = Core(settings)
    await core.start()
    answering = asyncio.create_task(_answer(core, site, accepts))
    try:
        await core.clusters.register(None, None, "far")
        await core.clusters.connect("far")
        yield core
    finally:
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering
        await core.stop()


async def _answer(core: Core, site: RealSite, accepts: Sequence[str]) -> None:
    answered: set[str] = set()
    while True:
        for prompt in core.clusters.list_prompts():
            if prompt["id"] not in answered:
                answered.add(prompt["id"])
                if prompt["kind"] == "host-key":
                    _HOST_KEYS.append(prompt["host"])
                    core.clusters.answer_prompt(
                        prompt["id"], ["yes"] if prompt["host"].startswith(tuple(accepts)) else ["no"]
                    )
                else:
                    core.clusters.answer_prompt(prompt["id"], [site.codes.next() for _ in prompt["questions"]])
        await asyncio.sleep(0.05)


async def until(true: Callable[[], Awaitable[Any]], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := await true()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return found


async def served(
    core: Core, name: str = "far", env: dict[str, str] | None = None, *, at_once: bool = False
) -> tuple[dict[str, Any], int]:
    """Start a job that serves on its node's loopback; ``at_once``: Slurm may not have reported the node yet."""
    key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
    context = {} if env is None else {"env": env, "cwd": "/tmp"}
    asked = {"key": key, "kind": "script", "text": _SERVER, "options": [], "args": [], "context": context}
    job = await core.cluster(name).submit({**asked, "python": None, "dry_run": False})

    if at_once:
        async with contextlib.aclosing(core.cluster(name).results.stream(key, {})) as events:
            async for event, data in events:
                if event == "output":
                    return job, int(base64.b64decode(data["data"]))

    async def port() -> int | None:
        with contextlib.suppress(SlurmError):
            said = (await core.cluster(name).results.output(key, "stdout", 0, None))[0]
            now = await core.cluster(name).jobs.describe(key)
            return int(said) if said.endswith(b"\n") and now["state"] == "RUNNING" and now["nodes"] else None
        return None

    return job, await until(port)


@contextlib.contextmanager
def program(host: SshHost, user: str, address: str = "127.0.0.1") -> Iterator[int]:
    """Start a program of the user on a host; yield its port."""
    argv = host.command("/usr/bin/python3", "-c", _SERVER, address, user=user)
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextlib.contextmanager
def stranger(host: SshHost, user: str) -> Iterator[int]:
    """Listen on a host as another user; yield the port, and check that no data arrives."""
    listen = (
        "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True)\n"
        "while True: print(s.accept()[0].recv(100), flush=True)"
    )
    argv = host.command("/usr/bin/python3", "-c", listen, user=user)
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
    by: str, carrier: str, short_path: Path, ssh_site: RealSite, alice: str
) -> None:
    more = f'carrier = "{carrier}"\n[tunnels]\nways = ["{by}"]\nports = [18100, 18200]\n'
    async with connected(short_path, ssh_site, more) as core:
        job, port = await served(core, at_once=True)
        tunnel = await core.tunnels.open("far", {"job": job["key"], "port": port})
        assert (tunnel["way"], tunnel["proven"], tunnel["state"]) == (by, True, "open")
        assert 18100 <= tunnel["local_port"] <= 18200
        assert tunnel["url"] == f"http://127.0.0.1:{tunnel['local_port']}/"
        data = secrets.token_bytes(3_000_000)
        answer = await asyncio.to_thread(ask, tunnel["local_port"], data)
        node, _, rest = answer.partition(b" ")
        assert node.decode() == tunnel["node"]
        assert rest == data
        assert core.count_holders()["tunnels"] == 1
        with (
            stranger(ssh_site.nodes[tunnel["node"]], alice) as taken,
            pytest.raises(TunnelUnproven, match="another user"),
        ):
            await core.tunnels.open("far", {"job": job["key"], "port": taken})
        assert len(core.tunnels.list_to_api("far")) == 1
        with program(ssh_site.nodes[tunnel["node"]], ssh_site.user, "::") as ipv6:  # without IPv4, as with tornado
            other = await core.tunnels.open("far", {"job": job["key"], "port": ipv6})
            assert (await asyncio.to_thread(ask, other["local_port"], b"x")).endswith(b" x")
            await core.tunnels.close("far", other["id"])
        await core.cluster("far").actions.cancel(job["key"])
        if (by, carrier) != ("ssh", "paramiko"):
            return

        async def is_gone() -> bool:
            return not core.tunnels.list_to_api("far")

        await until(is_gone)
        with pytest.raises(ConnectionRefusedError):
            ask(tunnel["local_port"], b"")


@contextlib.contextmanager
def configured(host: SshHost, **options: str) -> Iterator[None]:
    """Change the sshd configuration of a host for new connections."""
    before = host.options

    def restart(words: Any) -> None:
        host.stop()
        host.options = words
        host.start()

    restart({**before, **options})
    try:
        yield
    finally:
        restart(before)


async def test_where_nodes_take_no_ssh_a_step_does_it_and_that_is_told(short_path: Path, ssh_site: RealSite) -> None:
    async with connected(short_path, ssh_site, "[tunnels]\nports = [18100, 18200]\n") as core:
        job, port = await served(core)
        node = ssh_site.nodes[(await core.cluster("far").jobs.describe(job["key"]))["nodes"]]
        node.stop()
        try:
            tunnel = await core.tunnels.open("far", {"job": job["key"], "port": port})
            assert tunnel["way"] == "step"
            assert "port 22" in tunnel["failed"]["ssh"]
            answer = await asyncio.to_thread(ask, tunnel["local_port"], b"x" * 1000)
            assert answer.endswith(b"x" * 1000)
        finally:
            node.start()
        for options, way, why in (
            ({"AllowTcpForwarding": "no"}, "nested", "does not forward connections"),
            ({"ForceCommand": "/bin/echo no"}, "step", "does not report who listens"),
        ):
            await core.tunnels.close("far", tunnel["id"])
            with configured(node, **options):
                tunnel = await core.tunnels.open("far", {"job": job["key"], "port": port})
            assert (tunnel["way"], why in tunnel["failed"]["ssh"]) == (way, True), tunnel["failed"]
            assert (await asyncio.to_thread(ask, tunnel["local_port"], b"x")).endswith(b" x")
        await core.cluster("far").actions.cancel(job["key"])


@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
async def test_a_key_that_lies_on_the_login_node_alone_leads_on_from_there(
    carrier: str, short_path: Path, ssh_site: RealSite, alice: str
) -> None:
    more = f'carrier = "{carrier}"\n[tunnels]\nports = [18100, 18200]\n'
    inside, known = (ssh_site.directory / "inside.pub").read_text(), ssh_site.logins["login1"].etc / "ssh_known_hosts"
    files = [node.etc / "authorized_keys.d" / ssh_site.user for node in ssh_site.nodes.values()]
    kept = {path: path.read_text() for path in (*files, known)}
    for path in files:
        path.write_text(inside)
    try:
        async with connected(short_path, ssh_site, more) as core:
            job, port = await served(core)
            tunnel = await core.tunnels.open("far", {"job": job["key"], "port": port})
            assert (tunnel["way"], tunnel["proven"], list(tunnel["failed"])) == ("nested", True, ["ssh"])
            data = secrets.token_bytes(3_000_000)
            answer = await asyncio.to_thread(ask, tunnel["local_port"], data)
            assert answer == tunnel["node"].encode() + b" " + data
            with (
                stranger(ssh_site.nodes[tunnel["node"]], alice) as taken,
                pytest.raises(TunnelUnproven, match="another user"),
            ):
                await core.tunnels.open("far", {"job": job["key"], "port": taken})
            await core.tunnels.close("far", tunnel["id"])
        known.write_text("")  # a node unknown to the login node is not trusted
        async with connected(short_path, ssh_site, more) as core:
            tunnel = await core.tunnels.open("far", {"job": job["key"], "port": port})
            why = tunnel["failed"]["nested"]
            assert why.startswith(f"The relay (ssh from the login node to {tunnel['node']}) cannot be started: "), why
            assert (tunnel["way"], "Host key verification failed" in why) == ("step", True)
            await core.cluster("far").actions.cancel(job["key"])
    finally:
        for path, text in kept.items():
            path.write_text(text)


async def test_after_a_restart_and_a_break_it_is_there_on_the_same_port(short_path: Path, ssh_site: RealSite) -> None:
    more = "[tunnels]\nports = [18100, 18200]\n"
    async with connected(short_path, ssh_site, more) as core:
        job, port = await served(core)
        tunnel = await core.tunnels.open("far", {"job": job["key"], "port": port})
        local = tunnel["local_port"]
        assert (await core.tunnels.open("far", {"job": job["key"], "port": port}))["id"] == tunnel["id"]
        with socket.create_connection(("127.0.0.1", local), 60) as sock:
            assert await asyncio.to_thread(sock.recv, 4) == b"node"
            ssh_site.gateway.kill_sessions()
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(lambda: b"".join(iter(lambda: sock.recv(1 << 18), b"")))
        # A connection during an outage waits, in this test for another one-time code.
        assert (await asyncio.to_thread(ask, local, b"again")).endswith(b" again")
    state = short_path / "state" / f"tunnels-{socket.gethostname()}.json"
    assert state.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConnectionRefusedError):
        ask(local, b"")
    async with connected(short_path, ssh_site, more) as core:
        (found,) = core.tunnels.list_to_api("far")
        assert (found["id"], found["local_port"]) == (tunnel["id"], local)
        assert (await asyncio.to_thread(ask, local, b"once more")).endswith(b" once more")
        assert core.tunnels.list_to_api("far")[0]["proven"]
        closed = await core.tunnels.close("far", tunnel["id"])
        assert closed["state"] == "closed"
        assert core.tunnels.list_to_api("far") == []
        await core.cluster("far").actions.cancel(job["key"])


async def test_a_way_that_can_prove_nothing_is_not_used(short_path: Path, ssh_site: RealSite, alice: str) -> None:
    more = '[tunnels]\nways = ["direct"]\nports = [18100, 18200]\n'
    async with connected(short_path, ssh_site, more) as core:
        job, _ = await served(core)
        node = (await core.cluster("far").jobs.describe(job["key"]))["nodes"]
        with (
            stranger(ssh_site.nodes[node], alice) as taken,
            pytest.raises(TunnelUnproven, match="cannot be identified"),
        ):
            await core.tunnels.open("far", {"job": job["key"], "port": taken})
        await core.cluster("far").actions.cancel(job["key"])


def two_free() -> int:
    """Return the first of two free ports, outside the ephemeral range."""
    while True:
        first = random.randrange(20000, 30000)
        pair = [("127.0.0.1", port) for port in (first, first + 1)]
        with contextlib.suppress(OSError), socket.create_server(pair[0]), socket.create_server(pair[1]):
            return first


async def test_what_cannot_be_is_told(short_path: Path, ssh_site: RealSite) -> None:
    first = two_free()
    async with connected(short_path, ssh_site, f"[tunnels]\nports = [{first}, {first + 1}]\n") as core:
        job, port = await served(core)
        with pytest.raises(TunnelError, match="No program listens on port 9 of node"):
            await core.tunnels.open("far", {"job": job["key"], "port": 9})
        for _ in range(2):  # the second has the first one's port: nothing remains
            with pytest.raises(TunnelError, match="No program listens"):
                await core.tunnels.open("far", {"job": job["key"], "port": 9, "local_port": first})
        others = [socket.create_server(("127.0.0.1", taken)) for taken in (first, first + 1)]
        with others[0], others[1], pytest.raises(TunnelError, match=f"ports {first} to {first + 1} are all in use"):
            await core.tunnels.open("far", {"job": job["key"], "port": port})
        with pytest.raises(UsageError, match="does not run on elsewhere"):
            await core.tunnels.open("far", {"job": job["key"], "port": port, "node": "elsewhere"})
        tunnel = await core.tunnels.open("far", {"job": job["key"], "port": port, "socket": True})
        assert tunnel["local_port"] is None
        assert Path(tunnel["socket"]).stat().st_mode & 0o777 == 0o600
        await core.cluster("far").actions.cancel(job["key"])

        async def is_over() -> bool:
            return bool((await core.cluster("far").jobs.describe(job["key"]))["finished"])

        await until(is_over)
        with pytest.raises(JobError, match="it is not running") as refused:
            await core.tunnels.open("far", {"job": job["key"], "port": port})
        assert refused.value.status == 409, "nothing that the agent would have to log"


async def test_a_port_of_the_login_node_is_brought_here(short_path: Path, ssh_site: RealSite) -> None:
    """Also if its sshd refuses forwarding: a remote program forwards instead."""
    login = ssh_site.logins["login1"]
    for options in ({}, {"AllowTcpForwarding": "no"}):
        with configured(login, **options), program(login, ssh_site.user) as port:
            more = '[tunnels]\nports = [18100, 18200]\nways = ["ssh", "direct"]\n'
            async with connected(short_path, ssh_site, more) as core:
                tunnel = await core.tunnels.open("far", {"port": port})
                assert (tunnel["way"], tunnel["proven"], tunnel["job"]) == ("login", True, None)
                assert await asyncio.to_thread(ask, tunnel["local_port"], b"x") == b"login1 x"
                await core.tunnels.close("far", tunnel["id"])
                if options:  # a node without a route: each attempt has its reason
                    _, reach = core.tunnels._reaches["far"]
                    way = await reach.find_route(RouteTarget("node1", "1"))
                    with pytest.raises(
                        TunnelError,
                        match=r"No connection to node1 works: ssh: .* does not forward.*; direct: .* does not forward",
                    ):
                        await asyncio.to_thread(way.find, port)


@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
async def test_a_port_of_the_gateway_is_brought_here_and_nothing_more_is_asked(
    carrier: str, short_path: Path, ssh_site: RealSite, alice: str
) -> None:
    more = f'carrier = "{carrier}"\n[tunnels]\nports = [18100, 18200]\n'
    gateway = ssh_site.gateway
    async with connected(short_path, ssh_site, more) as core:
        codes = ssh_site.codes.used
        with program(gateway, ssh_site.user) as port:
            tunnel = await core.tunnels.open("far", {"port": port, "node": "gateway"})
            assert [tunnel[key] for key in ("way", "proven", "job", "node")] == ["hop", True, None, "gateway"]
            data = secrets.token_bytes(3_000_000)
            assert await asyncio.to_thread(ask, tunnel["local_port"], data) == b"gateway " + data
            with stranger(gateway, alice) as taken, pytest.raises(TunnelUnproven, match="another user"):
                await core.tunnels.open("far", {"port": taken, "node": "gateway"})
            with pytest.raises(TunnelError, match="No program listens on port 9 of gateway"):
                await core.tunnels.open("far", {"port": 9, "node": "gateway"})
            with pytest.raises(UsageError, match="is not a jump host") as refused:
                await core.tunnels.open("far", {"port": port, "node": "node1"})
            assert "gateway" in refused.value.hint
            assert ssh_site.codes.used == codes
            gateway.kill_sessions()
            assert await asyncio.to_thread(ask, tunnel["local_port"], b"x") == b"gateway x"
        assert ssh_site.codes.used == codes + 1  # of the login, once
        await core.clusters.disconnect("far")

        async def is_left() -> bool:
            return not gateway.sessions()

        await until(is_left)


async def test_a_master_of_the_persons_own_has_no_way_to_the_gateway_and_that_is_logged_in_to_once(
    short_path: Path, ssh_site: RealSite
) -> None:
    """As after a login by other means: forwarding through the gateway's master is not available."""
    more = 'carrier = "openssh"\n[tunnels]\nports = [18100, 18200]\n'
    others = set(ssh_site.gateway.sessions())  # logins kept by other tests
    async with connected(short_path, ssh_site, more) as core:
        (hop,) = (path for path in (short_path / "run" / "ssh").iterdir() if path.name.startswith("h"))
        hop.unlink()
        codes = ssh_site.codes.used
        with program(ssh_site.gateway, ssh_site.user) as port:
            for _ in range(2):
                tunnel = await core.tunnels.open("far", {"port": port, "node": "gateway"})
                assert await asyncio.to_thread(ask, tunnel["local_port"], b"x") == b"gateway x"
        assert ssh_site.codes.used == codes + 1
        await core.clusters.disconnect("far")

        async def is_left() -> bool:
            return not set(ssh_site.gateway.sessions()) - others

        await until(is_left)


@pytest.fixture
def gateway6(ssh_site: RealSite) -> Iterator[str]:
    """Provide another address of the gateway."""
    gateway, wire = ssh_site.gateway, cast(Any, ssh_site.gateway.link)
    network = f"fd{secrets.token_hex(1)}:{secrets.token_hex(2)}"
    here, there = f"{network}::1", f"{network}::2"
    run("ip", "-6", "addr", "add", f"{here}/64", "dev", wire.device, "nodad")
    gateway.run("ip", "-6", "addr", "add", f"{there}/64", "dev", "eth0", "nodad")
    before, gateway.options = gateway.options, {**gateway.options, "ListenAddress": ["0.0.0.0", "::"]}
    gateway.stop()
    gateway.start()
    yield there
    gateway.options = before
    gateway.stop()
    gateway.start()
    run("ip", "-6", "addr", "del", f"{here}/64", "dev", wire.device)
    gateway.run("ip", "-6", "addr", "del", f"{there}/64", "dev", "eth0")


@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
async def test_a_gateway_that_has_no_name_but_an_ipv6_address(
    carrier: str, short_path: Path, ssh_site: RealSite, gateway6: str
) -> None:
    """As jump host, as target, and for programs that listen on ``::1``."""
    address = str(ipaddress.ip_address(gateway6))
    config, known = short_path / "config", short_path / "known_hosts"
    known.write_text(ssh_site.known_hosts.read_text() + ssh_site.gateway.known_hosts_lines(address))
    text = ssh_site.ssh_config.read_text().replace(str(ssh_site.known_hosts), str(known))
    config.write_text(text.replace("ProxyJump gateway", f"ProxyJump [{address}]"))
    more = f'carrier = "{carrier}"\n[tunnels]\nports = [18100, 18200]\n'
    async with connected(short_path, ssh_site, more, config=config) as core:
        codes = ssh_site.codes.used
        for host, node in ((ssh_site.gateway, address), (ssh_site.logins["login1"], None)):
            with program(host, ssh_site.user, "::1") as port:
                tunnel = await core.tunnels.open("far", {"port": port, "node": node})
                assert tunnel["proven"]
                said = await asyncio.to_thread(ask, tunnel["local_port"], b"x")
                assert said == f"{host.name} x".encode()
        assert ssh_site.codes.used == codes


async def test_a_gateway_that_runs_no_commands_proves_nothing(
    short_path: Path, new_ssh_site: Callable[..., RealSite]
) -> None:
    site = new_ssh_site(nodes=1, gateway_options={"ForceCommand": "/bin/false"})
    async with connected(short_path, site) as core:
        with program(site.gateway, site.user) as port:
            with pytest.raises(TunnelUnproven, match="gateway does not report who listens") as refused:
                await core.tunnels.open("far", {"port": port, "node": "gateway"})
            assert "unproven = true" in refused.value.hint
    async with connected(short_path, site, "[tunnels]\nunproven = true\n") as core:
        with program(site.gateway, site.user) as port:
            tunnel = await core.tunnels.open("far", {"port": port, "node": "gateway"})
            assert not tunnel["proven"]
            assert await asyncio.to_thread(ask, tunnel["local_port"], b"x") == b"gateway x"


async def test_a_newcomer_is_asked_about_the_key_of_a_node(short_path: Path, ssh_site: RealSite) -> None:
    """Once; the login node knows the key until the user accepts it, then ssh does, perhaps after a manual login."""
    known, config = short_path / "known_hosts", short_path / "config"
    nodes = tuple(ssh_site.nodes)
    lines = ssh_site.known_hosts.read_text().splitlines(keepends=True)
    text = ssh_site.ssh_config.read_text().replace(str(ssh_site.known_hosts), str(known))
    config.write_text(text.replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask"))
    known.write_text("".join(line for line in lines if not line.startswith(nodes)))
    more = "[tunnels]\nports = [18100, 18200]\n"
    _HOST_KEYS.clear()
    async with connected(short_path, ssh_site, more, config=config) as core:
        job, port = await served(core)
        wanted = {"job": job["key"], "port": port}
        for _ in range(2):
            tunnel = await core.tunnels.open("far", wanted)
            assert tunnel["way"] == "nested"
            assert "you have not accepted it" in tunnel["failed"]["ssh"]
        assert [host.partition(" ")[0] for host in _HOST_KEYS] == [tunnel["node"]]
        with socket.create_connection(("127.0.0.1", tunnel["local_port"]), 60) as sock:
            assert await asyncio.to_thread(sock.recv, 4) == b"node"
            known.write_text(ssh_site.known_hosts.read_text())
            tunnel = await core.tunnels.open("far", wanted)
            assert (tunnel["way"], tunnel["failed"]) == ("ssh", {})
            sock.sendall(b"still here")
            while not (said := await asyncio.to_thread(sock.recv, 100)).endswith(b"here"):
                assert said  # open connections continue
        await core.cluster("far").actions.cancel(job["key"])
    known.write_text("".join(line for line in lines if not line.startswith(nodes)))
    async with connected(short_path, ssh_site, more, config=config, accepts=nodes) as core:
        job, port = await served(core)
        tunnel = await core.tunnels.open("far", {"job": job["key"], "port": port})
        assert tunnel["way"] == "ssh"
        assert f"far-{tunnel['node']} " in known.read_text()
        await core.cluster("far").actions.cancel(job["key"])


async def test_a_node_that_is_gone_without_a_word_is_found_out(
    short_path: Path, ssh_site: RealSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_slurm.transport.ssh.forwarding.node._PING_INTERVAL_S", 0.2)
    monkeypatch.setattr("jupyter_slurm.transport.ssh.forwarding.node._ANSWER_TIMEOUT_S", 1.0)
    async with connected(short_path, ssh_site, '[tunnels]\nways = ["ssh"]\nports = [18100, 18200]\n') as core:
        job, port = await served(core)
        tunnel = await core.tunnels.open("far", {"job": job["key"], "port": port})
        node = ssh_site.nodes[tunnel["node"]]
        with socket.create_connection(("127.0.0.1", tunnel["local_port"]), 60) as sock:
            assert await asyncio.to_thread(sock.recv, 4) == b"node"
            node.drop()
            try:
                with pytest.raises(ConnectionResetError):
                    await asyncio.to_thread(lambda: b"".join(iter(lambda: sock.recv(1 << 18), b"")))
            finally:
                node.restore()
        assert (await asyncio.to_thread(ask, tunnel["local_port"], b"again")).endswith(b" again")
        await core.cluster("far").actions.cancel(job["key"])


async def test_on_a_login_node_itself(
    short_path: Path, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without SSH; the node of the embedded cluster has no sshd either."""
    monkeypatch.setattr(tunnels, "_CHECK_INTERVAL_S", 0.05)
    settings = Settings(
        job_root=str(short_path / "jobs"), state_dir=str(short_path / "state"), runtime_dir=str(short_path / "run")
    )
    core = Core(settings)
    await core.start()
    try:
        env = cluster.env()
        name = (await core.clusters.register(env["SLURM_CONF"], env["PATH"]))["id"]
        job, port = await served(core, name=name, env=env)
        entry = core.cluster(name).tracker.find(job["key"])
        assert entry is not None
        said, entry.slurm.submitted, entry.submit_time = (
            entry.submitted,
            None,
            job["submit_time"] - 2.5,
        )  # the queue was not queried yet
        wanted = {"job": job["key"], "port": port}
        both = [asyncio.create_task(core.tunnels.open(name, wanted)) for _ in range(2)]

        async def both_wait() -> bool:
            return list(core.tunnels._new.values()) == [2]

        await until(both_wait)
        both[0].cancel()  # the other one continues
        tunnel = await both[1]
        assert [one["id"] for one in core.tunnels.list_to_api(name)] == [tunnel["id"]]
        entry.slurm.submitted = entry.submit_time = said
        await asyncio.sleep(0.5)  # ten checks: the state of the job in the queue does not make it another job
        assert tunnel["way"] == "step"
        assert (await asyncio.to_thread(ask, tunnel["local_port"], b"x" * 9)).endswith(b" " + b"x" * 9)
        await core.cluster(name).actions.cancel(job["key"])
    finally:
        await core.stop()


async def test_a_port_of_a_job_of_a_terminal_is_brought_here_and_what_cannot_be_says_why(
    short_path: Path, ssh_site: RealSite, alice: str
) -> None:
    """Jobs that were submitted on the login node by hand, also by another user: only what runs and is one's own."""
    login = ssh_site.logins["login1"]

    def by_hand(*words: str, user: str = ssh_site.user) -> str:
        batch = login.run("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *words, user=user)
        return batch.stdout.strip().partition(";")[0]

    async with connected(short_path, ssh_site) as core:
        cluster = core.cluster("far")

        async def opened(job: str, port: int = 9) -> Any:
            return await core.tunnels.open("far", {"job": job, "port": port})

        async def runs(job: str) -> Any:
            with contextlib.suppress(SlurmError):
                return (told := await cluster.jobs.describe(job))["state"] == "RUNNING" and told["nodes"]
            return None

        tasks, held = by_hand("--array=3,4", "--wrap=exec sleep 600"), by_hand("--hold", "--wrap=true")
        foreign = by_hand("--wrap=exec sleep 600", user=alice)
        try:
            node = await until(lambda: runs(f"{tasks}_3"))
            with program(ssh_site.nodes[node], ssh_site.user) as port:
                tunnel = await opened(f"{tasks}_3", port)
                assert (tunnel["job"], tunnel["node"], tunnel["proven"]) == (f"{tasks}_3", node, True)
                assert (await asyncio.to_thread(ask, tunnel["local_port"], b"x")).endswith(b" x")
            for job, why in (
                (tasks, f"Job {tasks} is an array"),
                (held, r"it is not running \(PENDING\)"),
                (f"{tasks}+1", "component of a heterogeneous job"),
                (foreign, "it belongs to another user"),
                ("999999", "You have no job 999999"),
            ):
                with pytest.raises(SlurmError, match=why):
                    await opened(job)
            login.run("scancel", held, user=ssh_site.user)
            with pytest.raises(JobError, match=r"it is not running \(CANCELLED\)"):
                await until(lambda: _until_refused(opened, held))
        finally:
            login.run("scancel", tasks, held, user=ssh_site.user)
            login.run("scancel", foreign, user=alice)


async def _until_refused(opened: Callable[[str], Awaitable[Any]], job: str) -> None:
    """Raise the refusal of a job that is known to have ended."""
    try:
        await opened(job)
    except JobError as error:
        if "PENDING" not in error.message:
            raise
