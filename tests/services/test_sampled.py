"""What a job used as time went by, where the job itself has written something else: it is not more than its user."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_slurm.agent.failures import encode
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.services.entry import Entry
from jupyter_slurm.services.jobdir import JobFolder
from jupyter_slurm.services.sampled import sampled
from jupyter_slurm.transport.local import LocalTransport

_DAMAGED = "What was measured cannot be read: its file is damaged."
_TOLD = {"node": "n1", "source": "cgroup", "cpus": 2, "memory": 1 << 30, "gpus": 1}
_POINTS = [[1.0, 0.0, 5, 0.5, 7], [2.0, 1.0, 6, 0.25, 8]]


def _told(*points: object, **other: object) -> str:
    return json.dumps({**_TOLD, "points": points, **other})


@pytest.fixture
def transport() -> Iterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    transport.close()


async def _of(transport: LocalTransport, folder: Path) -> dict:
    entry = Entry("c", id=JobId(12), folder=JobFolder(str(folder)), record={"kind": "python"})
    told = await sampled(transport, entry)
    assert json.loads(encode(told)) == told  # as the agent says it
    return told


@pytest.mark.parametrize(
    "text",
    [
        _told([1]),
        _told([1, 2, 3, 4, 5], [2, float("nan"), 3, 4, 5]),
        _told([1, 2, 3, 4, 5], [2, 3, 3, float("inf"), 5]),
        _told([1, 2, 3, 4, 5], [2, 3, 3, 4, 10**400]),
        _told([1, 2, 3, 4, 5], [2, 3, "x", 4, 5]),
        _told(*_POINTS, gpus=float("nan")),
        _told(*_POINTS, memory="1e999"),
        _told(*_POINTS, points="12"),
        _told(*_POINTS, points={"": 1}),
        _told(*_POINTS, points=None),
        "[" * 100_000,
        "[]",
        "\0" * 300_000,
    ],
)
async def test_what_no_runner_writes_is_not_drawn(transport: LocalTransport, tmp_path: Path, text: str) -> None:
    (tmp_path / "usage.json").write_text(text)
    assert await _of(transport, tmp_path) == {
        "node": None, "cpus": None, "memory": None, "gpus": 0, "points": [], "note": _DAMAGED
    }  # fmt: skip


async def test_neither_a_fifo_nor_a_huge_file_is_waited_for(transport: LocalTransport, tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    os.mkfifo(path)
    assert (await _of(transport, tmp_path))["note"] == "Nothing was measured yet: look again in a minute."
    path.unlink()
    path.write_text(_told(*_POINTS, node="n" * 10_000))
    told = await _of(transport, tmp_path)
    assert [point["gpu"] for point in told["points"]] == [0.25]
    assert len(told["node"]) < 300
    os.truncate(path, 10 << 30)
    assert (await _of(transport, tmp_path))["note"] == _DAMAGED
    tmp_path.chmod(0o777)  # somebody else may have written it
    assert (await _of(transport, tmp_path))["points"] == []
