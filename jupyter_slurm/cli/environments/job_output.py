"""Output of a job that makes something, until its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_slurm.client.jobs.job import Job

__all__ = ["follow_job"]


def follow_job(job: Job) -> int:
    """Print the output of a job until its end; return the exit code of the command."""
    from jupyter_slurm.client.interrupts import WaitInterrupted
    from jupyter_slurm.client.jobs.wait import interrupted
    from jupyter_slurm.client.render.terminal import printable

    print(printable(job.title), flush=True)
    try:
        job._wait(None, check=True, echo=True)
    except WaitInterrupted:
        print(interrupted(job).message, file=sys.stderr)
        return 130
    return 0
