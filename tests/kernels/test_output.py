"""Tests of the division of a large output into several, with the same text; other output stays unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_slurm.runner.kernel import messages

HEADER = {"msg_id": "one", "msg_type": "stream", "session": "s"}
SIZE = 20


def pieces(content: bytes, header: dict[str, Any] = HEADER, buffers: int = 0) -> list[list[bytes]]:
    """Return the frames of each piece, as sent."""
    frames = [json.dumps(header).encode(), b'{"msg_id": "cell"}', b'{"of": 1}', content, *[b"buffer"] * buffers]
    found = list(messages.pieces(header, frames, SIZE))
    return [[b"".join(part) if isinstance(part, tuple) else part for part in piece] for piece in found]


texts = st.text(st.sampled_from('ab\n\n\\"ü\U0001f600\ud800\t\0n,:{}'), max_size=300)


@given(texts, st.booleans(), st.booleans(), st.booleans())
@example("\\n" * 40 + "\n" + "x" * 60, False, False, False)
@example('", "name": "stdout"}\n' * 9, True, True, False)
def test_the_pieces_say_the_same_line_by_line(text: str, is_name_last: bool, is_ascii: bool, is_dense: bool) -> None:
    told = {"name": "stderr", "text": text}
    if is_name_last:
        told = dict(reversed(told.items()))
    separators = (",", ":") if is_dense else None
    content = json.dumps(told, ensure_ascii=is_ascii, separators=separators).encode("utf-8", "surrogatepass")
    found = pieces(content)
    contents = [json.loads(piece[3].decode("utf-8", "surrogatepass")) for piece in found]
    assert "".join(one["text"] for one in contents) == text
    assert all(one["text"].endswith("\n") for one in contents[:-1])
    assert {one["name"] for one in contents} == {"stderr"}
    headers = [json.loads(piece[0]) for piece in found]
    assert headers[0] == HEADER
    assert len({header["msg_id"] for header in headers}) == len(found)
    assert all({**header, "msg_id": "one"} == HEADER for header in headers)
    assert all(piece[1:3] == found[0][1:3] for piece in found)


def test_a_piece_is_about_as_large_as_it_is_to_be() -> None:
    found = pieces(json.dumps({"name": "stdout", "text": "0123456789\n" * 100}).encode())
    assert len(found) > 30


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"name": "stdout", "text": "line\n" * 20, "more": "line\n" * 20}).encode(),
        json.dumps({"name": "stdout", "text": "line\\" * 20, "more": "line\n" * 20}).encode(),
        json.dumps({"name": "stdout", "text": ["line\n" * 20]}).encode(),
        json.dumps({"text": {"text": "line\n" * 20}}).encode(),
        b'{"name": "stdout", "text": "' + b"line\\n" * 20,
        b"\xff" * 100,
    ],
)
def test_what_is_no_plain_output_stays_as_it_is(content: bytes) -> None:
    assert [piece[3] for piece in pieces(content)] == [content]


def test_only_what_is_printed_is_taken_apart() -> None:
    content = json.dumps({"name": "stdout", "text": "line\n" * 100}).encode()
    assert len(pieces(content)) > 1
    assert len(pieces(content, {**HEADER, "msg_type": "display_data"})) == 1
    assert len(pieces(content, buffers=1)) == 1
