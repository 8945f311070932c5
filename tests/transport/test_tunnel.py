"""Tunnels: a local port that leads to a port of a machine behind SSH, for its user only."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest
from ssh_hosts import SshHost

from jupyter_slurm.errors import SlurmError, TunnelError, TunnelUnproven
from jupyter_slurm.runner import relay
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.local import LocalTransport
from jupyter_slurm.transport.ssh.packets import OrderlyPacketizer
from jupyter_slurm.transport.tunnel.forwarder import Forwarder
from jupyter_slurm.transport.tunnel.listeners import listen_on_port, listen_on_socket
from jupyter_slurm.transport.tunnel.multiplex import Multiplex, relay_argv

_STRANGER = 12345
_POUR = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    try:
        connection.sendall(bytes(60_000_000))
    except OSError:
        pass
    connection.close()
"""
_ECHO = """
import socket, sys, threading
def serve(connection):
    with connection:
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
server = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=256)
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def new_forwarder() -> Iterator[Callable[..., Forwarder]]:
    """``new_forwarder(dial, ports=…)``; it is closed after the test."""
    made: list[Forwarder] = []

    def make(dial: Callable[[], Stream], ports: Any = range(18000, 19000), **options: Any) -> Forwarder:
        made.append(Forwarder(listen_on_port(ports, among="those of the test"), dial, **options))
        return made[-1]

    yield make
    for forwarder in made:
        forwarder.close()


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., int]]:
    """``serve(host, code, *args)``: a program of the host's user there, which prints its port; returns that."""
    running: list[subprocess.Popen[str]] = []

    def start(host: SshHost, code: str = _ECHO, *args: str, user: str | None = None) -> int:
        argv = host.command("/usr/bin/python3", "-c", code, *(args or ("0",)), user=user or host.user)
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True))
        assert running[-1].stdout is not None
        return int(running[-1].stdout.readline())

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)  # it is a child of what has entered the host
        process.communicate()


async def connected(connect: Callable[..., Any], host: SshHost, **options: Any) -> Any:
    there = connect(host, **options)
    await there.link.connect()
    return there


def ask(port: int, data: bytes) -> bytes:
    """Send all, say so, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sender = threading.Thread(target=lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR)))
        sender.start()
        answer = b"".join(iter(lambda: sock.recv(1 << 18), b""))
        sender.join()
    return answer


@pytest.mark.root
async def test_a_port_of_the_login_node_is_brought_here(
    connect: Callable[..., Any], login_node: SshHost, serve: Callable[..., int], new_forwarder: Callable[..., Forwarder]
) -> None:
    """Both directions at once, half-closed in the end, byte for byte."""
    port = serve(login_node)
    there = await connected(connect, login_node)
    forwarder = new_forwarder(lambda: there.transport.dial("127.0.0.1", port, 10))
    data = secrets.token_bytes(20_000_000)
    answer = await asyncio.to_thread(ask, forwarder.address, data)
    assert hashlib.sha256(answer).digest() == hashlib.sha256(data).digest()


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.mark.root
async def test_two_hundred_at_a_time(
    connect: Callable[..., Any], login_node: SshHost, serve: Callable[..., int], new_forwarder: Callable[..., Forwarder]
) -> None:
    """As WebSockets: all open, each is served in turn, many times, both ways."""
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
@pytest.mark.slow
async def test_resets_do_not_break_the_connection_that_all_share(
    connect: Callable[..., Any], login_node: SshHost, serve: Callable[..., int], new_forwarder: Callable[..., Forwarder]
) -> None:
    """In the middle of a download, and while the client sends; by several clients at once."""
    pours, echoes = serve(login_node, _POUR), serve(login_node)
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
    """What it does not read stays where it is, but for a window's worth."""
    pours, echoes = serve(login_node, _POUR), serve(login_node)
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
    """sshd is killed with traffic; the download breaks off as such, and a connection made meanwhile is served."""
    host = ssh_host(name="breaks")
    pours, echoes = serve(host, _POUR), serve(host)
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
    with pytest.raises(TunnelError, match="nothing answers on port 9"):
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


def test_nothing_follows_the_end_of_a_channel() -> None:
    """Until the server uses its number for another one."""
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


# The local end ------------------------------------------------------------------------------------------------------


def _as_stranger(code: str, *args: str) -> str:
    become = f"import os, socket, sys; os.setgroups([]); os.setgid({_STRANGER}); os.setuid({_STRANGER})\n"
    argv = [sys.executable, "-I", "-c", become + code, *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("kind", ["port", "socket"])
def test_another_user_is_turned_away_before_anything_is_dialled(
    kind: str, short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dialled: list[Any] = []

    def dial() -> Stream:
        dialled.append(None)
        raise TunnelError("nobody is there")

    folder = short_tmp / secrets.token_hex(4)
    folder.mkdir(mode=0o700)
    where = str(folder / "s")
    listener = listen_on_socket(where) if kind == "socket" else listen_on_port(range(18000, 19000), among="")
    forwarder = Forwarder(listener, dial)
    address = where if kind == "socket" else str(forwarder.address)
    if kind == "socket":  # even with everything open: who asks is looked at
        assert os.stat(where).st_mode & 0o777 == 0o600
        os.chmod(where, 0o666)
        for path in (folder, *folder.parents[:-2]):
            os.chmod(path, os.stat(path).st_mode | 0o011)
    code = (
        "kind, where = sys.argv[1:]\n"
        "sock = socket.socket(socket.AF_UNIX if kind == 'socket' else socket.AF_INET)\n"
        "sock.settimeout(30)\n"
        "try:\n"
        "    sock.connect(where if kind == 'socket' else ('127.0.0.1', int(where)))\n"
        "    sock.sendall(b'GET / HTTP/1.0')\n"
        "    print(sock.recv(100))\n"
        "except ConnectionError as error:\n"
        "    print(type(error).__name__)\n"
    )
    with caplog.at_level("WARNING"):
        said = _as_stranger(code, kind, address)
    forwarder.close()
    assert said in ("ConnectionResetError", "BrokenPipeError", "b''")
    assert dialled == []
    assert f"user {_STRANGER}" in caplog.text


def _listen(sock: socket.socket, address: str, port: int) -> None:
    sock.bind((address, port))
    sock.listen()


def test_a_port_that_somebody_has_is_passed_over_and_ours_is_shared_with_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with listen_on_port([taken, 0], among="") as ours:
            port = ours.getsockname()[1]
            assert port != taken
            for address in ("127.0.0.1", ""):
                rival = socket.socket()
                rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                with rival, pytest.raises(OSError, match="in use"):
                    _listen(rival, address, port)
        with pytest.raises(TunnelError, match="no local port is free: these") as full:
            listen_on_port([taken], among="these")
        assert "--list" in full.value.hint


def test_a_closed_tunnel_gives_its_port_up_and_ends_its_connections() -> None:
    ends = [socket.socketpair() for _ in range(3)]
    waiting = iter(ends)

    class Far:
        def __init__(self, sock: socket.socket) -> None:
            self._sock, self.recv, self.sendall = sock, sock.recv, sock.sendall

        def shutdown_write(self) -> None:
            self._sock.shutdown(socket.SHUT_WR)

        def close(self) -> None:
            self._sock.close()

    forwarder = Forwarder(listen_on_port([0], among=""), lambda: Far(next(waiting)[0]))
    near = [socket.create_connection(("127.0.0.1", forwarder.address), 30) for _ in ends]
    until(lambda: forwarder.connections == 3)
    forwarder.close()
    for _, far in ends:
        far.settimeout(30)
        assert far.recv(1) == b""
        far.close()
    for sock in near:
        sock.close()
    until(lambda: forwarder.connections == 0)
    with listen_on_port([int(forwarder.address)], among=""):
        pass


# Who answers at the far end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "reached"),
    [
        ([("127.0.0.1", 7)], ("127.0.0.1", [])),
        ([("0.0.0.0", 7)], ("127.0.0.1", [])),
        ([("::", 7)], ("127.0.0.1", [])),
        ([("::1", 7)], ("::1", [])),
        ([("10.1.2.3", 7)], ("10.1.2.3", [])),
        ([("127.0.0.1", 8)], (None, [8])),
        ([("0.0.0.0", 7), ("127.0.0.1", 8)], (None, [8])),
        ([("::", 7), ("127.0.0.1", 8)], ("::1", [])),
        ([("127.0.0.1", 7), ("10.1.2.3", 8)], ("127.0.0.1", [])),
        ([("0.0.0.0", 0)], (None, [0])),
        ([], (None, [])),
    ],
)
def test_a_connection_goes_where_the_kernel_takes_it_to_our_own_program(found: Any, reached: Any) -> None:
    assert relay.way_to(found, 7) == reached


def test_the_tables_of_the_system_are_read() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        for server, address in ((four, "127.0.0.1"), (six, "::1")):
            port = server.getsockname()[1]
            assert relay.listeners(*relay._tables(), port) == [(address, os.geteuid())]
    assert relay.listeners("head\n  0: 0100007F:1F90 00000000:0000 01", "", 8080) == []


@pytest.fixture
def multiplex(monkeypatch: pytest.MonkeyPatch) -> Iterator[Multiplex]:
    """The relay, as a step of a job runs it, but here."""
    monkeypatch.setattr("jupyter_slurm.transport.tunnel.multiplex._PING", 0.2)
    transport = LocalTransport()
    made = Multiplex(transport.pipe(relay_argv("hello", sys.executable), 30), "hello", "here")
    yield made
    made.close()
    until(lambda: made._stream._process.returncode is not None)  # type: ignore[attr-defined]
    transport.close()


def test_a_relay_carries_many_connections_byte_for_byte(
    multiplex: Multiplex, new_forwarder: Callable[..., Forwarder]
) -> None:
    with subprocess.Popen([sys.executable, "-c", _ECHO, "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        assert multiplex.find(port) == "127.0.0.1"
        forwarder = new_forwarder(lambda: multiplex.dial("127.0.0.1", port, 30))
        data = [secrets.token_bytes(1 << 20) for _ in range(20)]
        answers: dict[int, bytes] = {}
        threads = [
            threading.Thread(target=lambda n=n: answers.update({n: ask(forwarder.address, data[n])})) for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answers[number] == data[number] for number in range(20)] == [True] * 20
        for _ in range(50):
            sock = socket.create_connection(("127.0.0.1", forwarder.address), 30)
            sock.sendall(b"x" * 1000)
            reset(sock)
        assert ask(forwarder.address, b"alive") == b"alive"
        server.kill()
    with pytest.raises(TunnelError, match="nothing"):
        multiplex.find(port)
    with pytest.raises(TunnelError, match="nothing listens"):
        multiplex.dial("127.0.0.1", port, 30)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_relay_does_not_lead_to_another_users_program(multiplex: Multiplex) -> None:
    become = f"import encodings.idna, os, socket, threading; os.setgroups([]); os.setgid({_STRANGER}); os.setuid({_STRANGER})\n"
    argv = [sys.executable, "-I", "-c", become + _ECHO, "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for work in (lambda: multiplex.find(port), lambda: multiplex.dial("127.0.0.1", port, 30)):
            with pytest.raises(TunnelUnproven, match=f"port {port} of here belongs to another user .{_STRANGER}"):
                work()
        server.kill()


def test_a_relay_keeps_no_more_than_a_slow_reader_was_given_credit_for(multiplex: Multiplex) -> None:
    with subprocess.Popen([sys.executable, "-c", _POUR], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        slow: Any = multiplex.dial("127.0.0.1", port, 30)
        until(lambda: len(slow._in) == relay.WINDOW)
        other: Any = multiplex.dial("127.0.0.1", port, 30)
        assert len(slow._in) == relay.WINDOW
        got = sum(len(piece) for piece in iter(lambda: slow.recv(1 << 20), b""))
        assert got == 60_000_000
        slow.close()
        other.close()
        server.kill()


def test_a_relay_that_dies_breaks_its_connections_off(multiplex: Multiplex) -> None:
    with subprocess.Popen([sys.executable, "-c", _ECHO, "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        stream = multiplex.dial("127.0.0.1", int(server.stdout.readline()), 30)
        stream.sendall(b"x")
        assert stream.recv(10) == b"x"
        multiplex._stream._process.kill()  # type: ignore[attr-defined]
        with pytest.raises(ConnectionResetError):
            stream.recv(10)
        assert not multiplex.is_alive
        with pytest.raises(SlurmError):
            multiplex.find(1)
        server.kill()


def test_a_relay_that_hangs_is_found_out_also_by_those_who_send(
    multiplex: Multiplex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks no connection by itself, and takes nothing any more."""
    monkeypatch.setattr("jupyter_slurm.transport.tunnel.multiplex._DEADLINE", 1.0)
    with subprocess.Popen([sys.executable, "-c", _ECHO, "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        streams = [multiplex.dial("127.0.0.1", port, 30) for _ in range(8)]
        for stream in streams:
            stream.sendall(b"x")
            assert stream.recv(10) == b"x"
        process = multiplex._stream._process  # type: ignore[attr-defined]
        os.kill(process.pid, signal.SIGSTOP)

        def fill(stream: Stream) -> None:
            with contextlib.suppress(OSError):
                while True:
                    stream.sendall(bytes(1 << 20))

        threads = [threading.Thread(target=fill, args=(stream,)) for stream in streams[1:]]
        for thread in threads:
            thread.start()
        with pytest.raises(ConnectionResetError):
            streams[0].recv(10)
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert not multiplex.is_alive
        with pytest.raises(SlurmError, match="does not answer"):
            multiplex.find(port)
        os.kill(process.pid, signal.SIGCONT)
        server.kill()


def test_a_relay_that_is_there_is_not_taken_for_one_that_hangs(
    multiplex: Multiplex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long nothing is carried."""
    pings, send = list[int](), multiplex._send

    def counted(kind: int, number: int, data: bytes = b"") -> None:
        pings.append(kind)
        send(kind, number, data)

    monkeypatch.setattr(multiplex, "_send", counted)
    until(lambda: len(pings) >= 5)
    assert set(pings) == {relay.PING}
    assert multiplex.is_alive


def test_a_hop_whose_way_has_broken_is_closed_in_silence() -> None:
    class Broken:
        """A channel of a connection that has ended: its goodbye reaches nobody."""

        def close(self) -> None:
            raise EOFError

    OrderlyPacketizer(Broken()).close()
