"""Jobs that jupyter_slurm does not request again by itself."""

from __future__ import annotations

from typing import Any

from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.errors import UsageError

__all__ = ["UnrepeatableJob"]


class UnrepeatableJob(Job):
    """Job that is requested again only with the line that requested it."""

    def resubmit(self, **options: Any) -> Job:
        """Refuse: the user runs the requesting line again.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(f"{self.title} cannot be resubmitted.", hint="Run its cell again.")
