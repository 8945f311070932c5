"""Tunnels over SSH: bytes, resets, slow readers, broken links."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko
import pytest
import tornado
from ssh_hosts import SshHost
from ssh_hosts.sockets import POUR, ask, reset, until
from tornado.websocket import websocket_connect

from jupyter_slurm.errors import TunnelError
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.ssh.via_paramiko.packetizer import OrderlyPacketizer
from jupyter_slurm.transport.tunnel.forwarder import Forwarder

WEBSOCKETS = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
import tornado.httpserver, tornado.netutil, tornado.web, tornado.websocket
class Echo(tornado.websocket.WebSocketHandler):
    def on_message(self, message):
        if message == "goodbye":
            self.close(4001, "as asked")
        else:
            self.write_message(message, binary=isinstance(message, bytes))
async def main():
    server = tornado.httpserver.HTTPServer(tornado.web.Application([("/", Echo)], websocket_max_message_size=1 << 24))
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def connected(connect: Callable[..., Any], host: SshHost, **options: Any) -> Any:
    there = connect(host, **options)
    await there.link.connect()
    return there


@pytest.mark.root
async def test_a_port_of_the_login_node_is_brought_here(
    connect: Callable[..., Any], login_node: SshHost, serve: Callable[..., int], new_forwarder: Callable[..., Forwarder]
) -> None:
    """Check both directions at once, half-closed at the end, byte for byte."""
    port = serve(login_node)
    there = await connected(connect, login_node)
    forwarder = new_forwarder(lambda: there.transport.dial("127.0.0.1", port, 10))
    data = secrets.token_bytes(20_000_000)
    answer = await asyncio.to_thread(ask, forwarder.address, data)
    assert hashlib.sha256(answer).digest() == hashlib.sha256(data).digest()


@pytest.mark.root
async def test_two_hundred_at_a_time(
    connect: Callable[..., Any], login_node: SshHost, serve: Callable[..., int], new_forwarder: Callable[..., Forwarder]
) -> None:
    """Check connections like WebSockets: all open, served in turn, many times, both ways."""
    port = serve(login_node)
    there = await connected(connect, login_node)
    forwarder = new_forwarder(lambda: there.transport.dial("127.0.0.1", port, 60))

    def talk() -> None:
        socks = [socket.create_connection(("127.0.0.1", forwarder.address), 60) for _ in range(200)]
        for turn in range(5):
            for number, sock in enumerate(socks):
                sock.sendall(b"%03d.%d" % (number, turn))
            for number, sock in enumerate(socks):
                assert sock.recv(5, socket.MSG_WAITALL) == b"%03d.%d" % (number, turn)
        assert forwarder.connections == 200
        for sock in socks:
            sock.close()

    await asyncio.to_thread(talk)
    await asyncio.to_thread(until, lambda: forwarder.connections == 0)
    assert there.link.generation == 1


@pytest.mark.root
async def test_a_websocket_stays_open_both_ways(
    connect: Callable[..., Any],
    login_node: SshHost,
    common: Path,
    serve: Callable[..., int],
    new_forwarder: Callable[..., Forwarder],
) -> None:
    """Check real WebSockets by tornado: text, binary larger than a window, silence, the server's closing code."""
    # The host has only the files of this machine's Python that are copied to it.
    shutil.copytree(Path(tornado.__file__).parent, common / "websockets" / "tornado")
    port = serve(login_node, WEBSOCKETS, str(common / "websockets"), user="root")
    there = await connected(connect, login_node)
    forwarder = new_forwarder(lambda: there.transport.dial("127.0.0.1", port, 10))
    url = f"ws://127.0.0.1:{forwarder.address}/"
    sockets = [await websocket_connect(url, max_message_size=1 << 24) for _ in range(3)]
    data = secrets.token_bytes(5_000_000)
    for sock in sockets:
        for message in ("\N{SNOWMAN}", data):
            await sock.write_message(message, binary=isinstance(message, bytes))
            assert await sock.read_message() == message
    await sockets[0].write_message("goodbye")
    assert await sockets[0].read_message() is None
    assert (sockets[0].close_code, sockets[0].close_reason) == (4001, "as asked")
    await sockets[1].write_message("after another has gone")
    assert await sockets[1].read_message() == "after another has gone"
    for sock in sockets:
        sock.close()
    await asyncio.to_thread(until, lambda: forwarder.connections == 0)
    assert there.link.generation == 1


@pytest.mark.root
@pytest.mark.slow
async def test_resets_do_not_break_the_connection_that_all_share(
    connect: Callable[..., Any], login_node: SshHost, serve: Callable[..., int], new_forwarder: Callable[..., Forwarder]
) -> None:
    """Check resets during a download, and while the client sends, by several clients at once."""
    pours, echoes = serve(login_node, POUR), serve(login_node)
    there = await connected(connect, login_node)
    forwarders = [
        new_forwarder(lambda port=port: there.transport.dial("127.0.0.1", port, 60)) for port in (pours, echoes)
    ]

    def break_off() -> None:
        for number in range(500):
            sock = socket.create_connection(("127.0.0.1", forwarders[number % 4 == 0].address), 60)
            if number % 4 == 0:
                sock.sendall(bytes(5000))
            sock.recv(number % 3 * 1000 + 1)
            reset(sock)

    threads = [threading.Thread(target=break_off) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert await asyncio.to_thread(ask, forwarders[1].address, b"alive") == b"alive"
    assert there.link.generation == 1
    assert there.told == []


@pytest.mark.root
async def test_a_slow_reader_holds_up_nobody(
    connect: Callable[..., Any], login_node: SshHost, serve: Callable[..., int], new_forwarder: Callable[..., Forwarder]
) -> None:
    """Check that unread data stays at its source, except for one window."""
    pours, echoes = serve(login_node, POUR), serve(login_node)
    there = await connected(connect, login_node)
    streams: list[Any] = []

    def dial() -> Stream:
        streams.append(there.transport.dial("127.0.0.1", pours, 60))
        return streams[-1]

    slow, quick = new_forwarder(dial), new_forwarder(lambda: there.transport.dial("127.0.0.1", echoes, 60))

    def read() -> None:
        with socket.create_connection(("127.0.0.1", slow.address), 60) as sock:
            first = sock.recv(1000)
            for _ in range(20):
                assert ask(quick.address, b"x" * 100_000) == b"x" * 100_000
            assert len(streams[0]._channel.in_buffer) <= 4 << 20
            assert len(first) + sum(len(piece) for piece in iter(lambda: sock.recv(1 << 20), b"")) == 60_000_000

    await asyncio.to_thread(read)


@pytest.mark.root
@pytest.mark.slow
async def test_a_broken_link_is_waited_for_on_the_same_port(
    connect: Callable[..., Any],
    ssh_host: Callable[..., SshHost],
    serve: Callable[..., int],
    new_forwarder: Callable[..., Forwarder],
) -> None:
    """Check a sshd killed under traffic: the download breaks, and a connection made meanwhile is served."""
    host = ssh_host(name="breaks")
    pours, echoes = serve(host, POUR), serve(host)
    there = await connected(connect, host)
    first = new_forwarder(lambda: there.transport.dial("127.0.0.1", pours, 60))
    second = new_forwarder(lambda: there.transport.dial("127.0.0.1", echoes, 60))

    def break_it() -> None:
        with socket.create_connection(("127.0.0.1", first.address), 60) as sock:
            sock.recv(1000)
            host.kill_sessions()
            with pytest.raises(ConnectionResetError):
                b"".join(iter(lambda: sock.recv(1 << 20), b""))
        assert ask(second.address, b"again") == b"again"

    await asyncio.to_thread(break_it)
    assert there.link.generation == 2


@pytest.mark.root
async def test_where_nothing_may_pass_the_cause_is_told(
    connect: Callable[..., Any], ssh_host: Callable[..., SshHost], login_node: SshHost
) -> None:
    host = ssh_host(name="strict", options={"AllowTcpForwarding": "no"})
    there = await connected(connect, host)
    with pytest.raises(TunnelError, match="AllowTcpForwarding") as refused:
        await asyncio.to_thread(there.transport.dial, "127.0.0.1", 22, 20)
    assert refused.value.details["why"] == "forbidden"
    assert (await there.transport.run(["true"])).exit_code == 0
    there = await connected(connect, login_node)
    with pytest.raises(TunnelError, match="No program answers on port 9"):
        await asyncio.to_thread(there.transport.dial, "127.0.0.1", 9, 20)
    assert (await there.transport.run(["true"])).exit_code == 0
    assert there.link.generation == 1


@pytest.mark.root
async def test_a_host_that_swallows_everything_is_not_taken_for_a_dead_link(
    connect: Callable[..., Any], login_node: SshHost
) -> None:
    there = await connected(connect, login_node)
    login_node.run("ip", "route", "add", "203.0.113.7", "dev", "eth0")
    try:
        with pytest.raises(TunnelError, match="no answer"):
            await asyncio.to_thread(there.transport.dial, "203.0.113.7", 80, 2)
    finally:
        login_node.run("ip", "route", "del", "203.0.113.7")
    assert (await there.transport.run(["true"])).exit_code == 0
    assert there.link.generation == 1


@pytest.mark.root
async def test_new_keys_are_agreed_upon_in_the_middle_of_a_transfer(
    connect: Callable[..., Any],
    login_node: SshHost,
    serve: Callable[..., int],
    new_forwarder: Callable[..., Forwarder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OrderlyPacketizer, "REKEY_BYTES", 3 << 20)
    port = serve(login_node)
    there = await connected(connect, login_node)
    forwarder = new_forwarder(lambda: there.transport.dial("127.0.0.1", port, 10))
    data = secrets.token_bytes(20_000_000)
    assert await asyncio.to_thread(ask, forwarder.address, data) == data
    assert there.link.generation == 1


@pytest.mark.root
async def test_channels_may_end_while_new_keys_are_agreed_upon(
    connect: Callable[..., Any],
    login_node: SshHost,
    serve: Callable[..., int],
    new_forwarder: Callable[..., Forwarder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OrderlyPacketizer, "REKEY_BYTES", 1 << 18)
    port = serve(login_node)
    there = await connected(connect, login_node)
    forwarder = new_forwarder(lambda: there.transport.dial("127.0.0.1", port, 60))

    def talk() -> None:
        for _ in range(15):
            assert ask(forwarder.address, data) == data

    data = secrets.token_bytes(300_000)
    await asyncio.gather(*(asyncio.to_thread(talk) for _ in range(6)))
    assert there.link.generation == 1


def test_nothing_follows_the_end_of_a_channel() -> None:
    """Check until the server reuses the channel's number."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        packets = OrderlyPacketizer(ours)

        def send(kind: int, channel: int) -> bytes:
            message = paramiko.Message()
            message.add_byte(bytes([kind]))
            message.add_int(channel)
            packets.send_message(message)
            theirs.setblocking(False)
            try:
                return theirs.recv(1000)
            except BlockingIOError:
                return b""

        assert send(94, 1)
        assert send(97, 1)
        assert [send(kind, 1) for kind in (94, 96, 93, 97)] == [b""] * 4
        assert send(94, 2)
        opened = paramiko.Message()
        opened.add_byte(bytes([91]))
        for number in (7, 1, 100, 100):
            opened.add_int(number)
        ahead = paramiko.packet.Packetizer(theirs)
        theirs.setblocking(True)
        ahead.send_message(opened)
        assert packets.read_message()[0] == 91
        assert send(94, 1)


def test_a_hop_whose_way_has_broken_is_closed_in_silence() -> None:
    class Broken:
        """A channel of a connection that has ended: its farewell is not delivered."""

        def close(self) -> None:
            raise EOFError

    OrderlyPacketizer(Broken()).close()


@pytest.mark.root
def test_the_log_does_not_grow_with_the_number_of_strangers(
    alice: str, new_forwarder: Callable[..., Forwarder], caplog: pytest.LogCaptureFixture
) -> None:
    dialled: list[int] = []

    def dial() -> Stream:
        dialled.append(1)
        raise TunnelError("nobody", hint="none")

    forwarder = new_forwarder(dial)
    code = (
        "import socket\nfor _ in range(200):\n    try:\n"
        f"        with socket.create_connection(('127.0.0.1', {forwarder.address}), 60) as sock: sock.recv(1)\n"
        "    except ConnectionError: pass\n"
    )
    subprocess.run(["runuser", "-u", alice, "--", "/usr/bin/python3", "-c", code], check=True, timeout=120)
    told = [record.getMessage() for record in caplog.records if "refused a connection" in record.getMessage()]
    assert 2 <= len(told) <= 3, told
    assert "(10 so far" in told[1]
    assert not dialled
