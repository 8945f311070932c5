"""Proof of the peer at the remote end of a tunnel."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ssh_hosts.sockets import ECHO, POUR, ask, reset, until

from jupyter_slurm.errors import SlurmError, TunnelError, TunnelUnproven
from jupyter_slurm.runner.login_node import relay
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.local.transport import LocalTransport
from jupyter_slurm.transport.tunnel.forwarder import Forwarder
from jupyter_slurm.transport.tunnel.multiplex import Multiplex, relay_argv

_STRANGER = 12345


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
    assert relay.route_to(found, 7) == reached


def test_the_tables_of_the_system_are_read() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        for server, address in ((four, "127.0.0.1"), (six, "::1")):
            port = server.getsockname()[1]
            assert relay.listeners(*relay.tables(), port) == [(address, os.geteuid())]
            inode = os.readlink(f"/proc/self/fd/{server.fileno()}")[len("socket:[") : -1]
            assert relay.query_kernel(port) == [(address, os.geteuid(), inode)]
    assert relay.listeners("head\n  0: 0100007F:1F90 00000000:0000 01", "", 8080) == []


@pytest.fixture
def multiplex(monkeypatch: pytest.MonkeyPatch) -> Iterator[Multiplex]:
    """Provide the relay as a job step runs it, but locally."""
    monkeypatch.setattr("jupyter_slurm.transport.tunnel.multiplex._PING_INTERVAL_S", 0.2)
    transport = LocalTransport()
    made = Multiplex(transport.pipe(relay_argv("hello", sys.executable), 30), "hello", "here", "the step here")
    yield made
    made.close()
    until(lambda: made._stream._process.returncode is not None)  # type: ignore[attr-defined]
    transport.close()


def test_a_relay_carries_many_connections_byte_for_byte(
    multiplex: Multiplex, new_forwarder: Callable[..., Forwarder]
) -> None:
    with subprocess.Popen([sys.executable, "-c", ECHO, "0"], stdout=subprocess.PIPE, text=True) as server:
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
    with pytest.raises(TunnelError, match="No program listens"):
        multiplex.find(port)
    with pytest.raises(TunnelError, match="listens"):
        multiplex.dial("127.0.0.1", port, 30)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_relay_does_not_lead_to_another_users_program(multiplex: Multiplex) -> None:
    become = f"import encodings.idna, os, socket, threading; os.setgroups([]); os.setgid({_STRANGER}); os.setuid({_STRANGER})\n"
    argv = [sys.executable, "-I", "-c", become + ECHO, "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for work in (lambda: multiplex.find(port), lambda: multiplex.dial("127.0.0.1", port, 30)):
            with pytest.raises(TunnelUnproven, match=f"Port {port} of here belongs to another user .{_STRANGER}"):
                work()
        server.kill()


def test_a_connection_whose_listener_is_gone_before_it_was_looked_at_again_is_not_believed() -> None:
    """Check that a connection is refused if its listener has gone: another user may have listened for a moment."""
    source, sink = os.pipe()
    one = relay.Relay(source, sink)
    try:
        for is_gone, said in ((False, relay.OPENED), (True, relay.FAILED)):
            with socket.create_server(("127.0.0.1", 0)) as server:
                one.handle(relay.OPEN, 1, str(server.getsockname()[1]).encode())
                taken = server.accept()[0]
                if is_gone:
                    server.close()
                one.serve(one.channels[1], selectors.EVENT_WRITE)
                kind, _, length = relay.HEADER.unpack(os.read(source, relay.HEADER.size))
                assert (kind, os.read(source, length) if length else b"") == (
                    said,
                    b"refused nothing listens there any more" if is_gone else b"",
                )
                taken.close()
            if not is_gone:
                one.drop(one.channels[1])
    finally:
        one.ready.close()
        os.close(source)
        os.close(sink)


def test_an_answer_goes_out_behind_nothing_that_nobody_has_acknowledged() -> None:
    """Check that an answer follows no unacknowledged frame: between srun and a step it would wait 40 ms.

    So credit is sent with the answer, or later.
    """
    source, sink = os.pipe()
    incoming, told = os.pipe()
    one = relay.Relay(incoming, sink)

    def frames() -> list[int]:
        data, kinds = os.read(source, 1 << 16), []
        while data:
            kind, _, length = relay.HEADER.unpack_from(data)
            kinds.append(kind)
            data = data[relay.HEADER.size + length :]
        return kinds

    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            one.handle(relay.OPEN, 1, str(server.getsockname()[1]).encode())
            one.serve(one.channels[1], selectors.EVENT_WRITE)
            taken = server.accept()[0]
            with taken:
                one.handle(relay.DATA, 1, b"question")
                assert taken.recv(100) == b"question"
                taken.sendall(b"answer")
                select.select([one.channels[1].sock], [], [], 60)
                one.serve(one.channels[1], selectors.EVENT_READ)
                assert frames() == [relay.OPENED, relay.DATA]
                one.handle(relay.DATA, 1, b"half of a question")
                one.send_credit()  # soon after: the other side may wait for the credit
                assert frames() == [relay.CREDIT]
                os.write(told, relay.HEADER.pack(relay.DATA, 1, 20) + b"x" * 10)
                assert one.receive()
                assert frames() == [relay.CREDIT]  # the rest of the frame may also wait for a message
                os.write(told, b"x" * 10)
                assert one.receive()
                one.send_credit()
                assert frames() == [relay.CREDIT]  # this one, and nothing before it
    finally:
        if 1 in one.channels:
            one.drop(one.channels[1])
        one.ready.close()
        for file in (source, sink, incoming, told):
            os.close(file)


def test_a_relay_keeps_no_more_than_a_slow_reader_was_given_credit_for(multiplex: Multiplex) -> None:
    with subprocess.Popen([sys.executable, "-c", POUR], stdout=subprocess.PIPE, text=True) as server:
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
    with subprocess.Popen([sys.executable, "-c", ECHO, "0"], stdout=subprocess.PIPE, text=True) as server:
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
    """Check also the senders of a hanging relay, which breaks no connection by itself and reads nothing more."""
    monkeypatch.setattr("jupyter_slurm.transport.tunnel.multiplex._ANSWER_TIMEOUT_S", 1.0)
    with subprocess.Popen([sys.executable, "-c", ECHO, "0"], stdout=subprocess.PIPE, text=True) as server:
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
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert not multiplex.is_alive
        with pytest.raises(SlurmError, match="does not answer"):
            multiplex.find(port)
        os.kill(process.pid, signal.SIGCONT)
        server.kill()


def test_a_relay_that_is_there_is_not_taken_for_one_that_hangs(
    multiplex: Multiplex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a relay that carries nothing for long."""
    pings, send = list[int](), multiplex._send

    def counted(kind: int, number: int, data: bytes = b"") -> None:
        pings.append(kind)
        send(kind, number, data)

    monkeypatch.setattr(multiplex, "_send", counted)
    until(lambda: len(pings) >= 5)
    assert set(pings) == {relay.PING}
    assert multiplex.is_alive


_GREEDY = """
import struct, sys, time
out, source = sys.stdout.buffer, sys.stdin.buffer
header = struct.Struct(">BII")
out.write(b"hello\\n" + header.pack(0, 0, 0)); out.flush()
data = b""
while header.pack(1, 1, 1)[:5] not in data:
    data += source.raw.read(65536)
out.write(header.pack(2, 1, 0))
for _ in range(64):
    out.write(header.pack(4, 1, 65536) + bytes(65536))
out.flush()
source.raw.read()
"""


def test_a_relay_that_sends_more_than_it_has_credit_for_loses_the_connection() -> None:
    transport = LocalTransport()
    made = Multiplex(transport.pipe([sys.executable, "-c", _GREEDY], 30), "hello", "here", "the step here")
    stream = made.dial("127.0.0.1", 80, 30)
    until(lambda: stream.closed)  # type: ignore[attr-defined]
    with pytest.raises(ConnectionResetError):
        stream.recv(100)
    made.close()
    transport.close()
