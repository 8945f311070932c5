"""Tests of untrusted files in a job directory, which a job can write in place of the runner."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_slurm.agent.json_encoding import encode
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.jobdir.job_directory import ClusterFolder, JobFolder
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.results.reader import ResultReader
from jupyter_slurm.services.results.record import read_job_values, sweep_table
from jupyter_slurm.services.results.usage_samples import sampled
from jupyter_slurm.transport.local.transport import LocalTransport

_DAMAGED = "The measured values cannot be read, because their file is damaged."
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
    entry = TrackedJob(
        "c", id=JobId(12), folder=JobFolder(str(folder)), record=JobRecordFile.from_json({"kind": "python"})
    )
    told = await sampled(transport, entry)
    assert json.loads(encode(told)) == told  # as the agent sends it
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


_END = {"format": 1, "exit_code": 0, "time": 1.0, "restarts": 0}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({**_END, "time": float("nan")}),
        json.dumps({**_END, "time": "nan"}),
        json.dumps({**_END, "exit_code": 10**400}),
        json.dumps({**_END, "restarts": 0}).replace('"time": 1.0', '"time": 1e999'),
        json.dumps(_END).replace('"exit_code": 0', '"exit_code": 1e999'),
        "[" * 200_000,
        "[]",
        "\0" * 100,
        None,
    ],
)
async def test_an_end_that_no_runner_tells_is_none_and_stops_nobody(
    transport: LocalTransport, tmp_path: Path, text: str | None
) -> None:
    tracker = Tracker("c", SimpleNamespace(transport=transport), ClusterFolder(str(tmp_path)), None, None, time.time)  # type: ignore[arg-type]
    folder = tmp_path / "20260101-000000-00000000"
    folder.mkdir(0o700)
    entry = TrackedJob(
        "c",
        id=JobId(12),
        folder=JobFolder(str(folder)),
        record=JobRecordFile.from_json({"kind": "python"}),
        state=JobState("RUNNING"),
    )
    path = folder / "end.json"
    if text is None:
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        path.write_text(text)
    assert not await tracker.read_end(entry)  # no error either: it would end the checks of all other jobs
    assert entry.state.is_running
    path.unlink()
    path.write_text(json.dumps({**_END, "had": {"account": "lab\udcff", "qos": 5}}))
    assert await tracker.read_end(entry)
    assert entry.runner.had == {"account": "lab\ufffd"}


async def test_what_the_job_has_made_huge_since_is_not_read(transport: LocalTransport, tmp_path: Path) -> None:
    folder = tmp_path / "20260101-000000-00000000"
    folder.mkdir(0o700)
    for name in ("job.json", "script", "in.values", "sweep.json", "sweep.script", "tasks.json", "end.0.json", "claim"):
        (folder / name).touch()
        os.truncate(folder / name, 1 << 40)
    job = JobFolder(str(folder))
    array = {"sweep": {"tasks": 2}, "array": True, "array_tasks": "0-1"}
    record = JobRecordFile.from_json({"kind": "python", "script": "script", **array})
    entry = TrackedJob("c", id=JobId(12), folder=job, record=record, state=JobState("RUNNING"))

    async def found(reference: str) -> TrackedJob:
        return entry

    reader = cast(ResultReader, SimpleNamespace(_find=found, _transport=transport))
    readings: list[Coroutine[Any, Any, object]] = [
        *(job.load(transport), read_job_values(transport, job, 1000), sweep_table(transport, job)),
        *(ResultReader.script(reader, "12"), ResultReader.source(reader, "12")),
        array_tasks.tasks_to_api(transport, entry, parameters=True),
    ]
    for reading in readings:
        with pytest.raises(UsageError, match="because it is larger than"):
            await reading
    await array_tasks.load(transport, entry)
    assert not entry.slurm.tasks


async def test_the_ends_of_tasks_that_only_the_runner_has_seen(transport: LocalTransport, tmp_path: Path) -> None:
    """Without accounting, Slurm forgets a task; one that was cancelled or reached its limit has not failed by itself."""
    folder = tmp_path / "20260101-000000-00000000"
    folder.mkdir(0o700)
    ends: list[dict[str, object]] = [{"exit_code": 0}, {"exit_code": 3}, {"exit_code": 130, "interrupted": True}]
    ends += [{"exit_code": 143, "terminated": True}, {"time": float("inf")}]
    for task, end in enumerate(ends):
        (folder / f"end.{task}.json").write_text(json.dumps({**_END, **end}))
    record = JobRecordFile.from_json({"kind": "python", "array": True, "array_tasks": "0-4"})
    entry = TrackedJob("c", id=JobId(12), folder=JobFolder(str(folder)), record=record, state=JobState("COMPLETED"))
    await array_tasks.load(transport, entry)
    states = {task: record.state.name for task, record in entry.slurm.tasks.items()}
    assert states == {0: "COMPLETED", 1: "FAILED", 2: "CANCELLED", 3: "CANCELLED"}


def test_only_an_id_means_a_job() -> None:
    tracker = Tracker("c", None, ClusterFolder("/nowhere"), None, None, time.time)  # type: ignore[arg-type]
    entry = TrackedJob("c", id=JobId(12), state=JobState("RUNNING"))
    tracker.add(entry)
    for name in ("12", "12_3", "12+1", "12.batch", "12_3.0"):
        assert tracker.find(name) is entry
    for name in ("12x", "12_", "12_1-3", "12-13", "12_x", "1", "12 13", "12\n", "-12", "_12", "0", ""):
        assert tracker.find(name) is None, name


def test_what_is_no_number_is_told_as_null() -> None:
    """A browser cannot parse NaN: it would lose the data of every job."""
    told = [{"end_time": float("nan"), "start_time": 1.5, "also": (float("inf"), "NaN", True, None)}]
    assert json.loads(encode(told), parse_constant=pytest.fail) == [
        {"end_time": None, "start_time": 1.5, "also": [None, "NaN", True, None]}
    ]


_RUNNER = """
import os, runpy, sys, time, types
folder = sys.argv[2]
path = os.path.join(folder, "usage.json")
put = lambda path, text: open(path, "w").write(text)
runpy.run_path(sys.argv[1])["watch"](types.SimpleNamespace(task=None, job_id="12", folder=folder, put=put))
if not os.fork():
    for number in (1, 2): os.dup2(0, number)
    time.sleep(600)
while not os.path.exists(path): time.sleep(0.02)
"""


def test_what_measures_a_job_ends_with_it_whatever_that_has_left_behind(tmp_path: Path, wait_for: Any) -> None:
    mark = f"MARK_OF_A_TEST={tmp_path}"
    env = {**os.environ, "JUPYTER_SLURM_USAGE_SECONDS": "0.1", "MARK_OF_A_TEST": str(tmp_path)}
    usage = str(resources.files("jupyter_slurm.runner.lifecycle").joinpath("usage.py"))
    subprocess.run([sys.executable, "-c", _RUNNER, usage, str(tmp_path)], env=env, check=True, timeout=60)

    def left() -> list[int]:
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if f"{mark}\0".encode() in Path("/proc", pid, "environ").read_bytes():
                    found.append(int(pid))
        return found

    try:
        wait_for(lambda: len(left()) == 1, "nothing but what it has left behind")
    finally:
        for pid in left():
            os.kill(pid, signal.SIGKILL)


async def test_neither_a_fifo_nor_a_huge_file_is_waited_for(transport: LocalTransport, tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    os.mkfifo(path)
    assert (await _of(transport, tmp_path))["note"] == "Nothing has been measured yet. Try again in a minute."
    path.unlink()
    path.write_text(_told(*_POINTS, node="n" * 10_000))
    told = await _of(transport, tmp_path)
    assert [point["gpu"] for point in told["points"]] == [0.25]
    assert len(told["node"]) < 300
    os.truncate(path, 10 << 30)
    assert (await _of(transport, tmp_path))["note"] == _DAMAGED
    tmp_path.chmod(0o777)  # another user may have written the file
    assert (await _of(transport, tmp_path))["points"] == []
