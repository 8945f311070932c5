"""Tests of the proof of a tunnel's remote program, also after a recent end of the program."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.config import Settings
from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.tunnels.local_tunnels import Tunnels
from jupyter_slurm.transport.base import Completed, Stream
from jupyter_slurm.transport.local.transport import LocalTransport

_STRANGER = 12345
_SERVER = """
import encodings.idna, os, socket, sys, threading
user, port = map(int, sys.argv[1:])
if user != os.getuid():
    os.setgroups([]); os.setgid(user); os.setuid(user)
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", port))
server.listen()
print(server.getsockname()[1], flush=True)
def serve(connection):
    try:
        while data := connection.recv(1000):
            connection.sendall(b"%d %s" % (user, data))
    except OSError:
        pass
    connection.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


class _Transport(LocalTransport):
    """Transport whose host name may lead to another machine for each connection."""

    generation = 1  # type: ignore[assignment]
    reconnects = breaks = False
    asked = 0

    async def run(self, argv: Any, **options: Any) -> Completed:
        self.asked += 1
        if self.breaks:
            self.breaks = False
            raise TransportError("the connection broke")
        return await super().run(argv, **options)

    def dial(self, host: str, port: int, timeout: float) -> Stream:
        if self.reconnects:
            self.generation, self.reconnects = self.generation + 1, False
        return super().dial(host, port, timeout)


class Server(subprocess.Popen[str]):
    """A listening program."""

    def __init__(self, user: int, port: int = 0) -> None:
        argv = [sys.executable, "-c", _SERVER, str(user), str(port)]
        super().__init__(argv, stdout=subprocess.PIPE, text=True)
        assert self.stdout is not None
        self.port = int(self.stdout.readline())

    def end(self) -> None:
        self.kill()
        self.communicate()


@pytest.fixture
async def transport() -> AsyncIterator[_Transport]:
    transport = _Transport()
    yield transport
    transport.close()


@pytest.fixture
async def new_tunnels(
    tmp_path: Path, transport: _Transport, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[], Tunnels]]:
    """Return ``new_tunnels()``: tunnels to this machine, for one agent after another."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(theirs))
    cluster: Any = SimpleNamespace(id="x", client=None)
    where: Any = SimpleNamespace(id="x", host="here")
    settings = Settings(state_dir=str(tmp_path / "state"))
    made: list[Tunnels] = []

    def make() -> Tunnels:
        folder = str(tmp_path / "ours" / "tunnels")
        made.append(Tunnels(settings, lambda name: cluster, lambda name: (18300, 18400), folder=folder))
        made[-1].add_cluster(cluster, transport, where, None)
        return made[-1]

    yield make
    for each in made:
        await each.stop()


@pytest.fixture
def tunnels(new_tunnels: Callable[[], Tunnels]) -> Tunnels:
    """Provide the tunnels of one agent."""
    return new_tunnels()


@pytest.fixture
def opened(tunnels: Tunnels) -> Callable[[dict[str, Any]], Any]:
    """Provide a function that opens a tunnel."""
    return lambda wanted: tunnels.open("x", wanted)


def ask(sock: socket.socket) -> bytes:
    try:
        sock.sendall(b"secret")
        return sock.recv(1000)
    except ConnectionResetError:
        return b""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
async def test_who_takes_the_port_of_a_program_that_ended_hears_nothing(opened: Callable[..., Any]) -> None:
    server = Server(0)
    local = ("127.0.0.1", (await opened({"port": server.port}))["local_port"])
    with socket.create_connection(local, 30) as sock:
        assert await asyncio.to_thread(ask, sock) == b"0 secret"
        server.end()
        stranger = Server(_STRANGER, server.port)
        assert await asyncio.to_thread(ask, sock) == b""
    with socket.create_connection(local, 30) as sock:
        assert await asyncio.to_thread(ask, sock) == b""
    stranger.end()
    again = Server(0, server.port)
    with socket.create_connection(local, 30) as sock:
        assert await asyncio.to_thread(ask, sock) == b"0 secret"
    again.end()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("was_used", [True, False])
async def test_when_nobody_was_connected_who_comes_to_listen_meanwhile_hears_nothing(
    was_used: bool, opened: Callable[..., Any], tunnels: Tunnels
) -> None:
    """At once: the end of the program cannot be observed."""
    server = Server(0)
    tunnel = await opened({"port": server.port})
    local = ("127.0.0.1", tunnel["local_port"])
    if was_used:
        with socket.create_connection(local, 30) as sock:
            assert await asyncio.to_thread(ask, sock) == b"0 secret"
        while tunnels.list_to_api("x")[0]["connections"]:
            await asyncio.sleep(0.01)
    server.end()
    stranger = Server(_STRANGER, server.port)
    with socket.create_connection(local, 30) as sock:
        assert await asyncio.to_thread(ask, sock) == b""
    stranger.end()


async def test_many_connections_are_served_by_few_questions(opened: Callable[..., Any], transport: _Transport) -> None:
    server = Server(os.getuid())
    local = ("127.0.0.1", (await opened({"port": server.port}))["local_port"])

    first = socket.create_connection(local, 30)
    assert (await asyncio.to_thread(ask, first)).endswith(b" secret")
    asked = transport.asked

    def one() -> bytes:
        with socket.create_connection(local, 30) as sock:
            return ask(sock)

    answers = await asyncio.gather(*(asyncio.to_thread(one) for _ in range(30)))
    assert {answer.partition(b" ")[2] for answer in answers} == {b"secret"}
    assert transport.asked == asked == 2  # at its opening, and at a connection
    first.close()
    server.end()


async def test_by_a_new_connection_to_the_login_node_it_is_asked_again(
    opened: Callable[..., Any], transport: _Transport
) -> None:
    """With several machines behind one name, it may be another machine."""
    server = Server(os.getuid())
    local = ("127.0.0.1", (await opened({"port": server.port}))["local_port"])
    transport.reconnects = True
    with socket.create_connection(local, 30) as sock:
        assert (await asyncio.to_thread(ask, sock)).endswith(b" secret")
    assert transport.asked == 2
    server.end()


async def test_a_way_that_breaks_while_it_is_asked_is_made_again(
    opened: Callable[..., Any], transport: _Transport
) -> None:
    server = Server(os.getuid())
    local = ("127.0.0.1", (await opened({"port": server.port}))["local_port"])
    with socket.create_connection(local, 30) as sock:
        assert await asyncio.to_thread(ask, sock)
        server.end()
        assert not await asyncio.to_thread(ask, sock)
    again = Server(os.getuid(), server.port)
    transport.breaks = True
    with socket.create_connection(local, 30) as sock:
        assert (await asyncio.to_thread(ask, sock)).endswith(b" secret")
    again.end()


async def test_sockets_are_in_a_folder_of_ours(opened: Callable[..., Any], tmp_path: Path) -> None:
    """If others may rename the folder, the socket may be theirs."""
    server = Server(os.getuid())
    path = Path((await opened({"port": server.port, "socket": True}))["socket"])
    assert path.parent == tmp_path / "ours" / "tunnels"
    assert [stat.S_IMODE(where.stat().st_mode) for where in (path, path.parent)] == [0o600, 0o700]
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        assert (await asyncio.to_thread(ask, sock)).endswith(b" secret")
    server.end()


async def test_a_port_that_somebody_has_taken_meanwhile_is_waited_for(
    new_tunnels: Callable[[], Tunnels], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is notified, and the port is taken again automatically."""
    monkeypatch.setattr("jupyter_slurm.services.tunnels.local_tunnels._CHECK_INTERVAL_S", 0.05)
    server, first = Server(os.getuid()), new_tunnels()
    opened = await first.open("x", {"port": server.port})
    local = opened["local_port"]
    await first.stop()
    second = new_tunnels()
    with socket.create_server(("127.0.0.1", local)):
        second.start()
        (told,) = second.list_to_api("x")
        assert [told[key] for key in ("id", "state", "local_port", "connections")] == [opened["id"], "broken", local, 0]
        assert told["message"].startswith(f"Port {local} on this computer is in use by another program of yours.")
    while second.list_to_api("x")[0]["state"] == "broken":
        await asyncio.sleep(0.01)
    with socket.create_connection(("127.0.0.1", local), 30) as sock:
        assert (await asyncio.to_thread(ask, sock)).endswith(b" secret")
    server.end()


@pytest.mark.parametrize("chosen", [True, False])
async def test_what_has_no_port_any_more_gets_another_one_when_it_is_asked_for(
    chosen: bool, new_tunnels: Callable[[], Tunnels]
) -> None:
    server, first = Server(os.getuid()), new_tunnels()
    opened = await first.open("x", {"port": server.port})
    await first.stop()
    second = new_tunnels()
    with socket.create_server(("127.0.0.1", opened["local_port"])):
        second.start()
        with socket.create_server(("127.0.0.1", 0)) as free:
            other = free.getsockname()[1] if chosen else None
        again = await second.open("x", {"port": server.port, "local_port": other})
        assert (again["id"], again["state"]) == (opened["id"], "open")
        assert other in (None, again["local_port"])
        with socket.create_connection(("127.0.0.1", again["local_port"]), 30) as sock:
            assert (await asyncio.to_thread(ask, sock)).endswith(b" secret")
        await second.stop()
        third = new_tunnels()
        third.start()
        assert [told["local_port"] for told in third.list_to_api("x")] == [again["local_port"]]
    server.end()


async def test_an_open_tunnel_is_preferred_to_one_whose_port_is_taken(new_tunnels: Callable[[], Tunnels]) -> None:
    server, first = Server(os.getuid()), new_tunnels()
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [free.getsockname()[1] for free in (one, two)]
    opened = [await first.open("x", {"port": server.port, "local_port": port}) for port in ports]
    await first.stop()
    second = new_tunnels()
    with socket.create_server(("127.0.0.1", ports[0])):
        second.start()
        assert [told["state"] for told in second.list_to_api("x")] == ["broken", "open"]
        for wanted in (ports[1], None):
            again = await second.open("x", {"port": server.port, "local_port": wanted})
            assert (again["id"], again["local_port"]) == (opened[1]["id"], ports[1])
    server.end()
