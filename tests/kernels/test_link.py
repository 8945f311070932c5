"""Tests of the link between a proxy and a keeper: messages arrive once, wherever connections are cut."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.runner.link import resumable_link
from jupyter_slurm.runner.link.handshake import KeeperHandshake, PeerRejected, PeerReplaced, ProxyHandshake
from jupyter_slurm.runner.link.resumable_link import IOPUB, NOTE, SHELL, Link

SECRET = b"s" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Pair:
    """A proxy and a keeper, and the connection between them."""

    def __init__(self, limit: int = 1 << 62) -> None:
        self.clock = Clock()
        self.front, self.keeper = Link(clock=self.clock), Link(limit, clock=self.clock)
        self.who = b"the-one!"
        self.told: dict[str, list[resumable_link.Message]] = {"front": [], "keeper": []}

    def connect(self) -> None:
        ours = ProxyHandshake(SECRET, self.who, self.front.received)
        theirs = KeeperHandshake(SECRET, lambda who: self.keeper.received)
        theirs.feed(ours.feed(theirs.feed(ours.first)))
        assert ours.is_done
        assert theirs.is_done
        self.take("keeper", self.keeper.attach(theirs.received, theirs.rest))
        self.take("front", self.front.attach(ours.received, ours.rest))

    def take(self, end: str, messages: list[resumable_link.Message]) -> None:
        self.told[end] += messages
        (self.front if end == "front" else self.keeper).confirm()

    def carry(self, end: str, most: int = 1 << 30) -> int:
        """Deliver up to a number of bytes; return their number."""
        there, here = (self.front, self.keeper) if end == "front" else (self.keeper, self.front)
        data = bytes(here.pending()[:most])
        here.written(len(data))
        self.take(end, there.feed(data))
        return len(data)

    def settle(self) -> None:
        while self.carry("front") + self.carry("keeper"):
            pass

    def cut(self) -> None:
        self.front.detach()
        self.keeper.detach()


def numbers(messages: list[resumable_link.Message]) -> list[int]:
    return [int(message.frames[0]) for message in messages if message.channel != NOTE]


steps = st.lists(st.tuples(st.sampled_from(["say", "carry", "cut"]), st.booleans(), st.integers(0, 200)), max_size=60)


@given(steps)
def test_what_is_said_arrives_once_and_in_order_wherever_it_is_cut(steps: list[tuple[str, bool, int]]) -> None:
    pair, said = Pair(), {"front": 0, "keeper": 0}
    pair.connect()
    for what, is_for_front, size in steps:
        end = "front" if is_for_front else "keeper"
        if what == "say":
            said[end] += 1
            other = pair.keeper if is_for_front else pair.front
            other.send(IOPUB if is_for_front else SHELL, [b"%d" % said[end], os.urandom(size)])
        elif what == "carry":
            pair.carry(end, size)
        else:
            pair.cut()
            pair.connect()
    pair.settle()
    for end, count in said.items():
        assert numbers(pair.told[end]) == list(range(1, count + 1))
    assert pair.front.is_clear
    assert pair.keeper.is_clear


@given(st.lists(st.tuples(st.integers(0, 400), st.booleans(), st.booleans()), max_size=60), st.integers(0, 3000))
def test_only_output_is_dropped_the_oldest_first_and_how_much_is_told(
    said: list[tuple[int, bool, bool]], carried: int
) -> None:
    pair, causes = Pair(limit=2000), [b'{"msg_id": "a"}', b'{"msg_id": "b"}']
    for number, (size, is_kept, is_second) in enumerate(said):
        pair.keeper.send(IOPUB, [b"%d" % number, bytes(size)], None if is_kept else causes[is_second])
        if number == len(said) // 2:
            pair.connect()
            pair.carry("front", carried)
            pair.cut()
    pair.connect()
    pair.settle()
    arrived = numbers(pair.told["front"])
    assert arrived == sorted(set(arrived))
    missing = set(range(len(said))) - set(arrived)
    assert not any(said[number][1] for number in missing)
    notes = [message.note() for message in pair.told["front"] if message.channel == NOTE]
    for is_second, name in enumerate("ab"):
        lost = [number for number in missing if said[number][2] == bool(is_second)]
        told = sum(note["messages"] for note in notes if note["parent"]["msg_id"] == name)
        assert told >= len(lost)  # the arrival of some of them is unknown
        assert bool(told) >= bool(lost)
    if sum(size + 30 for size, _, _ in said) < 2000:
        assert not missing


def test_of_the_output_nobody_has_read_the_newest_is_kept() -> None:
    pair = Pair(limit=100_000)
    for number in range(1000):
        pair.keeper.send(IOPUB, [b"%d" % number, bytes(1000)], b'{"msg_id": "a"}')
    pair.connect()
    pair.settle()
    arrived = numbers(pair.told["front"])
    assert arrived == list(range(1000 - len(arrived), 1000))
    assert 90 <= len(arrived) <= 100
    first = pair.told["front"][0].note()
    assert first["event"] == "dropped"
    assert first["messages"] == 1000 - len(arrived)
    assert first["bytes"] == pytest.approx(first["messages"] * 1016, rel=0.01)
    assert first["parent"] == {"msg_id": "a"}


def test_what_was_dropped_is_told_also_of_a_cell_that_nobody_understands() -> None:
    pair = Pair(limit=100)
    pair.keeper.send(IOPUB, [bytes(1000)], b"{")
    pair.connect()
    pair.settle()
    assert pair.told["front"][0].note() == {"event": "dropped", "bytes": 1009, "messages": 1, "parent": {}}


def test_large_frames_arrive_as_they_are_whatever_is_between_them() -> None:
    pair = Pair()
    pair.connect()
    frames = [b"small", b"a" * 100_000, b"b" * 100_000, b"", b"c" * 300_000]
    pair.keeper.send(IOPUB, [*frames[:2], (b"first ", memoryview(frames[2]), b" last"), *frames[3:]])
    while pair.carry("front", 70_000):
        pass
    frames[2] = b"first " + frames[2] + b" last"
    assert pair.told["front"] == [(IOPUB, frames)]


def test_a_front_that_is_new_gets_what_the_one_before_has_not_confirmed() -> None:
    pair = Pair()
    pair.connect()
    pair.keeper.send(IOPUB, [b"1"])
    pair.front.send(SHELL, [b"1"])
    pair.settle()
    pair.keeper.send(IOPUB, [b"2"])
    pair.front.feed(bytes(pair.keeper.pending()))  # the keeper dies before the delivery
    pair.front, pair.told["front"] = Link(clock=pair.clock), []
    pair.front.send(SHELL, [b"7"])
    pair.keeper.forget()
    pair.connect()
    pair.settle()
    assert numbers(pair.told["front"]) == [2]
    assert numbers(pair.told["keeper"]) == [1, 7]


def greet(front: ProxyHandshake, keeper: KeeperHandshake, change: Callable[[int, bytes], bytes]) -> None:
    first = keeper.feed(change(0, front.first))
    keeper.feed(change(2, front.feed(change(1, first))))


@given(st.integers(0, 2), st.integers(0, 1000), st.integers(1, 255))
def test_whoever_changes_a_word_of_the_greeting_is_a_stranger(text: int, at: int, how: int) -> None:
    front, keeper = ProxyHandshake(SECRET, b"the-one!", 3), KeeperHandshake(SECRET, lambda who: 5)

    def change(number: int, data: bytes) -> bytes:
        if number != text or not data:
            return data
        where = at % len(data)
        return data[:where] + bytes([data[where] ^ how]) + data[where + 1 :]

    with pytest.raises(PeerRejected):
        greet(front, keeper, change)
    assert not keeper.is_done


@pytest.mark.parametrize("who", ["front", "keeper"])
def test_who_does_not_know_the_secret_is_a_stranger(who: str) -> None:
    secrets = {"front": SECRET, "keeper": SECRET, who: b"x" * 32}
    front, keeper = ProxyHandshake(secrets["front"], b"8" * 8, 0), KeeperHandshake(secrets["keeper"], lambda who: 0)
    with pytest.raises(PeerRejected, match="secret"):
        greet(front, keeper, lambda _, data: data)
    assert not front.is_done
    assert not keeper.is_done


def test_what_an_end_has_said_proves_nothing_for_the_other_role() -> None:
    """A stranger who returns the received bytes gets nowhere."""
    front = ProxyHandshake(SECRET, b"8" * 8, 0)
    other = ProxyHandshake(SECRET, b"8" * 8, 0)
    keeper = KeeperHandshake(SECRET, lambda who: 0)
    answer = keeper.feed(other.first)
    with pytest.raises(PeerRejected):
        front.feed(answer)  # a proof for another greeting
    with pytest.raises(PeerRejected):
        keeper.feed(answer[-40:])


def test_a_greeting_may_come_byte_by_byte_with_records_right_behind_it() -> None:
    pair = Pair()
    pair.front.send(SHELL, [b"1"])
    front, keeper = ProxyHandshake(SECRET, pair.who, 0), KeeperHandshake(SECRET, lambda who: 0)
    answer = b"".join(keeper.feed(bytes([byte])) for byte in front.first)
    last = b"".join(front.feed(bytes([byte])) for byte in answer)
    pair.front.attach(front.received, front.rest)
    keeper.feed(last + bytes(pair.front.pending()))
    assert numbers(pair.keeper.attach(keeper.received, keeper.rest)) == [1]


def test_a_front_that_was_replaced_hears_so_now_and_when_it_comes_again() -> None:
    front, keeper = ProxyHandshake(SECRET, b"8" * 8, 0), KeeperHandshake(SECRET, lambda who: None)
    with pytest.raises(PeerReplaced):
        greet(front, keeper, lambda _, data: data)
    pair = Pair()
    pair.connect()
    pair.front.feed(pair.keeper.replace())
    assert pair.front.is_replaced


def test_silence_breaks_a_connection_and_a_long_message_does_not() -> None:
    pair = Pair()
    pair.connect()
    pair.keeper.send(IOPUB, [b"1", bytes(10_000_000)])
    for _ in range(100):  # for 100 s only one direction works
        pair.clock.now += 1
        pair.carry("front", 90_000)
        pair.front.tick()
        pair.keeper.tick()
        pair.carry("keeper")
    assert not pair.told["front"]
    pair.settle()
    assert numbers(pair.told["front"]) == [1]
    pair.clock.now += resumable_link.SILENCE_TIMEOUT_S + 1
    with pytest.raises(resumable_link.LinkBroken):
        pair.front.tick()


@given(st.binary(max_size=60))
def test_bytes_that_make_no_sense_break_the_connection_and_nothing_else(data: bytes) -> None:
    pair = Pair()
    pair.connect()
    try:
        pair.front.feed(data)
    except resumable_link.LinkBroken:
        pair.cut()
        pair.connect()


@given(st.integers(0, 4), st.lists(st.binary(max_size=20), max_size=8), st.integers(1, 60))
def test_a_message_is_itself_again_and_one_that_is_cut_short_is_none(
    channel: int, frames: list[bytes], cut: int
) -> None:
    packed = b"".join(resumable_link.pack(channel, frames))
    assert resumable_link.unpack(packed) == (channel, frames)
    with pytest.raises(resumable_link.LinkBroken):
        resumable_link.unpack(packed[:-cut] if cut < len(packed) else b"")


@pytest.mark.parametrize("text", [b"{", b"[]", b"7", b"[" * 100_000])
def test_a_note_is_an_object(text: bytes) -> None:
    with pytest.raises(resumable_link.LinkBroken):
        resumable_link.Message(NOTE, [text]).note()
    assert resumable_link.Message(NOTE, [json.dumps({"event": "started"}).encode()]).note() == {"event": "started"}
