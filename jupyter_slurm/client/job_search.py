"""Search of existing jobs: one by its number, or all."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from jupyter_slurm.client.allocations.allocation import handle
from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.other_clusters import naming_others
from jupyter_slurm.client.jobs.array import Task
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.job_list import JobList
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.domain.clock_text import clock_text
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.errors import JobNotFound

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["job", "jobs", "queue_trouble"]

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")  # as in openapi.yaml


def job(reference: int | str | JobId) -> Job:
    """Return any job of yours, wherever it was submitted.

    Parameters
    ----------
    reference : int or str
        The Slurm id (``12345``, ``"12345_7"``), or the key of a submission.

    Raises
    ------
    JobNotFound
        Neither the job directories nor Slurm know the job. If another cluster with a connection has a job of that
        number, the hint names it.
    """
    text = str(reference).strip()
    if _REFERENCE.fullmatch(text) is None:
        raise JobNotFound(f"{text!r} is not a job ID.", hint="List your jobs with jupyter_slurm.jobs().")
    cluster = current()
    task = re.fullmatch(r"[0-9]+_([0-9]+)", text)
    with naming_others(cluster, text):
        data = cluster.client.get(cluster.path("jobs", text))
    if task is None:
        return handle(cluster, data)
    return Task(cluster, data, int(task[1]) if data.get("task") is None else data["task"])


def jobs(*, active: bool = False) -> JobList[Job]:
    """Return your jobs on this cluster, the latest first, also after a restart of the kernel.

    Parameters
    ----------
    active : bool
        Whether to return only unfinished jobs.
    """
    cluster = current()
    found = cluster.client.get(cluster.path("jobs"), params={"state": "active" if active else "all"})
    found.sort(key=_age, reverse=True)
    return JobList((handle(cluster, data) for data in found), trouble=queue_trouble(cluster))


def queue_trouble(cluster: Cluster) -> str:
    """Return the reason and the time since which the queue cannot be read; empty if it can."""
    polls = (one["poll"] for one in cluster.client.get("/v1/clusters") if one["id"] == cluster.name)
    poll: api.ClusterPoll | None = next(polls, None)
    error = poll and poll.get("error")
    if not poll or not error:
        return ""
    since = clock_text(time.time() - (poll.get("failing_for") or 0), time.time(), has_seconds=True)
    known = f"The queue cannot be read since {since}. The list shows the last known states."
    return sentences(known, error.get("detail"), error.get("hint"))


def _age(data: api.Job) -> tuple[float, int]:
    """Return the sort key of a job by age: the id, if two jobs have the same second."""
    number = re.match(r"[0-9]+", str(data.get("id") or ""))
    return data.get("submit_time") or 0.0, int(number[0]) if number else 0
