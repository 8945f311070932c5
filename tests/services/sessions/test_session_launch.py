"""Tests of sessions without a cluster: a repeated launch, and a requeue that another agent has recorded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json_model import GrantRecord, JobRecordFile
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.session_server import SessionServer
from jupyter_slurm.services.sessions import session_launch
from jupyter_slurm.services.sessions.session_launch import Sessions

_KEYS = "20260101-000000-00000000", "20260101-000000-11111111"


async def test_a_launch_may_be_repeated_while_sbatch_runs(tmp_path: Path) -> None:
    """A connection of an editor that was ended meanwhile is followed by another with the same key."""
    begun, answered = asyncio.Event(), asyncio.Event()

    async def submit(asked: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        await answered.wait()
        return {"key": asked["key"]}

    location = SimpleNamespace(container={}, node_ports=None)
    cluster: Any = SimpleNamespace(
        id="far", submit=submit, location=location, tracker=SimpleNamespace(entries=dict[str, Any]())
    )
    tunnels: Any = None
    sessions = Sessions(lambda name: cluster, tunnels, str(tmp_path))

    def launch(key: str) -> Any:
        return sessions.launch("far", {"key": key, "idle": 60.0, "name": "far", "command": ["serve", "{port}"]})

    first = asyncio.create_task(launch(_KEYS[0]))
    await begun.wait()
    with pytest.raises(UsageError, match="There is a session far already"):
        await launch(_KEYS[1])
    repeated = asyncio.create_task(launch(_KEYS[0]))
    await asyncio.sleep(0)
    assert not repeated.done()
    answered.set()
    assert [told["key"] for told in await asyncio.gather(first, repeated)] == [_KEYS[0]] * 2


async def test_after_a_requeue_that_another_agent_has_recorded_the_tunnel_is_redirected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local port stays, although the record has the new port by then."""
    redirected = list[tuple[int | None, int]]()
    server = SessionServer("Jupyter", 5000, 1.0, GrantRecord(port=5000))

    async def read_served(transport: Any, folder: JobFolder) -> SessionServer:
        return replace(server)

    monkeypatch.setattr(session_launch, "read_served", read_served)
    tunnels: Any = SimpleNamespace(redirect=lambda cluster, job, before, port: redirected.append((before, port)))
    sessions = Sessions(lambda name: cluster, tunnels, str(tmp_path))
    monkeypatch.setattr(sessions, "_connect", lambda cluster, entry: None)
    told = {"format": 1, "key": _KEYS[0], "kind": "session", "created": 1.0, "script": "", "argv": [], "events": ""}
    record = JobRecordFile.from_json({**told, "outputs": {}})
    entry = TrackedJob("far", JobFolder(f"/x/{_KEYS[0]}"), record, JobId(7), JobState("RUNNING"))
    tracker = SimpleNamespace(entries={_KEYS[0]: entry}, publish=lambda entry: None, schedule_save=lambda entry: None)
    cluster: Any = SimpleNamespace(
        id="far",
        tracker=tracker,
        client=SimpleNamespace(transport=None),
        location=SimpleNamespace(is_remote=False),
        describe_connection=lambda: None,
    )
    await sessions.tend(cluster)
    assert entry.session.server is not None
    server = SessionServer("Jupyter", 6000, 2.0, GrantRecord(port=6000), restarts=1)
    entry.restarts, entry.record = 1, replace(record, granted=server.granted)
    sessions._next_attempts.clear()
    await sessions.tend(cluster)
    assert redirected == [(None, 5000), (5000, 6000)]
