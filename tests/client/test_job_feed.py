"""Tests of the feed of the widgets: a login after the monitor was opened, and jobs that Slurm queues again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.domain import api_types as api
from jupyter_slurm.errors import NotConnected
from jupyter_slurm.widgets import job_feed
from jupyter_slurm.widgets.job_feed import JobFeed


class Agent:
    """Client of an agent whose cluster is connected after some requests."""

    def __init__(self, jobs: list[dict[str, Any]], refusals: int) -> None:
        self.jobs, self.refusals = jobs, refusals

    def get(self, path: str, **_: Any) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise NotConnected("far is not connected.", hint="Log in.")
        return self.jobs

    async def astream(self, path: str) -> AsyncIterator[tuple[str, Any]]:
        await asyncio.Event().wait()
        yield "", None


def _job(submit_time: int, *, state: str = "RUNNING", key: str | None = None) -> api.Job:
    finished = state == "COMPLETED"
    return cast(api.Job, {"id": "12", "key": key, "state": state, "submit_time": submit_time, "finished": finished})


def _feed(jobs: list[api.Job], refusals: int = 0) -> JobFeed:
    return JobFeed(Cluster(cast(Any, Agent(cast(Any, jobs), refusals)), "far"))


def test_a_feed_lists_the_jobs_after_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_feed, "_RETRY_DELAYS_S", (0.01, 0.02))
    monkeypatch.setattr(job_feed, "_STREAM_OPEN_S", 0.0)
    feed, listed, troubles = _feed([_job(1)], refusals=3), threading.Event(), []

    def changed() -> None:
        troubles.append(feed.trouble)
        if feed.jobs:
            listed.set()

    feed.listen(changed)
    try:
        assert listed.wait(60)
    finally:
        feed.unlisten(changed)
    assert troubles == [*["far is not connected. Log in."] * 3, ""]
    assert list(feed.jobs) == ["12@1"]


def test_a_job_of_a_terminal_that_is_queued_again_is_one_job() -> None:
    feed = _feed([_job(1)])
    feed.refresh()
    feed.apply_job(_job(2, state="PENDING"))
    assert list(feed.jobs) == ["12@2"]
    feed.apply_job(_job(2, state="COMPLETED"))
    feed.apply_job(_job(3))  # a later job with the same number
    feed.apply_job(_job(3, key="k"))
    feed.apply_job(_job(4, state="PENDING"))
    assert list(feed.jobs) == ["12@2", "k", "12@4"]
