"""Actions on queued jobs: hold, release, requeue, suspend, resume, another time limit."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from jupyter_slurm.client.render.job_card import is_finished
from jupyter_slurm.client.render.staging_card import is_copy_back_abandoned, stage_notes
from jupyter_slurm.errors import JobError, from_problem

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api


if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.client.output.follower import Follower

__all__ = ["JobActionsMixin", "act", "copy_back"]


def act(cluster: Cluster, action: str, jobs: list[str], **more: str) -> list[api.ActOnJobsResponseItem]:
    """Perform an action on several jobs; each has its own answer (``actOnJobs`` of the API)."""
    answers: list[api.ActOnJobsResponseItem] = cluster.client.post(
        cluster.path("acts"), json={"act": action, "jobs": jobs, **more}
    )
    return answers


class JobActionsMixin:
    """Actions of a job in the queue."""

    _cluster: Cluster
    _data: api.Job
    _updated_at: float
    _follower: Follower | None

    if TYPE_CHECKING:

        @property
        def _reference(self) -> str: ...

    def hold(self) -> Self:
        """Prevent the start of the job until :meth:`release`."""
        return self._act("hold")

    def release(self) -> Self:
        """Let a held job start."""
        return self._act("release")

    def requeue(self, *, hold: bool = False) -> Self:
        """End a job and queue it again, to restart from its beginning.

        A finished job can be requeued as long as Slurm knows it. Unsaved work is lost. The output starts again as well,
        unless the job was submitted with ``--open-mode=append``. With ``hold``, it waits until :meth:`release`.
        """
        return self._act("requeuehold" if hold else "requeue")

    def suspend(self) -> Self:
        """Stop the processes of a running job until :meth:`resume`, and give its processors to other jobs.

        Most sites allow this only to operators.

        Raises
        ------
        JobError
            Slurm refused it.
        """
        return self._act("suspend")

    def resume(self) -> Self:
        """Let a suspended job continue."""
        return self._act("resume")

    def limit(self, time_limit: str) -> Self:
        """Change the time limit of a job, in the form of ``--time``: ``"4:00:00"``.

        Of a pending job, partition and QOS set the maximum. Of a running job, the limit can only be shortened.
        """
        return self._act("limit", time_limit=time_limit)

    def bring(self, *, also: Iterable[str] = ()) -> Self:
        """Copy back the results of a finished job from the folders of ``stage=``, and wait for the copy.

        The copy happens automatically. This method is for results whose copy failed, as shown on the job card, and for
        files that programs of this computer would run by themselves.

        Parameters
        ----------
        also : iterable of str
            Paths of such files in the folder, for example ``[".envrc"]``. Look at them on the cluster first.

        Raises
        ------
        JobError
            The copy failed again.
        UsageError
            No folder was staged, the job is not finished, or its results are copied back to another machine.
        """
        self._apply_data(copy_back(self._cluster, self._reference, also))
        if is_copy_back_abandoned(self._data):
            stage = self._data["stage"]
            raise JobError(str(stage and stage["error"]), hint="\n".join(stage_notes(self._data)))
        return self

    def _act(self, action: str, **more: str) -> Self:
        (answer,) = act(self._cluster, action, [self._reference], **more)
        if answer["error"] is not None:
            raise from_problem(answer["error"])
        assert answer["now"] is not None  # without an error, the job is known
        self._apply_data(answer["now"])
        return self

    def _apply_data(self, data: api.Job) -> None:
        """Store the latest answer of the agent."""
        self._data, self._updated_at = data, time.monotonic()
        if self._follower is not None and self._follower.ended.is_set() and not is_finished(data):
            self._follower = None  # the job was requeued: a new follower starts at the beginning
        elif self._follower is not None:
            self._follower.apply_job(data)


def copy_back(cluster: Cluster, reference: str, also: Iterable[str] = ()) -> api.Job:
    """Copy back the results of a job, and wait for the copy; return the API object of the job."""
    path = cluster.path("jobs", reference, "results")
    job: api.Job = cluster.client.post(path, json={"also": list(also)}, timeout=None, idempotent=True)
    return job
