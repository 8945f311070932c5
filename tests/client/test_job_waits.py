"""Tests of the handle of a job while requests fail, and of a job that is requeued after its end."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_slurm.client import settings as settings_module
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.output.follower import Follower
from jupyter_slurm.domain import api_types as api
from jupyter_slurm.errors import JobFailed, NotConnected, TransportError
from jupyter_slurm.runner.variables import values_file

RUNNING = {"key": "k", "id": "12", "name": "train", "state": "RUNNING", "finished": False}
ENDED = {**RUNNING, "state": "COMPLETED", "finished": True}
FAILED = {**RUNNING, "state": "FAILED", "finished": True, "exit_code": 1}


class Agent:
    """Client of an agent that knows one job: its state, its stream of events, and its values."""

    def __init__(self, values: bytes = b"") -> None:
        self.job: dict[str, Any] = RUNNING
        self.events: list[tuple[str, Any]] = []
        self.values = values
        self.failures: list[BaseException] = []  # of the next requests for values
        self.is_connected = True

    def get(self, path: str, **_: Any) -> Any:
        if not self.is_connected:
            raise NotConnected("far is not connected.")
        return self.job

    def get_bytes(self, path: str, params: dict[str, Any]) -> tuple[bytes, int]:
        if params["stream"] != "values":
            return b"", 0
        if self.failures:
            raise self.failures.pop(0)
        at, size = params["offset"], params["limit"]
        return self.values[at : at + size], len(self.values)

    def post(self, path: str, **_: Any) -> Any:
        self.job = {**RUNNING, "state": "PENDING"}
        self.events = [("job", {**ENDED, "restarts": 1}), ("end", None)]
        return [{"error": None, "now": self.job}]

    async def astream(self, path: str, offsets: Any) -> AsyncIterator[tuple[str, Any]]:
        for event in self.events:
            yield event


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    values_file.leave(str(tmp_path / "out"), ["total"], {"total": 45}, 1000, {})
    return Agent((tmp_path / "out").read_bytes())


def _job(agent: Agent, *events: tuple[str, Any]) -> Job:
    agent.events = list(events)
    return Job(Cluster(cast(Any, agent), "far"), cast(api.Job, agent.job), from_start=True)


def _cut_off(job: Job, data: dict[str, Any]) -> Follower:
    """Let the follower of a job have lost its connection after this state."""
    follower = job._follow(start=False)
    follower.apply_job(cast(api.Job, data))
    follower.started, follower.trouble = True, "far is not connected."
    return follower


def test_a_requeue_forgets_the_end_of_a_finished_job(agent: Agent) -> None:
    job = _job(agent, ("job", ENDED), ("end", None))
    assert job.wait(60).state == "COMPLETED"
    assert job.requeue().state == "PENDING"
    assert job.wait(60).data["restarts"] == 1


@pytest.mark.parametrize("failure", [TransportError("The connection was lost."), KeyboardInterrupt()])
def test_a_wait_after_a_failed_fetch_sets_the_variables(agent: Agent, failure: BaseException) -> None:
    job, found = _job(agent, ("job", ENDED), ("end", None)), dict[str, object]()
    job._listener = found.update
    agent.failures = [failure]
    with pytest.raises(type(failure)):
        job.wait(60)
    assert found == {}
    job.wait(60)
    assert found == {"total": 45}
    found.clear()
    job.wait(60)
    assert found == {}  # set once


def test_a_failed_fetch_does_not_hide_that_the_job_failed(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    job = _job(agent, ("job", FAILED), ("end", None))
    job._listener = dict[str, object]().update
    agent.failures = [TransportError("The connection was lost.")]
    with pytest.raises(JobFailed):
        job.wait(60)
    assert "The connection was lost." in capsys.readouterr().err


@pytest.mark.parametrize("number", ["12", None])
def test_a_wait_without_a_connection_ends_with_the_known_state(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, number: str | None
) -> None:
    monkeypatch.setattr(settings_module, "_settings", None)
    agent.job = {**RUNNING, "id": number, "state": "PENDING"}
    job = _job(agent)
    follower = _cut_off(job, {**agent.job, "state": "RUNNING"})
    job._updated_at = float("-inf")  # the known state is old
    agent.is_connected = False
    with pytest.raises(TimeoutError, match="has not ended after 0 s: RUNNING"):
        job.wait(0)
    ended = SimpleNamespace(is_set=lambda: False, wait=_interrupt)
    follower.ended = cast(threading.Event, ended)
    monkeypatch.setattr("builtins.input", lambda _: "k")
    with pytest.raises(WaitInterrupted, match=f"Its job ID is {number or 'not known yet'}."):
        job.wait()


def _interrupt(seconds: float) -> None:
    raise KeyboardInterrupt
