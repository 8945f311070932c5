"""Tests of the parser of a kernel's sockets without pyzmq: against the real libzmq, over a Unix socket."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.runner.kernel import zmq_sockets, zmtp

MESSAGES = [[b"one"], [b"", b"a" * 255, b"b" * 256, b"c" * 70_000], [os.urandom(3_000_000), b""]]


class Client:
    """A connection to a socket of libzmq."""

    def __init__(self, path: Path, kind: str, identity: bytes = b"") -> None:
        self.peer = zmtp.Peer(kind, identity)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(path))
        self.sock.sendall(self.peer.first)
        self.messages: list[list[bytes]] = []
        while not self.peer.is_ready:
            self.read()
        self.sock.sendall(self.peer.subscription)

    def read(self) -> None:
        data = self.sock.recv(65_536)
        assert data
        answer, messages = self.peer.feed(data)
        self.sock.sendall(answer)
        self.messages += messages

    def wait(self, count: int) -> list[list[bytes]]:
        while len(self.messages) < count:
            self.read()
        return self.messages


def test_a_dealer_talks_with_a_router(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.rcvtimeo = 60_000
        router.bind(f"ipc://{tmp_path}/r")
        client = Client(tmp_path / "r", "DEALER", b"it is me")
        for message in MESSAGES:
            client.sock.sendall(zmtp.pack(message))
            assert router.recv_multipart() == [b"it is me", *message]
            router.send_multipart([b"it is me", *message])
        assert client.wait(len(MESSAGES)) == MESSAGES
        client.sock.close()


def test_a_subscriber_gets_all_that_is_published(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.linger = 0
        publisher.rcvtimeo = 60_000
        publisher.bind(f"ipc://{tmp_path}/p")
        client = Client(tmp_path / "p", "SUB")
        assert publisher.recv() == b"\x01"
        for message in MESSAGES:
            publisher.send_multipart(message)
        assert client.wait(len(MESSAGES)) == MESSAGES
        client.sock.close()


@pytest.mark.parametrize(
    ("at", "by", "word"), [(12, b"PLAIN", "mechanism"), (10, b"\x01", "version"), (0, b"H", "version")]
)
def test_who_speaks_otherwise_is_told_so(at: int, by: bytes, word: str) -> None:
    peer = zmtp.Peer("DEALER")
    theirs = peer.first[:at] + by + peer.first[at + len(by) :]
    with pytest.raises(zmtp.ProtocolError, match=word):
        peer.feed(theirs)


def greeted() -> zmtp.Peer:
    peer = zmtp.Peer("DEALER")
    answer, messages = peer.feed(peer.first)
    assert answer
    assert not messages
    return peer


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), max_size=6), st.data())
def test_messages_may_come_in_any_pieces(sent: list[list[bytes]], data: st.DataObject) -> None:
    peer, stream, got = greeted(), b"".join(map(zmtp.pack, sent)), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += peer.feed(stream[:size])[1]
        stream = stream[size:]
    assert got == sent


@given(st.binary(max_size=200))
def test_what_makes_no_sense_is_an_error_or_nothing(data: bytes) -> None:
    for peer in (zmtp.Peer("SUB"), greeted()):
        with contextlib.suppress(zmtp.ProtocolError):
            peer.feed(data)


def test_a_message_of_frames_without_an_end_is_an_error() -> None:
    peer = greeted()
    with pytest.raises(zmtp.ProtocolError, match="more than 10000 frames"):
        peer.feed(b"\x01\x01x" * 10_002)
    peer = greeted()
    peer.feed(zmtp.pack([b"a" * 70_000, b""])[:-2])
    with pytest.raises(zmtp.ProtocolError, match="more than 2147483648 bytes"):
        peer.feed(b"\x03" + ((1 << 31) - 69_999).to_bytes(8, "big") + b"x")


def test_messages_are_read_ahead_up_to_a_limit_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_sockets, "_MAX_UNPROCESSED_BYTES", 4 << 20)
    data, got = os.urandom(1 << 20) * 32, bytearray()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = zmq_sockets.ChannelReader(ours, lambda: None)
        theirs.settimeout(0.5)
        view, most = memoryview(data), 0
        while view:
            try:
                view = view[theirs.send(view) :]
            except TimeoutError:  # the reader waits, and the sender behind it
                most = max(most, sum(map(len, reader._pieces)))
                got += b"".join(reader.take())
        theirs.shutdown(socket.SHUT_WR)
        while not reader.is_over or reader.has_more:
            got += b"".join(reader.take())
    assert got == data
    assert 4 << 20 < most < 8 << 20
