"""What else can be done with a job that is in the queue: hold, release, requeue, another time limit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from jupyter_slurm.client.render.staging_card import is_given_up, stage_notes
from jupyter_slurm.errors import JobError, from_problem

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api


if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.client.output.follower import Follower

__all__ = ["JobActionsMixin", "act", "bring"]


def act(cluster: Cluster, what: str, jobs: list[str], **more: str) -> list[api.ActOnJobsResponseItem]:
    """Do the same with some jobs; each has an answer of its own (``actOnJobs`` of the API)."""
    answers: list[api.ActOnJobsResponseItem] = cluster.client.post(
        cluster.path("acts"), json={"act": what, "jobs": jobs, **more}
    )
    return answers


class JobActionsMixin:
    """The part of a job that is about its place in the queue."""

    _cluster: Cluster
    _data: api.Job
    _asked: float
    _follower: Follower | None

    if TYPE_CHECKING:

        @property
        def _reference(self) -> str: ...

    def hold(self) -> Self:
        """Keep the job from starting, until :meth:`release`."""
        return self._act("hold")

    def release(self) -> Self:
        """Let a job start that was held."""
        return self._act("release")

    def requeue(self) -> Self:
        """End a job and put it back into the queue, where it begins anew; one that is over as long as Slurm knows it.

        What it has not written by then is lost, and its output begins anew as well, unless it was submitted with
        ``--open-mode=append``.
        """
        return self._act("requeue")

    def limit(self, time_limit: str) -> Self:
        """Give a job another time limit, as ``--time`` takes it: ``"4:00:00"``.

        One that waits may have as much as its partition and QOS allow, one that runs only less than it has.
        """
        return self._act("limit", time_limit=time_limit)

    def bring(self) -> Self:
        """Bring back what a job that is over has left in the folders of ``stage=``, and wait for it.

        That happens by itself; this is for results that did not come, which the card of the job says.

        Raises
        ------
        JobError
            They did not come this time, either.
        UsageError
            No folder travels with the job, it is not over, or its results come back to another machine.
        """
        self._know(bring(self._cluster, self._reference))
        if is_given_up(self._data):
            stage = self._data["stage"]
            raise JobError(str(stage and stage["error"]), hint="\n".join(stage_notes(self._data)))
        return self

    def _act(self, what: str, **more: str) -> Self:
        (answer,) = act(self._cluster, what, [self._reference], **more)
        if answer["error"] is not None:
            raise from_problem(answer["error"])
        assert answer["now"] is not None  # of one that is known, as each is without an error
        self._know(answer["now"])
        return self

    def _know(self, data: api.Job) -> None:
        """Take in what the agent has just told."""
        self._data, self._asked = data, time.monotonic()
        if self._follower is not None:
            self._follower.know(self._data)


def bring(cluster: Cluster, reference: str) -> api.Job:
    """Bring back what a job has left in its folders, and wait for that; return what is known of the job then."""
    path = cluster.path("jobs", reference, "results")
    job: api.Job = cluster.client.post(path, timeout=None, idempotent=True)
    return job
