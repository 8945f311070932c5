"""Received data of channels, kept in pieces: the same bytes as in paramiko's own array."""

import array

import paramiko
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.transport.ssh.via_paramiko.channels import ReceiveBuffer, use_piecewise_buffer

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), st.integers(0, 3000)),
        st.tuples(st.just("read"), st.integers(1, 5000)),
        st.tuples(st.just("empty"), st.just(0)),
    ),
    max_size=40,
)


@given(_STEPS)
def test_they_are_what_an_array_would_be(steps):
    pieces, model, number = ReceiveBuffer(), array.array("B"), 0
    for what, size in steps:
        if what == "feed":
            data = bytes((number + index) % 251 for index in range(size))
            number += size
            pieces.frombytes(data)
            model.frombytes(data)
        elif what == "read":
            assert pieces[:size].tobytes() == model[:size].tobytes()
            del pieces[:size]
            del model[:size]
        else:
            assert pieces[:None].tobytes() == model[:None].tobytes()
            del pieces[:]
            del model[:]
        assert len(pieces) == len(model)
        assert pieces[:].tobytes() == model.tobytes()


def test_many_small_ones_are_put_together():
    pieces = ReceiveBuffer()
    for _ in range(100_000):
        pieces.frombytes(b"ab")
    assert len(pieces) == 200_000
    assert len(pieces._pieces) < 200


def test_the_installed_paramiko_takes_them():
    channel = paramiko.Channel(1)
    channel.in_buffer.feed(b"before")
    use_piecewise_buffer(channel)
    assert isinstance(channel.in_buffer._buffer, ReceiveBuffer)
    channel.in_buffer.feed(b" and after")
    assert channel.in_buffer.read(7) == b"before "
    assert channel.in_buffer.read_ready()
    assert channel.in_buffer.empty() == b"and after"
    assert not channel.in_buffer.read_ready()


def test_a_paramiko_that_has_changed_goes_on_as_it_does():
    channel = paramiko.Channel(1)
    channel.in_buffer._buffer = bytearray(b"something else")
    assert use_piecewise_buffer(channel) is channel
    assert channel.in_buffer._buffer == b"something else"
