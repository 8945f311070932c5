"""Feed of a cluster's jobs from the agent: one stream for all widgets of a kernel, while one is visible."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from jupyter_slurm.client import event_loop
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.errors import NotConnected, SlurmError
from jupyter_slurm.retry_delays import RetryDelays

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobFeed", "cluster_feed", "identity"]

_RETRY_DELAYS_S = 0.5, 30.0  # seconds between two attempts to reach the agent: first, and longest
_STREAM_OPEN_S = 0.3  # seconds to open a stream: changes between the list and the stream are requested afterwards
_FINISHED_JOBS = 50  # finished jobs listed at first

Listener = Callable[[], None]

_lock = threading.Lock()
_feeds: dict[tuple[int, str], JobFeed] = {}


def identity(data: api.Job) -> str:
    """Return the identity of a job: its key, or for other jobs the number, which Slurm may reuse."""
    return str(data.get("key") or f"{data.get('id')}@{data.get('submit_time')}")


def _with(jobs: dict[str, api.Job], data: api.Job) -> dict[str, api.Job]:
    """Return the jobs with one of them new or changed; a job that Slurm queued again has another time of submission."""
    if not data.get("key"):
        same = {name for name, job in jobs.items() if job.get("id") == data.get("id") and not job.get("key")}
        jobs = {name: job for name, job in jobs.items() if name not in same or job.get("finished")}
    return {**jobs, identity(data): data}


def cluster_feed(cluster: Cluster) -> JobFeed:
    """Return the only feed of a cluster."""
    with _lock:
        return _feeds.setdefault((id(cluster.client), cluster.name), JobFeed(cluster))


class JobFeed:
    """Known jobs of a cluster.

    Attributes
    ----------
    jobs : dict
        API objects, by :func:`identity`.
    trouble : str
        Why the data may be old; empty if it is current.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.jobs: dict[str, api.Job] = {}
        self.trouble = ""
        self._cluster = cluster
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._work: Future[None] | None = None

    def refresh(self) -> None:
        """Request the jobs from the agent, and wait for the answer.

        Raises
        ------
        SlurmError
            The request failed.
        """
        self._apply_jobs(self._request_jobs(), {})

    def listen(self, listener: Listener) -> None:
        """Register a function, called in the background after changes; the stream exists only with listeners."""
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)
            if self._work is None:
                self._work = event_loop.spawn(self._run(), contextvars.copy_context())

    def unlisten(self, listener: Listener) -> None:
        """Remove a listener."""
        with self._lock:
            self._listeners = [known for known in self._listeners if known != listener]
            if not self._listeners and self._work is not None:
                self._work.cancel()
                self._work = None

    def apply_job(self, data: api.Job) -> None:
        """Store an API object of a job."""
        self.jobs = _with(self.jobs, data)
        self._notify()

    async def _run(self) -> None:
        delays = RetryDelays(*_RETRY_DELAYS_S)
        while True:
            told: dict[str, api.Job] = {}
            first = asyncio.create_task(self._delayed_refresh(told))
            try:
                async for event, data in self._cluster.client.astream("/v1/events"):
                    delays.reset()
                    if event == "job" and data["cluster"] == self._cluster.name:
                        told[identity(data)] = data
                        self.apply_job(data)
                self._troubled("The agent has ended; looking for another one.")
            except SlurmError as error:
                self._troubled(error.message)
            except Exception as error:  # noqa: BLE001  a thread's error would be seen by nobody
                self._troubled(f"{type(error).__name__}: {error}")
            finally:
                first.cancel()
                await asyncio.wait([first])
            await asyncio.sleep(delays.next())

    async def _delayed_refresh(self, on_event: Mapping[str, api.Job]) -> None:
        """Request all jobs once the stream is open, until an answer comes; objects from the stream are newer."""
        await asyncio.sleep(_STREAM_OPEN_S)
        delays = RetryDelays(*_RETRY_DELAYS_S)
        while True:
            try:
                found = await asyncio.to_thread(self._request_jobs)
                break
            except SlurmError as error:
                self._troubled(f"{error.message} {error.hint}" if isinstance(error, NotConnected) else error.message)
            await asyncio.sleep(delays.next())
        self.trouble = ""
        self._apply_jobs(found, on_event)
        self._notify()

    def _request_jobs(self) -> list[api.Job]:
        asked: dict[str, str | int] = {"state": "all", "finished": _FINISHED_JOBS}
        found: list[api.Job] = self._cluster.client.get(self._cluster.path("jobs"), params=asked)
        return found

    def _apply_jobs(self, matches: list[api.Job], on_event: Mapping[str, api.Job]) -> None:
        jobs = {identity(data): data for data in matches}
        for data in on_event.values():
            jobs = _with(jobs, data)
        self.jobs = jobs

    def _troubled(self, message: str) -> None:
        self.trouble = message
        self._notify()

    def _notify(self) -> None:
        for listener in list(self._listeners):
            listener()
