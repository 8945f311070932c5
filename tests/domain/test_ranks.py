"""Output of several ranks in one stream: cut into frames, labelled, and parsed again."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.client.render.terminal import Screen
from jupyter_slurm.domain.ranks import RankedOutput, explain_ranks, several_tasks
from jupyter_slurm.runner.ranks import frames, launch, torchrun
from jupyter_slurm.runner.ranks.rank import set_variables

# Possible output of a rank: any text, half lines, progress bars, imitated labels and frames, and bytes that are not
# text.
said = st.sampled_from(
    [
        b"a",
        b"line\n",
        b"\n",
        b"\r",
        b"\r\n",
        b"50%\r",
        b"[1] x\n",
        b"\x1e1onfake\n",
        b"\x1b[K",
        b"\xff\xfe",
        b"\0",
        b"\x1d",
        b"two\nlines\n",
        b"y" * 950 + b"\n" + b"z" * 20 + b"\n",
        b"x" * 3000,
    ]
)
printed = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([b"o", b"e"]),
        st.lists(said, min_size=1, max_size=4).map(b"".join),
        st.booleans(),
    ),
    max_size=20,
)


class Way:
    """Ranks, the pipe between, and the writer of the job's files."""

    def __init__(self) -> None:
        self.files: dict[bytes, bytes] = {b"o": b"", b"e": b""}
        self.shown: list[tuple[int, Any]] = []
        self.ended: list[tuple[int, Any]] = []
        self.pieces: list[bytes] = []
        self.senders = {rank: frames.Sender(rank, self.pieces.append) for rank in range(4)}

    def gather(self, sizes: list[int]) -> None:
        """Let the pipe deliver in pieces of these sizes, repeatedly."""

        def write(stream: bytes, data: bytes) -> None:
            self.files[stream] += data

        gatherer = frames.Gatherer(write, lambda *shown: self.shown.append(shown), lambda *end: self.ended.append(end))
        data, turn = b"".join(self.pieces), 0
        while data:
            size = sizes[turn % len(sizes)]
            gatherer.feed(data[:size])
            data, turn = data[size:], turn + 1
        gatherer.end()


def screen(data: bytes) -> str:
    drawn = Screen(1_000_000)
    drawn.feed(data)
    return drawn.text().rstrip("\n")


@given(printed, st.lists(st.integers(1, 5000), min_size=1, max_size=3))
def test_each_rank_looks_as_in_a_terminal_of_its_own(
    parts: list[tuple[int, bytes, bytes, bool]], sizes: list[int]
) -> None:
    way, raw = Way(), {}
    for rank, stream, data, is_quiet in parts:
        way.senders[rank].feed(stream, data)
        raw[rank, stream] = raw.get((rank, stream), b"") + data
        if is_quiet:
            way.senders[rank].show()
    for rank, sender in way.senders.items():
        sender.end({"exit_code": rank})
    assert all(len(line) < 1024 for piece in way.pieces for line in piece.split(b"\n"))
    assert all(len(piece) <= 4096 for piece in way.pieces)
    way.gather(sizes)
    assert sorted(way.ended) == [(rank, {"exit_code": rank}) for rank in range(4)] or len(way.ended) == 4
    for stream, content in way.files.items():
        labelled, found = RankedOutput(), {}
        for at in range(0, len(content), sizes[0]):
            for rank, data in labelled.feed(content[at : at + sizes[0]]):
                assert rank is not None
                found[rank] = found.get(rank, b"") + data
        for rank in range(4):
            assert screen(found.get(rank, b"")) == screen(raw.get((rank, stream), b""))


def test_a_line_without_an_end_is_neither_waited_for_nor_lost() -> None:
    labelled, megabyte = RankedOutput(), b"x" * (1 << 20)
    found = [piece for data in (b"[3] ", megabyte, b"end\n[3] y\n") for piece in labelled.feed(data)]
    assert found == [(3, megabyte), (None, b"end\n"), (3, b"y\n")]


def test_lines_are_labelled_and_a_progress_bar_stays_one_line() -> None:
    way = Way()
    for done in range(3):
        for rank in range(2):
            way.senders[rank].feed(b"e", b"\r%d/3" % done)
            way.senders[rank].show()
    for rank in range(2):
        way.senders[rank].feed(b"o", b"epoch %d\n" % rank)
        way.senders[rank].feed(b"e", b"\r3/3\n")
    way.gather([100])
    assert way.files[b"o"] == b"[0] epoch 0\n[1] epoch 1\n"
    assert way.files[b"e"].count(b"\n") == 2
    assert screen(way.files[b"e"]) == "[0] 3/3\n[1] 3/3"


def test_what_is_shown_comes_after_what_was_printed_before() -> None:
    way = Way()
    message = {"type": "display", "data": {"text/html": "<b>" + "x" * 5000}, "metadata": {}, "id": None}
    way.senders[1].feed(b"o", b"before\n")
    way.senders[1].feed(b"d", json.dumps(message).encode() + b"\n")
    way.gather([7])
    assert way.files[b"o"] == b"[1] before\n"
    assert way.shown == [(1, message)]


def test_what_is_no_frame_was_printed_by_somebody_else() -> None:
    way = Way()
    way.pieces.append(b"torchrun says\n\x1ehalf")
    way.gather([5])
    assert way.files[b"o"] == b"torchrun says\n\x1ehalf\n"
    assert list(RankedOutput().feed(way.files[b"o"])) == [(None, way.files[b"o"])]


def test_a_line_without_end_is_broken() -> None:
    way = Way()
    for _ in range(200):
        way.senders[0].feed(b"o", b"x" * 1000)
    way.senders[0].end({})
    way.gather([4096])
    lines = way.files[b"o"].split(b"\n")
    assert sum(line.count(b"x") for line in lines) == 200_000
    assert max(map(len, lines)) < 70_000


@pytest.mark.parametrize(
    ("options", "several"),
    [
        ({}, False),
        ({"ntasks": "1"}, False),
        ({"ntasks": "4"}, True),
        ({"nodes": "1-2"}, False),
        ({"nodes": "2-4"}, True),
        ({"ntasks-per-node": "8"}, True),
        ({"ntasks": None, "nodes": "abc"}, False),
    ],
)
def test_several_tasks(options: dict[str, str | None], several: bool) -> None:
    assert several_tasks(options) is several


def test_the_first_rank_that_failed_is_named() -> None:
    told = {"first": {"rank": 2, "node": "n1", "exit_code": 1}, "also": 1, "ended": 2}
    assert explain_ranks(told) == "Rank 2 on n1 failed first (exit code 1); 1 more failed too; 2 were ended with it."
    killed = {"first": {"rank": 0, "node": "n1", "exit_code": 137}, "also": 0, "ended": 0}
    assert explain_ranks(killed) == "Rank 0 on n1 failed first (it was ended by signal 9)."
    assert explain_ranks(None) == ""


def test_ranks_of_nodes_with_different_tasks() -> None:
    asked = {"JUPYTER_SLURM_TASKS_PER_NODE": "4(x2),1", "SLURM_GPUS_ON_NODE": "8"}
    assert [torchrun.processes({**asked, "SLURM_NODEID": str(node)}) for node in range(3)] == [4, 4, 8]
    assert torchrun.processes({}) == 1
    env = {"SLURM_PROCID": "8", "SLURM_LOCALID": "0", "SLURM_NODEID": "2", "SLURM_STEP_NUM_TASKS": "9"}
    env |= {"SLURM_STEP_TASKS_PER_NODE": "4(x2),1", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1", "MASTER_ADDR": ""}
    set_variables(env)
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) == ("8", "9", "0", "1")
    assert env["MASTER_ADDR"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n[9-10]", "n9"),
        ("n[09-10],a1", "n09"),
        ("b1,a[1-2]", "b1"),
        ("r[1-2]n[3-4],x", "r1n3"),
        ("gpu-a.site", "gpu-a.site"),
    ],
)
def test_the_first_of_many_patterns(nodes: str, first: str) -> None:
    assert launch.first_node({"SLURM_JOB_NODELIST": nodes, "SLURMD_NODENAME": "other"}) == first


def test_a_port_that_is_taken_is_passed_over() -> None:
    first = launch.free_port(4242)
    with socket.socket() as taken:
        taken.bind(("", first))
        taken.listen()
        assert launch.free_port(4242) > first
    assert launch.free_port(first - 12000 + 1) != first  # of the next job
