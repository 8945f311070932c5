"""Answers of tens of thousands of rows: the event loop runs while they are read, and their size is limited."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.errors import ControllerError
from jupyter_slurm.services import large_answers
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.inventory.all_jobs import AllJobs
from jupyter_slurm.services.jobdir.job_directory import ClusterFolder
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm import passthrough
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.passthrough import pass_through
from jupyter_slurm.transport.base import Completed

ROWS = 12_000
_VALUES = {"state": "RUNNING", "State": "RUNNING", "exit_code": "0:0", "ExitCode": "0:0", "statecomplete": "idle"}
_IDS = ("jobarrayid", "jobid", "JobID", "JobIDRaw", "nodelist")


class Cluster:
    """Transport to a cluster whose commands print the requested columns, ``rows`` times."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    async def run(self, argv: Sequence[str], **_: Any) -> Completed:
        words = dict(word.lstrip("-").partition("=")[::2] for word in argv)
        if "Format" in words:  # squeue, sinfo
            columns = [column.partition(":0") for column in words["Format"].split(",")]
            row = "".join(self._value(name) + end for name, _, end in columns) + "\n"
        elif "delimiter" in words:
            names = words.get("format", "JobID,State").split(",")
            row = "".join(self._value(name) + words["delimiter"] for name in names) + "\n"
            if "noheader" not in words:
                row = row.replace("1", "JobID")
        else:  # scontrol show config
            row = "Key%d = value\n"
        told = "".join(row.replace("%d", str(number)) for number in range(1, self.rows + 1))
        return Completed(0, told.encode(), b"")

    @staticmethod
    def _value(name: str) -> str:
        return "%d" if name in _IDS else _VALUES.get(name, "1")


def _client(cluster: Any) -> SlurmClient:
    location: Any = SimpleNamespace(environment={}, home="/", user="me", is_remote=True, id="far", folder="/nowhere")
    return SlurmClient(cluster, location, 60.0)


async def _poll(client: SlurmClient) -> int:
    tracker = Tracker("far", client, ClusterFolder("/nowhere"), None, EventBus(), lambda: 1000.0)  # type: ignore[arg-type]
    await tracker.poll()
    return len(tracker.active())


async def _all_jobs(client: SlurmClient) -> int:
    told = await AllJobs(client, "me", interval=30, clock=lambda: 1000.0).to_api(wait=600)
    return len(told["rows"])


async def _table(client: SlurmClient, command: str) -> int:
    told = await pass_through(client, [command], table=True, context={})
    return len(told["table"]["rows"] if told["table"] else base64.b64decode(told["stdout"]).splitlines())


async def _count(rows: Awaitable[Any]) -> int:
    return len(await rows)


READERS: dict[str, Callable[[SlurmClient], Awaitable[int]]] = {
    "the poller's query": _poll,
    "scripts": lambda client: _count(client.scripts()),
    "files": lambda client: _count(client.output_files()),
    "one job": lambda client: _count(client.find_jobs(JobId(1))),
    "nodes": lambda client: _count(client.nodes()),
    "configuration": lambda client: _count(client.configuration()),
    "accounting": lambda client: _count(client.accounting.history([JobId(1)], 0)),
    "all jobs": _all_jobs,
    "%squeue": lambda client: _table(client, "squeue"),
    "%sacct": lambda client: _table(client, "sacct"),
}


async def _turns(reader: Callable[[SlurmClient], Awaitable[int]], cluster: Cluster) -> tuple[int, int]:
    """Return how many rows were read, and how often the loop had its turn meanwhile."""
    turns = 0
    reading = asyncio.ensure_future(reader(_client(cluster)))
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    return reading.result(), turns


@pytest.mark.parametrize("name", READERS)
async def test_the_loop_has_its_turn_while_a_large_answer_is_read(name: str) -> None:
    few, turns_for_few = await _turns(READERS[name], Cluster(3))
    many, turns = await _turns(READERS[name], Cluster(ROWS))
    assert many > 1000 * few
    assert turns > turns_for_few


async def test_the_jobs_of_a_large_queue_are_worked_off_in_slices() -> None:
    records = await _client(Cluster(ROWS)).queue()
    client = _client(Cluster(0))

    async def answer() -> list[Any]:
        return records

    client.queue = answer  # type: ignore[method-assign]
    rows, turns = await _turns(lambda _: _poll(client), Cluster(0))
    assert rows == ROWS
    assert turns > ROWS / 1000


@pytest.mark.parametrize("name", READERS)
async def test_more_than_any_slurm_has_to_say_is_not_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed, it would take many times its size of memory."""
    monkeypatch.setattr(large_answers, "_MAX_ANSWER_BYTES", 5_000)
    monkeypatch.setattr(passthrough, "_MAX_TABLE_BYTES", 10_000)
    if name.startswith("%"):  # as the command printed it
        assert await READERS[name](_client(Cluster(500))) == 500
        return
    with pytest.raises(ControllerError, match="has 0 MiB; at most 0 MiB are read"):
        await READERS[name](_client(Cluster(500)))


async def test_a_job_that_is_submitted_while_an_answer_is_worked_off_is_published_once() -> None:
    published: list[Any] = []
    bus = EventBus()
    tracker = Tracker("far", _client(Cluster(600)), ClusterFolder("/nowhere"), None, bus, lambda: 1000.0)  # type: ignore[arg-type]
    tracker.publish = lambda entry: published.append(entry)  # type: ignore[method-assign]
    polling = asyncio.ensure_future(tracker.poll())
    while tracker.find("5") is None:
        await asyncio.sleep(0)
    assert not polling.done()
    own = TrackedJob("far", id=JobId(5))
    tracker.add(own)
    published.clear()
    await polling
    assert tracker.find("5") is own
    assert [entry for entry in published if entry.id == JobId(5) and entry is not own] == []


async def test_a_job_that_the_queue_shows_while_files_are_asked_for_keeps_its_turn() -> None:
    tracker = Tracker("far", _client(Cluster(1)), ClusterFolder("/nowhere"), None, EventBus(), lambda: 1000.0)  # type: ignore[arg-type]
    asked = tracker.without_files()
    await tracker.poll()
    tracker.set_files(asked, [])
    assert [entry.id for entry in tracker.without_files()] == [JobId(1)]
