"""Estimated start of a job: the answer of ``--test-only``."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.clusters.slurm_command import retry_when_allowed
from jupyter_slurm.client.jobs.upload import submit_once
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.submit import Submission
from jupyter_slurm.domain.slurm_values import format_duration

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Estimate", "estimate", "estimate_allocation"]

_SOON_S = 60.0  # seconds


class Estimate:
    """Estimated start and place of a job, as far as Slurm knows now. Nothing was submitted.

    Attributes
    ----------
    start : datetime or None
        With the time zone of this machine; None if sbatch answered in another form.
    cpus : int or None
        CPUs that the job would get.
    nodes, partition : str or None
        Place of the job.
    said : str
        The answer of sbatch.
    """

    def __init__(self, data: api.Estimate) -> None:
        start = data.get("start")
        self.start = None if start is None else datetime.datetime.fromtimestamp(start).astimezone()
        self.cpus: int | None = data.get("cpus")
        self.nodes: str | None = data.get("nodes")
        self.partition: str | None = data.get("partition")
        self.message: str = data["said"]
        self._clock_offset = data.get("clock_offset") or 0.0

    def __repr__(self) -> str:
        if self.start is None:
            return printable(f"{self.message}\nNothing was submitted.")
        where = f" on {self.nodes}" + (f", partition {self.partition}" if self.partition else "")
        cpus = f", with {self.cpus} CPU{'' if self.cpus == 1 else 's'}" if self.cpus else ""
        return printable(f"Earliest start: {self._start_text(self.start)}{where}{cpus}. Nothing was submitted.")

    def _start_text(self, start: datetime.datetime) -> str:
        left = start.timestamp() - time.time() - self._clock_offset
        if left < _SOON_S:
            return "now"
        is_today = start.date() == datetime.datetime.now().astimezone().date()
        return start.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M") + f" (in {format_duration(left)})"


def estimate(cluster: Cluster, submission: Submission, **more: Any) -> Estimate:
    """Ask Slurm for the estimated start of a job.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the job.
    submission : Submission
        The submission to estimate.
    **more
        Further fields of the request: the lease of an allocation.

    Raises
    ------
    UsageError, SubmitRefused
        The job could not be submitted.
    WaitInterrupted
        The query was delayed because of many queries before, and interrupted during the delay.
    """
    with submission.body(cluster) as body:
        path, asked = cluster.path("jobs"), {**body, **more, "test_only": True}
        data = retry_when_allowed("sbatch --test-only", lambda: submit_once(cluster, path, asked, logs_in=True))
    return Estimate(data["estimate"])


def estimate_allocation(cluster: Cluster, holder: Submission) -> Estimate:
    """Ask Slurm for the estimated start of an allocation, given its batch job; otherwise as :func:`estimate`."""
    lease = {"seconds": settings().allocation_lease, "once": True, "keep": False}
    return estimate(cluster, holder, lease=lease)
